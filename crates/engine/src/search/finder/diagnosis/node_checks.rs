//! What the facts of each node say to one class: one byte a node, brought up to date from the log of changed facts.
//!
//! Invariant: after `repair` the counts are those of a scan of all nodes.

use std::collections::BTreeMap;

use super::Counts;
use crate::cluster::classes::ClassRow;
use crate::ids::NodeId;
use crate::policy::Policy;
use crate::reasons::Check;
use crate::world::tables::Tables;

/// The node is allowed.
const ALLOWED: u8 = 0;
/// There is no such node.
const NO_NODE: u8 = 1;
/// The node is refused; of the kinds that have no number of their own.
const OTHER: u8 = 2;
/// The first number of a kind.
const FIRST: u8 = 3;

#[derive(Debug, Default)]
pub(super) struct NodeChecks {
    /// How far the log of changed facts has been read.
    seen: Option<u64>,
    of_nodes: Vec<u8>,
    /// What refused nodes say, each with how many say it. The numbers of those that nobody says are given out again.
    kinds: Vec<((Check, String), u32)>,
    others: BTreeMap<NodeId, (Check, String)>,
}

impl NodeChecks {
    /// Memory of what grows with the cluster, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.of_nodes.len()
    }

    /// Takes in what has changed; true if other nodes are allowed than before. O(changed nodes).
    pub(super) fn repair(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow) -> bool {
        let log = &tables.nodes.facts_log;
        let span = tables.nodes.table.span();
        self.of_nodes.resize(span, NO_NODE);
        let mut others = false;
        match self.seen.and_then(|seen| log.since(seen)) {
            Some(changed) => changed.iter().for_each(|node| others |= self.judge(tables, policy, class, *node)),
            None => (0..span).for_each(|node| others |= self.judge(tables, policy, class, node.into())),
        }
        self.seen = Some(log.end());
        others
    }

    pub(super) fn allow(&self, node: NodeId) -> bool {
        self.of_nodes.get(node.index()) == Some(&ALLOWED)
    }

    /// Nodes whose facts allow the class.
    pub(super) fn allowed(&self) -> impl Iterator<Item = NodeId> {
        let allowed = self.of_nodes.iter().enumerate().filter(|(_, verdict)| **verdict == ALLOWED);
        allowed.map(|(node, _)| NodeId::from(node))
    }

    /// What the others say, and how many.
    pub(super) fn counts(&self) -> Counts {
        let kinds = self.kinds.iter().filter(|(_, nodes)| *nodes > 0);
        let mut counts: Counts = kinds.cloned().collect();
        for kind in self.others.values() {
            *counts.entry(kind.clone()).or_default() += 1;
        }
        counts
    }

    /// True if the node is allowed and was not, or the other way round.
    fn judge(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow, node: NodeId) -> bool {
        let before = self.of_nodes[node.index()];
        match before {
            ALLOWED | NO_NODE => {}
            OTHER => drop(self.others.remove(&node)),
            kind => self.kinds[usize::from(kind - FIRST)].1 -= 1,
        }
        let known = tables.nodes.table.get(node.index()).is_some_and(|row| row.known);
        let now = if !known {
            NO_NODE
        } else if let Some(check) = policy.check_facts(tables, class, node) {
            self.refuse(node, (check, policy.detail(tables, check, class, node)))
        } else {
            ALLOWED
        };
        self.of_nodes[node.index()] = now;
        (before == ALLOWED) != (now == ALLOWED)
    }

    fn refuse(&mut self, node: NodeId, kind: (Check, String)) -> u8 {
        let numbers = usize::from(u8::MAX - FIRST);
        let known = self.kinds.iter().position(|(known, nodes)| *nodes > 0 && *known == kind);
        let unused = || self.kinds.iter().position(|(_, nodes)| *nodes == 0);
        let place = known.or_else(unused).unwrap_or(self.kinds.len());
        let number = match u8::try_from(place) {
            Ok(number) if place < numbers => number,
            _ => {
                self.others.insert(node, kind);
                return OTHER;
            }
        };
        match self.kinds.get_mut(place) {
            Some((_, nodes)) if known.is_some() => *nodes += 1,
            Some(slot) => *slot = (kind, 1),
            None => self.kinds.push((kind, 1)),
        }
        FIRST + number
    }
}
