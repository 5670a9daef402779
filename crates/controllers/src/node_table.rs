//! What controllers keep of nodes.
//!
//! Invariant: one entry for each node, made of its last state; a node that changes in nothing that is kept makes no work.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use pumice_cluster::Change;

/// An entry for each node, by name.
pub(crate) struct NodeTable<T> {
    pub entries: BTreeMap<String, T>,
    /// Whether a complete list was taken in.
    pub is_listed: bool,
}

impl<T> Default for NodeTable<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), is_listed: false }
    }
}

impl<T: PartialEq> NodeTable<T> {
    /// Takes a change in, `entry` made of each node; whether entries came, went or changed.
    pub fn take(&mut self, change: Change<Node>, entry: impl Fn(Node) -> T) -> bool {
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        match change {
            Change::Replace(all) => {
                let all = all.into_iter().map(|node| (name(&node), entry(node))).collect();
                let changed = !self.is_listed || self.entries != all;
                (self.entries, self.is_listed) = (all, true);
                changed
            }
            Change::Applied(node) => {
                let (name, entry) = (name(&node), entry(node));
                let changed = self.entries.get(&name) != Some(&entry);
                self.entries.insert(name, entry);
                changed
            }
            Change::Deleted(node) => self.entries.remove(&name(&node)).is_some(),
        }
    }
}
