//! Random small worlds, as plain numbers, and the facts that they make.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;

/// Resources that are limited here; a pod also takes one of the node's `pods`.
pub(super) const RESOURCES: [&str; 3] = ["cpu", "memory", "nvidia.com/gpu"];
/// What one of each counts.
pub(super) const UNITS: [i64; 3] = [1_000, 1 << 30, 1];

/// An amount of each resource.
pub(super) type Amounts = [i64; 3];

#[derive(Clone)]
pub(super) struct NodePlan {
    pub(super) amounts: Amounts,
    pub(super) pods: i64,
    pub(super) tainted: bool,
    pub(super) ssd: bool,
}

#[derive(Clone)]
pub(super) struct QueuePlan {
    pub(super) name: String,
    pub(super) parent: Option<usize>,
    /// None is no limit.
    pub(super) capability: [Option<i64>; 3],
    pub(super) deserved: Amounts,
    pub(super) weight: i32,
}

#[derive(Clone)]
pub(super) struct PodPlan {
    pub(super) amounts: Amounts,
    pub(super) selects: bool,
    pub(super) tolerates: bool,
    /// Where it runs at first, if it fits there.
    pub(super) runs: Option<usize>,
    pub(super) protected: bool,
}

#[derive(Clone)]
pub(super) struct GroupPlan {
    pub(super) queue: usize,
    pub(super) namespace: usize,
    pub(super) min: u32,
    pub(super) priority: usize,
    pub(super) admitted: bool,
    pub(super) pods: Vec<PodPlan>,
}

#[derive(Debug, Clone)]
pub(in super::super) struct Scene {
    pub(super) nodes: Vec<NodePlan>,
    pub(super) queues: Vec<QueuePlan>,
    pub(super) groups: Vec<GroupPlan>,
    /// Cycles that an evicted pod takes to end.
    pub(super) lingers: usize,
}

fn amounts(cpu: i64, memory: i64, gpu: i64) -> impl Strategy<Value = Amounts> {
    (0..=cpu, 0..=memory, prop_oneof![3 => Just(0), 1 => 0..=gpu]).prop_map(|(cpu, memory, gpu)| [cpu, memory, gpu])
}

fn some_node() -> impl Strategy<Value = NodePlan> {
    let offers = (1..=6_i64, 1..=6_i64, 0..=2_i64).prop_map(|(cpu, memory, gpu)| [cpu, memory, gpu]);
    let pods = prop_oneof![
        4 => Just(110_i64), 1 => 1..4_i64];
    (offers, pods, prop::bool::weighted(0.2), any::<bool>()).prop_map(|(amounts, pods, tainted, ssd)| NodePlan {
        amounts,
        pods,
        tainted,
        ssd,
    })
}

fn some_pod() -> impl Strategy<Value = PodPlan> {
    let bits = (prop::bool::weighted(0.15), prop::bool::weighted(0.3), prop::bool::weighted(0.05));
    (amounts(4, 3, 2), bits, proptest::option::weighted(0.3, 0..3_usize)).prop_map(
        |(amounts, (selects, tolerates, protected), runs)| PodPlan { amounts, selects, tolerates, runs, protected },
    )
}

fn some_group(queues: usize) -> impl Strategy<Value = GroupPlan> {
    // Half of them of equal pods.
    let pods = prop_oneof![
        1 => proptest::collection::vec(some_pod(), 1..=4),
        1 => (some_pod(), proptest::collection::vec(proptest::option::weighted(0.3, 0..3_usize), 1..=4))
            .prop_map(|(pod, runs)| runs.into_iter().map(|runs| PodPlan { runs, ..pod.clone() }).collect()),
    ];
    (0..queues, 0..2_usize, 0..=4_u32, 0..3_usize, any::<bool>(), pods).prop_map(
        |(queue, namespace, min, priority, admitted, pods): (_, _, u32, _, _, Vec<PodPlan>)| GroupPlan {
            queue,
            namespace,
            min: min.min(pods.len() as u32),
            priority,
            admitted,
            pods,
        },
    )
}

