//! Groups in the order in which they get their turn: queues by queue order, in each its groups by job order.
//! Only the group whose turn it is changes its standing, so an insertion by binary search keeps the order.

use std::collections::BTreeMap;

use crate::ids::{GroupId, QueueId};
use crate::policy::Policy;
use crate::world::tables::Tables;

pub(super) struct Worklist {
    /// First queue last.
    queues: Vec<QueueId>,
    /// First group last.
    groups: BTreeMap<QueueId, Vec<GroupId>>,
}

impl Worklist {
    pub(super) fn new(tables: &Tables, policy: &Policy, groups: Vec<GroupId>) -> Self {
        let mut by_queue: BTreeMap<QueueId, Vec<GroupId>> = BTreeMap::new();
        for group in groups {
            by_queue.entry(tables.groups.row(group).queue).or_default().push(group);
        }
        for groups in by_queue.values_mut() {
            groups.sort_by(|left, right| policy.job_order(tables, *right, *left));
        }
        let mut queues: Vec<QueueId> = by_queue.keys().copied().collect();
        queues.sort_by(|left, right| policy.queue_order(tables, *right, *left));
        Self { queues, groups: by_queue }
    }

    /// The group whose turn it is.
    pub(super) fn pop(&mut self) -> Option<GroupId> {
        while let Some(queue) = self.queues.last() {
            if let Some(group) = self.groups.get_mut(queue).and_then(Vec::pop) {
                return Some(group);
            }
            self.queues.pop();
        }
        None
    }

    /// Puts the group popped last back in its place, and its queue.
    pub(super) fn push(&mut self, tables: &Tables, policy: &Policy, group: GroupId) {
        let queue = tables.groups.row(group).queue;
        let groups = self.groups.entry(queue).or_default();
        let at = groups.partition_point(|other| policy.job_order(tables, *other, group).is_gt());
        groups.insert(at, group);
        if policy.reorders_queues() {
            self.queues.sort_by(|left, right| policy.queue_order(tables, *right, *left));
            return;
        }
        self.queues.retain(|other| *other != queue);
        let at = self.queues.partition_point(|other| policy.queue_order(tables, *other, queue).is_gt());
        self.queues.insert(at, queue);
    }
}
