//! Server, ledger, conversations and executors together, under faults that a seed chooses.
//!
//! The real cores talk over a network that delays and cuts, to clusters that are slow, over a log that fails; leaders and
//! executors die at any moment, and clusters fall silent for long. Runs of one of the two queues are started elsewhere then:
//! its jobs end once, too, and run twice at a time only where clocks jump or executors die. `PUMICE_FLEET_SEEDS` says how
//! many seeds, `PUMICE_FLEET_SEED` the first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pumice_ledger::{
    Digest, Entry, Event, Filter, Inbox, JobId, Ledger, NodeRef, PriorityClass, PriorityClasses, Proposal, Queue,
    Report, Retries, RunId, Scope, Shape, Submitted, TimeMs,
};
use pumice_wire::executor::{self as wire, from_executor, to_executor};
use pumice_wire::kubernetes::PodSpec;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::executor::core::{DeleteAnswer, Deletion, Refusal, RefusalKind};
use crate::executor::facts::Kind;
use crate::executor::pod::{CUT_OFF_ANNOTATION, pod_name};
use crate::executor::{Core, Input, Output, PodFacts, PodPhase, Settings};
use crate::sessions::{FORMAT, Order, Sessions, cut_off_ms};

const SECOND: i64 = 1_000;
/// Steps with faults, then steps in which all has to come to its end.
const STEPS: usize = 600;
const CALM_STEPS: usize = 20_000;
const CLUSTERS: [&str; 3] = ["one", "two", "three"];
/// The queue whose runs are started elsewhere, and when.
const RERUN: &str = "rerun";
const QUEUES: [&str; 2] = ["q", RERUN];
const RERUN_AFTER_MS: i64 = 180 * SECOND;
/// Jobs that one decision changes of what is asked of more.
const PART: usize = 3;
const HEARTBEAT_MS: i64 = 5 * SECOND;

fn classes() -> PriorityClasses {
    let class = |value, preemptible| PriorityClass { value, preemptible };
    [("spare".to_owned(), class(0, true)), ("urgent".to_owned(), class(9, false))].into()
}

/// A leader: what it knows is gone with it.
struct Leader {
    ledger: Ledger,
    sessions: Sessions,
    position: usize,
    reports: Vec<Report>,
}

/// A stream, with what is under way in both directions.
struct Link {
    number: u64,
    up: VecDeque<wire::FromExecutor>,
    down: VecDeque<wire::ToExecutor>,
    said: u64,
}

/// A cluster: its truth, and the executor that sees it late.
struct Cluster {
    name: &'static str,
    core: Core,
    link: Option<Link>,
    pods: BTreeMap<RunId, PodFacts>,
    unseen: VecDeque<Input>,
    calls: VecDeque<Output>,
    /// When it last said that it lives.
    beat: TimeMs,
    /// Until when nothing gets through.
    dark: TimeMs,
}

struct World {
    rng: StdRng,
    now: TimeMs,
    log: Vec<Entry>,
    leader: Option<Leader>,
    clusters: Vec<Cluster>,
    sessions: u64,
    jobs: u128,
    versions: u64,
    calm: bool,
    /// Clocks go evenly, executors live and leaders mostly do: clusters are silent for long enough that their runs are started
    /// elsewhere, and those were stopped before.
    even: bool,
    /// Jobs whose runs are started elsewhere.
    rerun: BTreeSet<JobId>,
    /// Runs whose pods were ever made, and those that ended well.
    made: BTreeMap<RunId, &'static str>,
    succeeded: BTreeSet<RunId>,
}

fn core() -> Core {
    Core::new(Settings { starts_max: 3, ..Settings::default() }).expect("patterns are good")
}

