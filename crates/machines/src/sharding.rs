//! The sharding machine: the nodes of a cluster, shared out among several schedulers.
//!
//! Invariant: no node is in two shards of one plan, and all shards of a plan come from one computation over all nodes: either
//! every shard that differs is written, or none. Called by the sharding controller now and then, and when nodes or shards come
//! and go.

mod config;
mod policies;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use pumice_api::shard::{NodeShard, NodeShardSpec};
use pumice_units::Quantity;

pub use config::{Sharding, ShardingError};

/// On pods that a kubelet made of files of its own.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What a node has, and what of it is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    pub labels: BTreeMap<String, String>,
    /// Its CPUs, in thousandths.
    pub capacity_milli: i64,
    /// What the containers of its pods ask for, in thousandths of a CPU.
    pub requested_milli: i64,
}

/// What a step looks at.
pub struct ShardingView<'a> {
    /// Who gets which nodes.
    pub config: &'a Sharding,
    /// Every node by name.
    pub nodes: &'a BTreeMap<String, NodeLoad>,
    /// Every shard by name.
    pub shards: &'a BTreeMap<String, &'a NodeShard>,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum ShardEffect {
    Create(Box<NodeShard>),
    /// Give a shard these nodes.
    SetNodes {
        name: String,
        /// All its nodes from now on.
        nodes: Vec<String>,
    },
    /// Delete the shard of a scheduler that is not configured; the uid guards a namesake.
    Delete {
        name: String,
        uid: String,
    },
    /// Tell in a shard's status what its scheduler has still to do.
    WriteStatus {
        name: String,
        /// Nodes that it is to take.
        to_add: Vec<String>,
        /// Nodes that it is to give up.
        to_remove: Vec<String>,
    },
}

/// Changes to make in their order, and what people should know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardingPlan {
    pub effects: Vec<ShardEffect>,
    /// Nodes that are in no shard, since no scheduler's policies want them.
    pub left_over: usize,
}

/// Shares all nodes out anew, and decides what to write. `O(schedulers × nodes log nodes)`.
pub fn share_out(view: &ShardingView<'_>) -> ShardingPlan {
    let wanted = view.config.assign(view.nodes);
    let is_wanted = |name: &str| wanted.iter().any(|(scheduler, _)| scheduler == name);
    let mut plan = ShardingPlan { left_over: left_over(view, &wanted), ..ShardingPlan::default() };
    for (name, shard) in view.shards {
        if !is_wanted(name) && shard.metadata.deletion_timestamp.is_none() {
            let uid = shard.metadata.uid.clone().unwrap_or_default();
            plan.effects.push(ShardEffect::Delete { name: name.clone(), uid });
        }
    }
    if !is_worth_it(view, &wanted) {
        return plan;
    }
    // Who gives nodes away is told before those who get them.
    let mut changes: Vec<(usize, ShardEffect)> = Vec::new();
    for (name, nodes) in wanted {
        let held = view.shards.get(&name).map(|shard| names_of(shard));
        let sorted = || nodes.iter().map(|node| (*node).to_owned()).collect::<Vec<_>>();
        let taken = nodes.iter().filter(|node| held.as_ref().is_none_or(|held| !held.contains(*node))).count();
        match held {
            None => changes.push((taken, ShardEffect::Create(Box::new(shard(&name, sorted()))))),
            Some(held) if held != nodes => changes.push((taken, ShardEffect::SetNodes { nodes: sorted(), name })),
            Some(_) => {}
        }
    }
    changes.sort_by_key(|(taken, _)| *taken);
    plan.effects.extend(changes.into_iter().map(|(_, effect)| effect));
    plan
}

/// What the status of each shard has to say, by what it is to have and what its scheduler says it has.
pub fn tell(shards: &BTreeMap<String, &NodeShard>) -> Vec<ShardEffect> {
    let told = |(name, shard): (&String, &&NodeShard)| {
        let desired = names_of(shard);
        let in_use: BTreeSet<&str> = shard.status.nodes_in_use.iter().map(String::as_str).collect();
        let differ = |of: &BTreeSet<&str>, from: &BTreeSet<&str>| -> Vec<String> {
            of.difference(from).map(|node| (*node).to_owned()).collect()
        };
        let (to_add, to_remove) = (differ(&desired, &in_use), differ(&in_use, &desired));
        let is_told = to_add == shard.status.nodes_to_add && to_remove == shard.status.nodes_to_remove;
        if is_told || shard.metadata.deletion_timestamp.is_some() {
            return None;
        }
        Some(ShardEffect::WriteStatus { name: name.clone(), to_add, to_remove })
    };
    shards.iter().filter_map(told).collect()
}

type Wanted<'a> = Vec<(String, BTreeSet<&'a str>)>;

fn left_over(view: &ShardingView<'_>, wanted: &Wanted<'_>) -> usize {
    let shared: usize = wanted.iter().map(|(_, nodes)| nodes.len()).sum();
    view.nodes.len().saturating_sub(shared)
}

/// Whether the shards differ enough to be written: a few nodes that change sides are not worth the work of handing them over.
fn is_worth_it(view: &ShardingView<'_>, wanted: &Wanted<'_>) -> bool {
    let mut seen = BTreeSet::new();
    wanted.iter().any(|(name, nodes)| {
        let Some(held) = view.shards.get(name).map(|shard| names_of(shard)) else { return true };
        let new = nodes.difference(&held).count();
        let is_sound = held.iter().all(|node| view.nodes.contains_key(*node) && seen.insert(*node));
        !is_sound || held.len() != nodes.len() || new >= (nodes.len() / 10).max(1)
    })
}

fn names_of(shard: &NodeShard) -> BTreeSet<&str> {
    shard.spec.nodes_desired.iter().map(String::as_str).collect()
}

fn shard(name: &str, nodes_desired: Vec<String>) -> NodeShard {
    let mut shard = NodeShard { spec: NodeShardSpec { nodes_desired }, ..NodeShard::default() };
    shard.metadata.name = Some(name.to_owned());
    shard
}

/// The CPUs of a node, in thousandths. Sharding counts CPUs and nothing else.
pub fn capacity_milli(node: &Node) -> i64 {
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    capacity.and_then(|all| all.get("cpu")).map_or(0, |cpu| milli(&cpu.0))
}

/// The node of a pod and what it asks of it, in thousandths of a CPU; nothing for pods that have no node, have ended, or are
/// a kubelet's own.
pub fn requested(pod: &Pod) -> Option<(&str, i64)> {
    let spec = pod.spec.as_ref()?;
    let node = spec.node_name.as_deref().filter(|node| !node.is_empty())?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_mirror = pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR));
    if is_mirror || matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let requests = spec.containers.iter().filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    let cpus = requests.filter_map(|requests| requests.get("cpu"));
    Some((node, cpus.fold(0, |sum: i64, cpu| sum.saturating_add(milli(&cpu.0)))))
}

fn milli(text: &str) -> i64 {
    text.parse::<Quantity>().map_or(0, Quantity::cpu_milli).max(0)
}

#[cfg(test)]
mod tests;
