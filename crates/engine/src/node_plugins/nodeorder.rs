//! `nodeorder`: which of the nodes that can take a pod is best. Kubernetes' scores, 0 to 100 each, times Volcano's weights.
//! Pod affinity and topology spread are scored for tasks that they concern, over the nodes that can take them.

use super::predicates;
use crate::cluster::classes::ClassRow;
use crate::config::PluginConfig;
use crate::ids::{DimId, NodeId, TaskId};
use crate::plugin::{Plugin, Preference, Region};
use crate::resource_dims::{CPU, MEMORY};
use crate::world::tables::Tables;

mod bounds;

pub(crate) const ARGUMENTS: &[&str] = &[
    "leastrequested.weight",
    "mostrequested.weight",
    "nodeaffinity.weight",
    "podaffinity.weight",
    "balancedresource.weight",
    "tainttoleration.weight",
    "imagelocality.weight",
    "podtopologyspread.weight",
];

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
    images: i64,
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
            images: config.int("imagelocality.weight", 1),
        }
    }
}

impl Plugin for NodeOrder {
    fn score(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
        let mut score = [0];
        self.score_nodes(tables, class, &[node], &mut score);
        score[0]
    }

    fn score_nodes(&self, tables: &Tables, class: &ClassRow, nodes: &[NodeId], scores: &mut [i64]) {
        let columns = Columns::new(tables);
        let gpu = columns.gpu.map_or(0, |gpu| class.demand.get(gpu.dim));
        let requests = [class.demand.get(CPU), class.demand.get(MEMORY), gpu];
        let balances = self.balanced != 0 && !class.demand.is_best_effort();
        let asks = self.images != 0 && !class.template.images.is_empty();
        for (node, score) in nodes.iter().zip(scores) {
            let row = asks.then(|| tables.nodes.row(*node));
            let node = node.index();
            let mut add = |weight: i64, part: i64| *score = score.saturating_add(weight.saturating_mul(part));
            if self.least != 0 {
                add(self.least, columns.mean(class, node, least));
            }
            if self.most != 0 {
                add(self.most, columns.mean(class, node, most));
            }
            if balances {
                add(self.balanced, columns.balanced(requests, node));
            }
            if let Some(row) = row {
                add(self.images, tables.images.score(&class.template.images, row, tables.nodes.known));
            }
        }
    }

    fn bound_scores(&self, tables: &Tables, class: &ClassRow, regions: &[Region<'_>], bounds: &mut [i64]) -> bool {
        if [self.least, self.most, self.balanced, self.images].iter().any(|weight| *weight < 0) {
            return false;
        }
        let balances = self.balanced != 0 && !class.demand.is_best_effort();
        let asks = self.images != 0 && !class.template.images.is_empty();
        let images = if asks { tables.images.score_max(&class.template.images, tables.nodes.known) } else { 0 };
        for (region, bound) in regions.iter().zip(bounds) {
            let parts = bounds::Parts::new(tables, class, region);
            let Some(parts) = parts else { return false };
            let mut add = |weight: i64, part: i64| *bound = bound.saturating_add(weight.saturating_mul(part));
            if self.least != 0 {
                add(self.least, parts.least());
            }
            if self.most != 0 {
                add(self.most, parts.most());
            }
            if balances {
                add(self.balanced, parts.balanced());
            }
            add(self.images, images);
        }
        true
    }

    fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        let row = tables.task(task);
        (self.pod_affinity != 0 || self.spread != 0) && tables.inter_pod.prefers(row.profile, row.class)
    }

    fn score_task(&self, tables: &Tables, task: TaskId, nodes: &[NodeId], scores: &mut [i64]) {
        let (profile, class) = (tables.task(task).profile, tables.task(task).class);
        if self.pod_affinity != 0 {
            tables.inter_pod.score_affinity(profile, class, self.pod_affinity, nodes, scores);
        }
        if self.spread != 0 {
            tables.inter_pod.score_spread(class, self.spread, nodes, scores);
        }
    }

    fn preferences(&self) -> Vec<Preference> {
        let affinity = Preference {
            weight: self.affinity,
            reverse: false,
            raw: predicates::preferred_weight,
            of_pod: |template| !template.preferred_terms.is_empty(),
            of_node: |_| true,
        };
        let taints = Preference {
            weight: self.taints,
            reverse: true,
            raw: predicates::soft_taints,
            of_pod: |_| true,
            of_node: predicates::has_soft_taints,
        };
        [affinity, taints].into_iter().filter(|preference| preference.weight != 0).collect()
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }
}

