//! `network-topology-aware`: which parts of the network a gang is tried in, in which order, and which node of them is
//! best. Volcano's formulas; scores are `100 x weight` for a node, `HYPER_SCORE_ONE x weight` for a HyperNode.
//!
//! What HyperNodes hold is summed up once a cycle and followed by `moved`.

use crate::cluster::classes::ClassRow;
use crate::config::{Argument, PluginConfig};
use crate::ids::{DimId, GroupId, HyperId, NodeId, TaskId, TimeMs};
use crate::plugin::{HyperSearch, Plugin};
use crate::resource_dims::Demand;
use crate::world::groups::GroupRow;
use crate::world::sub_jobs::Reach;
use crate::world::tables::{Move, Tables};

mod domains_in_use;
mod sums;

use domains_in_use::DomainsInUse;
use sums::Sums;

pub(crate) const ARGUMENTS: &[&str] = &[
    "weight",
    "hypernode.binpack.cpu",
    "hypernode.binpack.memory",
    "hypernode.binpack.resources",
    "hypernode.binpack.resources.*",
    "hypernode.binpack.normal-pod.enable",
    "hypernode.binpack.normal-pod.fading",
    "hypernode.gradient.evict.max-hypernodes",
];
/// Arguments that begin so name a resource of their own.
const RESOURCE_PREFIX: &str = "hypernode.binpack.resources.";

/// A full HyperNode's score at weight 1. Finer than a node's, for close calls.
pub(crate) const HYPER_SCORE_ONE: i64 = 1_000_000;
const NODE_SCORE_ONE: f64 = 100.0;
const EVICT_HYPER_NODES: usize = 8;
/// What a tier counts for a normal pod, compared with the tier below it.
const FADING: f64 = 0.8;

#[derive(Debug)]
pub(crate) struct NetworkTopologyAware {
    weight: i64,
    /// What of each resource counts when a HyperNode's fill is worked out.
    resources: Vec<(String, i64)>,
    normal_pods: bool,
    fading: f64,
    evict_max: usize,
    domains_in_use: DomainsInUse,
    sums: Sums,
}

impl NetworkTopologyAware {
    pub(crate) fn new(config: &PluginConfig) -> Self {
        let mut resources = vec![
            ("cpu".to_owned(), config.int("hypernode.binpack.cpu", 1)),
            ("memory".to_owned(), config.int("hypernode.binpack.memory", 1)),
        ];
        let named = match config.arguments.get("hypernode.binpack.resources") {
            Some(Argument::Text(names)) => names.as_str(),
            _ => "",
        };
        for name in named.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            resources.push((name.to_owned(), config.int(&format!("{RESOURCE_PREFIX}{name}"), 1)));
        }
        // Volcano takes a negative weight as 1.
        resources.iter_mut().filter(|(_, weight)| *weight < 0).for_each(|(_, weight)| *weight = 1);
        let evict_max = usize::try_from(config.int("hypernode.gradient.evict.max-hypernodes", 0));
        Self {
            weight: config.int("weight", 1),
            resources,
            normal_pods: config.bool("hypernode.binpack.normal-pod.enable", true),
            fading: match config.arguments.get("hypernode.binpack.normal-pod.fading") {
                Some(Argument::Float(value)) if *value >= 0.0 => *value,
                Some(Argument::Int(value)) if *value >= 0 => *value as f64,
                _ => FADING,
            },
            evict_max: evict_max.ok().filter(|max| *max > 0).unwrap_or(EVICT_HYPER_NODES),
            domains_in_use: DomainsInUse::default(),
            sums: Sums::default(),
        }
    }

    /// Where a search begins: the given HyperNode, cut down to where the pods that run already allow others.
    fn search_root(&self, tables: &Tables, search: &HyperSearch<'_>, tier_max: u32) -> Option<(HyperId, bool)> {
        let hyper = &tables.hyper_nodes;
        let Some(lies_in) = hyper.lowest_with(tables.nodes_of(search.group, search.sub_job)) else {
            return Some((search.within, false));
        };
        let allowed = hyper.highest_within(lies_in, tier_max)?;
        if hyper.holds(allowed, search.within) {
            Some((search.within, true))
        } else if hyper.holds(search.within, allowed) {
            Some((allowed, true))
        } else {
            None
        }
    }
}

/// The pods of one part must lie together, or those of the whole group.
fn is_bound(tables: &Tables, row: &GroupRow, sub_job: u32) -> bool {
    let bound = |reach: Reach| matches!(reach, Reach::Tier(_));
    (row.topology.is_some() && bound(row.reach(&tables.hyper_nodes)))
        || (!row.sub_jobs.is_empty() && bound(row.reach_of(sub_job, &tables.hyper_nodes)))
}