fn some_queue(name: String, parent: Option<usize>) -> impl Strategy<Value = QueuePlan> {
    let limit = || proptest::option::weighted(0.3, 1..=6_i64);
    let gpu = proptest::option::weighted(0.1, 0..=2_i64);
    (limit(), limit(), gpu, amounts(4, 4, 1), 1..4_i32).prop_map(move |(cpu, memory, gpu, deserved, weight)| {
        QueuePlan { name: name.clone(), parent, capability: [cpu, memory, gpu], deserved, weight }
    })
}

/// Queues without a tree.
pub(in super::super) fn flat() -> impl Strategy<Value = Scene> {
    scene(vec![None, None, None], 0..3)
}

/// Two queues above two each, and one alone. Work is in those that have nothing below them.
pub(in super::super) fn tree() -> impl Strategy<Value = Scene> {
    scene(vec![None, None, Some(0), Some(0), Some(1)], 2..5)
}

fn scene(parents: Vec<Option<usize>>, with_work: std::ops::Range<usize>) -> impl Strategy<Value = Scene> {
    let queues: Vec<_> =
        parents.into_iter().enumerate().map(|(index, parent)| some_queue(format!("q{index}"), parent)).collect();
    let group =
        some_group(with_work.len()).prop_map(move |group| GroupPlan { queue: group.queue + with_work.start, ..group });
    let nodes = proptest::collection::vec(some_node(), 1..=3);
    (nodes, queues, proptest::collection::vec(group, 1..=4), 0..3_usize)
        .prop_map(|(nodes, queues, groups, lingers)| Scene { nodes, queues, groups, lingers })
}

impl Scene {
    /// What there is at first: nodes in the order of their names, and all else.
    pub(in super::super) fn deltas(&self) -> (Vec<Delta>, Vec<Delta>) {
        let nodes = self.nodes.iter().enumerate().map(|(index, node)| Delta::NodeUpsert(node.facts(index)));
        let queues = self.queues.iter().map(|queue| Delta::QueueUpsert(queue.facts(&self.queues)));
        let mut rest: Vec<Delta> = queues.collect();
        for priority in 0..3 {
            let (name, value) = (priority_class(priority), priority as i32);
            rest.push(Delta::PriorityClassUpsert { name, value, global_default: false });
        }
        for (index, group) in self.groups.iter().enumerate() {
            rest.push(Delta::GroupUpsert(Box::new(group.facts(index, &self.queues))));
            for (serial, plan) in (0..).zip(&group.pods) {
                let mut facts = plan.facts(index, group.namespace, serial);
                // Whether it fits there does not matter here.
                facts.node = plan.runs.filter(|node| *node < self.nodes.len()).map(|node| format!("n{node}").into());
                facts.phase = if facts.node.is_some() { PodPhase::Running } else { PodPhase::Pending };
                rest.push(Delta::TaskUpsert(Box::new(facts)));
            }
        }
        (nodes.collect(), rest)
    }
}

pub(super) fn as_resources(amounts: &Amounts) -> Resources {
    let named = RESOURCES.iter().zip(UNITS).zip(amounts);
    named.filter(|(_, amount)| **amount > 0).map(|((name, unit), amount)| ((*name).to_owned(), amount * unit)).collect()
}

/// Whole units of each resource; a part of one counts as none.
pub(super) fn as_amounts(resources: &Resources) -> Amounts {
    std::array::from_fn(|index| resources.get(RESOURCES[index]).copied().unwrap_or(0) / UNITS[index])
}

pub(super) fn priority_class(priority: usize) -> String {
    format!("p{priority}")
}

impl NodePlan {
    pub(super) fn of(amounts: Amounts, pods: i64) -> Self {
        Self { amounts, pods, tainted: false, ssd: false }
    }
}

impl QueuePlan {
    pub(super) fn of(index: usize, parent: Option<usize>, deserved: Amounts, weight: i32) -> Self {
        Self { name: format!("q{index}"), parent, capability: [None; 3], deserved, weight }
    }
}

impl PodPlan {
    pub(super) fn of(amounts: Amounts) -> Self {
        Self { amounts, selects: false, tolerates: false, runs: None, protected: false }
    }
}

