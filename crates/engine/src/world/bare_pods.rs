//! The queue of a pod alone, for which no PodGroup is there.
//!
//! Invariant: it is the one that its PodGroup will get from admission: what the pod names, but the queue of its namespace, if that
//! has one, in place of the default queue. Called by `apply`, and at the start of each cycle.

use std::sync::Arc;

use crate::facts::PodFacts;
use crate::ids::GroupId;
use crate::world::groups::GroupRow;
use crate::world::tables::Tables;

impl Tables {
    /// The queue that it names, where that is not the default one; else its namespace decides.
    pub(crate) fn own_queue<'f>(&self, facts: &'f PodFacts) -> Option<&'f str> {
        facts.queue.as_deref().filter(|queue| !queue.is_empty() && **queue != *self.default_queue)
    }

    pub(crate) fn queue_of_namespace(&self, namespace: &str) -> Option<Arc<str>> {
        self.objects.namespaces.all.get(namespace)?.queue.clone()
    }

    /// Brings such pods to the queues that their namespaces have now. O(groups) if any has another one than before.
    pub(crate) fn refresh_inherited_queues(&mut self) {
        if !std::mem::take(&mut self.queues_to_inherit) {
            return;
        }
        let inherits = |row: &GroupRow| row.of_one && !row.known && row.inherits_queue;
        let groups = self.groups.table.iter().filter(|(_, row)| inherits(row));
        let groups: Vec<(GroupId, Arc<str>)> = groups.map(|(group, row)| (group, row.namespace.clone())).collect();
        for (group, namespace) in groups {
            let queue = self.queue_of_namespace(&namespace);
            self.set_queue(group, queue.as_deref());
            self.groups.refresh(group);
        }
    }
}