impl World {
    fn new(seed: u64) -> Self {
        let log = QUEUES.map(|name| {
            let queue = Event::QueueSet(Box::new(queue(name)));
            Entry { events: vec![queue], ..Entry::new(TimeMs(0), name, "") }
        });
        let cluster = |name| Cluster {
            name,
            core: core(),
            link: None,
            pods: BTreeMap::new(),
            unseen: [Input::Pods(Vec::new())].into(),
            calls: VecDeque::new(),
            beat: TimeMs(0),
            dark: TimeMs(0),
        };
        Self {
            rng: StdRng::seed_from_u64(seed),
            now: TimeMs(SECOND),
            log: log.into(),
            leader: None,
            clusters: CLUSTERS.into_iter().map(cluster).collect(),
            sessions: 0,
            jobs: 0,
            versions: 0,
            calm: false,
            even: seed.is_multiple_of(2),
            rerun: BTreeSet::new(),
            made: BTreeMap::new(),
            succeeded: BTreeSet::new(),
        }
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        self.rng.gen_ratio(per_mille, 1000)
    }

    /// A fault, while there are any.
    fn fault(&mut self, per_mille: u32) -> bool {
        !self.calm && self.chance(per_mille)
    }

    /// A fault of the leader. A new one counts silence from its start.
    fn leader_fault(&mut self) -> bool {
        self.fault(if self.even { 1 } else { 16 })
    }

    fn step(&mut self) {
        self.now = self.now.plus(self.rng.gen_range(1..2 * SECOND));
        if !self.calm {
            self.ask();
            if !self.even && self.chance(10) {
                // A clock that jumps. Executors take no step back.
                self.now = self.now.plus(self.rng.gen_range(-60 * SECOND..600 * SECOND));
            }
        }
        self.lead();
        for index in 0..self.clusters.len() {
            self.cluster(index);
        }
    }

    /// People ask for things.
    fn ask(&mut self) {
        let queue = QUEUES[self.rng.gen_range(0..QUEUES.len())];
        let events = match self.rng.gen_range(0..100) {
            0..=24 => {
                self.jobs += 1;
                let (job, urgent) = (JobId(self.jobs), self.rng.gen_bool(0.3));
                let fail_fast = self.rng.gen_bool(0.1);
                let shape = Digest(u128::from(urgent));
                if queue == RERUN {
                    self.rerun.insert(job);
                }
                vec![Event::Submitted(Submitted { job, spec: Digest(1), shape, priority: 0, gang: None, fail_fast })]
            }
            25 if self.chance(100) => {
                vec![Event::CancelAsked { jobs: vec![], filter: Filter::Queued, reason: "enough".to_owned() }]
            }
            25..=28 if self.jobs > 0 => {
                let jobs = vec![JobId(self.rng.gen_range(1..=self.jobs))];
                vec![Event::CancelAsked { jobs, filter: Filter::Active, reason: "enough".to_owned() }]
            }
            29..=31 if self.jobs > 0 => {
                let jobs = vec![JobId(self.rng.gen_range(1..=self.jobs))];
                vec![Event::PreemptAsked { jobs, reason: "room".to_owned() }]
            }
            32 => vec![Event::Reprioritised { jobs: vec![], priority: self.rng.gen_range(0..9) }],
            33 if self.chance(100) => {
                let scope = Scope { cluster: self.any_cluster(), ..Scope::default() };
                let reason = "repair".to_owned();
                if self.chance(500) {
                    vec![Event::ScopeCancelAsked { scope, reason }]
                } else {
                    vec![Event::ScopePreemptAsked { scope, reason }]
                }
            }
            34 => {
                let (executor, cordoned) = (self.any_cluster(), self.chance(500));
                vec![Event::ExecutorSet { executor, cordoned, reason: "repair".to_owned() }]
            }
            _ => return,
        };
        let shape = |class: &str| Shape {
            priority_class: class.to_owned(),
            requests: BTreeMap::new(),
            template: serde_json::Value::Null,
            whole: None,
        };
        let shapes = [(Digest(0), shape("spare")), (Digest(1), shape("urgent"))].into();
        self.log.push(Entry { user: "ada".to_owned(), shapes, events, ..Entry::new(self.now, queue, "s") });
    }

    fn any_cluster(&mut self) -> String {
        CLUSTERS[self.rng.gen_range(0..CLUSTERS.len())].to_owned()
    }

    /// All executors are let go, so that what waits can end.
    fn uncordon(&mut self) {
        let unset = |name: &str| Event::ExecutorUnset { executor: name.to_owned() };
        let events = CLUSTERS.into_iter().map(unset).collect();
        self.log.push(Entry { events, ..Entry::new(self.now, "", "") });
    }

