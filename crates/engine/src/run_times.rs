//! How long jobs ran: the last runs of each kind, and what they say of the next.
//!
//! Jobs are of one kind where their namespace, their group's `run_profile`, the number of pods that start together and the
//! limit are the same; of a kind that never ran, those of the profile speak, else those of the namespace. A job counts once,
//! however many pods it has, so that one of thousands does not take the place of all before it. Invariant: a prediction
//! depends on the runs that were noted and their order alone. Noted by the deltas that tell of a pod's end; read by
//! reservations and by expected starts.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ids::NamespaceId;

/// Runs remembered of each kind.
const RUNS_MAX: usize = 16;
/// The typical run is the middle of so many of the last: users do now what they did just before.
const TYPICAL_OF: usize = 3;
/// So many jobs have to have run before somebody relies on their being over by a time: of the next one in six is longer than
/// all of them.
const RELIABLE: usize = 5;
/// Kinds remembered; beyond it all are forgotten, and learned again as pods end.
const KINDS_MAX: usize = 1 << 16;

/// How long the pods of one job ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// Tells the job from others; nothing where nobody knows whose it was.
    job: Option<u64>,
    pods: u32,
    /// The mean of its pods, in milliseconds.
    mean: u32,
    /// The longest of them.
    longest: u32,
}

/// The last runs of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// In the order in which their first pods ended, up to where `next` points round.
    last: SmallVec<[Run; 2]>,
    next: u8,
}

impl Runs {
    fn note(&mut self, job: Option<u64>, run_ms: i64) {
        let run = u32::try_from(run_ms.max(1)).unwrap_or(u32::MAX);
        if let Some(known) = self.last.iter_mut().find(|known| job.is_some() && known.job == job) {
            known.pods = known.pods.saturating_add(1);
            let apart = (i64::from(run) - i64::from(known.mean)) / i64::from(known.pods);
            known.mean = u32::try_from(i64::from(known.mean) + apart).unwrap_or(run);
            known.longest = known.longest.max(run);
            return;
        }
        let new = Run { job, pods: 1, mean: run, longest: run };
        if self.last.len() < RUNS_MAX {
            self.last.push(new);
            return;
        }
        self.last[usize::from(self.next)] = new;
        self.next = (self.next + 1) % RUNS_MAX as u8;
    }

    fn newest(&self) -> impl Iterator<Item = &Run> {
        let (newer, older) = self.last.split_at(usize::from(self.next));
        newer.iter().rev().chain(older.iter().rev())
    }

    /// How long the next is expected to run, if it has run for `over_ms` already: the middle of the last that ran longer.
    /// Nothing if none did.
    pub(crate) fn typical(&self, over_ms: i64) -> Option<i64> {
        let means = self.newest().map(|run| i64::from(run.mean)).filter(|mean| *mean > over_ms);
        let mut last: SmallVec<[i64; TYPICAL_OF]> = means.take(TYPICAL_OF).collect();
        last.sort_unstable();
        last.get(last.len().saturating_sub(1) / 2).copied()
    }

    /// How long the shortest ran of those that ran longer than this. Nothing if none did.
    pub(crate) fn shortest(&self, over_ms: i64) -> Option<i64> {
        self.last.iter().map(|run| i64::from(run.mean)).filter(|mean| *mean > over_ms).min()
    }

    /// So many in a thousand were over when it was past. Nothing if there are none.
    pub(crate) fn quantile(&self, per_mille: usize) -> Option<i64> {
        let mut all: SmallVec<[i64; RUNS_MAX]> = self.last.iter().map(|run| i64::from(run.longest)).collect();
        all.sort_unstable();
        let place = (all.len() * per_mille).div_ceil(1_000).saturating_sub(1);
        all.get(place).copied()
    }
}

/// What runs are remembered under.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Kind {
    pub(crate) namespace: NamespaceId,
    pub(crate) profile: Arc<str>,
    /// Pods that start together.
    pub(crate) together: u32,
    pub(crate) limit_ms: Option<i64>,
}

/// All runs that are remembered.
#[derive(Debug, Default)]
pub(crate) struct RunTimes {
    of_kind: FxHashMap<Kind, Runs>,
    of_profile: FxHashMap<(NamespaceId, Arc<str>), Runs>,
    of_namespace: FxHashMap<NamespaceId, Runs>,
}

impl RunTimes {
    /// A pod of a job has ended. `job` is the same for all pods of one, and another for every other.
    pub(crate) fn note(&mut self, kind: &Kind, job: u64, run_ms: i64) {
        if self.of_kind.len() >= KINDS_MAX {
            self.of_kind.clear();
        }
        self.of_kind.entry(kind.clone()).or_default().note(Some(job), run_ms);
        self.note_of_profile(kind.namespace, &kind.profile, Some(job), run_ms);
    }

    /// A job ran so long before this world began: more is not known of it.
    pub(crate) fn learn(&mut self, namespace: NamespaceId, profile: &Arc<str>, run_ms: i64) {
        self.note_of_profile(namespace, profile, None, run_ms);
    }

    fn note_of_profile(&mut self, namespace: NamespaceId, profile: &Arc<str>, job: Option<u64>, run_ms: i64) {
        if self.of_profile.len() >= KINDS_MAX {
            self.of_profile.clear();
        }
        self.of_profile.entry((namespace, profile.clone())).or_default().note(job, run_ms);
        self.of_namespace.entry(namespace).or_default().note(job, run_ms);
    }

    /// Whether anything speaks for runs in a namespace.
    pub(crate) fn knows(&self, namespace: NamespaceId) -> bool {
        self.of_namespace.contains_key(&namespace)
    }

