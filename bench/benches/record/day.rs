//! Days of a cluster, by the clock of its events: jobs come, a World decides, a virtual cluster carries it out and tells
//! the World what a real one would.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use pumice_engine::{
    Config, Delta, GroupFacts, GroupPhase, GroupStatus, NodeFacts, ObjectName, OwnerFacts, Plan, PodFacts, PodPhase,
    PodTemplate, QueueFacts, Resources, ShapeTask, Shared, TimeMs, World,
};
use pumice_recording::{Beginning, Feedback, Flags};
use pumice_scheduler::plugins;
use pumice_scheduler::recorder::RecordSender;

const DAY_MS: i64 = 86_400_000;
/// 2026-11-24, a Tuesday.
const BEGIN: TimeMs = TimeMs(1_795_478_400_000);
/// A cycle takes in what comes within this.
const BATCH_MS: i64 = 3;
/// From a bind to its answer, and to the pod's change; to its start.
const BIND_MS: i64 = 4;
const START_MS: i64 = 900;
/// Nodes tell of themselves so often.
const HEARTBEAT_MS: i64 = 300_000;
/// Entries that may wait to be written: this day goes by faster than any that a recorder has to keep up with.
const BEHIND_MAX: usize = 32_768;

/// What came of the days.
pub struct Day {
    pub binds: usize,
    pub cycles: usize,
    /// Changes, answers and cycles.
    pub entries: usize,
    /// Of this thread on a processor in the engine, and on handing entries over: others may use the machine meanwhile.
    pub engine: Duration,
    pub taping: Duration,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Heartbeat(usize),
    Arrive(usize),
    Bound(usize, u32),
    Runs(usize, u32),
    Ends(usize, u32),
    Gone(usize),
    /// What was written comes back, or the engine wants a cycle.
    Wake,
}

struct Job {
    facts: GroupFacts,
    pods: Vec<PodFacts>,
    run_ms: i64,
    left: usize,
}

struct Cluster {
    world: World,
    record: RecordSender,
    events: BinaryHeap<Reverse<(i64, u64, Event)>>,
    sequence: u64,
    jobs: Vec<Option<Job>>,
    /// Jobs by their group, `namespace/name`.
    by_group: HashMap<ObjectName, usize>,
    /// When the engine wants a cycle next.
    wake: Option<i64>,
    deltas: Vec<Delta>,
    feedback: Vec<Feedback>,
    day: Day,
}

/// What this thread has had of a processor.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a thread has a clock").into()
}

/// As many numbers as are wanted, the same each time.
struct Numbers(u64);

impl Numbers {
    /// Below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn fraction(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }
}

fn resources(cpu_milli: i64, memory_mib: i64) -> Resources {
    [("cpu".to_owned(), cpu_milli), ("memory".to_owned(), memory_mib << 20)].into()
}

fn node(index: usize) -> NodeFacts {
    let name = format!("node-{index:03}.cluster.example");
    let mut allocatable = resources(32_000, 256 << 10);
    allocatable.insert("pods".to_owned(), 110);
    let labels = [
        ("kubernetes.io/hostname".to_owned(), name.clone()),
        ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
        ("topology.kubernetes.io/zone".to_owned(), format!("zone-{}", index % 3)),
    ];
    NodeFacts { name: name.into(), allocatable, labels: labels.into(), ..NodeFacts::default() }
}

/// A uid as Kubernetes makes them.
fn uid(numbers: &mut Numbers) -> String {
    let mut part = |digits: usize| {
        let text = format!("{:016x}", numbers.below(1 << 31) << 31 | numbers.below(1 << 31));
        text[16 - digits..].to_owned()
    };
    format!("{}-{}-4{}-a{}-{}", part(8), part(4), part(3), part(3), part(12))
}

/// The jobs of some days with so many pods each, with their times: twice as many by day as by night.
fn jobs(pods: usize, days: usize) -> Vec<(i64, Job)> {
    let mut numbers = Numbers(20_261_124);
    let mut jobs = Vec::new();
    for day in 0..days {
        one_day(pods, DAY_MS * day as i64, &mut numbers, &mut jobs);
    }
    jobs.sort_by_key(|(at, _)| *at);
    jobs
}

fn one_day(pods: usize, begin_ms: i64, numbers: &mut Numbers, jobs: &mut Vec<(i64, Job)>) {
    let mut made = 0;
    while made < pods {
        let by_day = numbers.below(3) > 0;
        let half = numbers.below(DAY_MS as u64 / 2) as i64;
        let at = begin_ms + if by_day { DAY_MS / 4 + half } else { (DAY_MS * 3 / 4 + half) % DAY_MS };
        let count = (1 + numbers.below(20)).min((pods - made) as u64) as usize;
        let run_ms = (60_000.0 * 240.0_f64.powf(numbers.fraction())) as i64;
        made += count;
        jobs.push((at, job(jobs.len(), BEGIN.plus_ms(at), count, run_ms, numbers)));
    }
}