/// What the scores read of the nodes, as columns.
struct Columns<'a> {
    offered: [&'a [i64]; 2],
    scored: [&'a [i64]; 2],
    taken: [&'a [i64]; 2],
    gpu: Option<GpuColumns<'a>>,
}

/// Where nodes offer GPUs: their resource, and its columns.
#[derive(Debug, Clone, Copy)]
struct GpuColumns<'a> {
    dim: DimId,
    offered: &'a [i64],
    taken: &'a [i64],
}

impl<'a> Columns<'a> {
    fn new(tables: &'a Tables) -> Self {
        let nodes = &tables.nodes;
        let gpu = tables.dims.gpu();
        let gpu = gpu.map(|dim| GpuColumns { dim, offered: nodes.offered(dim), taken: nodes.taken(dim) });
        Self {
            offered: [nodes.offered(CPU), nodes.offered(MEMORY)],
            scored: [nodes.taken_for_scoring(0), nodes.taken_for_scoring(1)],
            taken: [nodes.taken(CPU), nodes.taken(MEMORY)],
            gpu: gpu.filter(|gpu| !gpu.offered.is_empty()),
        }
    }

    /// The mean of a score over the node's cpu and memory, with this pod on it.
    fn mean(&self, class: &ClassRow, node: usize, score: fn(i64, i64) -> i64) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for which in 0..2 {
            let offered = self.offered[which][node];
            if offered > 0 {
                sum += score(self.scored[which][node].saturating_add(class.scored[which]), offered);
                weights += 1;
            }
        }
        if weights == 0 { 0 } else { sum / weights }
    }

    /// 100 where all resources would be used in the same proportion.
    fn balanced(&self, requests: [i64; 3], node: usize) -> i64 {
        let mut fractions = [0.0_f64; 3];
        let mut count = 0;
        let mut add = |offered: i64, taken: i64, request: i64| {
            if offered > 0 {
                fractions[count] = (taken.saturating_add(request) as f64 / offered as f64).min(1.0);
                count += 1;
            }
        };
        add(self.offered[0][node], self.taken[0][node], requests[0]);
        add(self.offered[1][node], self.taken[1][node], requests[1]);
        if let Some(GpuColumns { offered, taken, .. }) = self.gpu {
            add(offered[node], taken[node], requests[2]);
        }
        ((1.0 - deviation(&fractions[..count])) * SCORE_MAX as f64) as i64
    }
}

fn deviation(fractions: &[f64]) -> f64 {
    match fractions {
        [] | [_] => 0.0,
        [one, two] => (one - two).abs() / 2.0,
        _ => {
            let count = fractions.len() as f64;
            let mean = fractions.iter().sum::<f64>() / count;
            (fractions.iter().map(|fraction| (fraction - mean).powi(2)).sum::<f64>() / count).sqrt()
        }
    }
}

fn least(requested: i64, offered: i64) -> i64 {
    if requested > offered { 0 } else { scaled(offered.saturating_sub(requested), offered) }
}

fn most(requested: i64, offered: i64) -> i64 {
    scaled(requested.min(offered), offered)
}

/// `part` of `whole` in hundredths, rounded down.
fn scaled(part: i64, whole: i64) -> i64 {
    /// Up to here a division of `f64` rounds to the same: quotients lie at least 1/whole from an integer.
    const EXACT_MAX: i64 = 1 << 46;
    if whole <= EXACT_MAX && (0..=whole).contains(&part) {
        return ((part * SCORE_MAX) as f64 / whole as f64) as i64;
    }
    i64::try_from(i128::from(part) * i128::from(SCORE_MAX) / i128::from(whole)).unwrap_or(SCORE_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hundredths_round_down(whole in 1..=i64::MAX, part in 0..=i64::MAX, hundredths in 0..=100_i64) {
            let exact = |part: i64| i128::from(part) * 100 / i128::from(whole);
            for part in [part % (whole / 2 + 1), (i128::from(whole) * i128::from(hundredths) / 100) as i64] {
                prop_assert_eq!(i128::from(scaled(part, whole)), exact(part));
            }
        }
    }
}
