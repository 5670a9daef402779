//! Server, ledger, conversations and executors together, under faults that a seed chooses.
//!
//! The real cores talk over a network that delays and cuts, to clusters that are slow, over a log that fails; leaders and
//! executors die at any moment, and clusters fall silent for long. Runs of one of the two queues are started elsewhere then:
//! its jobs end once, too, and run twice at a time only where clocks jump or executors die. Some jobs are whole Volcano
//! Jobs, which clusters restart, end slowly, or never bring to run; some are gangs. Urgent pods say how often they are tried again, and with
//! how much memory. `PUMICE_FLEET_SEEDS` says how many seeds, `PUMICE_FLEET_SEED` the first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_fleet_executor::core::{DeleteAnswer, Deletion, Refusal, RefusalKind};
use pumice_fleet_executor::facts::Kind;
use pumice_fleet_executor::labels::CUT_OFF_ANNOTATION;
use pumice_fleet_executor::{Core, Input, Output, PodFacts, PodPhase, Settings};
use pumice_fleet_model::names::pod_name;
use pumice_ledger::{
    Digest, Entry, Event, Filter, Gang, Inbox, JobId, Ledger, NodeRef, OwnRetries, Phase, PriorityClass,
    PriorityClasses, Proposal, Queue, Report, Retries, RunId, Scope, Shape, Submitted, TimeMs, VolcanoJob, VolcanoTask,
};
use pumice_wire::executor::{self as wire, from_executor, to_executor};
use pumice_wire::kubernetes::PodSpec;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use pumice_fleet_server::sessions::{FORMAT, Order, Sessions, cut_off_ms};

mod clusters;
mod gangs;
mod seen;

use clusters::{Cluster, lease};
use gangs::Gangs;
use seen::Seen;

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
/// Pods of a Volcano job, and how many of them start together.
const PODS: u32 = 4;
const LEAST: u32 = 2;
/// Tries of an urgent pod after the first, and bytes that it asks for where it ran out of memory.
const TRIES: u32 = 1;
const RAISES: [i64; 2] = [2, 4];
const HEARTBEAT_MS: i64 = 5 * SECOND;

fn classes() -> PriorityClasses {
    let class = |value, preemptible| PriorityClass { value, preemptible };
    [("spare".to_owned(), class(0, true)), ("urgent".to_owned(), class(9, false))].into()
}

fn ledger() -> Ledger {
    Ledger::new(classes()).in_parts_of(PART)
}

/// Folds what was written: all that was decided takes effect.
fn fold(ledger: &mut Ledger, entries: &[Entry]) {
    for entry in entries {
        assert!(ledger.fold(entry).is_empty() || !entry.events.iter().any(Event::is_decision), "{entry:?}");
    }
}

/// A leader: what it knows is gone with it.
struct Leader {
    ledger: Ledger,
    sessions: Sessions,
    position: usize,
    reports: Vec<Report>,
}

struct World {
    rng: StdRng,
    now: TimeMs,
    log: Vec<Entry>,
    /// How much of the log a leader has decided of.
    decided: usize,
    leader: Option<Leader>,
    /// What another server follows, and how far.
    standby: (Ledger, usize),
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
    /// Jobs that are whole Volcano Jobs.
    whole: BTreeSet<JobId>,
    /// Jobs of one pod that say how often they are tried.
    urgent: BTreeSet<JobId>,
    gangs: Gangs,
    /// Runs whose pods were ever made, and those that ended well.
    made: BTreeMap<RunId, &'static str>,
    succeeded: BTreeSet<RunId>,
}

