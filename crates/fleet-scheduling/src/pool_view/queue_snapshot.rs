//! What a look at a queue found, and how that differs from the look before it.

use pumice_ledger::{Job, JobId, Ledger};
use rustc_hash::{FxHashMap, FxHashSet};

/// A job that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitingJob {
    /// Whether it is in no gang.
    pub is_single: bool,
    /// Its pods, where it is a Volcano job.
    pub volcano_pods: Option<u32>,
}

impl WaitingJob {
    pub(crate) fn of(ledger: &Ledger, job: &Job) -> Self {
        let volcano_pods = ledger.shape(job).volcano_job.as_ref().map(pumice_ledger::VolcanoJob::pods);
        Self { is_single: ledger.gang(job).is_none(), volcano_pods }
    }

    pub(crate) fn pods(self) -> usize {
        self.volcano_pods.map_or(1, |pods| pods as usize)
    }

    /// Whether its place in its queue alone says whether it is looked at. A job stays what it is in this.
    pub(crate) fn is_plain(self) -> bool {
        self.is_single && self.volcano_pods.is_none()
    }
}

/// Who of a queue waits for a node, as far as rounds look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueSnapshot {
    /// The queue's version then.
    pub version: u64,
    /// Whether all are single jobs of one pod: then they are the same as long as the version is.
    pub is_plain: bool,
    /// Each once, in the order of their turns.
    pub jobs: Vec<JobId>,
}

/// Who is in one look and not in the other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SnapshotDiff {
    /// In the order of their turns.
    pub came: Vec<JobId>,
    /// In no order.
    pub gone: Vec<JobId>,
}

impl QueueSnapshot {
    /// From the look before, whose jobs are those of the queue in `known`. Most are in both, in the same order: they are only
    /// compared. O(both).
    pub(crate) fn differs<V>(&self, before: &QueueSnapshot, known: &FxHashMap<JobId, V>) -> SnapshotDiff {
        let (mut came, mut left, mut moved) = (Vec::new(), Vec::new(), FxHashSet::default());
        let mut before = before.jobs.iter().copied().peekable();
        for id in self.jobs.iter().copied() {
            if before.next_if_eq(&id).is_some() {
                continue;
            }
            if !known.contains_key(&id) {
                came.push(id);
                continue;
            }
            // It is further back there, or was passed over.
            let mut is_found = false;
            for other in before.by_ref() {
                if other == id {
                    is_found = true;
                    break;
                }
                left.push(other);
            }
            if !is_found {
                moved.insert(id);
            }
        }
        left.extend(before);
        left.retain(|id| !moved.contains(id));
        SnapshotDiff { came, gone: left }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn look(jobs: &[u128]) -> QueueSnapshot {
        QueueSnapshot { jobs: jobs.iter().copied().map(JobId).collect(), ..QueueSnapshot::default() }
    }

    proptest! {
        /// Whatever their orders are.
        #[test]
        fn two_looks_differ_as_sets_do(
            before in proptest::collection::hash_set(0_u128..40, 0..30),
            now in proptest::collection::hash_set(0_u128..40, 0..30),
            is_sorted in any::<bool>(),
        ) {
            let list = |set: &std::collections::HashSet<u128>| {
                let mut list: Vec<u128> = set.iter().copied().collect();
                if is_sorted {
                    list.sort_unstable();
                }
                look(&list)
            };
            let (was, is) = (list(&before), list(&now));
            let known: FxHashMap<JobId, ()> = was.jobs.iter().map(|id| (*id, ())).collect();
            let SnapshotDiff { came, mut gone } = is.differs(&was, &known);
            gone.sort_unstable();
            let mut wanted: Vec<JobId> = before.difference(&now).copied().map(JobId).collect();
            wanted.sort_unstable();
            prop_assert_eq!(gone, wanted);
            let wanted: Vec<JobId> = is.jobs.iter().copied().filter(|id| !before.contains(&id.0)).collect();
            prop_assert_eq!(came, wanted);
        }
    }

    #[test]
    fn what_stays_is_no_difference() {
        let was = look(&[1, 2, 3, 4, 5]);
        let known: FxHashMap<JobId, ()> = was.jobs.iter().map(|id| (*id, ())).collect();
        let differs = look(&[5, 2, 9, 4]).differs(&was, &known);
        let ids = |jobs: Vec<JobId>| jobs.into_iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!((ids(differs.came), ids(differs.gone)), (vec![9], vec![1, 3]));
    }
}
