//! The whole answer to why a group waits: what is told is all that fails, by a bookkeeper that shares nothing with the engine;
//! what is said to help does; and asking changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::laws::play;
use super::saved::tied_event;
use super::*;

const GI: i64 = 1 << 30;
const GPU: &str = "nvidia.com/gpu";

#[derive(Debug, Clone)]
struct NodePlan {
    cpu: i64,
    memory: i64,
    gpu: i64,
    pods: i64,
    cordoned: bool,
    taints: [bool; 2],
    ssd: bool,
    runs: Vec<RunningPlan>,
}

#[derive(Debug, Clone)]
struct GroupPlan {
    queue: usize,
    pods: u32,
    min: u32,
    admitted: bool,
    cpu: i64,
    memory: i64,
    gpu: i64,
    ssd: bool,
    tolerates: [bool; 2],
    port: bool,
}

/// What runs on a node.
#[derive(Debug, Clone, Copy)]
struct RunningPlan {
    /// Cores, Gi and GPUs.
    amounts: [i64; 3],
    takes_port: bool,
}

#[derive(Debug, Clone)]
struct Scene {
    nodes: Vec<NodePlan>,
    /// Limits of cores, if any.
    queues: Vec<Option<i64>>,
    groups: Vec<GroupPlan>,
}

fn some_node() -> impl Strategy<Value = NodePlan> {
    let rarely = || prop::bool::weighted(0.2);
    let runs = (0..4_i64, 0..4_i64, 0..2_i64, rarely())
        .prop_map(|(cpu, memory, gpu, takes_port)| RunningPlan { amounts: [cpu, memory, gpu], takes_port });
    let amounts = (1..9_i64, 1..9_i64, 0..3_i64, prop_oneof![3 => Just(110), 1 => 1..4_i64]);
    (amounts, rarely(), [rarely(), rarely()], any::<bool>(), prop::collection::vec(runs, 0..3)).prop_map(
        |((cpu, memory, gpu, pods), cordoned, taints, ssd, runs)| NodePlan {
            cpu,
            memory,
            gpu,
            pods,
            cordoned,
            taints,
            ssd,
            runs,
        },
    )
}

fn some_group() -> impl Strategy<Value = GroupPlan> {
    let rarely = || prop::bool::weighted(0.25);
    let amounts = (1..9_i64, 0..9_i64, prop_oneof![3 => Just(0), 1 => 1..4_i64]);
    ((0..2_usize, 1..5_u32, 1..5_u32, any::<bool>()), amounts, rarely(), [rarely(), rarely()], rarely()).prop_map(
        |((queue, pods, min, admitted), (cpu, memory, gpu), ssd, tolerates, port)| GroupPlan {
            queue,
            pods,
            min: min.min(pods),
            admitted,
            cpu,
            memory,
            gpu,
            ssd,
            tolerates,
            port,
        },
    )
}

fn some_scene() -> impl Strategy<Value = Scene> {
    let queue = || proptest::option::weighted(0.4, 1..9_i64);
    let nodes = prop::collection::vec(some_node(), 1..5);
    (nodes, [queue(), queue()], prop::collection::vec(some_group(), 1..4)).prop_map(|(nodes, queues, groups)| Scene {
        nodes,
        queues: queues.to_vec(),
        groups,
    })
}

fn amounts(cpu: i64, memory: i64, gpu: i64) -> Resources {
    let all = [("cpu", cpu * 1_000), ("memory", memory * GI), (GPU, gpu)];
    all.into_iter().filter(|(_, amount)| *amount > 0).map(|(name, amount)| (name.to_owned(), amount)).collect()
}

fn port() -> HostPort {
    HostPort { ip: String::new(), protocol: "TCP".to_owned(), port: 80 }
}

const TAINTS: [&str; 2] = ["a", "b"];

