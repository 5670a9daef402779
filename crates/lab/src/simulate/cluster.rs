//! The virtual cluster: the engine of production, driven by what a trace says instead of by watches.
//!
//! Invariant: nothing happens but at a moment of a queue of events, so equal traces and configurations give equal
//! histories; every bind is checked against what its node has left. Called by the simulator. The objects are those that
//! the controllers would make: a PodGroup and its Job's shape at submission, pods once the group is admitted.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use pumice_engine::plugin::Registry;
use pumice_engine::{
    Action, Bind, Config, Delta, Eviction, GroupFacts, NodeFacts, ObjectName, OwnerFacts, Plan, PodFacts, PodPhase,
    PodTemplate, PodUid, QueueFacts, Resources, ShapeTask, Shared, TimeMs, World,
};

use super::history::{Answer, Guessed, History, Hold, Question};
use super::room::{Ask, Room};
use super::trace::{Job, Trace};

/// When traces begin: 2026-01-01.
const EPOCH_MS: i64 = 1_767_225_600_000;
/// Cycles at one moment; a configuration that wants more is one that turns in circles.
const ROUNDS_MAX: u32 = 100;
/// Cycles in a row that the engine asked for and that did nothing, when nothing else is to come: the rest never starts.
const IDLE_WAKEUPS_MAX: u32 = 1_000;
/// Jobs of those that never started whose reasons are asked for.
const REASONS_MAX: usize = 1_000;
/// When a job is asked for again that waits: after an hour, and then after twice as long each time.
const ASK_AGAIN_MS: i64 = 3_600_000;
/// The name of every job's only task.
const ROLE: &str = "w";

/// How long things take that are no scheduler's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// From an eviction until its pod is gone.
    pub grace_ms: i64,
    /// From the end of a job until its objects are gone.
    pub ttl_ms: i64,
}

impl Default for Delays {
    fn default() -> Self {
        Self { grace_ms: 30_000, ttl_ms: 60_000 }
    }
}

/// Runs a trace that fits the nodes to its end, or until nothing moves any more. Where `asks` is set, the engine is asked
/// of every job how long it will run and, as long as it waits, when it will start; that changes nothing else.
pub fn run(
    trace: &Trace,
    nodes: &[NodeFacts],
    config: Config,
    registry: &Registry,
    delays: Delays,
    asks: bool,
) -> History {
    let mut cluster = Cluster::new(trace, nodes, config, registry.clone(), delays);
    cluster.asks = asks;
    cluster.run();
    cluster.history
}

/// What is to happen. At one moment ends come first, so that what they free can be given away at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Pods of a job that were started at that time end.
    End { job: u32, started_ms: i64 },
    /// A pod that was told to leave is gone.
    Gone { job: u32, pod: u32 },
    /// A job that has ended is forgotten.
    Forget { job: u32 },
}

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Leaving,
    Ended,
}

#[derive(Debug, Clone, Copy)]
struct Pod {
    state: State,
    /// Pods that stood here before it.
    made: u32,
    made_ms: i64,
    /// Where it is and since when; nothing while it waits.
    node: usize,
    from_ms: i64,
}

impl Pod {
    fn new(made: u32, made_ms: i64) -> Self {
        Self { state: State::Waiting, made, made_ms, node: 0, from_ms: 0 }
    }
}

/// A job that is there.
struct Live {
    key: ObjectName,
    ask: Ask,
    /// The pod that is told of; its fields are set for each in turn.
    delta: Delta,
    pods: Vec<Pod>,
    running: u32,
    ended: u32,
}

/// When a job is to be asked for again, and how long it has waited then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AskAgain {
    at_ms: i64,
    job: u32,
    waited_ms: i64,
}

