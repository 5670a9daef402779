//! Groups that are alike are admitted as if each were looked at by itself: the same worlds beside each other, one with a
//! plugin of a third party that says nothing, so that nothing is taken for alike.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::oracle::Setting;
use super::*;
use crate::config::{PluginConfig, Switches};
use crate::facts::QuotaFacts;
use crate::plugin::{Plugin, Registry};

/// Has no opinion, and does not say that it has none.
#[derive(Debug)]
struct Silent;

impl Plugin for Silent {}

/// Everything that votes on admission, and namespaces with a share each.
const VOTERS: &str = "actions: enqueue, allocate, preempt, backfill\ntiers:\n- plugins:\n  - name: priority\n  \
                      - name: gang\n- plugins:\n  - name: sla\n  - name: overcommit\n  - name: resourcequota\n  \
                      - name: predicates\n  - name: proportion\n  - name: nodeorder\nconfigurations:\n- name: fairness\n  \
                      arguments: {namespaces: true}\n- name: reservation\n  arguments: {after: 1s, ageBound: 3s}\n";
/// What groups are told apart by does not lead their order.
const LATE_RANK: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: deadline\n  - name: priority\n  \
                         - name: gang\n  - name: predicates\n  - name: overcommit\n  - name: nodeorder\n\
                         configurations:\n- name: fairness\n  arguments: {namespaces: true}\n";
/// A queue may be owed one resource and not the other.
const OWED: &str = "actions: enqueue, allocate, reclaim\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n\
                    - plugins:\n  - name: overcommit\n    arguments: {overcommit-factor: 1}\n  - name: resourcequota\n  \
                    - name: predicates\n  - name: capacity\n  - name: nodeorder\nconfigurations:\n- name: fairness\n  \
                    arguments: {namespaces: true}\n";

fn config(setting: usize) -> Config {
    let text = match setting.checked_sub(Setting::ALL.len()) {
        None => return Setting::ALL[setting].config(),
        Some(0) => VOTERS,
        Some(1) => LATE_RANK,
        Some(_) => OWED,
    };
    let (config, warnings) = Config::parse(text).unwrap();
    assert_eq!(warnings, []);
    config
}

const SETTINGS: usize = Setting::ALL.len() + 3;

#[derive(Debug, Clone)]
struct Job {
    namespace: usize,
    queue: usize,
    priority: usize,
    /// What its pods ask for: cpu, gpu.
    asks: Asks,
    pods: u32,
    min: u32,
    /// How its needs are known.
    known: Known,
    /// Seconds that it may wait, as `sla` has it.
    waits: Option<i64>,
    deadline: Option<i64>,
}

/// Cores and GPUs.
#[derive(Debug, Clone, Copy)]
struct Asks {
    cpu: i64,
    gpu: i64,
}

