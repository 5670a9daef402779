//! What a queue may hold of a group of nodes: annotation `volcano.sh/nodegroup-resource-limits` of the queue, and what
//! its pods hold there now.
//!
//! Invariant: `usage` is the sum over the nodes' entries. Books are kept only while some queue has a limit.

use std::collections::BTreeMap;

use pumice_units::Quantity;
use rustc_hash::FxHashMap;

use crate::ids::{DimId, NodeId, QueueId};
use crate::node_plugins::per_node::PerNode;
use crate::resource_dims::Demand;
use crate::world::tables::Tables;

/// A JSON map from group to resources.
pub(crate) const ANNOTATION: &str = "volcano.sh/nodegroup-resource-limits";

/// Limits of one queue by group; `None` where the annotation does not read: no node is allowed then.
type OfQueue = Option<BTreeMap<String, Vec<(DimId, i64)>>>;

#[derive(Debug, Default)]
pub(super) struct Limits {
    queues: FxHashMap<QueueId, OfQueue>,
    nodes: PerNode<Entry>,
    usage: FxHashMap<(QueueId, String), Vec<i64>>,
}

/// What one node's tasks hold, by limited queue.
#[derive(Debug, Default)]
struct Entry {
    group: Option<String>,
    usage: BTreeMap<QueueId, Vec<i64>>,
}

impl Limits {
    pub(super) fn any(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Reads the queues' annotations, and counts anew where they changed.
    pub(super) fn open(&mut self, tables: &Tables) {
        let limited = tables.queues.table.iter().filter_map(|(id, row)| Some((id, row.annotations.get(ANNOTATION)?)));
        let queues: FxHashMap<QueueId, OfQueue> = limited.map(|(id, text)| (id, read(tables, text))).collect();
        if queues != self.queues {
            self.queues = queues;
            self.nodes = PerNode::default();
            self.usage.clear();
        }
        self.repair(tables);
    }

    pub(super) fn repair(&mut self, tables: &Tables) {
        if !self.any() {
            return;
        }
        let Self { queues, nodes, usage } = self;
        nodes.repair(tables, |node, entry| {
            count(usage, entry, -1);
            *entry = of_node(tables, queues, node);
            count(usage, entry, 1);
        });
    }

    /// Whether the queue may hold `demand` more of the group.
    pub(super) fn allow(&self, queue: QueueId, group: Option<&str>, demand: &Demand) -> bool {
        let Some(limits) = self.queues.get(&queue) else { return true };
        let Some(limits) = limits else { return false };
        let Some((group, limits)) = group.and_then(|group| Some((group, limits.get(group)?))) else { return true };
        let usage = self.usage.get(&(queue, group.to_owned()));
        let amount = |dim: DimId| usage.and_then(|usage| usage.get(dim.index())).copied().unwrap_or(0);
        let over = |(dim, limit): &(DimId, i64)| {
            let wanted = demand.get(*dim);
            wanted > 0 && amount(*dim).saturating_add(wanted) > *limit
        };
        !limits.iter().any(over)
    }
}

fn read(tables: &Tables, text: &str) -> OfQueue {
    let groups: BTreeMap<String, BTreeMap<String, String>> = serde_saphyr::from_str(text).ok()?;
    let mut limits = BTreeMap::new();
    for (group, resources) in groups {
        let mut of_group = Vec::new();
        for (name, amount) in resources {
            let quantity: Quantity = amount.parse().ok()?;
            // What no pod and no node names needs no limit.
            let Some(dim) = tables.dims.lookup(&name) else { continue };
            of_group.push((dim, if name == "cpu" { quantity.cpu_milli() } else { quantity.value() }));
        }
        limits.insert(group, of_group);
    }
    Some(limits)
}

fn of_node(tables: &Tables, queues: &FxHashMap<QueueId, OfQueue>, node: NodeId) -> Entry {
    let Some(row) = tables.nodes.table.get(node.index()) else { return Entry::default() };
    let Some(group) = row.labels.get(super::LABEL) else { return Entry::default() };
    let mut usage = BTreeMap::new();
    for task in row.tasks.iter().map(|task| tables.task(*task)).filter(|task| task.state.holds_node()) {
        let Some(queue) = task.group.map(|group| tables.groups.row(group).queue) else { continue };
        if queues.contains_key(&queue) {
            tables.classes.row(task.class).demand.add_to(usage.entry(queue).or_default(), 1);
        }
    }
    Entry { group: Some(group.clone()), usage }
}

fn count(sums: &mut FxHashMap<(QueueId, String), Vec<i64>>, entry: &Entry, sign: i64) {
    let Some(group) = &entry.group else { return };
    for (queue, amounts) in &entry.usage {
        let sum = sums.entry((*queue, group.clone())).or_default();
        sum.resize(sum.len().max(amounts.len()), 0);
        for (cell, amount) in sum.iter_mut().zip(amounts) {
            *cell = cell.saturating_add(amount.saturating_mul(sign));
        }
    }
}