    /// What speaks for the next run of a kind. A limit goes before what is not known well: a few runs, or those of others.
    pub(crate) fn of(&self, kind: &Kind) -> Option<&Runs> {
        if kind.limit_ms.is_some() {
            return self.reliable(kind);
        }
        self.of_own(kind).or_else(|| self.of_namespace.get(&kind.namespace))
    }

    /// The runs of a kind, or of its profile, if they are enough to rely on.
    pub(crate) fn reliable(&self, kind: &Kind) -> Option<&Runs> {
        let is_enough = |runs: &&Runs| runs.last.len() >= RELIABLE;
        self.of_kind.get(kind).filter(is_enough).or_else(|| self.alike(kind).filter(is_enough))
    }

    /// The runs of a kind, or of its profile, however few.
    pub(crate) fn of_own(&self, kind: &Kind) -> Option<&Runs> {
        self.of_kind.get(kind).or_else(|| self.alike(kind))
    }

    fn alike(&self, kind: &Kind) -> Option<&Runs> {
        self.of_profile.get(&(kind.namespace, kind.profile.clone()))
    }
}

crate::save::saved! {
    Run { job, pods, mean, longest };
    Runs { last, next };
    Kind { namespace, profile, together, limit_ms };
    RunTimes as "RunBook" { of_kind, of_profile, of_namespace };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(all: &[i64]) -> Runs {
        let mut runs = Runs::default();
        all.iter().zip(0..).for_each(|(run, job)| runs.note(Some(job), *run));
        runs
    }

    #[test]
    fn quantiles_are_of_all_that_is_remembered() {
        let ten = runs(&[100, 20, 30, 90, 50, 60, 70, 80, 40, 10]);
        for (per_mille, expected) in [(500, 50), (950, 100), (100, 10), (1_000, 100)] {
            assert_eq!(ten.quantile(per_mille), Some(expected), "{per_mille}");
        }
        assert_eq!(runs(&[]).quantile(500), None);
    }

    #[test]
    fn the_typical_run_is_the_middle_of_the_last_that_were_longer() {
        let many = runs(&[9_000, 8_000, 100, 20, 30]);
        for (over, expected) in
            [(0, Some(30)), (20, Some(100)), (30, Some(8_000)), (100, Some(8_000)), (8_000, Some(9_000)), (9_000, None)]
        {
            assert_eq!(many.typical(over), expected, "of those over {over}");
        }
        assert_eq!(runs(&[7]).typical(0), Some(7));
        assert_eq!(runs(&[7, 5]).typical(0), Some(5), "the shorter of two");
    }

    #[test]
    fn the_oldest_run_is_forgotten_first() {
        let many = runs(&(1..=20).collect::<Vec<i64>>());
        assert_eq!((many.quantile(1), many.typical(0)), (Some(5), Some(19)));
        assert_eq!(runs(&[-5, i64::MAX]).quantile(1_000), Some(i64::from(u32::MAX)));
    }

    #[test]
    fn a_job_counts_once_however_many_pods_it_has() {
        let mut runs = runs(&[100, 200]);
        (0..1_000).for_each(|pod| runs.note(Some(7), 1_000 + pod % 3));
        assert_eq!(runs.last.len(), 3);
        assert_eq!((runs.typical(0), runs.quantile(950)), (Some(200), Some(1_002)));
        // Of runs that nobody can tell apart each is one.
        (0..2).for_each(|_| runs.note(None, 5));
        assert_eq!((runs.last.len(), runs.typical(0)), (5, Some(5)));
    }

    #[test]
    fn a_kind_that_never_ran_is_taken_for_its_profile_and_then_for_its_namespace() {
        let (mut book, mine, other) = (RunTimes::default(), NamespaceId::from(1), NamespaceId::from(2));
        let kind = |namespace, profile: &str, together, limit| Kind {
            namespace,
            profile: profile.into(),
            together,
            limit_ms: limit,
        };
        book.note(&kind(mine, "train", 8, None), 1, 50);
        book.note(&kind(mine, "train", 1, None), 2, 10);
        book.learn(mine, &"test".into(), 3);
        let typical = |namespace, profile: &str, together| {
            book.of(&kind(namespace, profile, together, None)).and_then(|runs| runs.typical(0))
        };
        assert_eq!(typical(mine, "train", 8), Some(50));
        assert_eq!(typical(mine, "train", 1), Some(10));
        assert_eq!(typical(mine, "train", 4), Some(10), "the profile's");
        assert_eq!(typical(mine, "test", 8), Some(3));
        assert_eq!(typical(mine, "new", 8), Some(10), "the middle of the namespace's");
        assert_eq!(typical(other, "train", 8), None);
    }

    #[test]
    fn what_has_a_limit_is_judged_by_enough_runs_of_its_own_kind_only() {
        let (mut book, mine) = (RunTimes::default(), NamespaceId::from(1));
        let kind =
            |profile: &str, together| Kind { namespace: mine, profile: profile.into(), together, limit_ms: Some(60) };
        let typical = |book: &RunTimes, profile: &str, together| {
            book.of(&kind(profile, together)).and_then(|runs| runs.typical(0))
        };
        (0..4).for_each(|job| book.note(&kind("train", 8), job, 50));
        assert_eq!(typical(&book, "train", 8), None, "four are too few");
        book.note(&kind("train", 1), 4, 10);
        assert_eq!(typical(&book, "train", 8), Some(50), "five of its profile");
        assert_eq!(typical(&book, "other", 8), None, "whatever others of the namespace did");
    }
}
