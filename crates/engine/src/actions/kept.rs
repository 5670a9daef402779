//! Nodes where nothing leaves for any pod of another queue: found out once for all queues that reclaim.
//!
//! Invariant: a node is forgotten when it changes, and when the evictions are taken back after which it was found so.
//! Nothing that a queue gets by reclaiming makes what it has already free to leave: that is counted apart until it runs.
//! Used by `prospects`.

use fixedbitset::FixedBitSet;

use crate::ids::NodeId;
use crate::world::nodes::Nodes;

#[derive(Debug, Default)]
pub(super) struct Kept {
    nodes: FixedBitSet,
    /// Found since the statement took room: not known for good.
    doubtful: Vec<NodeId>,
    /// How far the log of changes has been read.
    seen: Option<u64>,
}

impl Kept {
    /// Forgets what has changed.
    pub(super) fn refresh(&mut self, nodes: &Nodes) {
        self.nodes.grow(nodes.table.span());
        match self.seen.and_then(|seen| nodes.use_log.since(seen)) {
            Some(changed) => {
                changed.iter().for_each(|node| self.nodes.set(node.index(), false));
                self.doubtful.retain(|node| !changed.contains(node));
            }
            None => {
                self.nodes.clear();
                self.doubtful.clear();
            }
        }
        self.skip(nodes);
    }

    /// What was logged until now has been taken back.
    pub(super) fn skip(&mut self, nodes: &Nodes) {
        self.seen = Some(nodes.use_log.end());
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains(node.index())
    }

    /// One more; `doubtful` where that may be due to evictions that are not decided yet.
    pub(super) fn add(&mut self, node: NodeId, doubtful: bool) {
        if doubtful {
            self.doubtful.push(node);
        } else {
            self.nodes.insert(node.index());
        }
    }

    /// The evictions are decided.
    pub(super) fn committed(&mut self) {
        self.nodes.extend(self.doubtful.drain(..).map(NodeId::index));
    }

    /// The evictions are taken back.
    pub(super) fn discarded(&mut self) {
        self.doubtful.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> (Nodes, [NodeId; 2]) {
        let mut nodes = Nodes::new();
        let ids = ["a", "b"].map(|name| nodes.intern(name, 3));
        (nodes, ids)
    }

    #[test]
    fn a_node_that_changes_is_forgotten() {
        for doubtful in [false, true] {
            let (mut nodes, [a, b]) = nodes();
            let mut kept = Kept::default();
            kept.refresh(&nodes);
            kept.add(a, doubtful);
            kept.add(b, doubtful);
            nodes.note_use(a);
            kept.refresh(&nodes);
            kept.committed();
            assert_eq!([a, b].map(|node| kept.contains(node)), [false, true]);
            nodes.note_use(b);
            kept.skip(&nodes);
            kept.refresh(&nodes);
            assert!(kept.contains(b), "a change that was taken back is none");
        }
    }

    #[test]
    fn what_evictions_made_so_goes_with_them() {
        for (decided, expected) in [(true, [true, true]), (false, [true, false])] {
            let (nodes, [a, b]) = nodes();
            let mut kept = Kept::default();
            kept.refresh(&nodes);
            kept.add(a, false);
            kept.add(b, true);
            assert_eq!([a, b].map(|node| kept.contains(node)), [true, false]);
            if decided {
                kept.committed()
            } else {
                kept.discarded()
            }
            kept.committed();
            assert_eq!([a, b].map(|node| kept.contains(node)), expected);
        }
    }
}
