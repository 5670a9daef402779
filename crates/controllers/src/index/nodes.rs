//! How much memory the largest node has: a pod that asks for more waits for ever.
//!
//! Invariant: as the watch has told it last; only a change of the largest makes work, and only for jobs whose pods may have
//! been given more than their template says.

use k8s_openapi::api::core::v1::Node;
use pumice_cluster::Change;
use pumice_units::Quantity;

use super::{DirtyKey, Index};
use crate::node_table::NodeTable;

/// Bytes of memory for pods, by node.
#[derive(Default)]
pub(super) struct Nodes {
    memory: NodeTable<i64>,
    largest: Option<i64>,
}

impl Index {
    pub fn node_changed(&mut self, change: Change<Node>, touched: &mut Vec<DirtyKey>) {
        let nodes = &mut self.nodes;
        if !nodes.memory.take(change, memory) {
            return;
        }
        let largest = nodes.memory.entries.values().copied().max();
        if std::mem::replace(&mut nodes.largest, largest) != largest {
            self.touch_jobs(touched, |job| {
                let ended = job.status.state.phase.as_ref().is_some_and(pumice_api::batch::JobPhase::is_finished);
                !ended && pumice_machines::job::gets_more_memory(job)
            });
        }
    }

    /// Bytes of memory that the largest node has for pods; none while no node is known.
    pub fn largest_node(&self) -> Option<i64> {
        self.nodes.largest
    }
}

fn memory(node: Node) -> i64 {
    let amounts = node.status.and_then(|status| status.allocatable.or(status.capacity)).unwrap_or_default();
    amounts.get("memory").and_then(|amount| amount.0.parse::<Quantity>().ok()).map_or(0, Quantity::value)
}
