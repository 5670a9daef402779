//! `numa-aware`: nodes whose kubelet could give a Guaranteed pod the cpus that its topology policy asks for, those
//! first where they lie on the fewest NUMA nodes.
//!
//! What the kubelet will do is worked out as it does it: hints per container (`hints`), merged by policy, then cpus by
//! sockets, cores and threads (`assign`). A choice counts at once and until the Numatopology shows the pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::classes::ClassRow;
use crate::config::PluginConfig;
use crate::facts::{NumaFacts, PodTemplate};
use crate::ids::{NodeId, TaskId, TimeMs};
use crate::reasons::Check;
use crate::world::tables::{Move, Tables};
use crate::world::tasks::TaskState;

use super::decisions::Decisions;
use super::per_node::PerNode;
use crate::plugin::Plugin;
use crate::plugin::score::{FULL, ratio};

mod assign;
mod hints;

use hints::Policy;

pub(crate) const ARGUMENTS: &[&str] = &["weight"];
/// The topology policy that a pod asks for.
pub(crate) const POLICY: &str = "volcano.sh/numa-topology-policy";
/// What the pod is told: how much it gets of each NUMA node.
const DECISION: &str = "volcano.sh/topology-decision";

type Cpus = BTreeSet<u32>;

#[derive(Debug)]
pub(crate) struct NumaAware {
    weight: i64,
    nodes: PerNode<Option<Topology>>,
    decisions: Decisions<(NodeId, Cpus)>,
}

/// A node's Numatopology, less what was promised since.
#[derive(Debug)]
struct Topology {
    facts: Arc<NumaFacts>,
    policy: Option<Policy>,
    free: Cpus,
}

impl NumaAware {
    pub(crate) fn new(config: &PluginConfig) -> Self {
        Self { weight: config.int("weight", 1), nodes: PerNode::default(), decisions: Decisions::default() }
    }

    /// The cpus that the pod would get: of nothing for pods that need none of their own there, `None` where the
    /// kubelet would refuse the pod or its policy is another.
    fn choose(&self, template: &PodTemplate, node: NodeId) -> Option<Cpus> {
        let topology = self.nodes.get(node).and_then(Option::as_ref);
        let fixed = topology.filter(|topology| topology.facts.cpu_manager == "static");
        let policy = match requested_policy(template) {
            _ if !template.guaranteed => return Some(Cpus::new()),
            None => match fixed.and_then(|topology| topology.policy) {
                Some(policy) => policy,
                None => return Some(Cpus::new()),
            },
            Some(name) => {
                let topology = fixed.filter(|topology| !topology.free.is_empty())?;
                if topology.facts.topology_manager != name {
                    return None;
                }
                topology.policy?
            }
        };
        let topology = fixed?;
        let mut free = topology.free.clone();
        let mut chosen = Cpus::new();
        for container in template.containers.iter().filter(|container| !container.init) {
            let wanted = whole_cpus(container.requests.get("cpu").copied().unwrap_or(0));
            let near = policy.admit(&topology.facts, &free, wanted)?;
            let taken = assign::take(&topology.facts, &free, &near, wanted)?;
            free.retain(|cpu| !taken.contains(cpu));
            chosen.extend(taken);
        }
        Some(chosen)
    }

    fn repair(&mut self, tables: &Tables) {
        let Self { nodes, decisions, .. } = self;
        nodes.repair(tables, |node, entry| *entry = of_node(tables, decisions, node));
    }

    fn numa_nodes(&self, node: NodeId, cpus: &Cpus) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        if let Some(topology) = self.nodes.get(node).and_then(Option::as_ref) {
            for place in cpus.iter().filter_map(|cpu| topology.facts.cpus.get(cpu)) {
                *counts.entry(place.numa).or_default() += 1;
            }
        }
        counts
    }
}

/// The policy that the pod asks for, where it asks for one.
fn requested_policy(template: &PodTemplate) -> Option<&str> {
    template.annotations.get(POLICY).map(String::as_str).filter(|name| !name.is_empty() && *name != "none")
}

/// Cpus of its own a container gets: only where it asks for whole ones.
fn whole_cpus(milli: i64) -> usize {
    if milli > 0 && milli % 1_000 == 0 { usize::try_from(milli / 1_000).unwrap_or(usize::MAX) } else { 0 }
}

