//! How a queue is shared by those who use it: whose turn it is among namespaces, and strict order.

use std::cmp::Ordering;

use super::{Policy, first_decided};
use crate::config::Switch;
use crate::ids::{GroupId, NamespaceId, QueueId};
use crate::world::namespace_shares::Counted;
use crate::world::tables::Tables;

/// A namespace of a queue, and the first of its groups that wait there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamespaceHead {
    pub(crate) namespace: NamespaceId,
    pub(crate) group: GroupId,
}

impl Policy {
    /// Whether the namespaces of the queue share it among themselves. In strict order they don't.
    pub(crate) fn shares_among_namespaces(&self, tables: &Tables, queue: QueueId) -> bool {
        self.fairness.namespaces && !self.is_strict(tables, queue)
    }

    /// Whether nothing of the queue is placed behind the first that does not fit.
    pub(crate) fn is_strict(&self, tables: &Tables, queue: QueueId) -> bool {
        self.fairness.is_strict(&tables.queues.row(queue).annotations)
    }

    /// Which of two namespaces of a queue goes first: the one whose first group outranks the other's, then the one that
    /// holds less, then the one whose first group goes first.
    pub(crate) fn namespace_order(
        &self,
        tables: &Tables,
        queue: QueueId,
        left: NamespaceHead,
        right: NamespaceHead,
        counted: Counted,
    ) -> Ordering {
        first_decided(self.with(Switch::JobOrder).map(|plugin| plugin.job_rank(tables, left.group, right.group)))
            .then_with(|| tables.compare_namespaces(queue, left.namespace, right.namespace, counted))
            .then_with(|| self.job_order(tables, left.group, right.group))
    }
}
