//! Whether accelerators, such as GPUs, that are free lie scattered: a whole node's worth of them in all, and no whole node.
//!
//! Pure: whoever asks hands nodes and pods in.

use std::collections::BTreeMap;
use std::fmt;

use pumice_api::names::ACCELERATORS;
use serde::Serialize;
use serde_json::Value;

/// Accelerators by name.
type Amounts = BTreeMap<&'static str, u64>;

/// What nodes have of accelerators, and what pods hold of it.
#[derive(Debug, Default)]
pub struct Accelerators {
    /// By node: only nodes that have some.
    there: BTreeMap<String, Amounts>,
    /// By node.
    allocated: BTreeMap<String, Amounts>,
}

/// Free accelerators that a pod which asks for all of a node can't have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scattered {
    /// Which, as in `nvidia.com/gpu`.
    pub resource: String,
    /// How many are free.
    pub free: u64,
    /// On how many nodes.
    pub nodes: u64,
    /// How many are free on the node with most of them.
    pub most: u64,
    /// How many the largest of these nodes has.
    pub whole: u64,
}

impl Accelerators {
    /// A node that takes pods, with what it offers.
    pub fn node(&mut self, name: &str, allocatable: &BTreeMap<String, Value>) {
        let amounts = amounts(allocatable);
        if !amounts.is_empty() {
            self.there.insert(name.to_owned(), amounts);
        }
    }

    /// A container on a node, with what it asks for.
    pub fn container(&mut self, node: &str, requests: &BTreeMap<String, Value>) {
        for (name, amount) in amounts(requests) {
            *self.allocated.entry(node.to_owned()).or_default().entry(name).or_default() += amount;
        }
    }

    /// Resources of which a whole node's number is free, but on no single node.
    pub fn scattered(&self) -> Vec<Scattered> {
        ACCELERATORS.iter().filter_map(|name| self.of(name)).collect()
    }

    fn of(&self, name: &str) -> Option<Scattered> {
        let allocated =
            |node: &String| self.allocated.get(node).and_then(|allocated| allocated.get(name)).copied().unwrap_or(0);
        let nodes = self.there.iter().filter_map(|(node, there)| Some((*there.get(name)?, allocated(node))));
        let mut found = Scattered { resource: name.to_owned(), free: 0, nodes: 0, most: 0, whole: 0 };
        for (there, allocated) in nodes {
            let free = there.saturating_sub(allocated);
            found.free += free;
            found.nodes += u64::from(free > 0);
            found.most = found.most.max(free);
            found.whole = found.whole.max(there);
        }
        // One accelerator a node can't be scattered.
        (found.whole > 1 && found.free >= found.whole && found.most < found.whole).then_some(found)
    }
}

/// The accelerators among these resources. They are counted in whole numbers, which manifests have as numbers, too.
fn amounts(resources: &BTreeMap<String, Value>) -> Amounts {
    let count = |amount: &Value| amount.as_u64().or_else(|| amount.as_str()?.parse().ok());
    let amount = |name: &&'static str| Some((*name, count(resources.get(*name)?)?));
    ACCELERATORS.iter().filter_map(amount).filter(|(_, amount)| *amount > 0).collect()
}

impl fmt::Display for Scattered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, free, nodes, most, whole } = self;
        write!(
            f,
            "{free} {resource} are free on {nodes} nodes, at most {most} on one: a pod that asks for {whole} waits; the \
             scheduler's plugin binpack fills one node after the other"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GPU: &str = "nvidia.com/gpu";

    fn of(gpus: u64) -> BTreeMap<String, Value> {
        let as_given = if gpus.is_multiple_of(2) { json!(gpus) } else { json!(gpus.to_string()) };
        [(GPU.to_owned(), as_given), ("cpu".to_owned(), json!("4"))].into()
    }

    #[test]
    fn free_accelerators_are_scattered_where_no_whole_node_is_free() {
        // What each node of eight has in use, and how many are free, on how many nodes, and at most on one.
        for (allocated, wanted) in [
            (vec![2, 2, 2, 2], Some((24, 4, 6))),
            (vec![8, 0], None),
            (vec![4, 4], Some((8, 2, 4))),
            (vec![4, 5], None),
            (vec![8, 8], None),
            (vec![9, 1, 7], Some((8, 2, 7))),
            (vec![], None),
        ] {
            let mut accelerators = Accelerators::default();
            for (number, allocated) in allocated.iter().enumerate() {
                let node = format!("n{number}");
                accelerators.node(&node, &of(8));
                accelerators.container(&node, &of(*allocated));
            }
            accelerators.node("plain", &[("cpu".to_owned(), json!("4"))].into());
            let found = accelerators.scattered();
            let found = found.first().map(|found| (found.free, found.nodes, found.most));
            assert_eq!(found, wanted, "{allocated:?}");
        }
    }

    #[test]
    fn pods_of_nodes_that_take_none_do_not_count() {
        let mut accelerators = Accelerators::default();
        for node in ["a", "b"] {
            accelerators.node(node, &of(1));
            accelerators.container("gone", &of(1));
        }
        assert_eq!(accelerators.scattered(), []);
    }
}
