//! `rescheduling`: names running pods of overused nodes that would do better on underused ones (action shuffle).
//!
//! By live use of cpu and memory, and by the number of pods. As many leave as the underused nodes can take up to the
//! target. Volcano accepts `thresholdPriorityClassName`, `nodeFit` and `numberOfNodes` and uses none of them; so do we.

use pumice_units::GoDuration;

use crate::cluster::classes::ClassRow;
use crate::config::{Fault, Field, PluginConfig};
use crate::ids::{DimId, NodeId, TaskId, TimeMs};
use crate::plugin::Plugin;
use crate::resource_dims::{CPU, MEMORY, PODS};
use crate::save::Save;
use crate::world::tables::Tables;
use crate::world::tasks::{TaskRow, TaskState};

pub(crate) const ARGUMENTS: &[&str] = &["interval", "metricsPeriod", "strategies"];

const STRATEGY: &str = "lowNodeUtilization";
const INTERVAL_MS: i64 = 5 * 60_000;
const WHOLE_PER_MILLE: i64 = 1_000;
const DIMS: [(DimId, &str); 3] = [(CPU, "cpu"), (MEMORY, "memory"), (PODS, "pods")];

/// A node's use, per mille, along `DIMS`.
type Use = [i64; 3];

#[derive(Debug)]
pub(crate) struct Rescheduling {
    interval_ms: i64,
    /// A node below all of these is underused; above any target it is overused. Absent without the strategy.
    bounds: Option<(Use, Use)>,
    last: Option<TimeMs>,
    due: bool,
}

impl Rescheduling {
    /// # Errors
    /// Where `strategies` does not decode.
    pub(crate) fn new(config: &PluginConfig) -> Result<Self, Fault> {
        let interval = config.text("interval").and_then(|text| text.parse::<GoDuration>().ok());
        let mut bounds = None;
        for strategy in config.field("strategies").map_or_else(|| Ok(Vec::new()), |field| field.items())? {
            let entries = strategy.entries()?;
            if entries.get("name").map_or(Ok(""), Field::text)? != STRATEGY {
                continue;
            }
            let given = entries.get("params").map_or_else(|| Ok(Default::default()), Field::entries)?;
            bounds = Some((percentages(given.get("thresholds"))?, percentages(given.get("targetThresholds"))?));
        }
        let interval_ms = interval.map_or(INTERVAL_MS, |interval| interval.as_millis().max(0));
        Ok(Self { interval_ms, bounds, last: None, due: false })
    }
}

/// Per mille, 1000 where nothing is said.
fn percentages(field: Option<&Field<'_>>) -> Result<Use, Fault> {
    let mut bounds = [WHOLE_PER_MILLE; 3];
    let Some(field) = field else { return Ok(bounds) };
    let given = field.entries()?;
    for (bound, (_, name)) in bounds.iter_mut().zip(DIMS) {
        if let Some(percent) = given.get(name) {
            *bound = percent.milli()? / 100;
        }
    }
    Ok(bounds)
}

impl Plugin for Rescheduling {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn open(&mut self, _tables: &Tables, now: TimeMs) {
        self.due = self.last.is_none_or(|last| last.plus_ms(self.interval_ms) <= now);
        if self.due {
            self.last = Some(now);
        }
    }

    fn memory(&self) -> Vec<u8> {
        let mut memory = Vec::new();
        self.last.save(&mut memory);
        memory
    }

    fn remember(&mut self, memory: &[u8]) {
        self.last = Save::load(&mut memory.into()).unwrap_or_default();
    }

    fn victim_tasks(&self, tables: &Tables) -> Vec<TaskId> {
        match self.bounds {
            Some((low, target)) if self.due => victims(tables, low, target),
            _ => Vec::new(),
        }
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }
}

fn victims(tables: &Tables, low: Use, target: Use) -> Vec<TaskId> {
    let measured: Vec<(NodeId, Use)> =
        tables.nodes.ids().filter_map(|node| Some((node, used(tables, node)?))).collect();
    let is_low = |node: NodeId, used: &Use| {
        !tables.nodes.row(node).unschedulable && used.iter().zip(&low).all(|(used, bound)| used < bound)
    };
    let lows: Vec<&(NodeId, Use)> = measured.iter().filter(|(node, used)| is_low(*node, used)).collect();
    let is_high = |used: &Use| used.iter().zip(&target).any(|(used, bound)| used > bound);
    let mut highs: Vec<(NodeId, Use)> = measured.iter().filter(|(_, used)| is_high(used)).copied().collect();
    if lows.is_empty() || highs.is_empty() || lows.len() == measured.len() {
        return Vec::new();
    }
    let mut headroom = [0_i64; 3];
    for (node, used) in lows {
        for (which, (dim, _)) in DIMS.into_iter().enumerate() {
            let free = amount(tables, *node, dim, target[which].saturating_sub(used[which]));
            headroom[which] = headroom[which].saturating_add(free);
        }
    }
    highs.sort_by_key(|(node, used)| (std::cmp::Reverse(used.iter().sum::<i64>()), *node));
    let mut chosen = Vec::new();
    for (node, used) in highs {
        relieve(tables, node, used, target, &mut headroom, &mut chosen);
    }
    chosen
}

