//! Evictions between the decision and the end of the pod: what the cluster still shows is not what counts.

use crate::facts::PodFacts;
use crate::ids::{TaskId, TimeMs};
use crate::world::tables::Tables;
use crate::world::tasks::{Evicting, TaskState};

/// A pod that could not be told to leave is let alone for so long.
const ALONE_MS: i64 = 10_000;

impl Tables {
    /// A new version of a pod that we are evicting: it counts as leaving until it is gone, whatever it shows.
    pub(crate) fn still_evicting(&self, old: Option<TaskId>, facts: &PodFacts, told: TaskState) -> Option<Evicting> {
        let mut evicting = self.task(old?).evicting.as_deref()?.clone();
        match told {
            TaskState::Bound | TaskState::Running => evicting.was = told,
            TaskState::Releasing => evicting.confirmed = true,
            _ => return None,
        }
        evicting.confirmed |= facts.terminating;
        Some(evicting)
    }

    /// The answer to an eviction: a pod that could not be told to leave stays what it was, and the nominations of the group
    /// that was to have its room fall.
    pub(crate) fn evict_result(&mut self, uid: &str, result: Result<(), &str>, now: TimeMs) {
        let (Some(task), Err(_)) = (self.tasks.find(uid), result) else { return };
        let row = self.tasks.row_mut(task.index());
        if row.state != TaskState::Releasing || row.evicting.as_ref().is_none_or(|evicting| evicting.confirmed) {
            return;
        }
        let Some(evicting) = row.evicting.take() else { return };
        self.eviction_refused(uid);
        let row = self.tasks.row_mut(task.index());
        row.spared_until = now.plus_ms(ALONE_MS);
        let node = row.node;
        self.evicting.remove(&task);
        self.move_task(task, evicting.was, node);
        if let Some(group) = evicting.beneficiary.and_then(|key| self.groups.table.find(&key)) {
            let is_nominated = |task: &TaskId| self.task(*task).state == TaskState::Pipelined;
            let nominated: Vec<TaskId> = self.groups.row(group).tasks.iter().copied().filter(is_nominated).collect();
            for nomination in nominated {
                let node = self.task(nomination).node;
                self.move_task(nomination, TaskState::Pending, None);
                if let Some(node) = node {
                    self.nodes.release(node);
                }
            }
        }
    }
}
