//! What a cluster says of its nodes, as the engine's facts of each pool.

use std::collections::{BTreeMap, BTreeSet};

use pumice_engine::{
    Delta, NODE_CLOSED, NodeFacts, NodeName, PodFacts, PodPhase, PodTemplate, PodUid, Resources, Taint, TaintEffect,
};
use pumice_fleet_model::names::CLUSTER_LABEL;
use pumice_fleet_scheduling::{node_delta, node_name};
use pumice_units::Quantity;
use pumice_wire::executor as wire;

use crate::metrics::NodeCounts;

/// The pool of nodes that name none.
pub const DEFAULT_POOL: &str = "default";
/// Queues and pools of which a cluster may say what they use.
const USAGES_MAX: usize = 10_000;
/// What is measured of pods.
const MEASURED: [&str; 2] = ["cpu", "memory"];

/// Whether anything new is to start on the nodes of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Openness {
    Open,
    /// People say that it is not.
    Cordoned,
    /// Nobody speaks for it.
    Away,
}

/// The nodes of a cluster and their pools.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Pool and facts of each.
    nodes: BTreeMap<NodeName, (String, NodeFacts)>,
}

impl Nodes {
    /// Takes in what was said; what pools are to be told of it. Nothing new is to start there but where it is open.
    pub(super) fn take(&mut self, cluster: &str, nodes: wire::Nodes, openness: Openness) -> Vec<(String, Delta)> {
        let mut told = Vec::new();
        let named: BTreeSet<&str> = nodes.nodes.iter().map(|node| node.name.as_str()).collect();
        let missing = self.nodes.keys().filter(|name| nodes.complete && !named.contains(name.as_str()));
        let missing = missing.map(NodeName::as_str);
        let gone: Vec<NodeName> = nodes.removed.iter().map(String::as_str).chain(missing).map(NodeName::from).collect();
        for name in gone {
            self.remove(cluster, &name, &mut told);
        }
        for node in nodes.nodes {
            let pool = if node.pool.is_empty() { DEFAULT_POOL.to_owned() } else { node.pool.clone() };
            if self.nodes.get(node.name.as_str()).is_some_and(|(before, _)| *before != pool) {
                self.remove(cluster, &node.name, &mut told);
            }
            told.push((pool.clone(), others(cluster, &node)));
            let mut facts = facts(node);
            if let Some(name) = facts.labels.get_mut(CLUSTER_LABEL) {
                // The executor says that its cluster runs Volcano jobs; which one it is, is known here.
                cluster.clone_into(name);
            }
            self.nodes.insert(facts.name.clone(), (pool.clone(), facts.clone()));
            told.push((pool, node_upsert(cluster, facts, openness)));
        }
        told
    }

    /// All of them, as pools are to know them: nothing new is to start there but where it is open.
    pub(super) fn all(&self, cluster: &str, openness: Openness) -> Vec<(String, Delta)> {
        let told = |(pool, facts): &(String, NodeFacts)| (pool.clone(), node_upsert(cluster, facts.clone(), openness));
        self.nodes.values().map(told).collect()
    }

    /// All of them, as the cluster says.
    pub(super) fn facts(&self) -> impl Iterator<Item = &NodeFacts> + Clone {
        self.nodes.values().map(|(_, facts)| facts)
    }

    /// There are none any more.
    pub(super) fn forget(&mut self, cluster: &str) -> Vec<(String, Delta)> {
        let none = wire::Nodes { complete: true, ..wire::Nodes::default() };
        self.take(cluster, none, Openness::Away)
    }