impl GroupPlan {
    pub(super) fn of(queue: usize, min: u32, priority: usize, pods: &[Amounts]) -> Self {
        let pods = pods.iter().copied().map(PodPlan::of).collect();
        Self { queue, namespace: 0, min, priority, admitted: false, pods }
    }
}

/// Short, so that a failing world fits a screen.
impl std::fmt::Debug for NodePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} pods {}{}{}", self.amounts, self.pods, flag(self.tainted, " tainted"), flag(self.ssd, " ssd"))
    }
}

impl std::fmt::Debug for QueuePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, parent, capability, deserved, weight } = self;
        write!(f, "{name} below {parent:?} limit {capability:?} deserves {deserved:?} weight {weight}")
    }
}

impl std::fmt::Debug for PodPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flags = [(self.selects, " selects"), (self.tolerates, " tolerates"), (self.protected, " protected")];
        write!(f, "{:?}{}", self.amounts, flags.map(|(on, name)| flag(on, name)).concat())?;
        self.runs.map_or(Ok(()), |node| write!(f, " on n{node}"))
    }
}

impl std::fmt::Debug for GroupPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { queue, namespace, min, priority, admitted, pods } = self;
        let admitted = flag(*admitted, " admitted");
        write!(f, "q{queue} ns{namespace} min {min} priority {priority}{admitted}: {pods:?}")
    }
}

fn flag(on: bool, name: &'static str) -> &'static str {
    if on { name } else { "" }
}

impl NodePlan {
    pub(super) fn facts(&self, index: usize) -> NodeFacts {
        let mut allocatable = as_resources(&self.amounts);
        allocatable.insert("pods".to_owned(), self.pods);
        let taint = Taint { key: "own".to_owned(), value: String::new(), effect: TaintEffect::NoSchedule };
        NodeFacts {
            name: format!("n{index}").into(),
            allocatable,
            taints: if self.tainted { vec![taint] } else { Vec::new() },
            labels: if self.ssd { [("disk".to_owned(), "ssd".to_owned())].into() } else { BTreeMap::new() },
            ..NodeFacts::default()
        }
    }
}

impl QueuePlan {
    pub(super) fn facts(&self, all: &[QueuePlan]) -> QueueFacts {
        let limits = RESOURCES.iter().zip(UNITS).zip(self.capability);
        let capability = limits.filter_map(|((name, unit), limit)| Some(((*name).to_owned(), limit? * unit)));
        QueueFacts {
            name: self.name.clone(),
            uid: self.name.clone(),
            weight: self.weight,
            capability: capability.collect(),
            deserved: as_resources(&self.deserved),
            parent: self.parent.map(|parent| all[parent].name.clone()),
            ..QueueFacts::default()
        }
    }
}

impl GroupPlan {
    pub(super) fn facts(&self, index: usize, queues: &[QueuePlan]) -> GroupFacts {
        let phase = if self.admitted { GroupPhase::Inqueue } else { GroupPhase::Pending };
        GroupFacts {
            namespace: format!("ns{}", self.namespace),
            queue: queues[self.queue].name.clone(),
            priority_class: priority_class(self.priority),
            created: TimeMs(index as i64),
            status: GroupStatus { phase, ..GroupStatus::default() },
            ..group(&format!("g{index}"), self.min)
        }
    }
}

impl PodPlan {
    /// Its facts while it waits.
    pub(super) fn facts(&self, group: usize, namespace: usize, serial: u32) -> PodFacts {
        let mut facts = PodFacts { namespace: format!("ns{namespace}"), ..pod(&format!("g{group}"), serial, 0) };
        facts.template.requests = as_resources(&self.amounts);
        if self.selects {
            facts.template.node_selector.insert("disk".to_owned(), "ssd".to_owned());
        }
        if self.tolerates {
            facts.template.tolerations.push(Toleration {
                key: "own".to_owned(),
                exists: true,
                ..Toleration::default()
            });
        }
        if self.protected {
            facts.pod_priority_class = "system-node-critical".to_owned();
        }
        facts
    }
}