impl Scene {
    fn node(&self, index: usize) -> NodeFacts {
        let plan = &self.nodes[index];
        let mut allocatable = amounts(plan.cpu, plan.memory, plan.gpu);
        allocatable.insert("pods".to_owned(), plan.pods);
        let taints = TAINTS.iter().zip(plan.taints).filter(|(_, there)| *there);
        let taint = |key: &str| Taint { key: key.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule };
        NodeFacts {
            name: format!("n{index}").into(),
            allocatable,
            unschedulable: plan.cordoned,
            taints: taints.map(|(key, _)| taint(key)).collect(),
            labels: if plan.ssd { [("disk".to_owned(), "ssd".to_owned())].into() } else { BTreeMap::new() },
            ..NodeFacts::default()
        }
    }

    fn group(&self, index: usize) -> GroupFacts {
        let plan = &self.groups[index];
        let phase = if plan.admitted { GroupPhase::Inqueue } else { GroupPhase::Pending };
        GroupFacts {
            queue: format!("q{}", plan.queue),
            created: TimeMs(index as i64),
            status: GroupStatus { phase, ..GroupStatus::default() },
            ..group(&format!("g{index}"), plan.min)
        }
    }

    fn pod(&self, index: usize, serial: u32) -> PodFacts {
        let plan = &self.groups[index];
        let mut facts = pod(&format!("g{index}"), serial, 0);
        let template = &mut facts.template;
        template.requests = amounts(plan.cpu, plan.memory, plan.gpu);
        if plan.ssd {
            template.node_selector.insert("disk".to_owned(), "ssd".to_owned());
        }
        let tolerated = TAINTS.iter().zip(plan.tolerates).filter(|(_, tolerates)| *tolerates);
        let toleration = |key: &str| Toleration { key: key.to_owned(), exists: true, ..Toleration::default() };
        template.tolerations = tolerated.map(|(key, _)| toleration(key)).collect();
        if plan.port {
            template.host_ports.push(port());
        }
        facts
    }

    /// The world after a first cycle, and where its pods are: node, amounts, port, group.
    fn play(&self, config: &Config) -> (Lab, Vec<Placed>) {
        let mut lab = Lab::with(config.clone(), &[]);
        let mut placed: Vec<Placed> = Vec::new();
        for (index, limit) in self.queues.iter().enumerate() {
            let limit: Vec<(&str, i64)> = limit.iter().map(|cores| ("cpu", cores * 1_000)).collect();
            lab.queue(&format!("q{index}"), &limit);
        }
        for (index, plan) in self.nodes.iter().enumerate() {
            lab.apply(Delta::NodeUpsert(self.node(index)));
            for (serial, RunningPlan { amounts: of_pod, takes_port }) in plan.runs.iter().copied().enumerate() {
                let [cpu, memory, gpu] = of_pod;
                let mut facts = pod(&format!("r{index}-{serial}"), 0, 0);
                (facts.mine, facts.group) = (false, None);
                facts.template.requests = amounts(cpu, memory, gpu);
                if takes_port {
                    facts.template.host_ports.push(port());
                }
                (facts.node, facts.phase) = (Some(format!("n{index}").into()), PodPhase::Running);
                lab.pod(facts);
                placed.push(Placed { node: index, amounts: of_pod, port: takes_port, group: None });
            }
        }
        for (index, plan) in self.groups.iter().enumerate() {
            lab.apply(Delta::GroupUpsert(Box::new(self.group(index))));
            (0..plan.pods).for_each(|serial| lab.pod(self.pod(index, serial)));
        }
        for bind in lab.cycle().binds {
            placed.push(self.placed(bind.group.trim_start_matches("ns/g").parse().unwrap(), &bind.node));
        }
        (lab, placed)
    }

    fn placed(&self, group: usize, node: &str) -> Placed {
        let GroupPlan { cpu, memory, gpu, port, .. } = self.groups[group];
        Placed { node: node[1..].parse().unwrap(), amounts: [cpu, memory, gpu], port, group: Some(group) }
    }