    /// Whether there is a node of this name.
    pub(super) fn has(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// The value of a node's label.
    pub(super) fn label(&self, node: &str, label: &str) -> Option<&str> {
        self.nodes.get(node)?.1.labels.get(label).map(String::as_str)
    }

    /// What there is by pool; nobody takes new pods where no session is `open`. O(nodes).
    pub(super) fn counts(&self, open: bool) -> BTreeMap<String, NodeCounts> {
        let mut pools: BTreeMap<String, NodeCounts> = BTreeMap::new();
        for (pool, facts) in self.nodes.values() {
            if !pools.contains_key(pool) {
                pools.insert(pool.clone(), NodeCounts::default());
            }
            let Some(counts) = pools.get_mut(pool) else { continue };
            counts.nodes += 1;
            add(&mut counts.capacity, &facts.allocatable);
            if open && !facts.unschedulable {
                counts.open += 1;
                add(&mut counts.available, &facts.allocatable);
            }
        }
        pools
    }

    fn remove(&mut self, cluster: &str, name: &str, told: &mut Vec<(String, Delta)>) {
        if let Some((pool, _)) = self.nodes.remove(name) {
            told.push((pool.clone(), Delta::TaskRemove(others_uid(cluster, name))));
            told.push((pool, Delta::NodeRemove(node_name(cluster, name))));
        }
    }
}

/// A node as its pool knows it. Whoever waits is told why it takes nothing, where nobody has cordoned it.
fn node_upsert(cluster: &str, mut facts: NodeFacts, openness: Openness) -> Delta {
    if openness == Openness::Away {
        facts.annotations.insert(NODE_CLOSED.to_owned(), format!("of cluster {cluster}, which is not heard of"));
    }
    node_delta(cluster, NodeFacts { unschedulable: facts.unschedulable || openness != Openness::Open, ..facts })
}

/// A node as the engine knows it, but for the name of its cluster.
pub fn facts(node: wire::NodeState) -> NodeFacts {
    let taints = node.taints.into_iter().filter_map(|taint| {
        let effect = match taint.effect.as_str() {
            "NoSchedule" => TaintEffect::NoSchedule,
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            _ => return None,
        };
        Some(Taint { key: taint.key, value: taint.value, effect })
    });
    NodeFacts {
        allocatable: amounts(&node.allocatable, 0),
        taints: taints.collect(),
        unschedulable: node.unschedulable,
        labels: node.labels.into_iter().collect(),
        name: node.name.into(),
        ..NodeFacts::default()
    }
}

/// What others use of a node, as one pod that is not ours.
fn others(cluster: &str, node: &wire::NodeState) -> Delta {
    let uid = others_uid(cluster, &node.name);
    Delta::TaskUpsert(Box::new(PodFacts {
        name: uid.to_string(),
        namespace: "kube-system".to_owned(),
        uid,
        node: Some(node_name(cluster, &node.name)),
        phase: PodPhase::Running,
        // What can't be read counts as all there is.
        template: PodTemplate { requests: amounts(&node.used_by_others, i64::MAX), ..PodTemplate::default() }.into(),
        ..PodFacts::default()
    }))
}

fn others_uid(cluster: &str, node: &str) -> PodUid {
    format!("others/{}", node_name(cluster, node)).into()
}

fn add(sum: &mut BTreeMap<String, i128>, more: &Resources) {
    for (name, amount) in more {
        match sum.get_mut(name) {
            Some(sum) => *sum += i128::from(*amount),
            None => drop(sum.insert(name.clone(), i128::from(*amount))),
        }
    }
}

/// What pods use, by queue and pool: the first of what was said, as far as it can be read.
pub(super) fn used(usage: wire::Usage) -> BTreeMap<(String, String), BTreeMap<String, i128>> {
    let mut used: BTreeMap<(String, String), BTreeMap<String, i128>> = BTreeMap::new();
    for said in usage.queues.into_iter().take(USAGES_MAX) {
        let pool = if said.pool.is_empty() { DEFAULT_POOL.to_owned() } else { said.pool };
        let known = said.used.iter().filter(|(name, _)| MEASURED.contains(&name.as_str()));
        add(used.entry((said.queue, pool)).or_default(), &amounts(known, 0));
    }
    used
}

/// cpu in milli-cores, all else in whole units.
fn amounts<'q>(quantities: impl IntoIterator<Item = (&'q String, &'q String)>, unreadable: i64) -> Resources {
    let read = |name: &str, text: &str| match text.parse::<Quantity>() {
        Ok(quantity) if name == "cpu" => quantity.cpu_milli(),
        Ok(quantity) => quantity.value(),
        Err(_) => unreadable,
    };
    quantities.into_iter().map(|(name, text)| (name.clone(), read(name, text))).collect()
}
