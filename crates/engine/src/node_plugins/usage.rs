//! `usage`: pods go where machines are really idle, and not where they are busier than the thresholds.
//!
//! The measurement of a node is as old as it is: pods that it can't show yet (just placed, or started within one
//! interval of it) are added as an estimate. A measurement that is too old says nothing (`Nodes` drops it).

use crate::cluster::classes::ClassRow;
use crate::config::{Fault, PluginConfig};
use crate::facts::{NodeUsage, PodTemplate};
use crate::ids::{NodeId, TimeMs};
use crate::reasons::Check;
use crate::resource_dims::{CPU, MEMORY};
use crate::world::tables::{Move, Tables};
use crate::world::tasks::{TaskRow, TaskState};

use super::per_node::PerNode;
use crate::plugin::Plugin;
use crate::plugin::score::{FULL, Mean, ratio};

mod estimator;

use estimator::{Estimate, Estimator};

pub(crate) const ARGUMENTS: &[&str] = &["usage.weight", "cpu.weight", "memory.weight", "thresholds", "estimator"];

/// How often nodes are measured.
const INTERVAL_MS: i64 = 30_000;
/// A measurement older than this says nothing.
pub(crate) const FRESH_MS: i64 = 5 * 60_000;

const THRESHOLD_PER_MILLE: i64 = 800;

#[derive(Debug)]
pub(crate) struct Usage {
    weight: i64,
    cpu_weight: i64,
    memory_weight: i64,
    cpu_max_per_mille: i64,
    memory_max_per_mille: i64,
    estimator: Estimator,
    shadows: PerNode<Estimate>,
}

impl Usage {
    /// # Errors
    /// Where `estimator` does not decode. Thresholds that don't are ignored, as in Volcano.
    pub(crate) fn new(config: &PluginConfig) -> Result<Self, Fault> {
        // A percentage in thousandths is a per mille in hundredths.
        let threshold = |name: &str| {
            let given = config.field("thresholds").and_then(|field| field.entries().ok()?.get(name)?.milli().ok());
            given.map_or(THRESHOLD_PER_MILLE, |percent| percent / 100)
        };
        Ok(Self {
            weight: config.int("usage.weight", 5),
            cpu_weight: config.int("cpu.weight", 1),
            memory_weight: config.int("memory.weight", 1),
            cpu_max_per_mille: threshold("cpu"),
            memory_max_per_mille: threshold("mem"),
            estimator: Estimator::new(config.field("estimator"))?,
            shadows: PerNode::default(),
        })
    }

    fn repair(&mut self, tables: &Tables) {
        let Self { estimator, shadows, cpu_weight, memory_weight, .. } = self;
        shadows.repair(tables, |node, entry| {
            let row = tables.nodes.table.get(node.index());
            let measured = row.and_then(|row| Some((row, row.usage?)));
            let tasks = measured.into_iter().flat_map(|(row, usage)| {
                let tasks = row.tasks.iter().map(|task| tables.task(*task));
                tasks.filter(move |task| is_shadow(task, usage.at)).map(move |task| (task, usage))
            });
            *entry = tasks.fold(Estimate::default(), |sum, (task, usage)| {
                let risky = estimator.is_risky(mean(usage, *cpu_weight, *memory_weight));
                sum.plus(estimator.of(&tables.classes.row(task.class).template, risky))
            });
        });
    }

    fn busy(&self, tables: &Tables, template: &PodTemplate, node: NodeId, usage: NodeUsage) -> (i64, i64) {
        let risky = self.estimator.is_risky(mean(usage, self.cpu_weight, self.memory_weight));
        let shadows = self.shadows.get(node).copied().unwrap_or_default();
        let estimate = self.estimator.of(template, risky).plus(shadows);
        let share = |measured_per_mille: i64, estimate, dim, name| {
            let capacity = tables.nodes.row(node).capacity.get(name).copied();
            let capacity = capacity.unwrap_or_else(|| tables.nodes.allocatable(node, dim));
            let measured = measured_per_mille.saturating_mul(FULL / 1_000);
            measured.saturating_add(ratio(estimate, capacity, FULL)).clamp(0, FULL)
        };
        (
            share(usage.cpu_per_mille, estimate.cpu_milli, CPU, "cpu"),
            share(usage.memory_per_mille, estimate.memory_bytes, MEMORY, "memory"),
        )
    }
}

/// What the measurement at `at` can't show.
fn is_shadow(task: &TaskRow, at: TimeMs) -> bool {
    match task.state {
        TaskState::Allocated | TaskState::Binding | TaskState::Bound => true,
        TaskState::Running => task.started.is_some_and(|started| started.plus_ms(INTERVAL_MS) > at),
        _ => false,
    }
}

/// A node's use over cpu and memory, per mille.
fn mean(usage: NodeUsage, cpu_weight: i64, memory_weight: i64) -> i64 {
    let mut mean = Mean::default();
    mean.add(usage.cpu_per_mille, cpu_weight);
    mean.add(usage.memory_per_mille, memory_weight);
    mean.times(1)
}

impl Plugin for Usage {
    fn in_thousandths(&self) -> bool {
        true
    }

    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        self.repair(tables);
    }

    fn follows_moves(&self) -> bool {
        true
    }

    fn moved(&mut self, tables: &Tables, _change: Move) {
        self.repair(tables);
    }

    fn check_facts(&self, tables: &Tables, _class: &ClassRow, node: NodeId) -> Option<Check> {
        let usage = tables.nodes.row(node).usage?;
        let over = usage.cpu_per_mille > self.cpu_max_per_mille || usage.memory_per_mille > self.memory_max_per_mille;
        over.then_some(Check::Usage)
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn score(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
        let Some(usage) = tables.nodes.row(node).usage else { return 0 };
        let (cpu, memory) = self.busy(tables, &class.template, node, usage);
        let mut mean = Mean::default();
        mean.add(FULL - cpu, self.cpu_weight);
        mean.add(FULL - memory, self.memory_weight);
        mean.times(self.weight)
    }
}

#[cfg(test)]
mod tests;
