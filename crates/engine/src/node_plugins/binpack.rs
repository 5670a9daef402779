//! `binpack`: the fuller a node would be with the pod on it, the better. Only what the pod asks for counts, each
//! resource by its weight; a resource without a weight does not count at all. Nodes that offer what is to be spared come after
//! all others for pods that don't ask for it: so nodes with GPUs are kept for those that need them. Sparing is Pumice's own.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::cluster::classes::ClassRow;
use crate::config::PluginConfig;
use crate::ids::{DimId, NodeId};
use crate::plugin::score::{FULL, Mean, ratio};
use crate::plugin::{Extremes, Plugin, Region};
use crate::resource_dims::{CPU, Dims, MEMORY};
use crate::world::tables::Tables;

/// `binpack.resources` names the further ones, each with an argument of its own.
pub(crate) const ARGUMENTS: &[&str] =
    &["binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources", "binpack.resources.*", "binpack.spared"];

#[derive(Debug)]
pub(crate) struct BinPack {
    weight: i64,
    cpu: i64,
    memory: i64,
    others: BTreeMap<String, i64>,
    /// Resources that are spared.
    spared: Vec<String>,
}

impl BinPack {
    pub(crate) fn new(config: &PluginConfig) -> Self {
        let weight = |name: &str| Some(config.int(name, 1)).filter(|weight| *weight >= 0).unwrap_or(1);
        let others = names(config, "binpack.resources");
        Self {
            weight: config.int("binpack.weight", 1),
            cpu: weight("binpack.cpu"),
            memory: weight("binpack.memory"),
            others: others.map(|name| (name.to_owned(), weight(&format!("binpack.resources.{name}")))).collect(),
            spared: names(config, "binpack.spared").map(str::to_owned).collect(),
        }
    }

    fn weight_of(&self, dims: &Dims, dim: DimId) -> Option<i64> {
        match dim {
            CPU => Some(self.cpu),
            MEMORY => Some(self.memory),
            _ => self.others.get(&**dims.name(dim)).copied(),
        }
    }

    /// The score of a node, with what counts of what the pod asks for, and what is spared as it does not ask for it.
    fn score_of(&self, tables: &Tables, counted: &Counted, node: NodeId) -> i64 {
        let mut mean = Mean::default();
        for Requested { dim, amount, weight } in counted.requested.iter().copied() {
            let offered = tables.nodes.allocatable(node, dim);
            let wanted = tables.nodes.used(node, dim).saturating_add(amount);
            if offered == 0 || weight == 0 {
                mean.add(0, weight);
                continue;
            }
            if wanted > offered {
                mean = Mean::default();
                break;
            }
            mean.add(ratio(wanted, offered, FULL), weight);
        }
        let wasted = counted.spared.iter().any(|dim| tables.nodes.allocatable(node, *dim) > 0);
        mean.times(self.weight).saturating_add(if wasted { 0 } else { self.for_sparing() })
    }

    /// What a node scores besides where nothing is wasted on it: as much as one that is full.
    fn for_sparing(&self) -> i64 {
        if self.spared.is_empty() { 0 } else { FULL.saturating_mul(self.weight) }
    }
}

/// What counts for a class of pods.
struct Counted {
    requested: SmallVec<[Requested; 4]>,
    /// What is kept for others.
    spared: SmallVec<[DimId; 4]>,
}

/// A resource that a class asks for.
#[derive(Debug, Clone, Copy)]
struct Requested {
    dim: DimId,
    amount: i64,
    /// How much the resource counts in the mean.
    weight: i64,
}

/// The names that an argument lists.
fn names<'a>(config: &'a PluginConfig, argument: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    config.text(argument).unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty())
}

