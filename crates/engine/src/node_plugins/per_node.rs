//! What a plugin derives from a node and what runs there, repaired from the log of changes.
//!
//! Invariant: after `repair` every entry is what deriving it from the tables as they stand would give. O(nodes that
//! changed since the last repair). Used by the plugins that keep books per node.

use crate::ids::NodeId;
use crate::world::tables::Tables;

#[derive(Debug)]
pub(super) struct PerNode<T> {
    seen: Option<u64>,
    /// To be derived again although nothing moved there.
    stale: Vec<NodeId>,
    entries: Vec<T>,
}

impl<T> Default for PerNode<T> {
    fn default() -> Self {
        Self { seen: None, stale: Vec::new(), entries: Vec::new() }
    }
}

impl<T: Default> PerNode<T> {
    /// What is known of a node; nothing before the first repair.
    pub(super) fn get(&self, node: NodeId) -> Option<&T> {
        self.entries.get(node.index())
    }

    /// What the plugin itself knows of the node has changed: it is derived again with the next repair.
    pub(super) fn renew(&mut self, node: NodeId) {
        self.stale.push(node);
    }

    /// Derives the entries of nodes that changed; `derive` gets the old entry to replace.
    pub(super) fn repair(&mut self, tables: &Tables, mut derive: impl FnMut(NodeId, &mut T)) {
        let log = &tables.nodes.use_log;
        let span = tables.nodes.table.span();
        self.entries.resize_with(span.max(self.entries.len()), T::default);
        for node in std::mem::take(&mut self.stale) {
            derive(node, &mut self.entries[node.index()]);
        }
        match self.seen.and_then(|seen| log.since(seen)) {
            Some(changed) => changed.iter().for_each(|node| derive(*node, &mut self.entries[node.index()])),
            None => (0..span).for_each(|node| derive(node.into(), &mut self.entries[node])),
        }
        self.seen = Some(log.end());
    }
}
