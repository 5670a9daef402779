//! What the fuzz targets share: bytes into configurations, worlds and events; objects for admission are made in `manifests`,
//! those for the API server in `kinds`.
//!
//! Invariant: equal bytes give equal worlds; names are few, so that things meet each other; amounts reach the ends of
//! what an integer holds.

pub mod edits;
pub mod kinds;
pub mod manifests;
pub mod server;

use std::collections::BTreeMap;

use pumice_engine::{
    BudgetFacts, Config, Delta, DependsOn, GroupFacts, GroupPhase, GroupStatus, HostPort, HyperNodeFacts,
    HyperNodeMember, MemberKind, NodeFacts, NodeGroupAffinity, NodeTerm, Operator, OwnerFacts, PodFacts, PodPhase,
    PodTemplate, PodUid, PreferredTerm, QueueFacts, QueueState, QuotaFacts, Requirement, Resources, ShapeTask,
    ShardFacts, SubGroupPolicy, Taint, TaintEffect, TimeMs, Toleration, TopologySpec, WindowFacts,
};

/// Most events of one input.
const EVENTS_MAX: usize = 400;

/// Configurations that between them name every action and plugin.
const CONFIGURATIONS: &[&str] = &[
    "actions: enqueue, allocate, backfill\n\
     tiers:\n- plugins:\n  - name: priority\n  - name: gang\n  - name: conformance\n\
     - plugins:\n  - name: overcommit\n  - name: drf\n  - name: predicates\n  - name: proportion\n  - name: nodeorder\n",
    "actions: enqueue, allocate, preempt, reclaim, backfill, shuffle\n\
     tiers:\n- plugins:\n  - name: priority\n  - name: gang\n  - name: conformance\n  - name: sla\n    arguments: {sla-waiting-time: 1s}\n\
     - plugins:\n  - name: drf\n  - name: predicates\n  - name: proportion\n  - name: nodeorder\n  - name: binpack\n\
     - plugins:\n  - name: pdb\n  - name: cdp\n  - name: tdm\n    arguments: {tdm.revocable-zone.z: '00:00-23:59'}\n  - name: rescheduling\n",
    "actions: enqueue, reclaim, allocate, preempt, backfill\n\
     tiers:\n- plugins:\n  - name: priority\n  - name: gang\n  - name: conformance\n\
     - plugins:\n  - name: capacity\n    enableHierarchy: true\n    arguments: {ancestorReclaimLevel: 1}\n  - name: predicates\n  - name: nodeorder\n  - name: resourcequota\n\
     - plugins:\n  - name: nodegroup\n    arguments: {strict: false}\n  - name: usage\n  - name: resource-strategy-fit\n",
    "actions: enqueue, gangreclaim, gangpreempt, allocate, backfill\n\
     tiers:\n- plugins:\n  - name: priority\n  - name: gang\n\
     - plugins:\n  - name: capacity\n  - name: predicates\n  - name: network-topology-aware\n    arguments: {weight: 10}\n  - name: task-topology\n  - name: nodeorder\n",
    "actions: allocate, preempt, reclaim\n\
     tiers:\n- plugins:\n  - name: drf\n    enableHierarchy: true\n  - name: gang\n    enableJobStarving: false\n  - name: predicates\n  - name: numa-aware\n    arguments: {weight: 1}\n\
     - plugins:\n  - name: deviceshare\n    arguments: {deviceshare.VGPUEnable: true, deviceshare.ScheduleWeight: 10, deviceshare.SchedulePolicy: binpack}\n  - name: nodeorder\n",
    "actions: allocate, backfill, gangpreempt, shuffle\n\
     tiers:\n- plugins:\n  - name: predicates\n  - name: deviceshare\n    arguments: {deviceshare.GPUSharingEnable: true}\n  - name: priority\n  - name: proportion\n",
    "actions: enqueue, allocate\ntiers: []\n",
];