    /// The leader dies, or does one commit and tells what follows.
    fn lead(&mut self) {
        if self.leader_fault() {
            self.leader = None;
        }
        // The commit fails, and nothing is written; or it is written, and the leader dies before it can say so.
        let (failed, died) = (self.leader_fault(), self.leader_fault());
        let (now, log) = (self.now, &self.log);
        let leader = self.leader.get_or_insert_with(|| {
            // Nobody is connected to a new leader.
            self.clusters.iter_mut().for_each(|cluster| {
                cluster.link = None;
                cluster.hear(now, Input::Disconnected);
            });
            let mut ledger = Ledger::new(classes()).in_parts_of(PART);
            log.iter().for_each(|entry| {
                assert!(ledger.fold(entry).is_empty() || !entry.events.iter().any(Event::is_decision))
            });
            let mut sessions = Sessions::default();
            sessions.expect(&ledger, now);
            Leader { position: log.len(), ledger, sessions, reports: Vec::new() }
        });
        for entry in &self.log[leader.position..] {
            leader.ledger.fold(entry);
        }
        let mut proposals = Vec::new();
        for id in QUEUES.iter().flat_map(|queue| leader.ledger.first(queue, 2, 2)) {
            let cluster = CLUSTERS[self.rng.gen_range(0..CLUSTERS.len())].to_owned();
            let jobs = vec![(id, NodeRef { cluster, node: "n".to_owned() })];
            proposals.push(Proposal::Lease { jobs, pool: "p".to_owned(), away: None });
        }
        if self.rng.gen_ratio(1, 50)
            && let Some(run) = leader.ledger.runs().map(|(run, _)| run).min()
        {
            proposals.push(Proposal::Preempt { run, preemption: pumice_ledger::Preemption::default() });
        }
        let reports = std::mem::take(&mut leader.reports);
        let inbox = Inbox { reports, proposals, silent: leader.sessions.silent(self.now) };
        let decided = leader.ledger.decide(self.now, inbox, Retries::default());
        assert_eq!(leader.ledger.lint(), Vec::<String>::new());
        for event in decided.iter().flat_map(|entry| &entry.events) {
            let to_cordoned = matches!(event, Event::Leased { at, .. } if leader.ledger.is_cordoned(&at.cluster));
            assert!(!to_cordoned, "{event:?}");
        }
        if failed {
            self.leader = None;
            return;
        }
        self.log.extend(decided);
        if died {
            self.leader = None;
            return;
        }
        let Some(leader) = &mut self.leader else { return };
        leader.position = self.log.len();
        leader.sessions.written();
        for outgoing in leader.sessions.outgoing(&leader.ledger, |_| true) {
            let mut messages = Vec::new();
            messages.extend(outgoing.answer.map(to_executor::Message::Acknowledge));
            for order in outgoing.orders {
                messages.push(match order {
                    Order::Lease(run) => {
                        to_executor::Message::Leases(wire::Leases { leases: vec![lease(run, &self.rerun)] })
                    }
                    Order::Stop(run, kind, reason) => to_executor::Message::Stop(wire::Stop {
                        runs: vec![wire::StopRun { run_id: run.to_string(), reason, kind: kind.into() }],
                    }),
                });
            }
            for message in messages {
                let sequence = leader.sessions.next_sequence(&outgoing.cluster, outgoing.session).expect("a session");
                let link = self.clusters.iter_mut().find(|cluster| cluster.name == outgoing.cluster);
                if let Some(link) = link.and_then(|cluster| cluster.link.as_mut()) {
                    link.down.push_back(wire::ToExecutor { sequence, message: Some(message) });
                }
            }
        }
    }

    fn cluster(&mut self, index: usize) {
        // The executor dies: it finds the pods that there are.
        if !self.even && self.fault(10) {
            let cluster = &mut self.clusters[index];
            cluster.core = core();
            cluster.link = None;
            cluster.calls.clear();
            cluster.unseen = [Input::Pods(cluster.pods.values().cloned().collect())].into();
        }
        if self.fault(1) {
            self.clusters[index].dark = self.now.plus(self.rng.gen_range(30 * SECOND..400 * SECOND));
        }
        if self.fault(20) || self.is_dark(index) {
            self.cut(index);
        }
        self.connect(index);
        self.network(index);
        self.progress(index);
        let now = self.now;
        let cluster = &mut self.clusters[index];
        for _ in 0..2 {
            if let Some(input) = cluster.unseen.pop_front() {
                cluster.hear(now, input);
            }
        }
        cluster.hear(now, Input::Tick);
        self.call(index);
    }

