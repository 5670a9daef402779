//! What HyperNodes offer and hold of the resources that count for their fill, followed through a cycle.

use rustc_hash::FxHashMap;

use crate::ids::{DimId, HyperId, NodeId, TaskId};
use crate::world::tables::{Move, Tables};

#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Each with its weight.
    dims: Vec<(DimId, i64)>,
    /// `[HyperNode][resource]`, flat.
    offered: Vec<i64>,
    used: Vec<i64>,
    /// The nodes of tasks that moved in this cycle, as counted here.
    moved: FxHashMap<TaskId, Option<NodeId>>,
}

impl Sums {
    pub(super) fn new(tables: &Tables, dims: Vec<(DimId, i64)>) -> Self {
        let cells = tables.hyper_nodes.ids().len() * dims.len();
        let mut sums = Self { dims, offered: vec![0; cells], used: vec![0; cells], moved: FxHashMap::default() };
        let kinds = sums.dims.len();
        for node in tables.nodes.ids() {
            for hyper in tables.hyper_nodes.of_node(node) {
                for (at, (dim, _)) in sums.dims.iter().enumerate() {
                    let cell = hyper.index() * kinds + at;
                    sums.offered[cell] = sums.offered[cell].saturating_add(tables.nodes.allocatable(node, *dim));
                    sums.used[cell] = sums.used[cell].saturating_add(tables.nodes.used(node, *dim));
                }
            }
        }
        sums
    }

    pub(super) fn follow(&mut self, tables: &Tables, change: Move) {
        let row = tables.task(change.task);
        let now = if row.state.holds_node() { row.node } else { None };
        let first = if change.state.holds_node() { change.node } else { None };
        let before = self.moved.insert(change.task, now).unwrap_or(first);
        if before == now {
            return;
        }
        let demand = &tables.classes.row(row.class).demand;
        let kinds = self.dims.len();
        for (node, sign) in [(before, -1), (now, 1)] {
            let Some(node) = node else { continue };
            for hyper in tables.hyper_nodes.of_node(node) {
                for (at, (dim, _)) in self.dims.iter().enumerate() {
                    let cell = &mut self.used[hyper.index() * kinds + at];
                    *cell = cell.saturating_add(demand.get(*dim).saturating_mul(sign));
                }
            }
        }
    }

    /// The weighted mean of how full the HyperNode is with `more` in it, over the resources that are asked for; none
    /// where one overflows. `strict` counts resources that it does not offer as overflowing.
    pub(super) fn fill(&self, hyper: HyperId, more: impl Fn(DimId) -> i64, strict: bool) -> Option<f64> {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (at, (dim, weight)) in self.dims.iter().enumerate() {
            let asked = more(*dim);
            if asked == 0 {
                continue;
            }
            let cell = hyper.index() * self.dims.len() + at;
            let (offered, used) = (*self.offered.get(cell)?, self.used[cell].saturating_add(asked));
            if offered <= 0 {
                if strict {
                    return None;
                }
                continue;
            }
            if used > offered {
                return None;
            }
            sum += *weight as f64 * (used as f64 / offered as f64);
            weights += *weight as f64;
        }
        Some(if weights > 0.0 { sum / weights } else { 0.0 })
    }
}