/// The pods of one node that leave, until it is at its target or nobody has room for more.
fn relieve(tables: &Tables, node: NodeId, used: Use, target: Use, headroom: &mut [i64; 3], chosen: &mut Vec<TaskId>) {
    let mut over = [0_i64; 3];
    for (which, (dim, _)) in DIMS.into_iter().enumerate() {
        over[which] = amount(tables, node, dim, used[which].saturating_sub(target[which]));
    }
    let movable = |row: &TaskRow| row.state == TaskState::Running && row.group.is_some() && row.preemptable;
    let mut tasks: Vec<TaskId> =
        tables.nodes.row(node).tasks.iter().copied().filter(|task| movable(tables.task(*task))).collect();
    tasks.sort_by_key(|task| {
        let row = tables.task(*task);
        let quality = if row.best_effort { 0 } else { 1 + u8::from(tables.classes.row(row.class).template.guaranteed) };
        (row.priority, quality, *task)
    });
    for task in tasks {
        if over.iter().all(|amount| *amount <= 0) {
            return;
        }
        let demand = &tables.classes.row(tables.task(task).class).demand;
        if DIMS.iter().enumerate().any(|(which, (dim, _))| demand.get(*dim) > headroom[which]) {
            return;
        }
        for (which, (dim, _)) in DIMS.into_iter().enumerate() {
            over[which] = over[which].saturating_sub(demand.get(dim));
            headroom[which] = headroom[which].saturating_sub(demand.get(dim));
        }
        chosen.push(task);
    }
}

fn used(tables: &Tables, node: NodeId) -> Option<Use> {
    let usage = tables.nodes.row(node).usage?;
    let pods = tables.nodes.used(node, PODS).saturating_mul(WHOLE_PER_MILLE);
    Some([usage.cpu_per_mille, usage.memory_per_mille, pods / tables.nodes.allocatable(node, PODS).max(1)])
}

/// A part, per mille, of what the node offers.
fn amount(tables: &Tables, node: NodeId, dim: DimId, per_mille: i64) -> i64 {
    let whole = i128::from(tables.nodes.allocatable(node, dim)) * i128::from(per_mille) / i128::from(WHOLE_PER_MILLE);
    i64::try_from(whole).unwrap_or(if whole > 0 { i64::MAX } else { i64::MIN })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::NodeUsage;
    use crate::plugin::tests::small_cluster;
    use crate::plugin::tests::victim_bench::Bench;

    const BOUNDS: &str = "{interval: 2m, strategies: [{name: lowNodeUtilization, params: \
        {thresholds: {cpu: 30, memory: 30, pods: 30}, targetThresholds: {cpu: 60, memory: 60, pods: 60}}}]}";

    /// `n0` at so much cpu with pods of priority 3, 1, 2; `n1` at another, both of 10 cores.
    fn bench(hot: i64, cold: i64) -> (Bench, Vec<TaskId>) {
        let mut bench = Bench::new();
        for (name, cpu_per_mille) in [("n0", hot), ("n1", cold)] {
            let usage = NodeUsage { cpu_per_mille, memory_per_mille: 100, at: TimeMs(0) };
            bench.node(name, |node| node.usage = Some(usage));
        }
        let priorities = [3, 1, 2].into_iter().zip(0..);
        let tasks =
            priorities.map(|(priority, index)| bench.running("g", index, |pod| pod.template.priority = priority));
        let tasks = tasks.collect();
        (bench, tasks)
    }

    #[test]
    fn the_least_important_leave_until_the_target_is_met() {
        for (hot, cold, arguments, expected) in [
            (750, 100, BOUNDS, vec![1, 2]),
            (650, 100, BOUNDS, vec![1]),
            (900, 100, BOUNDS, vec![1, 2, 0]),
            (600, 100, BOUNDS, vec![]),
            (900, 300, BOUNDS, vec![]),
            (900, 100, "{interval: 2m}", vec![]),
            (900, 100, "{strategies: [{name: lowNodeUtilization}]}", vec![]),
        ] {
            let (bench, tasks) = bench(hot, cold);
            let mut plugin = Rescheduling::new(&small_cluster::config("rescheduling", arguments)).unwrap();
            plugin.open(&bench.tables, TimeMs(0));
            let expected: Vec<TaskId> = expected.into_iter().map(|index: usize| tasks[index]).collect();
            assert_eq!(plugin.victim_tasks(&bench.tables), expected, "{hot} {cold} {arguments}");
        }
    }

    #[test]
    fn once_an_interval() {
        let (bench, _) = bench(900, 100);
        let mut plugin = Rescheduling::new(&small_cluster::config("rescheduling", BOUNDS)).unwrap();
        let mut count = |now: i64| {
            plugin.open(&bench.tables, TimeMs(now));
            plugin.victim_tasks(&bench.tables).len()
        };
        assert_eq!([count(0), count(119_999), count(120_000)], [3, 0, 3]);
    }
}