    /// The plain truth about one more pod of a group, beside what is placed.
    fn truth(&self, group: usize, placed: &[Placed]) -> Truth {
        let plan = &self.groups[group];
        let wanted = [plan.cpu, plan.memory, plan.gpu];
        let units = [1_000, GI, 1];
        let names = ["cpu", "memory", GPU];
        let mut truth = Truth { fits: false, checks: BTreeMap::new(), short: BTreeMap::new(), limits: BTreeSet::new() };
        for (index, node) in self.nodes.iter().enumerate() {
            let there = || placed.iter().filter(|placed| placed.node == index);
            let mut fails: Vec<(Check, String)> = Vec::new();
            if node.cordoned {
                fails.push((Check::Unschedulable, String::new()));
            }
            if plan.ssd && !node.ssd {
                fails.push((Check::NodeAffinity, String::new()));
            }
            for (key, (there, tolerates)) in TAINTS.iter().zip(node.taints.iter().zip(plan.tolerates)) {
                if *there && !tolerates {
                    fails.push((Check::Taint, (*key).to_owned()));
                }
            }
            let could = fails.is_empty();
            if plan.port && there().any(|placed| placed.port) {
                fails.push((Check::HostPort, "80".to_owned()));
            }
            if there().count() as i64 >= node.pods {
                fails.push((Check::PodCount, String::new()));
            }
            for resource in 0..3 {
                let used: i64 = there().map(|placed| placed.amounts[resource]).sum();
                let free = [node.cpu, node.memory, node.gpu][resource] - used;
                if wanted[resource] == 0 || wanted[resource] <= free {
                    continue;
                }
                fails.push((Check::Resource, names[resource].to_owned()));
                let lacks = (wanted[resource] - free) * units[resource];
                if could {
                    let best = truth.short.entry(names[resource].to_owned()).or_insert(lacks);
                    *best = lacks.min(*best);
                }
            }
            truth.fits |= fails.is_empty();
            fails.into_iter().for_each(|fail| *truth.checks.entry(fail).or_default() += 1);
        }
        if let Some(limit) = self.queues[plan.queue] {
            let own = |placed: &&Placed| placed.group.is_some_and(|group| self.groups[group].queue == plan.queue);
            let used: i64 = placed.iter().filter(own).map(|placed| placed.amounts[0]).sum();
            if used + plan.cpu > limit {
                truth.limits.insert(Limit { limit: limit * 1_000, used: used * 1_000, requested: plan.cpu * 1_000 });
            }
        }
        truth
    }
}

#[derive(Debug, Clone)]
struct Placed {
    node: usize,
    amounts: [i64; 3],
    port: bool,
    group: Option<usize>,
}

#[derive(Debug, PartialEq)]
struct Truth {
    fits: bool,
    checks: BTreeMap<(Check, String), u32>,
    short: BTreeMap<String, i64>,
    limits: BTreeSet<Limit>,
}

/// A limit that leaves too little.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Limit {
    limit: i64,
    used: i64,
    requested: i64,
}

/// What the engine tells, in the same shape.
fn told(why: &Why) -> Truth {
    let mut truth = Truth { fits: true, checks: BTreeMap::new(), short: BTreeMap::new(), limits: BTreeSet::new() };
    for reason in &why.reasons.reasons {
        match reason {
            Reason::NodesUnfit(unfit) => {
                truth.fits = false;
                truth.checks =
                    unfit.checks.iter().map(|count| ((count.check, count.detail.clone()), count.nodes)).collect();
                truth.short = unfit.short.iter().map(|short| (short.resource.clone(), short.short_on_best)).collect();
            }
            Reason::QueueLimit { limit, used, requested, short, .. } => {
                assert_eq!(*short, used + requested - limit);
                truth.limits.insert(Limit { limit: *limit, used: *used, requested: *requested });
            }
            _ => {}
        }
    }
    truth
}

fn configs() -> [Config; 2] {
    let strict = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n- plugins:\n  \
                  - name: predicates\n  - name: nodeorder\n";
    [Config::default(), Config::parse(strict).unwrap().0]
}

