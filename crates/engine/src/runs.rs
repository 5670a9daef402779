//! How long pods ran: the last runs of each kind, and what they say of the next.
//!
//! Runs are of one kind where their namespace and their group's `run_profile` are the same; of a kind that never ran, those
//! of the namespace speak. Invariant: a prediction depends on the runs that were noted and their order alone. Noted by
//! the deltas that tell of a pod's end; read by reservations and by expected starts.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ids::NamespaceId;

/// Runs remembered of each kind.
const RUNS_MAX: usize = 16;
/// Kinds remembered; beyond it all are forgotten, and learned again as pods end.
const KINDS_MAX: usize = 1 << 16;

/// The last runs of one kind, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// In the order in which they ended, up to where `next` points round.
    last: SmallVec<[u32; 4]>,
    next: u8,
}

impl Runs {
    fn note(&mut self, run_ms: i64) {
        let run = u32::try_from(run_ms.max(1)).unwrap_or(u32::MAX);
        if self.last.len() < RUNS_MAX {
            self.last.push(run);
            return;
        }
        self.last[usize::from(self.next)] = run;
        self.next = (self.next + 1) % RUNS_MAX as u8;
    }

    /// The part of them, in a thousand, that were no longer than what is answered; of those longer than `over_ms`.
    /// Nothing if there are none.
    pub(crate) fn quantile(&self, per_mille: usize, over_ms: i64) -> Option<i64> {
        let mut longer: SmallVec<[i64; RUNS_MAX]> = self.last.iter().map(|run| i64::from(*run)).collect();
        longer.retain(|run| *run > over_ms);
        longer.sort_unstable();
        let place = (longer.len() * per_mille).div_ceil(1_000).saturating_sub(1);
        longer.get(place).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.last.len()
    }
}

/// All runs that are remembered.
#[derive(Debug, Default)]
pub(crate) struct RunBook {
    of_profile: FxHashMap<(NamespaceId, Arc<str>), Runs>,
    of_namespace: FxHashMap<NamespaceId, Runs>,
}

impl RunBook {
    pub(crate) fn note(&mut self, namespace: NamespaceId, profile: &Arc<str>, run_ms: i64) {
        if self.of_profile.len() >= KINDS_MAX {
            self.of_profile.clear();
        }
        self.of_profile.entry((namespace, profile.clone())).or_default().note(run_ms);
        self.of_namespace.entry(namespace).or_default().note(run_ms);
    }

    /// What speaks for the next run of a kind.
    pub(crate) fn of(&self, namespace: NamespaceId, profile: &Arc<str>) -> Option<&Runs> {
        let kind = self.of_profile.get(&(namespace, profile.clone()));
        kind.or_else(|| self.of_namespace.get(&namespace)).filter(|runs| runs.len() > 0)
    }
}

crate::save::saved! {
    Runs { last, next };
    RunBook { of_profile, of_namespace };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(all: &[i64]) -> Runs {
        let mut runs = Runs::default();
        all.iter().for_each(|run| runs.note(*run));
        runs
    }

    #[test]
    fn quantiles_are_of_the_runs_that_are_longer() {
        let ten = runs(&[100, 20, 30, 90, 50, 60, 70, 80, 40, 10]);
        for (per_mille, over, expected) in
            [(500, 0, Some(50)), (950, 0, Some(100)), (100, 0, Some(10)), (500, 50, Some(80)), (500, 100, None)]
        {
            assert_eq!(ten.quantile(per_mille, over), expected, "{per_mille} of those over {over}");
        }
        assert_eq!(runs(&[]).quantile(500, 0), None);
    }

    #[test]
    fn the_oldest_run_is_forgotten_first() {
        let many: Vec<i64> = (1..=20).collect();
        assert_eq!(runs(&many).quantile(1, 0), Some(5));
        assert_eq!(runs(&[-5, i64::MAX]).quantile(1_000, 0), Some(i64::from(u32::MAX)));
    }

    #[test]
    fn a_kind_that_never_ran_is_taken_for_its_namespace() {
        let (mut book, mine, other) = (RunBook::default(), NamespaceId::from(1), NamespaceId::from(2));
        let (train, test, new): (Arc<str>, Arc<str>, Arc<str>) = ("train".into(), "test".into(), "new".into());
        book.note(mine, &train, 100);
        book.note(mine, &test, 10);
        let last = |namespace, profile| book.of(namespace, profile).and_then(|runs| runs.quantile(1_000, 0));
        assert_eq!(last(mine, &train), Some(100));
        assert_eq!(last(mine, &new), Some(100));
        assert_eq!(last(other, &train), None);
    }
}