    fn is_dark(&self, index: usize) -> bool {
        !self.calm && self.now < self.clusters[index].dark
    }

    /// The stream ends; the server hears of it at once, or later by the next one.
    fn cut(&mut self, index: usize) {
        let cluster = &mut self.clusters[index];
        if let Some(link) = cluster.link.take() {
            cluster.hear(self.now, Input::Disconnected);
            if let Some(leader) = self.leader.as_mut().filter(|_| self.rng.gen_bool(0.5)) {
                leader.sessions.close(cluster.name, link.number);
            }
        }
    }

    fn connect(&mut self, index: usize) {
        if self.is_dark(index) {
            return;
        }
        let cluster = &mut self.clusters[index];
        if cluster.link.is_some() || !cluster.core.is_synced() || (!self.calm && self.rng.gen_bool(0.7)) {
            return;
        }
        let Some(leader) = &mut self.leader else { return };
        self.sessions += 1;
        let hello = wire::Hello {
            executor: cluster.name.to_owned(),
            session_id: String::new(),
            format_version: FORMAT,
            ..Default::default()
        };
        let first = wire::FromExecutor { sequence: 1, message: Some(from_executor::Message::Hello(hello)) };
        let opened = leader.sessions.open(&first, Some(cluster.name), self.sessions, self.now);
        let (_, welcome) = opened.expect("a session");
        cluster.link = Some(Link { number: self.sessions, up: VecDeque::new(), down: [welcome].into(), said: 1 });
        cluster.hear(self.now, Input::Connected { session: self.sessions });
    }

    /// One message or none gets through each way.
    fn network(&mut self, index: usize) {
        let cluster = &mut self.clusters[index];
        if self.now.since(cluster.beat) >= HEARTBEAT_MS
            && let Some(link) = &mut cluster.link
        {
            cluster.beat = self.now;
            link.said += 1;
            let message = Some(from_executor::Message::Heartbeat(wire::Heartbeat::default()));
            link.up.push_back(wire::FromExecutor { sequence: link.said, message });
        }
        let Some(link) = &mut cluster.link else { return };
        let number = link.number;
        if (self.calm || self.rng.gen_bool(0.7))
            && let Some(message) = link.down.pop_front()
        {
            cluster.hear(self.now, Input::Message { session: number, message: Box::new(message) });
        }
        let Some(link) = &mut cluster.link else { return };
        if (self.calm || self.rng.gen_bool(0.7))
            && let Some(message) = link.up.pop_front()
            && let Some(leader) = &mut self.leader
        {
            let again = message.clone();
            let received = leader.sessions.receive(cluster.name, number, message, &leader.ledger, self.now);
            leader.reports.extend(received.expect("in order").reports);
            if !self.calm && self.rng.gen_bool(0.1) {
                let received = leader.sessions.receive(cluster.name, number, again, &leader.ledger, self.now);
                assert!(received.expect("a repeat is left out").reports.is_empty());
            }
        }
    }

    /// Pods go on by themselves.
    fn progress(&mut self, index: usize) {
        let runs: Vec<RunId> = self.clusters[index].pods.keys().copied().collect();
        for run in runs {
            let interfered = self.fault(3);
            // Some last until their cluster has been silent for long.
            let is_long = !self.calm && self.rerun.contains(&run.job) && run.job.0.is_multiple_of(3);
            let (moves, fails) = (self.rng.gen_ratio(1, if is_long { 200 } else { 6 }), self.rng.gen_ratio(1, 8));
            let (now, version) = (self.now, self.version());
            let cluster = &mut self.clusters[index];
            let Some(pod) = cluster.pods.get_mut(&run) else { continue };
            let leaves = pod.deletion.is_some() && (self.calm || self.rng.gen_bool(0.3));
            if leaves || interfered {
                let uid = pod.uid.clone();
                cluster.pods.remove(&run);
                cluster.unseen.push_back(Input::PodRemoved { run, uid });
                continue;
            }
            if !moves || pod.phase.is_finished() {
                continue;
            }
            pod.phase = match pod.phase {
                PodPhase::Pending => PodPhase::Running,
                _ if fails || pod.deletion.is_some() => PodPhase::Failed,
                _ => PodPhase::Succeeded,
            };
            pod.version = version;
            pod.since = now;
            if pod.phase == PodPhase::Succeeded {
                self.succeeded.insert(run);
            }
            let seen = Input::Pod(Box::new(pod.clone()));
            cluster.unseen.push_back(seen);
        }
    }