/// The same world with one change for one group.
fn with(scene: &Scene, lab: &mut Lab, group: usize, could: &Could) {
    let plan = &scene.groups[group];
    let mut facts = scene.group(group);
    // What was admitted stays so.
    if lab.world.groups().any(|view| view.name == facts.name && view.phase != GroupPhase::Pending) {
        facts.status.phase = GroupPhase::Inqueue;
    }
    match could {
        Could::Fewer { min_available, .. } => facts.min_member = *min_available,
        Could::Queue { queue } => facts.queue.clone_from(queue),
        _ => {}
    }
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    for serial in 0..plan.pods {
        let mut facts = scene.pod(group, serial);
        let template = &mut facts.template;
        match could {
            Could::Request { resource, amount, .. } => drop(template.requests.insert(resource.clone(), *amount)),
            Could::Limit { limit_ms } => template.time_limit_ms = Some(*limit_ms),
            Could::Toleration { key, .. } => {
                template.tolerations.push(Toleration { key: key.clone(), exists: true, ..Toleration::default() });
            }
            Could::WithoutSelector { key, .. } => drop(template.node_selector.remove(key)),
            Could::WithoutAffinity => template.required_terms = None,
            Could::Fewer { .. } | Could::Queue { .. } => continue,
        }
        lab.pod(facts);
    }
}

proptest! {
    #![proptest_config(cases(400))]

    // INV-18
    #[test]
    fn all_that_is_told_fails_and_all_that_fails_is_told(scene in some_scene(), config in 0..2_usize) {
        let (mut lab, placed) = scene.play(&configs()[config]);
        for group in 0..scene.groups.len() {
            let Some(why) = lab.world.why("ns", &format!("g{group}")) else { continue };
            prop_assert!(!why.bounded);
            prop_assert!(!why.starts_next, "what fits is placed: {}", why);
            if why.reasons.stage != Stage::Allocate {
                continue;
            }
            let mut placed = placed.clone();
            for (node, pods) in &why.room_on {
                placed.extend((0..*pods).map(|_| scene.placed(group, node)));
            }
            let mut truth = scene.truth(group, &placed);
            let told = told(&why);
            // Where a node fits, it is the queue alone.
            if truth.fits {
                (truth.checks, truth.short) = (BTreeMap::new(), BTreeMap::new());
            }
            prop_assert_eq!(&told, &truth, "g{}: {}\n{:?}", group, why, scene);
            prop_assert!(!truth.fits || !truth.limits.is_empty());
        }
    }

    // INV-18
    #[test]
    fn what_is_said_to_help_does(scene in some_scene(), config in 0..2_usize) {
        let config = &configs()[config];
        for group in 0..scene.groups.len() {
            let name = format!("g{group}");
            let Some(why) = scene.play(config).0.world.why("ns", &name) else { continue };
            for could in &why.could {
                let (mut lab, placed) = scene.play(config);
                with(&scene, &mut lab, group, could);
                let before = placed.iter().filter(|placed| placed.group == Some(group)).count();
                let bound = lab.cycle().binds.iter().filter(|bind| *bind.group == format!("ns/{name}")).count();
                let min = if let Could::Fewer { min_available, .. } = could { *min_available } else { scene.groups[group].min };
                prop_assert!(bound > 0 && (before + bound) as u32 >= min, "{name} {could}\n{why}\n{}", lab.why(&name));
            }
        }
    }

    /// By plain arithmetic, for a single pod: the most of a resource with which any node would take it.
    #[test]
    fn what_would_help_is_told(scene in some_scene()) {
        for group in 0..scene.groups.len() {
            let plan = &scene.groups[group];
            let (mut lab, placed) = scene.play(&configs()[1]);
            let Some(why) = lab.world.why("ns", &format!("g{group}")) else { continue };
            if plan.pods > 1 || !plan.admitted || why.reasons.stage != Stage::Allocate {
                continue;
            }
            let fits = |cores: i64| {
                let mut other = scene.clone();
                other.groups[group].cpu = cores;
                let truth = other.truth(group, &placed);
                truth.fits && truth.limits.is_empty()
            };
            let most = (1..plan.cpu).rev().find(|cores| fits(*cores));
            let told = why.could.iter().find_map(|could| match could {
                Could::Request { resource, amount, .. } if resource == "cpu" => Some(amount / 1_000),
                _ => None,
            });
            prop_assert_eq!(told.filter(|cores| *cores > 0), most, "{}\n{:?}", why, scene);
        }
    }
}

