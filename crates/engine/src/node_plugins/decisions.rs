//! What a plugin chose for a pod beside its node (cards, cpus), kept from the moment the pod is given room until the
//! cluster itself shows it. By uid: ids of tasks are given out again.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ids::NodeId;
use crate::world::tables::Tables;
use crate::world::tasks::TaskRow;

#[derive(Debug)]
pub(super) struct Decisions<T> {
    by_uid: FxHashMap<Arc<str>, T>,
}

impl<T> Default for Decisions<T> {
    fn default() -> Self {
        Self { by_uid: FxHashMap::default() }
    }
}

impl<T> Decisions<(NodeId, T)> {
    /// Takes the decision made for another node than the one that the pod is on now, and gives that node.
    pub(super) fn take_misplaced(&mut self, task: &TaskRow, node: Option<NodeId>) -> Option<NodeId> {
        self.get(task).filter(|(at, _)| Some(*at) != node)?;
        self.take(task).map(|(at, _)| at)
    }
}

impl<T> Decisions<T> {
    pub(super) fn get(&self, task: &TaskRow) -> Option<&T> {
        self.by_uid.get(&task.uid)
    }

    pub(super) fn keep(&mut self, task: &TaskRow, decision: T) {
        self.by_uid.insert(task.uid.clone(), decision);
    }

    pub(super) fn take(&mut self, task: &TaskRow) -> Option<T> {
        self.by_uid.remove(&task.uid)
    }

    /// Forgets pods that hold no node any more, and those that `shown` says the cluster shows. O(decisions).
    pub(super) fn prune(&mut self, tables: &Tables, shown: impl Fn(&TaskRow) -> bool) {
        self.by_uid.retain(|uid, _| {
            let task = tables.tasks.find(uid).map(|task| tables.task(task));
            task.is_some_and(|task| task.state.holds_node() && !shown(task))
        });
    }
}