struct Cluster<'t> {
    trace: &'t Trace,
    nodes: &'t [NodeFacts],
    world: World,
    room: Room,
    delays: Delays,
    /// Groups are admitted before they get pods.
    admits: bool,
    live: Vec<Option<Box<Live>>>,
    by_key: HashMap<ObjectName, u32>,
    events: BinaryHeap<Reverse<(i64, Event)>>,
    submitted: usize,
    now_ms: i64,
    wake_ms: Option<i64>,
    dirty: bool,
    asks: bool,
    questions: BinaryHeap<Reverse<AskAgain>>,
    history: History,
}

fn time(ms: i64) -> TimeMs {
    TimeMs(EPOCH_MS).plus_ms(ms)
}

fn index(job: u32) -> usize {
    job as usize
}

impl<'t> Cluster<'t> {
    fn new(trace: &'t Trace, nodes: &'t [NodeFacts], config: Config, registry: Registry, delays: Delays) -> Self {
        let admits = config.actions.contains(&Action::Enqueue);
        let mut world = World::with_plugins(config, registry);
        for (name, weight) in trace.all_queues() {
            world.apply(&Delta::QueueUpsert(QueueFacts { name: name.to_string(), weight, ..QueueFacts::default() }));
        }
        let priorities: BTreeSet<i32> = trace.jobs.iter().map(|job| job.priority).collect();
        for value in priorities {
            world.apply(&Delta::PriorityClassUpsert { name: priority_class(value), value, global_default: false });
        }
        for node in nodes {
            world.apply(&Delta::NodeUpsert(node.clone()));
        }
        Self {
            trace,
            nodes,
            world,
            room: Room::new(nodes),
            delays,
            admits,
            live: std::iter::repeat_with(|| None).take(trace.jobs.len()).collect(),
            by_key: HashMap::new(),
            events: BinaryHeap::new(),
            submitted: 0,
            now_ms: 0,
            wake_ms: None,
            dirty: false,
            asks: false,
            questions: BinaryHeap::new(),
            history: History::of(trace.jobs.len()),
        }
    }

    fn run(&mut self) {
        let mut idle = 0;
        while let Some((at, comes)) = self.next() {
            self.now_ms = at;
            while let Some(event) = self.due() {
                self.happen(event);
            }
            while let Some(job) = self.trace.jobs.get(self.submitted).filter(|job| job.submit_ms <= at) {
                self.submit(job);
            }
            if !self.dirty && self.wake_ms.is_none_or(|wake| wake > at) {
                continue;
            }
            let acted = self.decide();
            idle = if acted || comes { 0 } else { idle + 1 };
            if idle > IDLE_WAKEUPS_MAX {
                break;
            }
            self.ask();
        }
        self.history.ended_ms = self.now_ms;
        self.tell_why();
    }

    /// The next moment, and whether anything is still to come that is not the engine's own wish.
    fn next(&self) -> Option<(i64, bool)> {
        let event = self.events.peek().map(|Reverse((at, _))| *at);
        let submission = self.trace.jobs.get(self.submitted).map(|job| job.submit_ms);
        let comes = event.into_iter().chain(submission).min();
        let at = comes.into_iter().chain(self.wake_ms).min()?;
        Some((at, comes.is_some()))
    }

    fn due(&mut self) -> Option<Event> {
        let Reverse((at, event)) = *self.events.peek()?;
        if at > self.now_ms {
            return None;
        }
        self.events.pop();
        Some(event)
    }