impl Plugin for NetworkTopologyAware {
    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        self.domains_in_use.clear();
        let dims = self.resources.iter().filter(|(_, weight)| *weight > 0);
        let dims = dims.filter_map(|(name, weight)| Some((tables.dims.lookup(name)?, *weight))).collect();
        self.sums = if tables.hyper_nodes.any() { Sums::new(tables, dims) } else { Sums::default() };
    }

    fn follows_moves(&self) -> bool {
        true
    }

    fn moved(&mut self, tables: &Tables, change: Move) {
        if tables.hyper_nodes.any() {
            self.sums.follow(tables, change);
            self.domains_in_use.follow(tables, change.task);
        }
    }

    fn hyper_gradients(&self, tables: &Tables, search: &HyperSearch<'_>) -> Option<Vec<Vec<HyperId>>> {
        let hyper = &tables.hyper_nodes;
        let row = tables.groups.row(search.group);
        let reach = search.sub_job.map_or_else(|| row.reach(hyper), |sub_job| row.reach_of(sub_job, hyper));
        let tier_max = match reach {
            Reach::Free => return Some(vec![vec![search.within]]),
            Reach::UnknownTier(_) => return Some(Vec::new()),
            Reach::Tier(tier) => tier,
        };
        let Some((root, placed)) = self.search_root(tables, search, tier_max) else { return Some(Vec::new()) };
        let mut tiers = hyper.below(root, tier_max);
        if !placed {
            for hypers in tiers.values_mut() {
                hypers.retain(|hyper| has_room(tables, *hyper, search.need, search.evict));
            }
        }
        let tiers = tiers.into_values().filter(|hypers| !hypers.is_empty());
        if !search.evict {
            return Some(tiers.collect());
        }
        // Widest first: victims are many there.
        let mut left = self.evict_max;
        let mut widest: Vec<Vec<HyperId>> = tiers.collect();
        widest.reverse();
        for hypers in &mut widest {
            hypers.truncate(left);
            left -= hypers.len();
        }
        widest.retain(|hypers| !hypers.is_empty());
        Some(widest)
    }

    fn score_hyper_nodes(&self, tables: &Tables, search: &HyperSearch<'_>, hypers: &[HyperId], scores: &mut [i64]) {
        let row = tables.groups.row(search.group);
        let of_part = |task: &&TaskId| search.sub_job.is_none_or(|part| part == tables.task(**task).sub_job);
        let tasks: Vec<TaskId> = row.tasks.iter().filter(of_part).copied().collect();
        let mut asked = Vec::new();
        for task in &tasks {
            tables.classes.row(tables.task(*task).class).demand.add_to(&mut asked, 1);
        }
        let amount = |dim: DimId| asked.get(dim.index()).copied().unwrap_or(0);
        let mut fills: Vec<f64> =
            hypers.iter().map(|hyper| self.sums.fill(*hyper, amount, true).unwrap_or(0.0)).collect();
        let most = fills.iter().copied().fold(0.0, f64::max);
        if fills.iter().filter(|fill| **fill == most).count() > 1 {
            let nodes: Vec<NodeId> = tables.nodes_of(search.group, search.sub_job).collect();
            for (hyper, fill) in hypers.iter().zip(&mut fills).filter(|(_, fill)| **fill == most) {
                let inside = nodes.iter().filter(|node| tables.hyper_nodes.row(*hyper).nodes.contains(node.index()));
                *fill += inside.count() as f64 / tasks.len().max(1) as f64;
            }
        }
        for (score, fill) in scores.iter_mut().zip(fills) {
            let part = self.weight.saturating_mul((fill * HYPER_SCORE_ONE as f64) as i64);
            *score = score.saturating_add(part);
        }
    }

    fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        if self.weight == 0 || !tables.hyper_nodes.any() {
            return false;
        }
        let task = tables.task(task);
        self.normal_pods || task.group.is_some_and(|group| is_bound(tables, tables.groups.row(group), task.sub_job))
    }

    /// It only scores: where one pod finds no room none like it does.
    fn stands_alone(&self, _tables: &Tables, _task: TaskId) -> bool {
        false
    }

    fn scores_nodes(&self) -> bool {
        false
    }

    fn score_task(&self, tables: &Tables, task: TaskId, nodes: &[NodeId], scores: &mut [i64]) {
        let row = tables.task(task);
        let bound = row.group.filter(|group| is_bound(tables, tables.groups.row(*group), row.sub_job));
        let by_hyper = match bound {
            Some(group) => self.near(tables, group, row.sub_job, nodes),
            None if self.normal_pods => self.filled(tables, &tables.classes.row(row.class).demand),
            None => return,
        };
        for (node, score) in nodes.iter().zip(scores) {
            let lowest = tables.hyper_nodes.of_node(*node).first();
            let part = lowest.map_or(0, |hyper| by_hyper[hyper.index()]);
            *score = score.saturating_add(self.weight.saturating_mul(part));
        }
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }
}