/// Annotation keys that plugins read.
const KEYS: &[&str] = &[
    "volcano.sh/hierarchy",
    "volcano.sh/hierarchy-weights",
    "volcano.sh/sla-waiting-time",
    "sla-waiting-time",
    "volcano.sh/cooldown-time",
    "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable",
    "volcano.sh/task-topology-affinity",
    "volcano.sh/task-topology-anti-affinity",
    "volcano.sh/task-topology-task-order",
    "volcano.sh/numa-topology-policy",
    "volcano.sh/nodegroup-resource-limits",
    "volcano.sh/oversubscription-cpu",
    "volcano.sh/oversubscription-memory",
    "volcano.sh/resource-strategy-scoring-type",
    "volcano.sh/resource-strategy-weight",
    "volcano.sh/node-vgpu-register",
    "volcano.sh/vgpu-ids-new",
    "volcano.sh/vgpu-node",
    "volcano.sh/vgpu-mode",
    "volcano.sh/vgpu-podgroup-policy",
    "volcano.sh/vgpu-use-gpuuuid",
    "volcano.sh/vgpu-nouse-gpuuuid",
    "volcano.sh/devices-to-allocate",
    "volcano.sh/gpu-index",
    "volcano.sh/gpu-unhealthy-ids",
    "volcano.sh/job-allocated-hypernode",
    "volcano.sh/topology-decision",
    "nvidia.com/use-gputype",
    "nvidia.com/nouse-gputype",
];

const RESOURCES: &[&str] = &[
    "cpu",
    "memory",
    "pods",
    "nvidia.com/gpu",
    "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-cores",
    "volcano.sh/gpu-memory",
    "hugepages-2Mi",
    "ephemeral-storage",
];

/// One of the configurations.
pub fn configuration(choice: u8) -> Config {
    let text = CONFIGURATIONS[usize::from(choice) % CONFIGURATIONS.len()];
    Config::parse(text).expect("the configurations of the targets are good").0
}

/// A reader that yields zeros past the end.
pub struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    /// Reads `bytes`.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes that no call has taken yet.
    pub fn rest(&self) -> &'b [u8] {
        self.0
    }

    /// The next one; 0 at the end.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u8) -> bool {
        self.byte() % times == times - 1
    }

    /// One of `from`, chosen by the next byte.
    pub fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[usize::from(self.byte()) % from.len()]
    }

    /// Mostly small, sometimes at the ends of what is counted.
    fn amount(&mut self) -> i64 {
        match self.byte() {
            250 => i64::MAX,
            251 => i64::MIN,
            252 => 1 << 48,
            253 => (1 << 48) - 1,
            254 => -1,
            255 => 1 << 62,
            small => i64::from(small % 9) * 500,
        }
    }

    fn resources(&mut self, most: u8) -> Resources {
        let count = self.below(most + 1);
        (0..count).map(|_| (self.pick(RESOURCES).to_owned(), self.amount())).collect()
    }

    /// At most 63 bytes as they come.
    pub fn text(&mut self) -> String {
        let length = usize::from(self.byte() % 64).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn annotations(&mut self) -> BTreeMap<String, String> {
        let count = self.below(3);
        (0..count).map(|_| (self.pick(KEYS).to_owned(), self.text())).collect()
    }

    fn time(&mut self) -> TimeMs {
        TimeMs(i64::from(self.byte()) * 1_000)
    }

    /// Mostly within the time that an input takes, sometimes at the ends of what is counted.
    fn milliseconds(&mut self) -> i64 {
        match self.byte() {
            254 => i64::MAX,
            255 => i64::MIN,
            seconds => i64::from(seconds) * 1_000,
        }
    }

    fn requirement(&mut self) -> Requirement {
        const ALL: [Operator; 6] =
            [Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist, Operator::Gt, Operator::Lt];
        Requirement {
            key: self.pick(&["a", "b", "volcano.sh/task-spec"]).to_owned(),
            operator: ALL[usize::from(self.below(6))],
            values: (0..self.below(3)).map(|_| self.pick(&["", "x", "1", "-5"]).to_owned()).collect(),
        }
    }

    fn labels(&mut self) -> BTreeMap<String, String> {
        let keys = ["a", "b", "volcano.sh/task-spec", "volcano.sh/nodegroup-name", "volcano.sh/revocable-zone"];
        (0..self.below(4)).map(|_| (self.pick(&keys).to_owned(), self.pick(&["", "x", "1", "z"]).to_owned())).collect()
    }
}

const NODES: &[&str] = &["n0", "n1", "n2", "n3", "n4"];
const GROUPS: &[&str] = &["g0", "g1", "g2", "g3"];
const QUEUES: &[&str] = &["default", "root", "q0", "q1", "q2"];
const ROLES: &[&str] = &["", "r0", "r1"];
const CLASSES: &[&str] = &["", "low", "high", "system-node-critical"];

