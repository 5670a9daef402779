//! Topology keys: for each, the domain of every node, as a column.
//!
//! Invariant: a node that is not there, or lacks the label, is in no domain (`NONE`); the number of a domain that has
//! no nodes left is given out again.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cluster::nodes::NodeRow;
use crate::ids::NodeId;

/// The domain of nodes that are in none.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct KeyColumn {
    /// The domain, per node.
    pub(crate) domain_of: Vec<u32>,
    numbers: FxHashMap<Arc<str>, u32>,
    /// Name and number of nodes, per domain.
    domains: Vec<(Arc<str>, u32)>,
    free: Vec<u32>,
}

impl KeyColumn {
    pub(crate) fn domain(&self, node: NodeId) -> u32 {
        self.domain_of.get(node.index()).copied().unwrap_or(NONE)
    }

    /// One more than the greatest number of a domain.
    pub(crate) fn span(&self) -> usize {
        self.domains.len()
    }

    /// Whether `set_node` would change the node's domain.
    pub(crate) fn would_move(&self, key: &str, node: NodeId, row: Option<&NodeRow>) -> bool {
        let old = self.domain(node);
        match value(key, row) {
            None => old != NONE,
            Some(value) => old == NONE || *self.domains[old as usize].0 != *value,
        }
    }

    /// Puts the node where its labels say.
    pub(crate) fn set_node(&mut self, key: &str, node: NodeId, row: Option<&NodeRow>) {
        if self.domain_of.len() <= node.index() {
            self.domain_of.resize(node.index() + 1, NONE);
        }
        let new = value(key, row).map_or(NONE, |value| self.enter(value));
        let old = std::mem::replace(&mut self.domain_of[node.index()], new);
        if old != NONE {
            self.leave(old);
        }
    }

    fn enter(&mut self, value: &str) -> u32 {
        if let Some(number) = self.numbers.get(value).copied() {
            self.domains[number as usize].1 += 1;
            return number;
        }
        let name: Arc<str> = value.into();
        let number = self.free.pop().unwrap_or_else(|| {
            self.domains.push((name.clone(), 0));
            u32::try_from(self.domains.len() - 1).expect("fewer domains than nodes")
        });
        self.domains[number as usize] = (name.clone(), 1);
        self.numbers.insert(name, number);
        number
    }

    fn leave(&mut self, domain: u32) {
        let (name, nodes) = &mut self.domains[domain as usize];
        *nodes -= 1;
        if *nodes == 0 {
            self.numbers.remove(name);
            self.free.push(domain);
        }
    }
}

fn value<'a>(key: &str, row: Option<&'a NodeRow>) -> Option<&'a str> {
    row.filter(|row| row.known)?.labels.get(key).map(String::as_str)
}

crate::save::saved! {
    KeyColumn { domain_of, numbers, domains, free };
}