    fn version(&mut self) -> String {
        self.versions += 1;
        self.versions.to_string()
    }

    /// The cluster answers a call, or the answer is lost, or nothing happens.
    fn call(&mut self, index: usize) {
        let Some(call) = self.clusters[index].calls.pop_front() else { return };
        let (lost, refused, unheard) = (self.fault(50), self.fault(30), self.fault(50));
        let (now, version) = (self.now, self.version());
        let name = self.clusters[index].name;
        let answer = match call {
            Output::Create { run, .. } if lost || refused => {
                let kind = if lost { RefusalKind::Unclear } else { RefusalKind::Refused };
                let refusal = Refusal { kind, reason: "Fault".to_owned(), message: "injected".to_owned() };
                Input::NotCreated { run, refusal }
            }
            Output::Create { run, objects } => {
                self.begins(run, name);
                let told = &objects.pod["metadata"]["annotations"][CUT_OFF_ANNOTATION];
                let cut_off_ms = told.as_str().map(|text| text.parse().expect("a number"));
                let cluster = &mut self.clusters[index];
                let uid = format!("{run}/{version}");
                let pod = cluster.pods.entry(run).or_insert_with(|| pod(run, uid, version, now, cut_off_ms)).clone();
                let uid = pod.uid.clone();
                cluster.unseen.push_back(Input::Pod(Box::new(pod)));
                if unheard {
                    let refusal = Refusal {
                        kind: RefusalKind::Unclear,
                        reason: "Fault".to_owned(),
                        message: "unheard".to_owned(),
                    };
                    Input::NotCreated { run, refusal }
                } else {
                    Input::Created { run, uid }
                }
            }
            Output::Delete { run, .. } if lost => Input::Deleted { run, answer: DeleteAnswer::Failed },
            Output::Delete { run, uid, how, .. } => {
                let cluster = &mut self.clusters[index];
                let found = cluster.pods.get_mut(&run).filter(|pod| uid.as_ref().is_none_or(|uid| *uid == pod.uid));
                let answer = match (found, how) {
                    (None, _) => DeleteAnswer::NotFound,
                    (Some(pod), Deletion::IfVersion(wanted)) if wanted != pod.version => DeleteAnswer::Changed,
                    (Some(pod), _) => {
                        pod.deletion = Some(now);
                        pod.version = version;
                        let seen = Input::Pod(Box::new(pod.clone()));
                        cluster.unseen.push_back(seen);
                        DeleteAnswer::Accepted
                    }
                };
                Input::Deleted { run, answer: if unheard { DeleteAnswer::Failed } else { answer } }
            }
            Output::Report(_) | Output::EndSession(_) | Output::RunErrand(_) => return,
        };
        self.clusters[index].hear(now, answer);
    }

    /// A pod is made: of a run that the log leased, and beside no other pod of its job, unless that may be.
    fn begins(&mut self, run: RunId, cluster: &'static str) {
        let leased = self.log.iter().flat_map(|entry| &entry.events).any(
            |event| matches!(event, Event::Leased { run: other, at, .. } if *other == run && at.cluster == cluster),
        );
        assert!(leased, "{run} runs on {cluster} and was never leased");
        assert!(self.made.get(&run).is_none_or(|before| *before == cluster), "{run} runs on two clusters");
        self.made.insert(run, cluster);
        if !self.even && self.rerun.contains(&run.job) {
            return;
        }
        for other in self.clusters.iter().flat_map(|cluster| cluster.pods.values()) {
            let beside = other.run.job == run.job && other.run != run && !other.phase.is_finished();
            assert!(!beside, "{run} runs beside {}", other.run);
        }
    }