fn job(index: usize, created: TimeMs, count: usize, run_ms: i64, numbers: &mut Numbers) -> Job {
    let names = ["backtest", "train", "features", "report", "sweep"];
    let name = format!("{}-{}", names[index % names.len()], uid(numbers).split_at(8).0);
    let namespace = format!("team-{}", numbers.below(12));
    let cpu = [250, 250, 500, 500][numbers.below(4) as usize];
    let owner = uid(numbers);
    let template = Shared::from(PodTemplate {
        requests: resources(cpu, cpu * 4),
        images: vec![format!("registry.example/research/{}:2026.11", names[index % names.len()])],
        priority: 1,
        ..PodTemplate::default()
    });
    let facts = GroupFacts {
        namespace: namespace.clone(),
        name: format!("{name}-{owner}"),
        uid: uid(numbers).into(),
        queue: ["default", "research", "production"][numbers.below(3) as usize].to_owned(),
        min_member: if numbers.below(2) == 0 { 1 } else { count as u32 },
        created,
        owner: Some(OwnerFacts { kind: "Job".to_owned(), name: name.clone(), uid: owner }),
        run_profile: names[index % names.len()].to_owned(),
        ..GroupFacts::default()
    };
    let pod = |pod: usize| PodFacts {
        uid: uid(numbers).into(),
        namespace: namespace.clone(),
        name: format!("{name}-main-{pod}"),
        mine: true,
        group: Some(facts.name.clone()),
        role: "main".to_owned(),
        created,
        labels: [
            ("volcano.sh/job-name".to_owned(), name.clone()),
            ("volcano.sh/task-spec".to_owned(), "main".to_owned()),
        ]
        .into(),
        template: template.clone(),
        ..PodFacts::default()
    };
    let pods: Vec<PodFacts> = (0..count).map(pod).collect();
    Job { facts, left: pods.len(), pods, run_ms }
}

/// Runs some days of so many pods each; all that the World takes in goes to the recorder.
pub fn run(pods: usize, nodes: usize, days: usize, record: RecordSender) -> Day {
    let day = Day { binds: 0, cycles: 0, entries: 0, engine: Duration::ZERO, taping: Duration::ZERO };
    let world = World::with_plugins(Config::default(), plugins());
    let (events, jobs) = (BinaryHeap::new(), jobs(pods, days));
    let (by_group, wake, deltas, feedback) = (HashMap::new(), None, Vec::new(), Vec::new());
    let mut cluster =
        Cluster { world, record, events, sequence: 0, jobs: Vec::new(), by_group, wake, deltas, feedback, day };
    let flags = Flags { default_queue: "default".to_owned(), ..Flags::default() };
    cluster.record.begin(Beginning { version: "bench".to_owned(), flags, ..Beginning::default() });
    for queue in ["root", "default", "research", "production"] {
        let facts = QueueFacts { name: queue.to_owned(), uid: queue.to_owned(), weight: 1, ..QueueFacts::default() };
        cluster.deltas.push(Delta::QueueUpsert(facts));
    }
    for index in 0..nodes {
        cluster.deltas.push(Delta::NodeUpsert(node(index)));
        cluster.at(index as i64 * HEARTBEAT_MS / nodes as i64, Event::Heartbeat(index));
    }
    for (index, (at, job)) in jobs.into_iter().enumerate() {
        cluster.by_group.insert(ObjectName::new(&job.facts.namespace, &job.facts.name), index);
        cluster.jobs.push(Some(job));
        cluster.at(at, Event::Arrive(index));
    }
    cluster.run();
    cluster.day
}