fn node(bytes: &mut Bytes<'_>) -> NodeFacts {
    let mut allocatable = bytes.resources(4);
    allocatable.entry("pods".to_owned()).or_insert(8);
    const EFFECTS: [TaintEffect; 3] = [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute];
    let taint = bytes.one_in(6).then(|| Taint {
        key: bytes.pick(&["a", "b"]).to_owned(),
        value: bytes.pick(&["", "x"]).to_owned(),
        effect: EFFECTS[usize::from(bytes.below(3))],
    });
    NodeFacts {
        name: bytes.pick(NODES).into(),
        labels: bytes.labels(),
        taints: taint.into_iter().collect(),
        unschedulable: bytes.one_in(9),
        capacity: if bytes.one_in(4) { bytes.resources(3) } else { Resources::new() },
        annotations: if bytes.one_in(4) { bytes.annotations() } else { BTreeMap::new() },
        allocatable,
        ..NodeFacts::default()
    }
}

fn template(bytes: &mut Bytes<'_>) -> PodTemplate {
    let mut template =
        PodTemplate { requests: bytes.resources(3), priority: i32::from(bytes.below(4)), ..PodTemplate::default() };
    if bytes.one_in(6) {
        template.node_selector = bytes.labels();
    }
    if bytes.one_in(6) {
        let expressions = vec![bytes.requirement()];
        template.required_terms = Some(vec![NodeTerm { expressions, fields: Vec::new() }]);
    }
    if bytes.one_in(6) {
        let term = NodeTerm { expressions: vec![bytes.requirement()], fields: Vec::new() };
        template.preferred_terms.push(PreferredTerm { weight: i32::from(bytes.byte()), term });
    }
    if bytes.one_in(6) {
        template.tolerations.push(Toleration { exists: true, ..Toleration::default() });
    }
    if bytes.one_in(8) {
        template.host_ports.push(HostPort { ip: String::new(), protocol: "TCP".to_owned(), port: 80 });
    }
    template.time_limit_ms = bytes.one_in(3).then(|| bytes.milliseconds());
    template
}

fn pod(bytes: &mut Bytes<'_>) -> PodFacts {
    const PHASES: [PodPhase; 5] =
        [PodPhase::Pending, PodPhase::Running, PodPhase::Succeeded, PodPhase::Failed, PodPhase::Unknown];
    let index = bytes.below(12);
    let node = bytes.one_in(3).then(|| bytes.pick(NODES).into());
    let phase = if node.is_some() { PHASES[usize::from(bytes.below(5))] } else { PodPhase::Pending };
    PodFacts {
        uid: format!("u{index}").into(),
        namespace: "ns".to_owned(),
        name: format!("job-task-{index}"),
        mine: !bytes.one_in(8),
        group: (!bytes.one_in(6)).then(|| bytes.pick(GROUPS).to_owned()),
        queue: bytes.one_in(4).then(|| bytes.pick(QUEUES).to_owned()),
        priority_class: bytes.pick(CLASSES).to_owned(),
        role: bytes.pick(ROLES).to_owned(),
        terminating: bytes.one_in(10),
        gated: bytes.one_in(10),
        created: bytes.time(),
        started: node.as_ref().map(|_| bytes.time()),
        scheduled: node.as_ref().map(|_| bytes.time()),
        ended: matches!(phase, PodPhase::Succeeded | PodPhase::Failed).then(|| bytes.time()),
        labels: bytes.labels(),
        annotations: if bytes.one_in(4) { bytes.annotations() } else { BTreeMap::new() },
        preemptable: [None, Some(true), Some(false)][usize::from(bytes.below(3))],
        never_preempts: bytes.one_in(8),
        nominated: bytes.one_in(8).then(|| bytes.pick(NODES).into()),
        of_daemon_set: bytes.one_in(12),
        template: template(bytes).into(),
        node,
        phase,
        ..PodFacts::default()
    }
}

fn topology(bytes: &mut Bytes<'_>) -> Option<TopologySpec> {
    bytes.one_in(3).then(|| TopologySpec {
        hard: bytes.one_in(2),
        highest_tier: bytes.one_in(2).then(|| u32::from(bytes.below(4))),
        highest_tier_name: bytes.one_in(4).then(|| bytes.pick(&["rack", "row"]).to_owned()),
    })
}