fn of_node(tables: &Tables, decisions: &Decisions<(NodeId, Cpus)>, node: NodeId) -> Option<Topology> {
    let row = tables.nodes.table.get(node.index())?;
    let facts = tables.objects.numa.all.get(&*row.name)?.clone();
    let mut free: Cpus = facts.free_cpus.iter().copied().filter(|cpu| facts.cpus.contains_key(cpu)).collect();
    for task in row.tasks.iter().map(|task| tables.task(*task)).filter(|task| task.state.holds_node()) {
        if let Some((_, cpus)) = decisions.get(task) {
            free.retain(|cpu| !cpus.contains(cpu));
        }
    }
    let policy = Policy::named(&facts.topology_manager);
    Some(Topology { facts, policy, free })
}

impl Plugin for NumaAware {
    fn in_thousandths(&self) -> bool {
        true
    }

    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        self.decisions.prune(tables, |task| {
            let node = task.node.map(|node| &*tables.nodes.row(node).name);
            let facts = node.and_then(|name| tables.objects.numa.all.get(name));
            facts.is_some_and(|facts| facts.shown_pods.iter().any(|uid| **uid == *task.uid))
        });
        self.repair(tables);
    }

    fn follows_moves(&self) -> bool {
        true
    }

    fn moved(&mut self, tables: &Tables, change: Move) {
        let row = tables.task(change.task);
        let node = if row.state.holds_node() { row.node } else { None };
        if let Some(at) = self.decisions.take_misplaced(row, node) {
            self.nodes.renew(at);
        }
        // The books don't show a pod that has just been given room: it does not stand in its own way.
        let chosen = if row.state == TaskState::Allocated && self.decisions.get(row).is_none() { node } else { None };
        if let Some(node) = chosen {
            let template = &tables.classes.row(row.class).template;
            if let Some(cpus) = self.choose(template, node).filter(|cpus| !cpus.is_empty()) {
                self.decisions.keep(row, (node, cpus));
                self.nodes.renew(node);
            }
        }
        self.repair(tables);
    }

    fn check_use(&self, _tables: &Tables, class: &ClassRow, node: NodeId) -> Option<Check> {
        self.choose(&class.template, node).is_none().then_some(Check::Numa)
    }

    fn checks_use_of(&self, class: &ClassRow) -> bool {
        class.template.guaranteed
    }

    fn scores_nodes(&self) -> bool {
        false
    }

    fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        let template = &tables.classes.row(tables.task(task).class).template;
        template.guaranteed && requested_policy(template).is_some()
    }

    fn stands_alone(&self, _tables: &Tables, _task: TaskId) -> bool {
        false
    }

    fn score_task(&self, tables: &Tables, task: TaskId, nodes: &[NodeId], scores: &mut [i64]) {
        let template = &tables.classes.row(tables.task(task).class).template;
        let spans = |node: &NodeId| {
            let cpus = self.choose(template, *node).unwrap_or_default();
            self.numa_nodes(*node, &cpus).len() as i64
        };
        let spans: Vec<i64> = nodes.iter().map(spans).collect();
        let most = spans.iter().copied().max().unwrap_or(0);
        for (span, total) in spans.into_iter().zip(scores) {
            let score = FULL - ratio(span, most, FULL);
            *total = total.saturating_add(score.saturating_mul(self.weight));
        }
    }

    fn bind_annotations(&self, tables: &Tables, task: TaskId, node: NodeId) -> Vec<(String, String)> {
        let row = tables.task(task);
        let Some((at, cpus)) = self.decisions.get(row) else { return Vec::new() };
        if *at != node || requested_policy(&tables.classes.row(row.class).template).is_none() {
            return Vec::new();
        }
        let counts = self.numa_nodes(node, cpus);
        let parts: Vec<String> =
            counts.iter().map(|(numa, count)| format!(r#""{numa}":{{"cpu":"{count}"}}"#)).collect();
        vec![(DECISION.to_owned(), format!(r#"{{"numa":{{{}}}}}"#, parts.join(",")))]
    }
}

#[cfg(test)]
mod tests;