impl NetworkTopologyAware {
    /// How near the nodes of each HyperNode lie to the group's pods; among the nearest, by the part's pods there.
    fn near(&self, tables: &Tables, group: GroupId, sub_job: u32, nodes: &[NodeId]) -> Vec<i64> {
        let hyper = &tables.hyper_nodes;
        let mut scores = vec![0; hyper.ids().len()];
        let held = self.domains_in_use.of(tables, group);
        let Some(lies_in) = held.common(tables) else { return scores };
        let lowest_tier = hyper.ids().map(|id| hyper.row(id).tier).min().unwrap_or(0);
        let span = f64::from(hyper.root_tier().saturating_sub(lowest_tier).max(1));
        let mut seen = vec![false; scores.len()];
        for node in nodes {
            if let Some(id) = hyper.of_node(*node).first() {
                seen[id.index()] = true;
            }
        }
        let ids: Vec<HyperId> = hyper.ids().filter(|id| seen[id.index()]).collect();
        let mut parts: Vec<f64> = ids
            .iter()
            .map(|id| {
                let above = hyper.row(hyper.common(*id, lies_in)).tier;
                if *id == lies_in { 1.0 } else { f64::from(hyper.root_tier() - above) / span }
            })
            .collect();
        let nearest = parts.iter().copied().fold(0.0, f64::max);
        let tasks = held.tasks_of(tables, group, sub_job).max(1) as f64;
        for (id, part) in ids.iter().zip(&mut parts).filter(|(_, part)| **part == nearest) {
            *part += f64::from(held.inside(sub_job, *id)) / tasks;
        }
        for (id, part) in ids.iter().zip(parts) {
            scores[id.index()] = (part * NODE_SCORE_ONE) as i64;
        }
        scores
    }

    /// How full the HyperNodes around a node are with one more pod, tier by tier, the lower counting more. A node that
    /// lies in no HyperNode of a tier counts as full there: such nodes are for pods that don't need the network.
    fn filled(&self, tables: &Tables, demand: &Demand) -> Vec<i64> {
        let hyper = &tables.hyper_nodes;
        let root = hyper.root();
        let fills: Vec<Option<f64>> = hyper.ids().map(|id| self.sums.fill(id, |dim| demand.get(dim), false)).collect();
        let mut tiers: Vec<u32> = hyper.ids().filter(|id| *id != root).map(|id| hyper.row(id).tier).collect();
        tiers.sort_unstable();
        tiers.dedup();
        let weights: Vec<f64> = tiers
            .iter()
            .map(|tier| self.fading.powi(i32::try_from(tier.saturating_sub(1)).unwrap_or(i32::MAX)))
            .collect();
        let whole: f64 = weights.iter().sum();
        let score = |id: HyperId| {
            let mut sum = 0.0;
            for (tier, weight) in tiers.iter().zip(&weights) {
                let around = hyper.path(id).find(|above| *above != root && hyper.row(*above).tier == *tier);
                sum += weight * around.map_or(1.0, |above| fills[above.index()].unwrap_or(0.0));
            }
            if whole > 0.0 { (sum / whole * NODE_SCORE_ONE) as i64 } else { 0 }
        };
        hyper.ids().map(score).collect()
    }
}

/// Is there as much in all as is asked for: idle now, or when all that leaves is gone; or at all, where others are to
/// be evicted?
fn has_room(tables: &Tables, hyper: HyperId, need: &[(DimId, i64)], evict: bool) -> bool {
    let row = tables.hyper_nodes.row(hyper);
    let nodes = &tables.nodes;
    let sum = |of: &dyn Fn(NodeId) -> i64| row.nodes.ones().map(|node| of(node.into())).fold(0, i64::saturating_add);
    let fits =
        |of: &dyn Fn(NodeId, DimId) -> i64| need.iter().all(|(dim, amount)| *amount <= sum(&|node| of(node, *dim)));
    if evict {
        return fits(&|node, dim| nodes.allocatable(node, dim));
    }
    fits(&|node, dim| nodes.idle(node, dim)) || fits(&|node, dim| nodes.future_idle(node, dim))
}

#[cfg(test)]
mod tests;