    fn later(&mut self, after_ms: i64, event: Event) {
        self.events.push(Reverse((self.now_ms.saturating_add(after_ms), event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::End { job, started_ms } => self.end(job, started_ms),
            Event::Gone { job, pod } => self.gone(job, pod),
            Event::Forget { job } => self.forget(job),
        }
    }

    /// The Job's group and shape, as the controllers make them.
    fn submit(&mut self, job: &Job) {
        let number = self.submitted as u32;
        self.submitted += 1;
        let template = Shared::from(template(job));
        let uid = format!("job-{number}");
        let minimum: Resources = job
            .requests
            .iter()
            .map(|(name, amount)| (name.clone(), amount.saturating_mul(i64::from(job.min))))
            .collect();
        self.world.apply(&Delta::ShapeUpsert {
            owner_uid: uid.clone(),
            tasks: vec![ShapeTask {
                role: ROLE.to_owned(),
                count: job.pods,
                template: template.clone(),
                ..ShapeTask::default()
            }],
            ended: false,
        });
        self.world.apply(&Delta::GroupUpsert(Box::new(GroupFacts {
            namespace: job.user.to_string(),
            name: job.name.clone(),
            uid: format!("group-{number}").into(),
            queue: job.queue.to_string(),
            min_member: job.min,
            min_resources: Some(minimum),
            priority_class: priority_class(job.priority),
            created: time(self.now_ms),
            owner: Some(OwnerFacts { kind: "Job".to_owned(), name: job.name.clone(), uid }),
            preemptable: Some(job.preemptable),
            run_profile: job.profile.to_string(),
            deadline: job.deadline_ms.map(time),
            ..GroupFacts::default()
        })));
        self.dirty = true;
        let key = ObjectName::new(&job.user, &job.name);
        self.by_key.insert(key.clone(), number);
        let pod = PodFacts {
            namespace: job.user.to_string(),
            mine: true,
            group: Some(job.name.clone()),
            role: ROLE.to_owned(),
            grace_ms: Some(self.delays.grace_ms),
            preemptable: Some(job.preemptable),
            pod_priority_class: priority_class(job.priority),
            template,
            ..PodFacts::default()
        };
        if self.asks {
            let run = self.world.expected_run(&job.user, &job.name);
            let guessed = run.map(|run| Guessed { typical_ms: run.typical_ms, most_ms: run.most_ms });
            self.history.guessed.push(guessed);
            self.questions.push(Reverse(AskAgain { at_ms: self.now_ms, job: number, waited_ms: 0 }));
        }
        self.live[index(number)] = Some(Box::new(Live {
            key,
            ask: self.room.ask(&job.requests),
            delta: Delta::TaskUpsert(Box::new(pod)),
            pods: Vec::new(),
            running: 0,
            ended: 0,
        }));
        if !self.admits {
            self.make_pods(number);
        }
    }

    fn make_pods(&mut self, number: u32) {
        let job = &self.trace.jobs[index(number)];
        let Some(live) = self.live[index(number)].as_deref_mut().filter(|live| live.pods.is_empty()) else { return };
        live.pods = vec![Pod::new(0, self.now_ms); job.pods as usize];
        for pod in 0..job.pods {
            live.tell(&mut self.world, self.nodes, job, number, pod);
        }
        self.dirty = true;
    }

    /// Cycles until the engine has nothing more to say of this moment. Whether it did anything.
    fn decide(&mut self) -> bool {
        let mut acted = false;
        for _ in 0..ROUNDS_MAX {
            self.dirty = false;
            self.wake_ms = None;
            let plan = self.world.cycle(time(self.now_ms));
            self.history.cycles += 1;
            self.wake_ms = plan.next_wakeup.map(|at| (at.0 - EPOCH_MS).max(self.now_ms + 1));
            acted |= !(plan.binds.is_empty() && plan.evictions.is_empty() && plan.admitted.is_empty());
            self.carry_out(plan);
            if !self.dirty {
                break;
            }
        }
        acted
    }

    fn carry_out(&mut self, plan: Plan) {
        for update in &plan.groups {
            self.world.status_result(&update.namespace, &update.name, true);
        }
        for eviction in &plan.evictions {
            self.evict(eviction);
        }
        let mut started = BTreeSet::new();
        for bind in &plan.binds {
            started.extend(self.start(bind));
        }
        for number in started {
            let job = &self.trace.jobs[index(number)];
            self.later(job.held_ms(), Event::End { job: number, started_ms: self.now_ms });
            let outcome = &mut self.history.outcomes[index(number)];
            let live = self.live[index(number)].as_deref();
            if outcome.started_ms.is_none() && live.is_some_and(|live| live.running + live.ended >= job.min) {
                outcome.started_ms = Some(self.now_ms);
            }
        }
        for key in &plan.admitted {
            if let Some(number) = self.by_key.get(key) {
                self.make_pods(*number);
            }
        }
    }

    /// The API server and the node agent answer at once. Whose pod it was.
    fn start(&mut self, bind: &Bind) -> Option<u32> {
        let (number, pod) = place_of(&bind.uid)?;
        let live = self.live.get_mut(index(number))?.as_deref_mut()?;
        assert_eq!(live.pods[index(pod)].state, State::Waiting, "a pod is bound once: {}", bind.uid);
        let node = self.room.take(&bind.node, &live.ask);
        let row = &mut live.pods[index(pod)];
        (row.state, row.node, row.from_ms) = (State::Running, node, self.now_ms);
        live.running += 1;
        self.world.bind_result(&bind.uid, Ok(()), time(self.now_ms));
        live.tell(&mut self.world, self.nodes, &self.trace.jobs[index(number)], number, pod);
        Some(number)
    }

    /// A gang all of which must run together begins anew as a whole; else the pod alone does.
    fn evict(&mut self, eviction: &Eviction) {
        self.world.evict_result(&eviction.uid, Ok(()), time(self.now_ms));
        let Some((number, pod)) = place_of(&eviction.uid) else { return };
        let job = &self.trace.jobs[index(number)];
        let pods = if job.min == job.pods { 0..job.pods } else { pod..pod + 1 };
        for pod in pods {
            let Some(live) = self.live[index(number)].as_deref_mut() else { return };
            if live.pods[index(pod)].state != State::Running {
                continue;
            }
            live.pods[index(pod)].state = State::Leaving;
            live.running -= 1;
            live.tell(&mut self.world, self.nodes, job, number, pod);
            self.history.outcomes[index(number)].evicted += 1;
            self.later(self.delays.grace_ms, Event::Gone { job: number, pod });
        }
    }

    fn gone(&mut self, number: u32, pod: u32) {
        let job = &self.trace.jobs[index(number)];
        let Some(live) = self.live[index(number)].as_deref_mut() else { return };
        let Pod { state, made, node, from_ms, .. } = live.pods[index(pod)];
        assert_eq!(state, State::Leaving, "only a pod that was told to leave goes");
        self.room.give(node, &live.ask);
        self.world.apply(&Delta::TaskRemove(uid(number, pod, made)));
        live.pods[index(pod)] = Pod::new(made + 1, self.now_ms);
        live.tell(&mut self.world, self.nodes, job, number, pod);
        let lost = i128::from(job.cpu_milli()) * i128::from(self.now_ms - from_ms);
        self.history.outcomes[index(number)].lost_core_ms += lost;
        self.history.holds.push(Hold { job: number, pods: 1, from_ms, to_ms: self.now_ms });
        self.dirty = true;
    }

    fn end(&mut self, number: u32, started_ms: i64) {
        let job = &self.trace.jobs[index(number)];
        let Some(live) = self.live[index(number)].as_deref_mut() else { return };
        let mut ended = 0;
        for pod in 0..job.pods {
            let Pod { state, node, from_ms, .. } = live.pods[index(pod)];
            if (state, from_ms) != (State::Running, started_ms) {
                continue;
            }
            self.room.give(node, &live.ask);
            live.pods[index(pod)].state = State::Ended;
            live.tell(&mut self.world, self.nodes, job, number, pod);
            ended += 1;
        }
        if ended == 0 {
            return;
        }
        self.dirty = true;
        live.running -= ended;
        live.ended += ended;
        self.history.holds.push(Hold { job: number, pods: ended, from_ms: started_ms, to_ms: self.now_ms });
        if live.ended == job.pods {
            self.history.outcomes[index(number)].ended_ms = Some(self.now_ms);
            self.world.apply(&Delta::ShapeUpsert {
                owner_uid: format!("job-{number}"),
                tasks: Vec::new(),
                ended: true,
            });
            self.later(self.delays.ttl_ms, Event::Forget { job: number });
        }
    }

    /// What has ended takes no room, so that its going is no reason for a cycle.
    fn forget(&mut self, number: u32) {
        let Some(live) = self.live[index(number)].take() else { return };
        let job = &self.trace.jobs[index(number)];
        for (place, pod) in live.pods.iter().enumerate() {
            self.world.apply(&Delta::TaskRemove(uid(number, place as u32, pod.made)));
        }
        self.world.apply(&Delta::GroupRemove {
            namespace: job.user.to_string(),
            name: job.name.clone(),
            uid: format!("group-{number}").into(),
        });
        self.world.apply(&Delta::ShapeRemove { owner_uid: format!("job-{number}") });
        self.by_key.remove(&live.key);
    }

    /// Asks when those start that have come, or have waited for long. After a cycle, so that it is as of now.
    fn ask(&mut self) {
        while let Some(Reverse(AskAgain { at_ms, job: number, waited_ms })) = self.questions.peek().copied() {
            if at_ms > self.now_ms {
                return;
            }
            self.questions.pop();
            let job = &self.trace.jobs[index(number)];
            if self.history.outcomes[index(number)].started_ms.is_some() {
                continue;
            }
            let expected = self.world.reasons(&job.user, &job.name).and_then(|reasons| reasons.expected);
            let ms = |time: TimeMs| time.0 - EPOCH_MS;
            let answer = expected.map(|expected| Answer {
                start_ms: ms(expected.at),
                early_ms: ms(expected.early),
                late_ms: ms(expected.late),
            });
            self.history.questions.push(Question { job: number, at_ms: self.now_ms, first: waited_ms == 0, answer });
            let waited_ms = (2 * waited_ms).max(ASK_AGAIN_MS);
            let at_ms = job.submit_ms.saturating_add(waited_ms);
            self.questions.push(Reverse(AskAgain { at_ms, job: number, waited_ms }));
        }
    }

    fn tell_why(&mut self) {
        let outcomes = self.history.outcomes.iter_mut().zip(&self.trace.jobs);
        for (outcome, job) in outcomes.filter(|(outcome, _)| outcome.started_ms.is_none()).take(REASONS_MAX) {
            outcome.why = self.world.reasons(&job.user, &job.name).map(|reasons| reasons.to_string());
        }
    }
}

impl Live {
    /// Tells the engine how a pod is.
    fn tell(&mut self, world: &mut World, nodes: &[NodeFacts], job: &Job, number: u32, place: u32) {
        let pod = self.pods[index(place)];
        if let Delta::TaskUpsert(facts) = &mut self.delta {
            facts.uid = uid(number, place, pod.made);
            facts.name = format!("{}-{ROLE}-{place}", job.name);
            facts.created = time(pod.made_ms);
            facts.terminating = pod.state == State::Leaving;
            (facts.node, facts.started) = match pod.state {
                State::Waiting => (None, None),
                _ => (Some(nodes[pod.node].name.clone()), Some(time(pod.from_ms))),
            };
            facts.ended = None;
            facts.phase = match pod.state {
                State::Waiting => PodPhase::Pending,
                State::Running | State::Leaving => PodPhase::Running,
                State::Ended => {
                    facts.ended = Some(time(pod.from_ms + job.held_ms()));
                    let at_limit = job.limit_ms.is_some_and(|limit| limit < job.run_ms);
                    if at_limit { PodPhase::Failed } else { PodPhase::Succeeded }
                }
            };
        }
        world.apply(&self.delta);
    }
}

fn template(job: &Job) -> PodTemplate {
    PodTemplate {
        requests: (*job.requests).clone(),
        priority: job.priority,
        time_limit_ms: job.limit_ms,
        ..PodTemplate::default()
    }
}

fn priority_class(value: i32) -> String {
    format!("priority{value}")
}

fn uid(job: u32, pod: u32, made: u32) -> PodUid {
    format!("{job}.{pod}.{made}").into()
}

/// The job and the pod that a uid of ours names.
fn place_of(uid: &PodUid) -> Option<(u32, u32)> {
    let mut parts = uid.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