fn group(bytes: &mut Bytes<'_>) -> GroupFacts {
    const PHASES: [GroupPhase; 5] =
        [GroupPhase::Pending, GroupPhase::Inqueue, GroupPhase::Running, GroupPhase::Unknown, GroupPhase::Completed];
    let name = bytes.pick(GROUPS);
    let sub_group = bytes.one_in(4).then(|| SubGroupPolicy {
        name: "s".to_owned(),
        selector: (0..bytes.below(2)).map(|_| bytes.requirement()).collect(),
        match_label_keys: vec!["a".to_owned()],
        size: bytes.one_in(2).then(|| u32::from(bytes.below(4))),
        min_sub_groups: bytes.one_in(2).then(|| u32::from(bytes.below(4))),
        topology: topology(bytes),
    });
    GroupFacts {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: format!("{name}-{}", bytes.below(2)).into(),
        queue: bytes.pick(QUEUES).to_owned(),
        min_member: if bytes.one_in(20) { u32::MAX } else { u32::from(bytes.below(5)) },
        min_task_member: (0..bytes.below(3))
            .map(|_| (bytes.pick(ROLES).to_owned(), u32::from(bytes.below(4))))
            .collect(),
        min_resources: bytes.one_in(3).then(|| bytes.resources(3)),
        priority_class: bytes.pick(CLASSES).to_owned(),
        created: bytes.time(),
        owner: bytes.one_in(3).then(|| OwnerFacts {
            kind: "Job".to_owned(),
            name: "j".to_owned(),
            uid: "job".to_owned(),
        }),
        annotations: if bytes.one_in(3) { bytes.annotations() } else { BTreeMap::new() },
        preemptable: [None, Some(true), Some(false)][usize::from(bytes.below(3))],
        topology: topology(bytes),
        sub_groups: sub_group.into_iter().collect(),
        run_profile: bytes.pick(&["", "a", "b"]).to_owned(),
        deadline: bytes.one_in(4).then(|| TimeMs(300_000_i64.saturating_add(bytes.milliseconds()))),
        status: GroupStatus { phase: PHASES[usize::from(bytes.below(5))], ..GroupStatus::default() },
    }
}

fn queue(bytes: &mut Bytes<'_>) -> QueueFacts {
    let groups = |bytes: &mut Bytes<'_>| (0..bytes.below(2)).map(|_| bytes.pick(&["x", "z"]).to_owned()).collect();
    QueueFacts {
        name: bytes.pick(QUEUES).to_owned(),
        uid: bytes.pick(&["", "a", "b"]).to_owned(),
        created: bytes.time(),
        state: if bytes.one_in(8) { QueueState::Closed } else { QueueState::Open },
        capability: if bytes.one_in(3) { bytes.resources(3) } else { Resources::new() },
        weight: if bytes.one_in(20) { i32::MIN } else { i32::from(bytes.below(5)) },
        priority: i32::from(bytes.below(3)),
        parent: bytes.one_in(2).then(|| bytes.pick(QUEUES).to_owned()),
        reclaimable: [None, Some(true), Some(false)][usize::from(bytes.below(3))],
        deserved: bytes.resources(3),
        guarantee: if bytes.one_in(4) { bytes.resources(3) } else { Resources::new() },
        annotations: if bytes.one_in(3) { bytes.annotations() } else { BTreeMap::new() },
        affinity: bytes.one_in(4).then(|| NodeGroupAffinity {
            required: groups(bytes),
            preferred: groups(bytes),
            anti_required: groups(bytes),
            anti_preferred: groups(bytes),
        }),
        ..QueueFacts::default()
    }
}

fn hyper_node(bytes: &mut Bytes<'_>) -> HyperNodeFacts {
    let names = ["h0", "h1", "h2", "h3"];
    let members = (0..bytes.below(4)).map(|_| {
        let hyper_node = bytes.one_in(2);
        let which = match bytes.below(6) {
            0 => MemberKind::Pattern(bytes.text()),
            1 => MemberKind::Labels(vec![bytes.requirement()]),
            _ => MemberKind::Exact(bytes.pick(if hyper_node { &names } else { NODES }).to_owned()),
        };
        HyperNodeMember { hyper_node, which }
    });
    let members = members.collect();
    HyperNodeFacts {
        name: bytes.pick(&names).to_owned(),
        tier: if bytes.one_in(20) { u32::MAX } else { u32::from(bytes.below(4)) },
        tier_name: bytes.pick(&["", "rack", "row"]).to_owned(),
        members,
    }
}