impl Plugin for BinPack {
    fn in_thousandths(&self) -> bool {
        true
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn score(&self, tables: &Tables, class: &ClassRow, node: NodeId) -> i64 {
        let mut score = [0];
        self.score_nodes(tables, class, &[node], &mut score);
        score[0]
    }

    fn score_nodes(&self, tables: &Tables, class: &ClassRow, nodes: &[NodeId], scores: &mut [i64]) {
        let dims = &tables.dims;
        let requested = class
            .demand
            .iter()
            .filter_map(|(dim, amount)| Some(Requested { dim, amount, weight: self.weight_of(dims, dim)? }));
        let spared = self.spared.iter().filter_map(|name| dims.lookup(name));
        let counted = Counted {
            requested: requested.collect(),
            spared: spared.filter(|dim| class.demand.get(*dim) == 0).collect(),
        };
        for (node, score) in nodes.iter().zip(scores) {
            *score = score.saturating_add(self.score_of(tables, &counted, *node));
        }
    }

    fn bound_scores(&self, tables: &Tables, class: &ClassRow, regions: &[Region<'_>], bounds: &mut [i64]) -> bool {
        for (region, bound) in regions.iter().zip(bounds) {
            let mut mean = Mean::default();
            for (dim, amount) in class.demand.iter() {
                let Some(weight) = self.weight_of(&tables.dims, dim) else { continue };
                let (Some(offered), Some(used)) = (region.offered(dim), region.used(dim)) else { return false };
                let wanted = used.most.saturating_add(amount);
                let fullest = match offered {
                    Extremes { most: ..=0, .. } => 0,
                    Extremes { least: ..=0, .. } => FULL,
                    Extremes { least, .. } => ratio(wanted, least, FULL).clamp(0, FULL),
                };
                mean.add(fullest, weight);
            }
            *bound = bound.saturating_add(mean.times(self.weight)).saturating_add(self.for_sparing());
        }
        self.weight >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::tests::small_cluster::{GI, Scene, class_of, config, node_of};

    #[test]
    fn the_fuller_the_better_by_what_is_asked_for() {
        let scene = Scene::default()
            .node("n1", &[("cpu", 4_000), ("memory", 8 * GI), ("nvidia.com/gpu", 4)], |_| {})
            .running("used", "n1", &[("cpu", 1_000), ("memory", 4 * GI), ("nvidia.com/gpu", 1)], |_| {})
            .pod("cpu", &[("cpu", 1_000)], |_| {})
            .pod("both", &[("cpu", 1_000), ("memory", 2 * GI)], |_| {})
            .pod("gpu", &[("cpu", 1_000), ("nvidia.com/gpu", 2)], |_| {})
            .pod("large", &[("cpu", 4_000), ("memory", GI)], |_| {})
            .pod("alien", &[("cpu", 1_000), ("example.com/chip", 1)], |_| {})
            .pod("nothing", &[], |_| {});
        let tables = scene.tables();
        for (arguments, pod, score) in [
            ("{}", "cpu", 50 * 1_000),
            ("{}", "both", (50 + 75) * 1_000 / 2),
            ("{binpack.weight: 10, binpack.cpu: 3}", "both", (3 * 50 + 75) * 10_000 / 4),
            ("{binpack.memory: -5}", "both", (50 + 75) * 1_000 / 2),
            ("{binpack.cpu: 0}", "both", 75 * 1_000),
            ("{}", "gpu", 50 * 1_000),
            ("{binpack.resources: nvidia.com/gpu}", "gpu", (50 + 75) * 1_000 / 2),
            ("{binpack.resources: 'a, nvidia.com/gpu', binpack.resources.nvidia.com/gpu: 2}", "gpu", 200_000 / 3),
            ("{binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: '2'}", "gpu", 125_000 / 2),
            // What does not fit scores nothing, not even for what does.
            ("{}", "large", 0),
            // A node without the resource counts as empty of it.
            ("{binpack.resources: example.com/chip}", "alien", 50 * 1_000 / 2),
            ("{}", "nothing", 0),
            // Its GPUs are kept for whoever asks for one.
            ("{binpack.spared: 'a, nvidia.com/gpu'}", "cpu", 50 * 1_000),
            ("{binpack.spared: nvidia.com/gpu, binpack.weight: 2}", "large", 0),
            ("{binpack.spared: nvidia.com/gpu}", "gpu", FULL + 50 * 1_000),
            ("{binpack.spared: a}", "cpu", FULL + 50 * 1_000),
        ] {
            let plugin = BinPack::new(&config("binpack", arguments));
            let found = plugin.score(&tables, class_of(&tables, pod), node_of(&tables, "n1"));
            assert_eq!(found, score, "{pod} with {arguments}");
        }
    }
}