impl Asks {
    fn times(self, count: u32) -> Self {
        Self { cpu: self.cpu * i64::from(count), gpu: self.gpu * i64::from(count) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Tasks,
    TwoTasks,
    Sum,
    Pods,
    TwoPods,
}

#[derive(Debug, Clone)]
enum Happens {
    Submit(Job, u32),
    /// The oldest pod that runs ends.
    End,
    Node(usize, i64, i64),
    Queue(QueuePlan),
    Quota(usize, i64),
    Remove(usize),
    Wait(i64),
    Nothing,
}

/// A queue with limits of cores and GPUs, if any; it deserves half as many GPUs as cores.
#[derive(Debug, Clone, Copy)]
struct QueuePlan {
    queue: usize,
    cpu: Option<i64>,
    gpu: Option<i64>,
    deserved: i64,
    weight: i32,
    open: bool,
}

fn some_job() -> impl Strategy<Value = Job> {
    let known = prop_oneof![
        6 => Just(Known::Tasks), 1 => Just(Known::TwoTasks), 2 => Just(Known::Sum), 2 => Just(Known::Pods),
        1 => Just(Known::TwoPods)];
    let where_ = (0..2_usize, 0..3_usize, 0..3_usize);
    let asks = (0..4_i64, prop_oneof![3 => Just(0_i64), 1 => 1..3_i64]).prop_map(|(cpu, gpu)| Asks { cpu, gpu });
    let times = (proptest::option::weighted(0.1, 1..5_i64), proptest::option::weighted(0.2, 1..9_i64));
    (where_, asks, 1..3_u32, 1..3_u32, known, times).prop_map(|(where_, asks, pods, min, known, (waits, deadline))| {
        let (namespace, queue, priority) = where_;
        Job { namespace, queue, priority, asks, pods, min: min.min(pods), known, waits, deadline }
    })
}

fn something() -> impl Strategy<Value = Happens> {
    let limit = || proptest::option::weighted(0.4, 1..7_i64);
    prop_oneof![
        6 => (some_job(), 1..6_u32).prop_map(|(job, times)| Happens::Submit(job, times)),
        6 => Just(Happens::End),
        1 => (0..3_usize, 0..6_i64, 0..3_i64).prop_map(|(node, cpu, gpu)| Happens::Node(node, cpu, gpu)),
        1 => (0..3_usize, limit(), limit(), 0..5_i64, 1..4_i32, prop::bool::weighted(0.8)).prop_map(
            |(queue, cpu, gpu, deserved, weight, open)| {
                Happens::Queue(QueuePlan { queue, cpu, gpu, deserved, weight, open })
            }),
        1 => (0..2_usize, 0..9_i64).prop_map(|(namespace, cpu)| Happens::Quota(namespace, cpu)),
        1 => (0..40_usize).prop_map(Happens::Remove),
        2 => (1..6_i64).prop_map(Happens::Wait),
        2 => Just(Happens::Nothing),
    ]
}

fn requests(Asks { cpu, gpu }: Asks) -> Resources {
    let mut asked = resources(cpu * 1_000);
    if gpu > 0 {
        asked.insert("nvidia.com/gpu".to_owned(), gpu);
    }
    asked
}

fn template(asks: Asks) -> PodTemplate {
    PodTemplate { requests: requests(asks), ..PodTemplate::default() }
}

/// What is written: to whom, and of what kind.
fn told(plan: &Plan) -> Vec<String> {
    let pods = plan.pods.iter().map(|notice| format!("{} {}", notice.uid, notice.reason));
    let groups = plan.groups.iter().map(|update| {
        let conditions = update.status.conditions.iter();
        let conditions: Vec<_> = conditions.map(|one| (&one.kind, one.status, &one.reason)).collect();
        format!("{} {:?} {:?} {conditions:?}", update.name, update.uid, update.status.phase)
    });
    let mut told: Vec<String> = pods.chain(groups).collect();
    told.sort();
    told
}

/// Both worlds, and what runs in them.
struct Pair {
    alike: Lab,
    alone: Lab,
    jobs: Vec<Job>,
    /// Pods by the order in which they were bound.
    running: Vec<PodFacts>,
    pods: BTreeMap<PodUid, PodFacts>,
    /// Some group was told of another one of several reasons that it waits for, so that it is told again at other times.
    told_otherwise: bool,
}

impl Pair {
    fn new(setting: usize) -> Self {
        let config = config(setting);
        let mut silent = config.clone();
        let switches = Switches::default();
        let plugin = PluginConfig { name: "silent".to_owned(), switches, arguments: BTreeMap::new() };
        silent.tiers.last_mut().unwrap().push(plugin);
        let mut registry = Registry::default();
        registry.add("silent", &[], |_| Ok(Box::new(Silent)));
        let alike = Lab { world: World::new(config), now: TimeMs(1_000_000) };
        let alone = Lab { world: World::with_plugins(silent, registry), now: TimeMs(1_000_000) };
        let mut pair =
            Self { alike, alone, jobs: Vec::new(), running: Vec::new(), pods: BTreeMap::new(), told_otherwise: false };
        for priority in 0..3 {
            let (name, value) = (format!("p{priority}"), priority);
            pair.apply(&Delta::PriorityClassUpsert { name, value, global_default: false });
        }
        for queue in 0..2 {
            let plan = QueuePlan { queue, cpu: None, gpu: None, deserved: 2, weight: 1, open: true };
            pair.happen(&Happens::Queue(plan));
        }
        pair.happen(&Happens::Node(0, 4, 1));
        pair
    }

    fn apply(&mut self, delta: &Delta) {
        self.alike.world.apply(delta);
        self.alone.world.apply(delta);
    }

    fn happen(&mut self, event: &Happens) {
        match event {
            Happens::Submit(job, times) => (0..*times).for_each(|_| self.submit(job)),
            Happens::End if !self.running.is_empty() => {
                let pod = self.running.remove(0);
                self.pods.remove(&pod.uid);
                self.apply(&Delta::TaskUpsert(Box::new(PodFacts { phase: PodPhase::Succeeded, ..pod })));
            }
            Happens::Node(node, cpu, gpu) => {
                let mut facts = super::node(&format!("n{node}"), cpu * 1_000);
                facts.allocatable.insert("nvidia.com/gpu".to_owned(), *gpu);
                self.apply(&Delta::NodeUpsert(facts));
            }
            Happens::Queue(QueuePlan { queue, cpu, gpu, deserved, weight, open }) => {
                let (name, weight) = (format!("q{queue}"), *weight);
                let mut capability = resources(cpu.unwrap_or(0) * 1_000);
                capability.extend(gpu.map(|gpu| ("nvidia.com/gpu".to_owned(), gpu)));
                let state = if *open { QueueState::Open } else { QueueState::Closed };
                let deserved = requests(Asks { cpu: *deserved, gpu: *deserved / 2 });
                let uid = name.clone();
                let facts = QueueFacts { name, uid, capability, deserved, weight, state, ..QueueFacts::default() };
                self.apply(&Delta::QueueUpsert(facts));
            }
            Happens::Quota(namespace, cpu) => self.apply(&Delta::QuotaUpsert(QuotaFacts {
                namespace: format!("ns{namespace}"),
                name: "quota".to_owned(),
                hard: [("requests.cpu".to_owned(), cpu * 1_000)].into(),
                used: BTreeMap::new(),
            })),
            Happens::Remove(job) => {
                if let Some(facts) = self.jobs.get(*job) {
                    let (namespace, name) = (format!("ns{}", facts.namespace), format!("g{job}"));
                    self.apply(&Delta::GroupRemove { namespace, name, uid: "".into() });
                }
            }
            Happens::Wait(seconds) => {
                self.alike.now = self.alike.now.plus_ms(seconds * 1_000);
                self.alone.now = self.alike.now;
            }
            Happens::End | Happens::Nothing => {}
        }
    }

    fn submit(&mut self, job: &Job) {
        let index = self.jobs.len();
        self.jobs.push(job.clone());
        let uid = format!("job{index}");
        let shape = |role: &str, cpu| ShapeTask {
            role: role.to_owned(),
            count: job.pods,
            template: template(Asks { cpu: job.asks.cpu + cpu, ..job.asks }).into(),
            ..ShapeTask::default()
        };
        let tasks = match job.known {
            Known::Tasks => vec![shape("r", 0)],
            Known::TwoTasks => vec![shape("r", 0), shape("s", 1)],
            _ => Vec::new(),
        };
        self.apply(&Delta::ShapeUpsert { owner_uid: uid.clone(), tasks, ended: false });
        let sum = requests(job.asks.times(job.min));
        let waits = job.waits.map(|waits| ("volcano.sh/sla-waiting-time".to_owned(), format!("{waits}s")));
        self.apply(&Delta::GroupUpsert(Box::new(GroupFacts {
            namespace: format!("ns{}", job.namespace),
            queue: format!("q{}", job.queue),
            priority_class: format!("p{}", job.priority),
            min_resources: Some(sum),
            created: TimeMs(self.alike.now.0 + index as i64 % 5),
            owner: Some(OwnerFacts { kind: "Job".to_owned(), name: uid.clone(), uid }),
            annotations: waits.into_iter().collect(),
            deadline: job.deadline.map(|seconds| self.alike.now.plus_ms(seconds * 1_000)),
            status: GroupStatus::default(),
            ..super::group(&format!("g{index}"), job.min)
        })));
        if matches!(job.known, Known::Pods | Known::TwoPods) {
            self.make_pods(index);
        }
    }

    fn make_pods(&mut self, index: usize) {
        let job = self.jobs[index].clone();
        let several = matches!(job.known, Known::TwoTasks | Known::TwoPods);
        let roles = if several { &["r", "s"][..] } else { &["r"] };
        for (role, cpu) in roles.iter().zip(0_i64..) {
            for number in 0..job.pods {
                let name = format!("g{index}-{role}-{number}");
                let facts = PodFacts {
                    uid: name.clone().into(),
                    namespace: format!("ns{}", job.namespace),
                    name,
                    role: (*role).to_owned(),
                    template: template(Asks { cpu: job.asks.cpu + cpu, ..job.asks }).into(),
                    ..pod(&format!("g{index}"), number, 0)
                };
                if !self.pods.contains_key(&facts.uid) {
                    self.pods.insert(facts.uid.clone(), facts.clone());
                    self.apply(&Delta::TaskUpsert(Box::new(facts)));
                }
            }
        }
    }

    fn cycle(&mut self, event: &Happens) {
        let (plan, other) = (self.alike.cycle(), self.alone.cycle());
        assert_eq!(plan.admitted, other.admitted, "after {event:?}");
        assert_eq!(plan.binds, other.binds, "after {event:?}");
        assert_eq!(plan.evictions, other.evictions, "after {event:?}");
        assert_eq!(self.alike.world.digest(), self.alone.world.digest(), "after {event:?}");
        self.compare_reasons(event);
        if !self.told_otherwise {
            assert_eq!(plan.next_wakeup, other.next_wakeup, "after {event:?}");
            assert_eq!(told(&plan), told(&other), "after {event:?}");
        }
        for bind in &plan.binds {
            for lab in [&mut self.alike, &mut self.alone] {
                lab.world.bind_result(&bind.uid, Ok(()), lab.now);
            }
            let pod = self.pods.get_mut(&bind.uid).unwrap();
            (pod.node, pod.phase) = (Some(bind.node.clone()), PodPhase::Running);
            let pod = pod.clone();
            self.apply(&Delta::TaskUpsert(Box::new(pod.clone())));
            self.running.push(pod);
        }
        for eviction in &plan.evictions {
            for lab in [&mut self.alike, &mut self.alone] {
                lab.world.evict_result(&eviction.uid, Ok(()), lab.now);
            }
            self.apply(&Delta::TaskRemove(eviction.uid.clone()));
            self.running.retain(|pod| pod.uid != eviction.uid);
            self.pods.remove(&eviction.uid);
        }
        for key in &plan.admitted {
            self.make_pods(key.split_once("/g").unwrap().1.parse().unwrap());
        }
        self.happen(&Happens::Wait(1));
    }

    /// Each group waits for the same kind of reason. Numbers may be those of the first that is like it, and what never
    /// fits may be told so although it would not be its turn either. Meanwhile others were promised more, which may be what the
    /// next one that is like it is told of.
    fn compare_reasons(&mut self, event: &Happens) {
        let of_promises = |reason: &Reason| matches!(reason, Reason::QueueLimit { .. } | Reason::Overcommitted { .. });
        let mut otherwise = false;
        for (index, job) in self.jobs.iter().enumerate() {
            let of = |lab: &Lab| lab.world.reasons(&format!("ns{}", job.namespace), &format!("g{index}"));
            let (reasons, other) = (of(&self.alike), of(&self.alone));
            assert_eq!(reasons.is_some(), other.is_some(), "g{index} after {event:?}");
            let Some((reasons, other)) = reasons.zip(other) else { continue };
            assert_eq!((reasons.stage, reasons.since), (other.stage, other.since), "g{index} after {event:?}");
            let kind = |reason: &Reason| std::mem::discriminant(reason);
            let told = (reasons.reasons.first(), other.reasons.first());
            let never =
                |reason: &Reason| matches!(reason, Reason::ExceedsCluster(_) | Reason::QueueLimit { never: true, .. });
            // The first that fits not yet holds up the others; those like it are told what it waits for.
            let holder =
                |key: &str| key.split_once('/').and_then(|(namespace, name)| self.alike.world.reasons(namespace, name));
            match told {
                (Some(reason), Some(Reason::StrictOrder { next, .. }))
                    if never(reason) || holder(next).is_some_and(|next| kind(&next.reasons[0]) == kind(reason)) =>
                {
                    otherwise = true;
                }
                (Some(reason), Some(other))
                    if kind(reason) != kind(other) && of_promises(reason) && of_promises(other) =>
                {
                    otherwise = true;
                }
                (reason, other) => {
                    assert_eq!(reason.map(kind), other.map(kind), "g{index} after {event:?}: {told:?}");
                }
            }
        }
        self.told_otherwise |= otherwise;
    }
}

proptest! {
    #![proptest_config(cases(400))]

    // INV-22
    #[test]
    fn those_that_are_alike_are_admitted_as_if_each_were_looked_at(
        setting in 0..SETTINGS,
        events in proptest::collection::vec(something(), 1..40),
    ) {
        let mut pair = Pair::new(setting);
        for event in &events {
            pair.happen(event);
            pair.cycle(event);
        }
    }
}