    /// Every job has ended exactly once, as its runs did, and nothing is left. How many runs were lost.
    fn check(&self) -> usize {
        let mut ends: BTreeMap<JobId, usize> = BTreeMap::new();
        let mut lost = 0;
        for event in self.log.iter().flat_map(|entry| &entry.events) {
            if let Some(job) = event.ends() {
                *ends.entry(job).or_default() += 1;
            }
            if let Event::Succeeded { run } = event {
                assert!(self.succeeded.contains(run), "{run} did not end well");
            }
            if let Event::RunLost { run } = event {
                assert!(self.rerun.contains(&run.job), "{run} was given up");
                lost += 1;
            }
        }
        assert_eq!(ends.len() as u128, self.jobs, "some have not ended");
        assert!(ends.values().all(|count| *count == 1), "{ends:?}");
        let ledger = &self.leader.as_ref().expect("a leader").ledger;
        assert_eq!((ledger.jobs().count(), ledger.runs().count()), (0, 0));
        lost
    }

    fn is_done(&self) -> bool {
        let Some(leader) = &self.leader else { return false };
        leader.position == self.log.len()
            && leader.ledger.jobs().next().is_none()
            && leader.ledger.runs().next().is_none()
    }
}

impl Cluster {
    /// The executor hears something; what it says goes on the stream, what it calls for is done later.
    fn hear(&mut self, now: TimeMs, input: Input) {
        for output in self.core.apply(now, input) {
            match output {
                Output::Report(runs) => {
                    if let Some(link) = &mut self.link {
                        link.said += 1;
                        let message = Some(from_executor::Message::Runs(runs));
                        link.up.push_back(wire::FromExecutor { sequence: link.said, message });
                    }
                }
                Output::EndSession(end) => panic!("{end:?}"),
                call => self.calls.push_back(call),
            }
        }
    }
}

fn queue(name: &str) -> Queue {
    Queue { name: name.to_owned(), rerun_after_ms: if name == RERUN { RERUN_AFTER_MS } else { 0 }, ..Queue::default() }
}

fn lease(run: RunId, rerun: &BTreeSet<JobId>) -> wire::Lease {
    let name = if rerun.contains(&run.job) { RERUN } else { "q" };
    wire::Lease {
        run_id: run.to_string(),
        job_id: run.job.to_string(),
        attempt: run.attempt,
        queue: name.to_owned(),
        cut_off_ms: cut_off_ms(&queue(name)),
        job_set: "s".to_owned(),
        namespace: "n".to_owned(),
        node: "n".to_owned(),
        pod_spec: Some(PodSpec::from_json(&json!({"containers": [{"name": "c", "image": "i"}]})).expect("a spec")),
        ..wire::Lease::default()
    }
}

fn pod(run: RunId, uid: String, version: String, now: TimeMs, cut_off_ms: Option<i64>) -> PodFacts {
    PodFacts {
        run,
        kind: Kind::Pod,
        queue: "q".to_owned(),
        namespace: "n".to_owned(),
        name: pod_name(run),
        uid,
        version,
        node: "n".to_owned(),
        phase: PodPhase::Pending,
        cut_off_ms,
        since: now,
        deletion: None,
        init_since: None,
        reason: String::new(),
        message: String::new(),
        containers: Vec::new(),
    }
}

/// How many runs were lost.
fn run(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.calm = true;
    world.uncordon();
    for _ in 0..CALM_STEPS {
        if world.is_done() {
            break;
        }
        world.step();
    }
    world.check()
}

#[allow(clippy::disallowed_methods, reason = "how long a test takes is said from outside")]
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn no_job_is_lost_or_done_twice() {
    let (first, count) = (number("PUMICE_FLEET_SEED", 0), number("PUMICE_FLEET_SEEDS", 200));
    let mut lost = 0;
    for seed in first..first + count {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed} fails; run it alone with PUMICE_FLEET_SEED={seed} PUMICE_FLEET_SEEDS=1");
        lost += outcome.unwrap_or(0);
    }
    assert!(lost > 0 || count < 20, "no run was lost in {count} seeds");
}
