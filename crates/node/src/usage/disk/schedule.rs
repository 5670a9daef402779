//! When each pod's use of the disk is measured again.
//!
//! Rule: a pod with a limit is due 5 s after it was measured, 2 s where the kernel counts, one without 30 s after; a count that is not finished goes on after a
//! rest of twenty times its length. Whoever is due longest comes first. All of it takes a twentieth of one core in the mean: 250 ms
//! of work at once after an idle time, and then a rest of twenty times what was worked. So a pod over its limit is found within ten
//! seconds where a pass over all pods takes 250 ms or less (some 100,000 files), and later beyond that.
//!
//! Invariant: pure; a pod that has ended is never due again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::thresholds::{BY_PROJECT_EVERY, LIMITED_EVERY, REST_OWED_MAX, REST_PER_WORK, UNLIMITED_EVERY};
use crate::pod_index::DiskRules;

/// The pods to measure, by their uids.
pub(super) struct Schedule {
    pods: BTreeMap<String, Turn>,
    /// When all work so far is made up for by rest.
    rested_at: Instant,
}

struct Turn {
    period: Duration,
    /// None once the pod has ended.
    due: Option<Instant>,
}

/// What came of a pod's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was counted, which took so long.
    Counted(Duration),
    /// It was counted so long, and its count goes on.
    Begun(Duration),
    /// Nothing of it runs yet.
    NotRunning,
    Ended,
}

impl Schedule {
    pub(super) fn new(now: Instant) -> Schedule {
        Schedule { pods: BTreeMap::new(), rested_at: now }
    }

    /// Takes the pods of this node, each with the time between two looks. New ones come after their first period.
    pub(super) fn set_pods<'p>(&mut self, pods: impl Iterator<Item = (&'p str, Duration)>, now: Instant) {
        let mut before = std::mem::take(&mut self.pods);
        for (uid, period) in pods {
            let turn = match before.remove(uid) {
                // Taken over from an agent before this one: its limits are known only later.
                Some(Turn { due: Some(due), period: before }) if period < before => {
                    Turn { period, due: Some(due.min(now + period)) }
                }
                Some(turn) => Turn { period, ..turn },
                None => Turn { period, due: Some(now + period) },
            };
            self.pods.insert(uid.to_owned(), turn);
        }
    }

    /// Has all pods measured now, whatever was worked before.
    pub(super) fn all_now(&mut self, now: Instant) {
        self.rested_at = now;
        for turn in self.pods.values_mut().filter(|turn| turn.due.is_some()) {
            turn.due = Some(now);
        }
    }

    /// The pod to measure next, and when.
    pub(super) fn next(&self) -> Option<(&str, Instant)> {
        let due = self.pods.iter().filter_map(|(uid, turn)| Some((uid, turn.due?)));
        let (uid, due) = due.min_by_key(|(_, due)| *due)?;
        Some((uid, due.max(self.rested_at)))
    }

    /// All that are due by now, the longest first.
    pub(super) fn due(&self, now: Instant) -> Vec<String> {
        let mut due: Vec<_> =
            self.pods.iter().filter_map(|(uid, turn)| Some((turn.due.filter(|due| *due <= now)?, uid))).collect();
        due.sort();
        due.into_iter().map(|(_, uid)| uid.clone()).collect()
    }

    /// Takes what came of a turn that ended at `now`.
    pub(super) fn done(&mut self, uid: &str, outcome: Outcome, now: Instant) {
        if let Outcome::Counted(work) | Outcome::Begun(work) = outcome {
            let oldest = now.checked_sub(REST_OWED_MAX).unwrap_or(now);
            self.rested_at = self.rested_at.max(oldest) + work * REST_PER_WORK;
        }
        let Some(turn) = self.pods.get_mut(uid) else { return };
        turn.due = match outcome {
            Outcome::Begun(work) => Some(now + work * REST_PER_WORK),
            Outcome::Counted(_) | Outcome::NotRunning => Some(now + turn.period),
            Outcome::Ended => None,
        };
    }
}

