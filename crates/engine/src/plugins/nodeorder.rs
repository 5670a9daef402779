//! `nodeorder`: which of the nodes that can take a pod is best. Kubernetes' scores, 0 to 100 each, times Volcano's weights.
//! Pod affinity and topology spread are scored for tasks that they concern, over the nodes that can take them.

use super::{Plugin, Preference, predicates};
use crate::config::PluginConfig;
use crate::dims::{CPU, MEMORY};
use crate::ids::{DimId, NodeId, TaskId};
use crate::world::classes::ClassRow;
use crate::world::tables::Tables;

pub(super) const ARGUMENTS: &[&str] = &[
    "leastrequested.weight",
    "mostrequested.weight",
    "nodeaffinity.weight",
    "podaffinity.weight",
    "balancedresource.weight",
    "tainttoleration.weight",
    "imagelocality.weight",
    "podtopologyspread.weight",
];

const GPU: &str = "nvidia.com/gpu";
const SCORE_MAX: i64 = 100;

#[derive(Debug)]
pub(crate) struct NodeOrder {
    least: i64,
    most: i64,
    balanced: i64,
    affinity: i64,
    taints: i64,
    pod_affinity: i64,
    spread: i64,
}

impl NodeOrder {
    pub(crate) fn new(config: &PluginConfig) -> Self {
        Self {
            least: config.int("leastrequested.weight", 1),
            most: config.int("mostrequested.weight", 0),
            balanced: config.int("balancedresource.weight", 1),
            affinity: config.int("nodeaffinity.weight", 2),
            taints: config.int("tainttoleration.weight", 3),
            pod_affinity: config.int("podaffinity.weight", 2),
            spread: config.int("podtopologyspread.weight", 2),
        }
    }
}

impl Plugin for NodeOrder {
    fn score(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
        let mut score = 0_i64;
        let mut add = |weight: i64, part: i64| score = score.saturating_add(weight.saturating_mul(part));
        if self.least != 0 {
            add(self.least, mean(tables, class, node, least));
        }
        if self.most != 0 {
            add(self.most, mean(tables, class, node, most));
        }
        if self.balanced != 0 && !class.demand.is_best_effort() {
            add(self.balanced, balanced(tables, class, node));
        }
        score
    }

    fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        let row = tables.task(task);
        (self.pod_affinity != 0 || self.spread != 0) && tables.couplings.prefers(row.profile, row.class)
    }

    fn score_task(&self, tables: &Tables, task: TaskId, nodes: &[NodeId], scores: &mut [i64]) {
        let (profile, class) = (tables.task(task).profile, tables.task(task).class);
        if self.pod_affinity != 0 {
            tables.couplings.score_affinity(profile, class, self.pod_affinity, nodes, scores);
        }
        if self.spread != 0 {
            tables.couplings.score_spread(class, self.spread, nodes, scores);
        }
    }

    fn preferences(&self) -> Vec<Preference> {
        let affinity = Preference { weight: self.affinity, reverse: false, raw: predicates::preferred_weight };
        let taints = Preference { weight: self.taints, reverse: true, raw: predicates::soft_taints };
        [affinity, taints].into_iter().filter(|preference| preference.weight != 0).collect()
    }
}

/// The mean of a score over the node's cpu and memory, with this pod on it.
fn mean(tables: &Tables, class: &ClassRow, node: NodeId, score: fn(i64, i64) -> i64) -> i64 {
    let (mut sum, mut weights) = (0, 0);
    for (which, dim) in [CPU, MEMORY].into_iter().enumerate() {
        let offered = tables.nodes.allocatable(node, dim);
        if offered > 0 {
            sum += score(tables.nodes.scored(node, which).saturating_add(class.scored[which]), offered);
            weights += 1;
        }
    }
    if weights == 0 { 0 } else { sum / weights }
}

fn least(requested: i64, offered: i64) -> i64 {
    if requested > offered { 0 } else { scaled(offered.saturating_sub(requested), offered) }
}

fn most(requested: i64, offered: i64) -> i64 {
    scaled(requested.min(offered), offered)
}

fn scaled(part: i64, whole: i64) -> i64 {
    i64::try_from(i128::from(part) * i128::from(SCORE_MAX) / i128::from(whole)).unwrap_or(SCORE_MAX)
}

/// 100 where all resources would be used in the same proportion.
fn balanced(tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
    let mut fractions = [0.0_f64; 3];
    let mut count = 0;
    let mut add = |dim: DimId| {
        let offered = tables.nodes.allocatable(node, dim);
        if offered > 0 {
            let requested = tables.nodes.used(node, dim).saturating_add(class.demand.get(dim));
            fractions[count] = (requested as f64 / offered as f64).min(1.0);
            count += 1;
        }
    };
    add(CPU);
    add(MEMORY);
    if let Some(gpu) = tables.dims.lookup(GPU) {
        add(gpu);
    }
    let fractions = &fractions[..count];
    let deviation = match fractions {
        [] | [_] => 0.0,
        [one, two] => (one - two).abs() / 2.0,
        _ => {
            let mean = fractions.iter().sum::<f64>() / count as f64;
            (fractions.iter().map(|fraction| (fraction - mean).powi(2)).sum::<f64>() / count as f64).sqrt()
        }
    };
    ((1.0 - deviation) * SCORE_MAX as f64) as i64
}