impl World {
    fn new(seed: u64) -> Self {
        let log = QUEUES.map(|name| {
            let queue = Event::QueueSet(Box::new(queue(name)));
            Entry { events: vec![queue], ..Entry::new(TimeMs(0), name, "") }
        });
        Self {
            rng: StdRng::seed_from_u64(seed),
            now: TimeMs(SECOND),
            log: log.into(),
            decided: 0,
            leader: None,
            standby: (ledger(), 0),
            clusters: CLUSTERS.into_iter().map(Cluster::new).collect(),
            sessions: 0,
            jobs: 0,
            versions: 0,
            calm: false,
            even: seed.is_multiple_of(2),
            rerun: BTreeSet::new(),
            whole: BTreeSet::new(),
            urgent: BTreeSet::new(),
            gangs: Gangs::default(),
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
        if self.calm && self.chance(50) {
            self.give_up_gangs();
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
                let is_whole = self.rng.gen_bool(0.3);
                if is_whole {
                    self.whole.insert(job);
                } else if urgent {
                    self.urgent.insert(job);
                }
                let shape = Digest(u128::from(urgent) + if is_whole { 2 } else { 0 });
                if queue == RERUN {
                    self.rerun.insert(job);
                }
                self.gangs.note_class(job, urgent);
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
            35..=38 => {
                let (first, urgent) = (self.jobs + 1, self.rng.gen_bool(0.3));
                self.jobs += Gangs::size();
                let members = (first..=self.jobs).map(JobId);
                if queue == RERUN {
                    self.rerun.extend(members.clone());
                }
                if urgent {
                    self.urgent.extend(members);
                }
                self.gangs.submit(first, urgent)
            }
            _ => return,
        };
        let shapes = [("spare", None), ("urgent", None), ("spare", Some(whole())), ("urgent", Some(whole()))];
        let shapes = (0..).map(Digest).zip(shapes.map(|(class, whole)| shape(class, whole))).collect();
        self.log.push(Entry { user: "ada".to_owned(), shapes, events, ..Entry::new(self.now, queue, "s") });
    }

    fn any_cluster(&mut self) -> String {
        CLUSTERS[self.rng.gen_range(0..CLUSTERS.len())].to_owned()
    }

    /// People cancel what is left of gangs that can't begin any more.
    fn give_up_gangs(&mut self) {
        let Some(leader) = &self.leader else { return };
        for job in self.gangs.stranded(&leader.ledger) {
            let queue = if self.rerun.contains(&job) { RERUN } else { "q" };
            let events =
                vec![Event::CancelAsked { jobs: vec![job], filter: Filter::Active, reason: "alone".to_owned() }];
            self.log.push(Entry { user: "ada".to_owned(), events, ..Entry::new(self.now, queue, "s") });
        }
    }

    /// All executors are let go, so that what waits can end.
    fn uncordon(&mut self) {
        let unset = |name: &str| Event::ExecutorUnset { executor: name.to_owned() };
        let events = CLUSTERS.into_iter().map(unset).collect();
        self.log.push(Entry { events, ..Entry::new(self.now, "", "") });
    }

    /// Another server goes on with what was decided.
    fn follow(&mut self) {
        let (ledger, position) = &mut self.standby;
        fold(ledger, &self.log[*position..self.decided]);
        *position = self.decided;
        ledger.set_saved();
    }

    /// The leader dies, or does one commit and tells what follows. Whoever follows it leads then.
    fn lead(&mut self) {
        if self.leader_fault() {
            self.leader = None;
        }
        if self.leader.is_none() || self.chance(300) {
            self.follow();
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
            let (mut ledger, position) = self.standby.clone();
            fold(&mut ledger, &log[position..]);
            let mut anew = self::ledger();
            fold(&mut anew, log);
            assert_eq!(ledger.digest(), anew.digest());
            let mut sessions = Sessions::default();
            sessions.expect(&ledger, now);
            Leader { position: log.len(), ledger, sessions, reports: Vec::new() }
        });
        for entry in &self.log[leader.position..] {
            leader.ledger.fold(entry);
        }
        let mut proposals = Vec::new();
        for id in QUEUES.iter().flat_map(|queue| leader.ledger.first(queue, 2, 2)) {
            match self.gangs.proposal(&mut self.rng, &leader.ledger, id) {
                Some(of_gang) => proposals.extend(of_gang),
                None => proposals.push(proposal(&mut self.rng, id, self.whole.contains(&id))),
            }
        }
        if self.rng.gen_ratio(1, 50)
            && let Some(run) = leader.ledger.runs().map(|(run, _)| run).min()
        {
            proposals.extend(self.gangs.preemptions(&leader.ledger, run));
        }
        let reports = std::mem::take(&mut leader.reports);
        let inbox = Inbox { reports, proposals, silent: leader.sessions.silent(self.now) };
        let before = self.gangs.running(&leader.ledger);
        let decided = leader.ledger.decide(self.now, inbox, Retries::default());
        assert_eq!(leader.ledger.lint(), Vec::<String>::new());
        self.gangs.check(&leader.ledger, &decided, &before);
        for event in decided.iter().flat_map(|entry| &entry.events) {
            let Event::Leased { run, at, places, .. } = event else { continue };
            assert!(!leader.ledger.is_cordoned(&at.cluster), "{event:?}");
            assert_eq!(!places.is_empty(), self.whole.contains(&run.job), "{event:?}");
        }
        if failed {
            self.leader = None;
            return;
        }
        self.log.extend(decided);
        self.decided = self.log.len();
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
                    Order::Lease(run) => to_executor::Message::Leases(wire::Leases {
                        leases: vec![lease(run, &self.rerun, self.whole.contains(&run.job))],
                    }),
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

    fn is_done(&self) -> bool {
        let Some(leader) = &self.leader else { return false };
        leader.position == self.log.len()
            && leader.ledger.jobs().next().is_none()
            && leader.ledger.runs().next().is_none()
    }
}

fn queue(name: &str) -> Queue {
    Queue { name: name.to_owned(), rerun_after_ms: if name == RERUN { RERUN_AFTER_MS } else { 0 }, ..Queue::default() }
}

fn shape(class: &str, whole: Option<VolcanoJob>) -> Shape {
    let cores = whole.as_ref().map_or(1, VolcanoJob::pods).into();
    let requests = [("cpu".to_owned(), cores), ("memory".to_owned(), 1)].into();
    let retries = if class == "urgent" && whole.is_none() {
        Some(OwnRetries { limit: TRIES, memory: RAISES.to_vec() })
    } else {
        None
    };
    Shape {
        priority_class: class.to_owned(),
        requests,
        template: serde_json::Value::Null,
        volcano_job: whole,
        price_band: None,
        retries,
    }
}

fn whole() -> VolcanoJob {
    let part = |pods| VolcanoTask { pods, requests: [("cpu".to_owned(), 1)].into(), template: serde_json::Value::Null };
    VolcanoJob { least: LEAST, parts: vec![part(LEAST), part(PODS - LEAST)] }
}

/// What a round might find for a job, and now and then what it must not: a node for a Volcano job, or two clusters, or many
/// places for a single pod.
fn proposal(rng: &mut StdRng, job: JobId, is_whole: bool) -> Proposal {
    let at = |cluster: &str, node: &str| NodeRef { cluster: cluster.to_owned(), node: node.to_owned() };
    let cluster = CLUSTERS[rng.gen_range(0..CLUSTERS.len())];
    let pool = "p".to_owned();
    if is_whole == rng.gen_ratio(1, 20) {
        return Proposal::Lease { jobs: vec![(job, at(cluster, "n"))], pool, away: None };
    }
    let pods = rng.gen_range(LEAST..=PODS);
    let split = rng.gen_range(0..LEAST);
    let other = if rng.gen_ratio(1, 20) { CLUSTERS[rng.gen_range(0..CLUSTERS.len())] } else { cluster };
    let places = [(at(other, "m"), (0..split).collect()), (at(cluster, "n"), (split..pods).collect())];
    let places = places.into_iter().filter(|(_, pods): &(NodeRef, Vec<u32>)| !pods.is_empty()).collect();
    Proposal::LeaseVolcanoJob { job, places, pool }
}

fn run(seed: u64) -> Seen {
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

/// What was seen of each seed, which are run beside each other.
fn run_all(seeds: std::ops::Range<u64>) -> Vec<Seen> {
    let next = AtomicU64::new(seeds.start);
    let worker = || {
        let mut all = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                return all;
            }
            let outcome = std::panic::catch_unwind(|| run(seed));
            assert!(
                outcome.is_ok(),
                "seed {seed} fails; run it alone with PUMICE_FLEET_SEED={seed} PUMICE_FLEET_SEEDS=1"
            );
            all.extend(outcome);
        }
    };
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

// INV-31
#[test]
fn no_job_is_lost_or_done_twice() {
    let (first, count) = (number("PUMICE_FLEET_SEED", 0), number("PUMICE_FLEET_SEEDS", 200));
    let mut all = Seen::default();
    run_all(first..first + count).into_iter().for_each(|seen| all.add(&seen));
    let whole = all.whole_lost > 0 && all.whole_succeeded > 0 && all.stuck > 0;
    let gangs = all.gangs_began > 0 && all.gangs_left > 0;
    let came_about = all.lost > 0 && whole && gangs && all.raised > 0 && all.tried > all.raised;
    assert!(came_about || count < 100, "{count} seeds are not as they should be: {all:?}");
}
