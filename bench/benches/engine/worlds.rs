//! Worlds to measure on: nodes of 32 cpu and 256Gi, groups of pods, all in one queue unless said otherwise.

use std::collections::BTreeMap;

use pumice_engine::{
    Config, Delta, GroupFacts, GroupPhase, GroupStatus, NodeFacts, NodeName, PodFacts, PodPhase, PodTemplate,
    QueueFacts, Resources, TimeMs, TopologySpec, World,
};

/// The time of all cycles.
pub const NOW: TimeMs = TimeMs(1_000_000_000);

/// A world under construction.
pub struct Builder {
    pub world: World,
    groups: i64,
}

pub fn resources(cpu_milli: i64, memory_mib: i64, gpu: i64) -> Resources {
    let amounts = [("cpu", cpu_milli), ("memory", memory_mib << 20), ("nvidia.com/gpu", gpu)];
    amounts.into_iter().filter(|(_, amount)| *amount > 0).map(|(name, amount)| (name.to_owned(), amount)).collect()
}

pub fn template(cpu_milli: i64, memory_mib: i64) -> PodTemplate {
    PodTemplate { requests: resources(cpu_milli, memory_mib, 0), ..PodTemplate::default() }
}

pub fn node(index: usize) -> NodeFacts {
    let name = format!("n{index:05}");
    let mut allocatable = resources(32_000, 256 << 10, 0);
    allocatable.insert("pods".to_owned(), 110);
    let labels = [("kubernetes.io/hostname".to_owned(), name.clone())].into();
    NodeFacts { name: name.into(), allocatable, labels, ..NodeFacts::default() }
}

/// How many pods, and what they are like.
#[derive(Debug, Clone)]
pub struct Group {
    pub name: String,
    pub queue: String,
    pub priority_class: String,
    pub min_member: u32,
    pub pods: u32,
    pub template: PodTemplate,
    /// Labels of its pods.
    pub labels: BTreeMap<String, String>,
    pub topology: Option<TopologySpec>,
}

impl Group {
    pub fn new(name: impl Into<String>, min_member: u32, pods: u32, template: PodTemplate) -> Self {
        let (queue, priority_class) = ("default".to_owned(), String::new());
        let name = name.into();
        let (labels, topology) = (BTreeMap::new(), None);
        Self { name, queue, priority_class, min_member, pods, template, labels, topology }
    }
}

impl Builder {
    pub fn new(config: &str, nodes: usize) -> Self {
        let (config, _) = Config::parse(config).expect("the configuration is good");
        let mut builder = Self { world: World::new(config), groups: 0 };
        builder.apply(Delta::QueueUpsert(QueueFacts { name: "default".into(), weight: 1, ..QueueFacts::default() }));
        for index in 0..nodes {
            builder.apply(Delta::NodeUpsert(node(index)));
        }
        builder
    }

    pub fn apply(&mut self, delta: Delta) {
        self.world.apply(&delta);
    }

    pub fn group(&mut self, group: &Group) {
        self.place(group, |_| None);
    }

    /// A group whose pods run on the nodes that `on` names.
    pub fn place(&mut self, group: &Group, on: impl Fn(u32) -> Option<NodeName>) {
        self.groups += 1;
        self.apply(Delta::GroupUpsert(Box::new(GroupFacts {
            namespace: "ns".to_owned(),
            name: group.name.clone(),
            uid: format!("g-{}", group.name).into(),
            queue: group.queue.clone(),
            priority_class: group.priority_class.clone(),
            min_member: group.min_member,
            created: TimeMs(self.groups),
            topology: group.topology.clone(),
            status: GroupStatus { phase: GroupPhase::Inqueue, ..GroupStatus::default() },
            ..GroupFacts::default()
        })));
        for index in 0..group.pods {
            let node = on(index);
            self.apply(Delta::TaskUpsert(Box::new(PodFacts {
                uid: format!("uid-{}-{index}", group.name).into(),
                namespace: "ns".to_owned(),
                name: format!("{}-w-{index}", group.name),
                mine: true,
                group: Some(group.name.clone()),
                role: "w".to_owned(),
                phase: if node.is_some() { PodPhase::Running } else { PodPhase::Pending },
                started: node.is_some().then_some(TimeMs(1)),
                node,
                created: TimeMs(self.groups),
                labels: group.labels.clone(),
                template: group.template.clone().into(),
                ..PodFacts::default()
            })));
        }
    }
}

/// Volcano's default policy without admission, so that only placing is measured.
pub const PLACING: &str = "actions: allocate
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
";