/// Time between two looks at a pod; `projects`: whether this node has them.
pub(super) fn period(rules: DiskRules, projects: bool) -> Duration {
    match (rules.limited, rules.by_project && projects) {
        (true, true) => BY_PROJECT_EVERY,
        (true, false) => LIMITED_EVERY,
        (false, _) => UNLIMITED_EVERY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_clock as clock;

    fn walked(limited: bool) -> Duration {
        period(DiskRules { limited, by_project: true }, false)
    }

    /// Runs a schedule for so many seconds; the work of a turn in milliseconds by uid. Gives the longest time between two
    /// turns of each pod, and the work of all.
    fn run(pods: &[(&str, bool, u64)], seconds: u64) -> (BTreeMap<String, Duration>, Duration) {
        let begin = clock::monotonic();
        let mut now = begin;
        let mut schedule = Schedule::new(now);
        let mut last: BTreeMap<String, Instant> = pods.iter().map(|(uid, ..)| ((*uid).to_owned(), now)).collect();
        let (mut longest, mut worked) = (BTreeMap::<String, Duration>::new(), Duration::ZERO);
        while now < begin + Duration::from_secs(seconds) {
            schedule.set_pods(pods.iter().map(|(uid, limited, _)| (*uid, walked(*limited))), now);
            while let Some((uid, at)) = schedule.next().map(|(uid, at)| (uid.to_owned(), at)) {
                if at > now {
                    break;
                }
                let work = Duration::from_millis(pods.iter().find(|(name, ..)| *name == uid).unwrap().2);
                now += work;
                worked += work;
                let before = last.insert(uid.clone(), now).unwrap();
                let longest = longest.entry(uid.clone()).or_default();
                *longest = (*longest).max(now - before);
                schedule.done(&uid, Outcome::Counted(work), now);
            }
            now += Duration::from_millis(100);
        }
        (longest, worked)
    }

    #[test]
    fn a_pod_with_a_limit_comes_within_ten_seconds_also_beside_many_and_a_large_one() {
        let names: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
        let mut pods: Vec<(&str, bool, u64)> = names.iter().map(|name| (name.as_str(), true, 2)).collect();
        pods.push(("free", false, 2));
        pods.push(("large", true, 120));
        let (longest, worked) = run(&pods, 600);
        for (uid, longest) in &longest {
            let most = if uid == "free" { 40 } else { 10 };
            assert!(*longest <= Duration::from_secs(most), "{uid}: {longest:?}");
        }
        assert!(longest["free"] >= UNLIMITED_EVERY, "{longest:?}");
        assert!(worked <= Duration::from_secs(600) / REST_PER_WORK + Duration::from_secs(1), "{worked:?}");
    }

    #[test]
    fn where_the_kernel_counts_looks_are_more_frequent() {
        let rules = |limited, by_project| DiskRules { limited, by_project };
        assert_eq!(period(rules(true, true), true), BY_PROJECT_EVERY);
        assert_eq!(period(rules(true, false), true), LIMITED_EVERY);
        assert_eq!(period(rules(true, true), false), LIMITED_EVERY);
        assert_eq!(period(rules(false, true), true), UNLIMITED_EVERY);
    }

    #[test]
    fn measuring_takes_a_twentieth_of_a_core_however_much_there_is() {
        let pods = [("a", true, 900), ("b", true, 900), ("c", true, 1)];
        let (longest, worked) = run(&pods, 2000);
        assert!(worked <= Duration::from_secs(101), "{worked:?}");
        assert!(worked >= Duration::from_secs(60), "all of its share is used: {worked:?}");
        assert!(longest["c"] < Duration::from_secs(60), "the small one comes between: {longest:?}");
    }

    #[test]
    fn what_has_ended_is_never_due_and_a_limit_that_is_learned_later_counts() {
        let now = clock::monotonic();
        let mut schedule = Schedule::new(now);
        schedule.set_pods([("a", walked(false)), ("b", walked(true))].into_iter(), now);
        assert_eq!(schedule.next(), Some(("b", now + LIMITED_EVERY)));
        schedule.done("b", Outcome::Ended, now);
        schedule.all_now(now);
        assert_eq!(schedule.due(now), ["a"]);
        schedule.done("a", Outcome::NotRunning, now);
        assert_eq!(schedule.next(), Some(("a", now + UNLIMITED_EVERY)));
        schedule.set_pods([("a", walked(true)), ("b", walked(true))].into_iter(), now);
        assert_eq!(schedule.next(), Some(("a", now + LIMITED_EVERY)));
        schedule.set_pods(std::iter::empty(), now);
        assert_eq!(schedule.next(), None);
    }
}