impl Cluster {
    fn at(&mut self, at: i64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn run(&mut self) {
        let mut left = self.jobs.len();
        while left > 0 {
            let Some(Reverse((first, _, event))) = self.events.pop() else { return };
            left -= usize::from(matches!(event, Event::Gone(_)));
            self.happens(first, event);
            while let Some(Reverse((at, ..))) = self.events.peek()
                && *at <= first + BATCH_MS
            {
                let Some(Reverse((at, _, event))) = self.events.pop() else { return };
                left -= usize::from(matches!(event, Event::Gone(_)));
                self.happens(at, event);
            }
            self.decide(first + BATCH_MS);
            while self.record.behind() > BEHIND_MAX {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn happens(&mut self, now: i64, event: Event) {
        let time = BEGIN.plus_ms(now);
        match event {
            Event::Heartbeat(index) => {
                self.deltas.push(Delta::NodeUpsert(node(index)));
                self.at(now + HEARTBEAT_MS, Event::Heartbeat(index));
            }
            Event::Wake => self.wake = self.wake.filter(|at| *at > now),
            Event::Arrive(index) => {
                let job = self.jobs[index].as_ref().expect("it is there");
                let template = job.pods[0].template.clone();
                let tasks = vec![ShapeTask {
                    role: "main".to_owned(),
                    count: job.pods.len() as u32,
                    template,
                    ..ShapeTask::default()
                }];
                let owner_uid = job.facts.owner.as_ref().map(|owner| owner.uid.clone()).unwrap_or_default();
                self.deltas.push(Delta::ShapeUpsert { owner_uid, tasks, ended: false });
                self.deltas.push(Delta::GroupUpsert(Box::new(job.facts.clone())));
            }
            Event::Bound(index, pod) => {
                self.pod(index, pod, |facts| facts.scheduled = Some(time));
                self.at(now + START_MS, Event::Runs(index, pod));
            }
            Event::Runs(index, pod) => {
                self.pod(index, pod, |facts| (facts.phase, facts.started) = (PodPhase::Running, Some(time)));
                let run_ms = self.jobs[index].as_ref().map_or(0, |job| job.run_ms);
                self.at(now + run_ms + i64::from(pod) * 137, Event::Ends(index, pod));
            }
            Event::Ends(index, pod) => {
                self.pod(index, pod, |facts| (facts.phase, facts.ended) = (PodPhase::Succeeded, Some(time)));
                let Some(job) = &mut self.jobs[index] else { return };
                job.left -= 1;
                if job.left == 0 {
                    self.at(now + 60_000, Event::Gone(index));
                }
            }
            Event::Gone(index) => {
                let Some(job) = self.jobs[index].take() else { return };
                self.deltas.extend(job.pods.into_iter().map(|pod| Delta::TaskRemove(pod.uid)));
                let GroupFacts { namespace, name, uid, owner, .. } = job.facts;
                self.deltas.push(Delta::GroupRemove { namespace, name, uid });
                self.deltas.push(Delta::ShapeRemove { owner_uid: owner.map(|owner| owner.uid).unwrap_or_default() });
            }
        }
    }

    fn pod(&mut self, index: usize, pod: u32, change: impl FnOnce(&mut PodFacts)) {
        let Some(job) = &mut self.jobs[index] else { return };
        let facts = &mut job.pods[pod as usize];
        change(facts);
        self.deltas.push(Delta::TaskUpsert(Box::new(facts.clone())));
    }

    /// Tells the World all that came, and carries out what it decides.
    fn decide(&mut self, now: i64) {
        let (deltas, feedback) = (std::mem::take(&mut self.deltas), std::mem::take(&mut self.feedback));
        self.day.entries += deltas.len() + feedback.len() + 1;
        let time = BEGIN.plus_ms(now);
        let started = cpu();
        for delta in &deltas {
            self.world.apply(delta);
        }
        feedback.iter().for_each(|feedback| feedback.apply(&mut self.world));
        if self.record.is_full() {
            self.world.forget();
            self.record.forgot();
        }
        let plan = self.world.cycle(time);
        let decided = cpu();
        self.record.deltas(deltas);
        feedback.into_iter().for_each(|feedback| self.record.feedback(feedback));
        self.record.cycle(time, &plan);
        self.day.taping += cpu() - decided;
        self.day.engine += decided - started;
        self.day.cycles += 1;
        self.carry_out(now, plan);
    }

    fn carry_out(&mut self, now: i64, plan: Plan) {
        let time = BEGIN.plus_ms(now);
        self.day.binds += plan.binds.len();
        for bind in plan.binds {
            self.feedback.push(Feedback::Bind { uid: bind.uid.clone(), error: None, at: time.plus_ms(BIND_MS) });
            let Some(index) = self.by_group.get(&bind.group).copied() else { continue };
            let Some(job) = &mut self.jobs[index] else { continue };
            let Some(pod) = job.pods.iter().position(|pod| pod.uid == bind.uid) else { continue };
            job.pods[pod].node = Some(bind.node);
            self.at(now + BIND_MS, Event::Bound(index, pod as u32));
        }
        for update in plan.groups {
            let (namespace, name) = (update.namespace, update.name);
            let Some(index) = self.by_group.get(&ObjectName::new(&namespace, &name)).copied() else { continue };
            self.feedback.push(Feedback::Status { namespace, name, written: true });
            let Some(job) = &mut self.jobs[index] else { continue };
            let admitted = job.facts.status.phase == GroupPhase::Pending && update.status.phase != GroupPhase::Pending;
            job.facts.status = GroupStatus { ..update.status };
            self.deltas.push(Delta::GroupUpsert(Box::new(job.facts.clone())));
            if admitted {
                let pods = job.pods.iter().map(|pod| Delta::TaskUpsert(Box::new(pod.clone())));
                self.deltas.extend(pods);
            }
        }
        if !self.deltas.is_empty() || !self.feedback.is_empty() {
            self.at(now + BIND_MS, Event::Wake);
        }
        let wanted = plan.next_wakeup.map(|at| (at.0 - BEGIN.0).max(now + BATCH_MS));
        if let Some(at) = wanted.filter(|at| self.wake.is_none_or(|other| *at < other)) {
            self.wake = Some(at);
            self.at(at, Event::Wake);
        }
    }
}
