//! Jobs away from home: on nodes that are kept for others, while those don't want them.
//!
//! A job that may be away stands in the pool twice: as itself, and as a twin that tolerates the taints of such nodes, wants
//! them, and counts with a lower priority in a queue of its own that goes after all others and deserves next to nothing. So
//! home jobs go first and take such nodes back before they take anything else. A round has two passes: twins have their turn
//! in the second, those alone whose jobs found nothing at home. Invariant: of a job and its twins at most one is proposed.
//!
//! Volcano jobs have no twins: where their pods go is for the scheduler of their cluster to say.

use std::collections::{BTreeMap, BTreeSet};

use pumice_engine::{
    Delta, GroupFacts, NodeFacts, NodeName, NodeTerm, Operator, Plan, PodFacts, PodUid, QueueFacts, Requirement,
    Resources, TaintEffect, TimeMs, Toleration,
};
use pumice_ledger::{Away, AwayToleration};
use rustc_hash::FxHashMap;

use crate::names;

/// Ends the name of the queue of twins; no queue's own name has it.
const AWAY: &str = " (away)";
/// Begins what the engine calls a twin, before its way's number and a point.
const TWIN: &str = "away";
/// Begins the name of a group of which it is part.
const GROUP: &str = "podgroup-";
/// A label of nodes of a kind, which twins want.
const KIND_LABEL: &str = "away.pumice.sh/";
/// How many times what queues at home deserve more than those away from it.
const HOME_WEIGHT: i32 = 1_000;
/// A job to which room at home is promised does not go away meanwhile.
const PROMISE_MS: i64 = 60_000;

/// Who may be away from home, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AwayRules {
    /// Ways by priority class, in the order in which they are tried.
    pub ways: BTreeMap<String, Vec<Way>>,
    /// What may start in which pool.
    pub pools: BTreeMap<String, PoolRules>,
    /// What may start in others.
    pub elsewhere: PoolRules,
}

/// What may start in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolRules {
    pub home: bool,
    /// Jobs away from it.
    pub away: bool,
    pub gangs: bool,
}

impl Default for PoolRules {
    fn default() -> Self {
        Self { home: true, away: true, gangs: true }
    }
}

/// One way to be away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// What counts instead of the class's value.
    pub priority: i32,
    pub kinds: Vec<NodeKind>,
}

/// Nodes that are kept for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeKind {
    /// What they are called.
    pub name: String,
    /// They have all of these.
    pub taints: Vec<AwayToleration>,
    /// Jobs that may be there fulfil all of these.
    pub conditions: Vec<Condition>,
}

/// What a job has to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub resource: String,
    pub compare: Compare,
    /// With how much: cpu in milli-cores, everything else in whole units.
    pub amount: i64,
}

/// How an amount compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    Greater,
    Less,
    /// It is the same.
    Equal,
}

impl AwayRules {
    /// What may start in the pool.
    pub fn of(&self, pool: &str) -> PoolRules {
        self.pools.get(pool).copied().unwrap_or(self.elsewhere)
    }
}

impl NodeKind {
    /// Whether a job that asks for this may be there.
    pub fn takes(&self, asked: &Resources) -> bool {
        self.conditions.iter().all(|condition| {
            let amount = asked.get(&condition.resource).copied().unwrap_or(0);
            match condition.compare {
                Compare::Greater => amount > condition.amount,
                Compare::Less => amount < condition.amount,
                Compare::Equal => amount == condition.amount,
            }
        })
    }

    fn is_of(&self, node: &NodeFacts) -> bool {
        let has = |wanted: &AwayToleration| {
            node.taints.iter().any(|taint| {
                wanted.key == taint.key
                    && wanted.value.as_ref().is_none_or(|value| *value == taint.value)
                    && wanted.effect.as_ref().is_none_or(|effect| effect_of(effect) == Some(taint.effect))
            })
        };
        self.taints.iter().all(has)
    }
}