/// Nodes that an administrator keeps; times are those of the cycles, and the ends of what is counted.
fn window(bytes: &mut Bytes<'_>) -> WindowFacts {
    let from = TimeMs(300_000_i64.saturating_add(bytes.milliseconds()));
    WindowFacts {
        name: bytes.pick(&["w0", "w1", "w2"]).to_owned(),
        nodes: (0..bytes.below(3)).map(|_| bytes.pick(NODES).into()).collect(),
        selector: (0..bytes.below(2)).map(|_| bytes.requirement()).collect(),
        from,
        to: bytes.one_in(2).then(|| from.plus_ms(bytes.milliseconds())),
        queues: bytes.one_in(3).then(|| bytes.pick(QUEUES).to_owned()).into_iter().collect(),
        namespaces: bytes.one_in(6).then(|| bytes.pick(&["ns", "other"]).to_owned()).into_iter().collect(),
    }
}

fn removal(bytes: &mut Bytes<'_>) -> Delta {
    match bytes.below(9) {
        0 => Delta::NodeRemove(bytes.pick(NODES).into()),
        1 => Delta::GroupRemove { namespace: "ns".to_owned(), name: bytes.pick(GROUPS).to_owned(), uid: "".into() },
        2 => Delta::QueueRemove(bytes.pick(QUEUES).to_owned()),
        3 => Delta::ShapeRemove { owner_uid: "job".to_owned() },
        4 => Delta::HyperNodeRemove(bytes.pick(&["h0", "h1", "h2", "h3"]).to_owned()),
        6 => Delta::WindowRemove(bytes.pick(&["w0", "w1", "w2"]).to_owned()),
        5 => Delta::PriorityClassRemove(bytes.pick(CLASSES).to_owned()),
        _ => Delta::TaskRemove(format!("u{}", bytes.below(12)).into()),
    }
}

fn delta(bytes: &mut Bytes<'_>) -> Delta {
    match bytes.below(26) {
        0..=3 => Delta::NodeUpsert(node(bytes)),
        4..=11 => Delta::TaskUpsert(Box::new(pod(bytes))),
        12..=14 => Delta::GroupUpsert(Box::new(group(bytes))),
        15 | 16 => Delta::QueueUpsert(queue(bytes)),
        17 => Delta::HyperNodeUpsert(hyper_node(bytes)),
        18 => Delta::ShapeUpsert {
            owner_uid: "job".to_owned(),
            tasks: vec![ShapeTask {
                role: bytes.pick(ROLES).to_owned(),
                count: u32::from(bytes.below(5)),
                template: template(bytes).into(),
                depends_on: bytes
                    .one_in(3)
                    .then(|| DependsOn { tasks: vec![bytes.pick(ROLES).to_owned()], any: false }),
            }],
            ended: bytes.one_in(4),
        },
        19 => Delta::PriorityClassUpsert {
            name: bytes.pick(CLASSES).to_owned(),
            value: i32::from(bytes.byte()) * 1000,
            global_default: bytes.one_in(4),
        },
        20 => Delta::BudgetUpsert(BudgetFacts {
            namespace: "ns".to_owned(),
            name: "b".to_owned(),
            selector: bytes.one_in(2).then(|| vec![bytes.requirement()]),
            allowed: u32::from(bytes.below(3)),
        }),
        21 => Delta::QuotaUpsert(QuotaFacts {
            namespace: "ns".to_owned(),
            name: "q".to_owned(),
            hard: bytes.resources(3),
            used: bytes.resources(3),
        }),
        22 => Delta::ShardUpsert(ShardFacts {
            name: bytes.pick(&["volcano", "other"]).to_owned(),
            desired: vec![bytes.pick(NODES).into()],
            in_use: vec![bytes.pick(NODES).into()],
        }),
        23 => Delta::WindowUpsert(window(bytes)),
        24 => Delta::RunsLearned {
            namespace: "ns".to_owned(),
            profile: bytes.pick(&["", "a", "b"]).to_owned(),
            runs_ms: (0..bytes.below(4)).map(|_| bytes.milliseconds()).collect(),
        },
        _ => removal(bytes),
    }
}