/// What must be the same to the bit; what counts who is where may have come to count zeros.
fn state(lab: &Lab) -> Vec<Vec<u8>> {
    fn bytes(part: &impl crate::save::Save) -> Vec<u8> {
        let mut bytes = Vec::new();
        part.save(&mut bytes);
        bytes
    }
    let tables = lab.tables();
    let mut saved = vec![
        bytes(&tables.classes),
        bytes(&tables.tasks),
        bytes(&tables.groups),
        bytes(&tables.queues),
        bytes(&tables.inqueue_demand),
        bytes(&tables.reservations),
        bytes(&tables.namespace_shares),
        bytes(&tables.eviction_records),
        bytes(&tables.nodes),
    ];
    saved.push(lab.world.digest().to_le_bytes().to_vec());
    saved
}

proptest! {
    #![proptest_config(cases(120))]

    // INV-18
    /// Not even the order in which ids are given out, or what is looked at again.
    #[test]
    fn asking_changes_nothing(events in prop::collection::vec(tied_event(), 0..50)) {
        let (mut asked, mut left_alone) = (play(&events), play(&events));
        let before = state(&asked);
        let groups: Vec<(String, String)> =
            asked.world.groups().map(|group| (group.namespace.to_owned(), group.name.to_owned())).collect();
        for (namespace, name) in &groups {
            let first = asked.world.why(namespace, name);
            prop_assert_eq!(asked.world.why(namespace, name), first);
        }
        let changed = before.iter().zip(state(&asked)).position(|(before, after)| *before != after);
        prop_assert_eq!(changed, None, "asked of {:?}", groups);
        let now = asked.now;
        prop_assert_eq!(asked.world.cycle(now), left_alone.world.cycle(now));
    }
}

/// A job of `pods` pods that start together, each of so many cores and Gi.
fn job(lab: &mut Lab, name: &str, pods: u32, cpu: i64, memory: i64) {
    let created = TimeMs(lab.world.groups().count() as i64);
    let owner = Some(OwnerFacts { kind: "Job".to_owned(), name: name.to_owned(), uid: format!("job-{name}") });
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { created, owner, ..group(name, pods) })));
    for index in 0..pods {
        let mut facts = pod(name, index, 0);
        facts.template.requests = amounts(cpu, memory, 0);
        lab.pod(facts);
    }
}

fn text(lab: &mut Lab, name: &str) -> String {
    lab.world.why("ns", name).unwrap().to_string()
}