fn effect_of(word: &str) -> Option<TaintEffect> {
    match word {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

/// The queue of a queue's twins.
pub(crate) fn queue_of_twins(queue: &str) -> String {
    format!("{queue}{AWAY}")
}

/// The queue whose twins a queue has.
pub(crate) fn home_of(queue: &str) -> Option<&str> {
    queue.strip_suffix(AWAY)
}

/// What the engine calls the priority class of jobs that are away with that priority.
fn class_name(priority: i32) -> String {
    format!("{TWIN}:{priority}")
}

fn uid_of_twin(way: usize, uid: &str) -> String {
    format!("{TWIN}{way}.{uid}")
}

fn group_of_twin(way: usize, group: &str) -> String {
    format!("{GROUP}{}", uid_of_twin(way, group.trim_start_matches(GROUP)))
}

/// The way and the job's own uid in that of a twin.
fn twin(uid: &str) -> Option<(usize, &str)> {
    let (way, uid) = uid.strip_prefix(TWIN)?.split_once('.')?;
    Some((way.parse().ok()?, uid))
}

/// A run that is away, as its pool is to know it.
pub(crate) fn put(facts: &mut PodFacts, away: &Away) {
    facts.priority_class = class_name(away.priority);
    facts.queue = facts.queue.take().map(|queue| queue_of_twins(&queue));
    let way = usize::try_from(away.way).unwrap_or(usize::MAX);
    facts.group = facts.group.take().map(|group| group_of_twin(way, &group));
}

/// Twins of the jobs that wait in a pool.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    ways: BTreeMap<String, Vec<Way>>,
    gangs: bool,
    /// Facts of jobs with twins, by uid, and the ways of these.
    jobs: FxHashMap<PodUid, (PodFacts, Vec<usize>)>,
    /// Jobs whose twins are held back: nothing, or until when.
    postponed: BTreeMap<PodUid, TimeMs>,
    /// Nodes of some kind.
    nodes: BTreeSet<NodeName>,
}

impl Ways {
    pub(crate) fn new(rules: &AwayRules, pool: &str) -> Self {
        let of_pool = rules.of(pool);
        let ways = if of_pool.away { rules.ways.clone() } else { BTreeMap::new() };
        Self { ways, gangs: of_pool.gangs, ..Self::default() }
    }

    /// Whether jobs of any class may run away from home in this pool.
    pub(crate) fn any(&self) -> bool {
        !self.ways.is_empty()
    }

    /// What has to be told before anything else.
    pub(crate) fn classes(&self) -> Vec<Delta> {
        let priorities: BTreeSet<i32> = self.ways.values().flatten().map(|way| way.priority).collect();
        let class = |value| Delta::PriorityClassUpsert { name: class_name(value), value, global_default: false };
        priorities.into_iter().map(class).collect()
    }

    /// What a change comes to, where anybody may be away.
    pub(crate) fn expand(&mut self, delta: &Delta) -> Vec<Delta> {
        match delta {
            Delta::NodeUpsert(facts) => vec![Delta::NodeUpsert(self.node(facts.clone()))],
            Delta::NodeRemove(name) => {
                self.nodes.remove(name);
                vec![delta.clone()]
            }
            Delta::QueueUpsert(facts) => {
                let weight = facts.weight;
                let away =
                    QueueFacts { name: queue_of_twins(&facts.name), priority: facts.priority - 1, ..facts.clone() };
                let home = QueueFacts { weight: weight.saturating_mul(HOME_WEIGHT), ..facts.clone() };
                vec![Delta::QueueUpsert(home), Delta::QueueUpsert(away)]
            }
            Delta::QueueRemove(name) => vec![delta.clone(), Delta::QueueRemove(queue_of_twins(name))],
            Delta::GroupUpsert(facts) => self.gang(facts),
            Delta::GroupRemove { namespace, name, uid } => {
                let most = self.ways.values().map(Vec::len).max().unwrap_or(0);
                let twin = |way| {
                    let (namespace, name) = (namespace.clone(), group_of_twin(way, name));
                    Delta::GroupRemove { namespace, name, uid: uid.clone() }
                };
                (0..most).map(twin).chain([delta.clone()]).collect()
            }
            Delta::TaskRemove(uid) => {
                let mut deltas = self.without_twins(uid);
                self.jobs.remove(uid);
                self.postponed.remove(uid);
                deltas.push(delta.clone());
                deltas
            }
            Delta::TaskUpsert(facts) => self.job(facts),
            other => vec![other.clone()],
        }
    }

    fn node(&mut self, mut facts: NodeFacts) -> NodeFacts {
        let kinds = self.ways.values().flatten().flat_map(|way| &way.kinds);
        let names: BTreeSet<&str> = kinds.filter(|kind| kind.is_of(&facts)).map(|kind| kind.name.as_str()).collect();
        if names.is_empty() {
            self.nodes.remove(&facts.name);
        } else {
            self.nodes.insert(facts.name.clone());
        }
        facts.labels.extend(names.into_iter().map(|name| (format!("{KIND_LABEL}{name}"), String::new())));
        facts
    }

    fn gang(&self, facts: &GroupFacts) -> Vec<Delta> {
        let may = self.gangs && !names::is_volcano_group(&facts.name);
        let of_class = if may { self.ways.get(&facts.priority_class) } else { None };
        let ways = of_class.into_iter().flatten().enumerate();
        let twin = |(index, way): (usize, &Way)| {
            Delta::GroupUpsert(Box::new(GroupFacts {
                uid: uid_of_twin(index, &facts.uid).into(),
                name: group_of_twin(index, &facts.name),
                queue: queue_of_twins(&facts.queue),
                priority_class: class_name(way.priority),
                preemptable: Some(true),
                ..facts.clone()
            }))
        };
        [Delta::GroupUpsert(Box::new(facts.clone()))].into_iter().chain(ways.map(twin)).collect()
    }

    fn job(&mut self, facts: &PodFacts) -> Vec<Delta> {
        let mut deltas = self.without_twins(&facts.uid);
        self.jobs.remove(&facts.uid);
        deltas.push(Delta::TaskUpsert(Box::new(facts.clone())));
        let may = names::pod_of(&facts.uid).is_none() && (self.gangs || facts.group.is_none());
        let waits = facts.node.is_none() && facts.mine && may;
        let of_class = if waits { self.ways.get(&facts.priority_class) } else { None };
        let Some(ways) = of_class else {
            self.postponed.remove(&facts.uid);
            return deltas;
        };
        let takes = |way: &Way| way.kinds.iter().any(|kind| kind.takes(&facts.template.requests));
        let ways: Vec<usize> = ways.iter().enumerate().filter(|(_, way)| takes(way)).map(|(index, _)| index).collect();
        if !ways.is_empty() {
            self.jobs.insert(facts.uid.clone(), (facts.clone(), ways));
            if !self.postponed.contains_key(&facts.uid) {
                deltas.extend(self.twins(&facts.uid));
            }
        }
        deltas
    }

    fn twins(&self, uid: &PodUid) -> Vec<Delta> {
        let Some((facts, ways)) = self.jobs.get(uid) else { return Vec::new() };
        let of_class = self.ways.get(&facts.priority_class);
        let ways = ways.iter().filter_map(|index| Some((*index, of_class?.get(*index)?)));
        ways.map(|(index, way)| Delta::TaskUpsert(Box::new(twin_of(facts, index, way)))).collect()
    }

    fn without_twins(&self, uid: &PodUid) -> Vec<Delta> {
        let known = if self.postponed.contains_key(uid) { None } else { self.jobs.get(uid) };
        let ways = known.into_iter().flat_map(|(_, ways)| ways);
        ways.map(|way| Delta::TaskRemove(uid_of_twin(*way, uid).into())).collect()
    }

    /// Before the first pass: twins that were held back for a promise have their turn again after a while.
    pub(crate) fn begin(&mut self, now: TimeMs) -> Vec<Delta> {
        let over: Vec<PodUid> =
            self.postponed.iter().filter(|(_, until)| **until <= now).map(|(uid, _)| uid.clone()).collect();
        over.iter().flat_map(|uid| self.again(uid)).collect()
    }

    /// After the first pass: those that found room at home, or are promised some, have no twins.
    pub(crate) fn settled(&mut self, first: &Plan, now: TimeMs) -> Vec<Delta> {
        let bound = first.binds.iter().map(|bind| (&bind.uid, TimeMs(i64::MAX)));
        let until = TimeMs(now.0.saturating_add(PROMISE_MS));
        let promised = first.pipelined.iter().map(|pipelined| (&pipelined.uid, until));
        let mut deltas = Vec::new();
        for (uid, until) in bound.chain(promised).filter(|(uid, _)| self.jobs.contains_key(*uid)).collect::<Vec<_>>() {
            deltas.extend(self.without_twins(uid));
            self.postponed.insert(uid.clone(), until);
        }
        deltas
    }

    /// Whether anybody has a turn in a second pass.
    pub(crate) fn have_turns(&self) -> bool {
        !self.nodes.is_empty() && self.postponed.len() < self.jobs.len()
    }

    /// The twins of a job that does not start at home after all.
    pub(crate) fn again(&mut self, uid: &PodUid) -> Vec<Delta> {
        match self.postponed.remove(uid) {
            Some(_) => self.twins(uid),
            None => Vec::new(),
        }
    }

    /// How a run with this uid is away; none where it is at home.
    pub(crate) fn away(&self, uid: &PodUid) -> Option<Away> {
        let (index, home) = twin(uid)?;
        let (facts, _) = self.jobs.get(home)?;
        let way = self.ways.get(&facts.priority_class)?.get(index)?;
        let kinds: Vec<&NodeKind> = way.kinds.iter().filter(|kind| kind.takes(&facts.template.requests)).collect();
        Some(Away {
            way: u32::try_from(index).unwrap_or(u32::MAX),
            node_types: kinds.iter().map(|kind| kind.name.clone()).collect(),
            priority: way.priority,
            tolerations: kinds.iter().flat_map(|kind| &kind.taints).cloned().collect(),
        })
    }

    /// The groups of the twins of a group's jobs, each with what people call its nodes.
    pub(crate) fn groups(&self, group: &str) -> Vec<(String, String)> {
        let uid = group.trim_start_matches(GROUP);
        let of_group = |facts: &PodFacts| facts.uid == uid || facts.group.as_deref() == Some(group);
        let single = self.jobs.get(uid);
        let Some((facts, ways)) = single.or_else(|| self.jobs.values().find(|(facts, _)| of_group(facts))) else {
            return Vec::new();
        };
        let told = |index: &usize| {
            let way = self.ways.get(&facts.priority_class)?.get(*index)?;
            let names: Vec<&str> = way.kinds.iter().map(|kind| kind.name.as_str()).collect();
            let what = format!("nodes of type {}, at priority {}", names.join(" or "), way.priority);
            Some((group_of_twin(*index, group), what))
        };
        ways.iter().filter_map(told).collect()
    }
}

/// A job as it would be away from home.
fn twin_of(facts: &PodFacts, index: usize, way: &Way) -> PodFacts {
    let mut twin = facts.clone();
    twin.uid = uid_of_twin(index, &facts.uid).into();
    twin.queue = twin.queue.take().map(|queue| queue_of_twins(&queue));
    twin.priority_class = class_name(way.priority);
    twin.group = twin.group.take().map(|group| group_of_twin(index, &group));
    twin.preemptable = Some(true);
    let kinds: Vec<&NodeKind> = way.kinds.iter().filter(|kind| kind.takes(&facts.template.requests)).collect();
    let tolerated = kinds.iter().flat_map(|kind| &kind.taints).map(|taint| Toleration {
        key: taint.key.clone(),
        exists: taint.value.is_none(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.as_deref().and_then(effect_of),
    });
    twin.template.tolerations.extend(tolerated);
    // A node of one of the kinds is wanted, whatever else is.
    let terms = twin.template.required_terms.take();
    let terms = terms.unwrap_or_else(|| vec![NodeTerm { expressions: Vec::new(), fields: Vec::new() }]);
    let of_kind = |kind: &&NodeKind| {
        let key = format!("{KIND_LABEL}{}", kind.name);
        let exists = Requirement { key, operator: Operator::Exists, values: Vec::new() };
        let with = |term: &NodeTerm| {
            let mut term = term.clone();
            term.expressions.push(exists.clone());
            term
        };
        terms.iter().map(with).collect::<Vec<_>>()
    };
    twin.template.required_terms = Some(kinds.iter().flat_map(of_kind).collect());
    twin
}

#[cfg(test)]
mod tests {
    use pumice_engine::Taint;

    use super::*;

    #[test]
    fn names_of_twins_lead_back() {
        assert_eq!(twin(&uid_of_twin(3, "0000000000.job-1")), Some((3, "0000000000.job-1")));
        assert_eq!((twin("0000000000.job-1"), twin("awayx.0.job-1")), (None, None));
        assert_eq!(home_of(&queue_of_twins("research")), Some("research"));
        assert_eq!(home_of("research"), None);
        assert_eq!(group_of_twin(0, "podgroup-0000000000.job"), "podgroup-away0.0000000000.job");
    }

    #[test]
    fn a_node_is_of_a_kind_with_all_of_its_taints() {
        let taint = |key: &str, value: &str, effect| Taint { key: key.to_owned(), value: value.to_owned(), effect };
        let wanted = |key: &str, value: Option<&str>, effect: Option<&str>| AwayToleration {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            effect: effect.map(str::to_owned),
        };
        let gpu = taint("gpu", "a100", TaintEffect::NoSchedule);
        let rare = taint("rare", "", TaintEffect::NoExecute);
        for (wants, taints, is) in [
            (vec![wanted("gpu", None, None)], vec![gpu.clone()], true),
            (vec![wanted("gpu", Some("a100"), Some("NoSchedule"))], vec![gpu.clone()], true),
            (vec![wanted("gpu", Some("h100"), None)], vec![gpu.clone()], false),
            (vec![wanted("gpu", None, Some("NoExecute"))], vec![gpu.clone()], false),
            (vec![wanted("gpu", None, None), wanted("rare", None, None)], vec![gpu.clone()], false),
            (vec![wanted("gpu", None, None), wanted("rare", Some(""), None)], vec![gpu, rare], true),
        ] {
            let kind = NodeKind { name: "k".to_owned(), taints: wants, conditions: Vec::new() };
            assert_eq!(kind.is_of(&NodeFacts { taints, ..NodeFacts::default() }), is, "{kind:?}");
        }
    }
}