/// One thing that happens.
pub enum Event {
    Apply(Delta),
    /// A bind was answered.
    Bind {
        uid: PodUid,
        fails: bool,
        now: TimeMs,
    },
    /// An eviction was answered.
    Evict {
        uid: PodUid,
        fails: bool,
        now: TimeMs,
    },
    /// A status was answered.
    Status {
        name: String,
        written: bool,
    },
    Configure(u8),
    Cycle(TimeMs),
}

/// The events that bytes stand for.
pub struct Events<'b> {
    bytes: Bytes<'b>,
    now: TimeMs,
    left: usize,
}

impl<'b> Events<'b> {
    /// Reads `bytes`.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes: Bytes::new(bytes), now: TimeMs(300_000), left: EVENTS_MAX }
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.bytes.0.is_empty() || self.left == 0 {
            return None;
        }
        self.left -= 1;
        let (bytes, now) = (&mut self.bytes, self.now);
        Some(match bytes.below(20) {
            0..=11 => Event::Apply(delta(bytes)),
            12 | 13 => Event::Bind { uid: format!("u{}", bytes.below(12)).into(), fails: bytes.one_in(2), now },
            14 => Event::Evict { uid: format!("u{}", bytes.below(12)).into(), fails: bytes.one_in(2), now },
            15 => Event::Status { name: bytes.pick(GROUPS).to_owned(), written: bytes.one_in(2) },
            16 if bytes.one_in(8) => Event::Configure(bytes.byte()),
            _ => {
                self.now = now.plus_ms(i64::from(bytes.byte()) * 100);
                Event::Cycle(self.now)
            }
        })
    }
}

/// Two nodes, a gang in a queue, one pod that runs.
pub fn small_world() -> Vec<Delta> {
    let amounts =
        |cpu: i64| Resources::from([("cpu".to_owned(), cpu), ("memory".to_owned(), 1 << 30), ("pods".to_owned(), 10)]);
    let mut deltas =
        vec![Delta::QueueUpsert(QueueFacts { name: "default".to_owned(), weight: 1, ..QueueFacts::default() })];
    for name in &NODES[..2] {
        deltas.push(Delta::NodeUpsert(NodeFacts {
            name: (*name).into(),
            allocatable: amounts(4000),
            ..NodeFacts::default()
        }));
    }
    deltas.push(Delta::GroupUpsert(Box::new(GroupFacts {
        namespace: "ns".to_owned(),
        name: "g0".to_owned(),
        uid: "g0".into(),
        queue: "default".to_owned(),
        min_member: 2,
        ..GroupFacts::default()
    })));
    for index in 0..4 {
        deltas.push(Delta::TaskUpsert(Box::new(PodFacts {
            uid: format!("u{index}").into(),
            namespace: "ns".to_owned(),
            name: format!("job-task-{index}"),
            mine: true,
            group: Some("g0".to_owned()),
            node: (index == 0).then(|| "n0".into()),
            phase: if index == 0 { PodPhase::Running } else { PodPhase::Pending },
            template: PodTemplate { requests: Resources::from([("cpu".to_owned(), 1000)]), ..PodTemplate::default() }
                .into(),
            ..PodFacts::default()
        })));
    }
    deltas
}

/// The small world with annotations from `bytes` on everything in it.
pub fn annotated_world(bytes: &[u8]) -> Vec<Delta> {
    let mut bytes = Bytes::new(bytes);
    let mut deltas = small_world();
    for delta in &mut deltas {
        match delta {
            Delta::NodeUpsert(facts) => {
                facts.annotations = bytes.annotations();
                facts.labels = bytes.labels();
                for name in &RESOURCES[3..8] {
                    facts.allocatable.insert((*name).to_owned(), 100);
                }
            }
            Delta::TaskUpsert(facts) => {
                facts.annotations = bytes.annotations();
                facts.labels = bytes.labels();
                facts.role = bytes.pick(ROLES).to_owned();
                if bytes.one_in(2) {
                    facts.template.requests.extend(RESOURCES[4..7].iter().map(|name| ((*name).to_owned(), 1)));
                }
            }
            Delta::GroupUpsert(facts) => facts.annotations = bytes.annotations(),
            Delta::QueueUpsert(facts) => facts.annotations = bytes.annotations(),
            _ => {}
        }
    }
    deltas
}