#[test]
fn the_whole_answer_reads_like_this() {
    let mut lab = Lab::new(&[16_000, 16_000]);
    job(&mut lab, "train-1", 1, 2, 40);
    job(&mut lab, "train-2", 1, 2, 30);
    job(&mut lab, "train-3", 1, 2, 10);
    lab.cycle();
    job(&mut lab, "first", 1, 4, 60);
    job(&mut lab, "big", 2, 4, 48);
    lab.cycle();
    insta::assert_snapshot!(text(&mut lab, "big"), @r"
    0/2 nodes fit 2 pods: 2 insufficient memory (short by 24Gi)
    ├─ memory: each pod asks for 48Gi; node n0 comes nearest and lacks 24Gi; in all 48Gi more memory would be needed
    ├─ starts with at least 2 pods together: 0 placed, 2 waiting
    ├─ memory: held by ns/train-1 (40Gi of 128Gi), ns/train-2 (30Gi of 128Gi), ns/train-3 (10Gi of 128Gi)
    ├─ number 2 of 2 that wait in queue default, behind ns/first
    └─ could start now with memory ≤ 24Gi a pod, in place of 48Gi
    ");
}

#[test]
fn what_queues_have_against_it_is_told_whole() {
    let mut lab = Lab::new(&[16_000]);
    lab.queue("small", &[("cpu", 4_000), ("memory", 8 * GI)]);
    lab.queue("wide", &[("cpu", 64_000)]);
    let mut facts = group("j", 2);
    facts.queue = "small".to_owned();
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    for index in 0..2 {
        let mut facts = pod("j", index, 0);
        facts.template.requests = amounts(3, 6, 0);
        lab.pod(facts);
    }
    lab.cycle();
    insta::assert_snapshot!(text(&mut lab, "j"), @r"
    queue small is at its cpu limit: 3 of 4 in use, 3 asked for (short by 2)
    ├─ queue small is at its memory limit: 6Gi of 8Gi in use, 6Gi asked for (short by 4Gi)
    ├─ starts with at least 2 pods together: 0 placed, 2 waiting
    └─ could start now
       ├─ with minAvailable ≤ 1, in place of 2
       ├─ in queue default
       └─ in queue wide
    ");
}

#[test]
fn a_limit_that_would_let_it_pass_was_tried() {
    let mut lab = Lab::new(&[4_000, 8_000]);
    let mut runs = pod("runs", 0, 4_000);
    (runs.mine, runs.group) = (false, None);
    (runs.node, runs.phase, runs.started) = (Some("n0".into()), PodPhase::Running, Some(lab.now));
    runs.template.time_limit_ms = Some(600_000);
    lab.pod(runs);
    lab.gang("big", 3, 3, 4_000);
    lab.cycle();
    lab.now = lab.now.plus_ms(120_000);
    lab.cycle();
    job(&mut lab, "late", 1, 4, 0);
    lab.cycle();
    insta::assert_snapshot!(text(&mut lab, "late"), @r"
    0/2 nodes fit 1 pod: 1 insufficient cpu (short by 4), 1 with room that is kept for others
    ├─ 1 node could take it, but room there is kept for ns/big, expected to start in 8m
    ├─ cpu: each pod asks for 4; node n0 comes nearest and lacks 4; in all 4 more cpu would be needed
    ├─ cpu: held by pods of other schedulers (4 of 12, first free in 8m)
    ├─ number 2 of 2 that wait in queue default, behind ns/big
    └─ could start now with a time limit of at most 8m
    ");
    let Some(Could::Limit { limit_ms }) = lab.world.why("ns", "late").unwrap().could.into_iter().next() else {
        panic!()
    };
    let mut facts = pod("late", 0, 4_000);
    facts.template.time_limit_ms = Some(limit_ms + 1_000);
    lab.pod(facts.clone());
    assert_eq!(lab.binds(), [""; 0], "a longer one would be in the way");
    facts.template.time_limit_ms = Some(limit_ms);
    lab.pod(facts);
    assert_eq!(lab.binds(), ["late-0"]);
}

#[test]
fn who_had_to_leave_and_for_whom_is_told_to_both() {
    let mut lab = Lab::new(&[4_000]);
    let class = |name: &str, value| Delta::PriorityClassUpsert { name: name.to_owned(), value, global_default: false };
    lab.apply(class("low", 10));
    lab.apply(class("high", 100));
    let with_priority = |lab: &mut Lab, name: &str, class: &str| {
        let facts = GroupFacts { priority_class: class.to_owned(), ..group(name, 1) };
        lab.apply(Delta::GroupUpsert(Box::new(facts)));
        let mut facts = pod(name, 0, 4_000);
        facts.priority_class = class.to_owned();
        lab.pod(facts.clone());
        facts
    };
    let mut victim = with_priority(&mut lab, "low", "low");
    assert_eq!(lab.binds(), ["low-0"]);
    lab.world.bind_result(&victim.uid, Ok(()), lab.now);
    (victim.node, victim.phase, victim.started) = (Some("n0".into()), PodPhase::Running, Some(lab.now));
    lab.pod(victim.clone());
    with_priority(&mut lab, "high", "high");
    assert_eq!(lab.cycle().evictions.len(), 1);
    lab.now = lab.now.plus_ms(60_000);
    insta::assert_snapshot!(text(&mut lab, "high"), @r"
    room for 1 pod is being freed on n0
    └─ pod low-0 of ns/low was evicted from n0 for it 0s ago by preempt (priority 100 > 10): the room is being freed
    ");
    lab.apply(Delta::TaskRemove(victim.uid.clone()));
    assert_eq!(lab.binds(), ["high-0"]);
    let plan = lab.cycle();
    assert_eq!(plan.settled.len(), 1, "{:?}", plan.settled);
    assert_eq!((plan.settled[0].room, plan.settled[0].evictions), (Ending::Used, 1));
    // It is made again, and waits.
    (victim.uid, victim.node, victim.phase, victim.started) = ("again".into(), None, PodPhase::Pending, None);
    lab.pod(victim);
    lab.cycle();
    insta::assert_snapshot!(text(&mut lab, "low"), @r"
    0/1 nodes fit 1 pod: 1 insufficient cpu (short by 4)
    ├─ cpu: each pod asks for 4; node n0 comes nearest and lacks 4; in all 4 more cpu would be needed
    ├─ cpu: held by ns/high (4 of 4)
    ├─ pod low-0 was evicted from n0 1m ago for ns/high by preempt (priority 100 > 10): the room was used
    └─ would fit if nothing else ran
    ");
    insta::assert_snapshot!(text(&mut lab, "high"), @r"
    does not wait: it has what it needs
    └─ pod low-0 of ns/low was evicted from n0 for it 1m ago by preempt (priority 100 > 10): the room was used
    ");
}

#[test]
fn queues_and_nodes_tell_who_holds_them() {
    let mut lab = Lab::new(&[8_000, 8_000]);
    lab.queue("default", &[("cpu", 12_000)]);
    job(&mut lab, "one", 1, 5, 10);
    job(&mut lab, "two", 1, 6, 20);
    lab.cycle();
    job(&mut lab, "three", 1, 2, 1);
    lab.cycle();
    insta::assert_snapshot!(lab.world.queue_why("default").unwrap().to_string(), @r"
    1 group waits in queue default
    ├─ cpu: 11 in use, deserves 12, limit 12
    ├─ memory: 30Gi in use, deserves 31Gi
    ├─ pods: 2 in use, deserves 3
    ├─ cpu: held by ns/two (6 of 12), ns/one (5 of 12)
    ├─ memory: held by ns/two (20Gi of 31Gi), ns/one (10Gi of 31Gi)
    ├─ the most room for one pod is on n0: 3 cpu, 54Gi memory
    └─ ns/three: queue default is at its cpu limit: 11 of 12 in use, 2 asked for (short by 1)
    ");
    insta::assert_snapshot!(lab.world.node_why(&"n0".into()).unwrap().to_string(), @r"
    node n0 runs 1 pod
    ├─ cpu: 3 of 8 free
    ├─ memory: 54Gi of 64Gi free
    ├─ pods: 109 of 110 free
    ├─ held by ns/one: 5 cpu, 10Gi memory
    ├─ one more pod can have at most 3 cpu, 54Gi memory
    ├─ a pod would fit of ns/three
    └─ of 1 pod nothing tells the end
    ");
}

#[test]
fn pods_that_may_not_be_evicted_are_named_to_who_would_take_their_place() {
    let mut lab = Lab::new(&[4_000]);
    lab.apply(Delta::PriorityClassUpsert { name: "high".to_owned(), value: 10, global_default: false });
    let mut on_node = |name: &str, index: u32, stays: bool, priority: i32| {
        let mut facts = pod(name, index, 1_000);
        facts.template.priority = priority;
        facts.preemptable = Some(!stays);
        lab.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..facts });
    };
    (0..2).for_each(|index| on_node("low", index, true, 0));
    on_node("equal", 0, true, 10);
    on_node("goes", 0, false, 0);
    for name in ["low", "equal", "goes"] {
        let status = GroupStatus { phase: GroupPhase::Running, ..GroupStatus::default() };
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { status, ..group(name, 1) })));
    }
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { priority_class: "high".to_owned(), ..group("urgent", 1) })));
    let mut urgent = pod("urgent", 0, 4_000);
    urgent.template.priority = 10;
    lab.pod(urgent);
    lab.cycle();
    let text = text(&mut lab, "urgent");
    let line = "2 pods of lower priority may not be evicted (volcano.sh/preemptable: \"false\"): ns/low-0, ns/low-1";
    assert!(text.contains(line), "{text}");
}
