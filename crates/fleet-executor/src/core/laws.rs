//! Laws, whatever happens: a cluster and a server that are slow, lose messages and are interfered with.
//!
//! The cluster's truth changes at once; the executor sees it later, or in one new list. Calls have their effect or not, and
//! their answers may be lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use pumice_wire::executor::{
    Acknowledge, Acknowledged, Lease, Leases, RunPhase, Stop, StopKind, StopRun, ToExecutor, Welcome,
    to_executor::Message,
};

use super::tests::{SECOND, lease, pod, run};
use super::*;
use crate::facts::PodPhase;
use crate::labels::CUT_OFF_ANNOTATION;

const RUNS: u8 = 4;

/// After how many milliseconds each run is cut off; 0 for never.
type CutOffs = [u64; RUNS as usize];

fn cut_offs() -> impl Strategy<Value = CutOffs> {
    proptest::array::uniform(prop_oneof![Just(0_u64), Just(60_000), Just(120_000)])
}

#[derive(Clone, Debug)]
enum Op {
    Lease(u8),
    Stop(u8, bool),
    /// The server deals with reports; or they are lost.
    Acknowledge,
    Connect,
    Disconnect,
    /// A pod comes to its next phase, well or not.
    Progress(u8, bool),
    /// Somebody deletes a pod.
    Interfere(u8),
    /// A pod that is being deleted goes.
    Finish(u8),
    /// The watch shows so much.
    Watch(u8),
    Relist,
    /// A call is dealt with.
    Answer(Fate),
    Tick(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Done,
    DoneUnheard,
    Lost,
    Refused,
}

fn op() -> impl Strategy<Value = Op> {
    let number = || 0..RUNS;
    let fate = prop_oneof![4 => Just(Fate::Done), 1 => Just(Fate::DoneUnheard), 1 => Just(Fate::Lost),
        1 => Just(Fate::Refused)];
    prop_oneof![
        4 => number().prop_map(Op::Lease),
        2 => (number(), any::<bool>()).prop_map(|(number, known)| Op::Stop(number, known)),
        3 => Just(Op::Acknowledge),
        1 => Just(Op::Connect),
        1 => Just(Op::Disconnect),
        4 => (number(), any::<bool>()).prop_map(|(number, well)| Op::Progress(number, well)),
        1 => number().prop_map(Op::Interfere),
        2 => number().prop_map(Op::Finish),
        5 => (1_u8..5).prop_map(Op::Watch),
        1 => Just(Op::Relist),
        6 => fate.prop_map(Op::Answer),
        3 => prop_oneof![Just(SECOND), Just(11 * SECOND), Just(70 * SECOND), Just(400 * SECOND)].prop_map(Op::Tick),
    ]
}

struct World {
    core: Core,
    now: TimeMs,
    session: u64,
    connected: bool,
    sequence: u64,
    pods: BTreeMap<RunId, PodFacts>,
    version: u64,
    watch: VecDeque<Input>,
    calls: VecDeque<Output>,
    inbox: Vec<RunReport>,
    /// Pods that were ever made.
    made: BTreeMap<RunId, usize>,
    /// Runs of which the executor was told that there is a pod, or was.
    reported: BTreeSet<RunId>,
    /// Runs whose pod somebody else deleted.
    interfered: BTreeSet<RunId>,
    succeeded: BTreeSet<RunId>,
    leased: BTreeSet<RunId>,
    unknown: BTreeSet<RunId>,
    /// What the server was told first.
    ends: BTreeMap<RunId, RunPhase>,
    cut_offs: CutOffs,
    /// When the server last answered.
    heard: TimeMs,
    /// Runs whose time was over once, in which the server answered nothing.
    cut: BTreeSet<RunId>,
}

fn core() -> Core {
    Core::new(Settings { starts_max: 2, finished_max: 1, ..Settings::default() }).expect("patterns are good")
}

impl World {
    fn new(cut_offs: CutOffs) -> Self {
        let mut world = Self {
            core: core(),
            now: TimeMs(0),
            session: 0,
            connected: false,
            sequence: 0,
            pods: BTreeMap::new(),
            version: 0,
            watch: VecDeque::new(),
            calls: VecDeque::new(),
            inbox: Vec::new(),
            made: BTreeMap::new(),
            reported: BTreeSet::new(),
            interfered: BTreeSet::new(),
            succeeded: BTreeSet::new(),
            leased: BTreeSet::new(),
            unknown: BTreeSet::new(),
            ends: BTreeMap::new(),
            cut_offs,
            heard: TimeMs(0),
            cut: BTreeSet::new(),
        };
        world.put(Input::Pods(Vec::new()));
        world.connect();
        world
    }

    /// Another executor begins, and finds the pods that there are.
    fn restart(&mut self) {
        (self.core, self.connected, self.heard) = (core(), false, self.now);
        self.calls.clear();
        self.watch.clear();
        self.inbox.clear();
        self.put(Input::Pods(self.pods.values().cloned().collect()));
    }

    fn put(&mut self, input: Input) {
        match &input {
            Input::Pods(pods) => self.reported.extend(pods.iter().map(|pod| pod.run)),
            Input::Pod(pod) => self.reported.extend([pod.run]),
            Input::PodRemoved { run, .. } | Input::Created { run, .. } => self.reported.extend([*run]),
            _ => {}
        }
        for output in self.core.apply(self.now, input) {
            match output {
                Output::Create { run, .. } if self.reported.contains(&run) => {
                    panic!("a second pod is asked for: {run}")
                }
                Output::Report(runs) => {
                    runs.reports.iter().for_each(|report| self.check(report));
                    self.inbox.extend(runs.reports);
                }
                Output::EndSession(end) => panic!("{end:?}"),
                call => self.calls.push_back(call),
            }
        }
    }

    /// What is said is true.
    fn check(&self, report: &RunReport) {
        let id: RunId = report.run_id.parse().expect("an id");
        let is_alive = self.pods.get(&id).is_some_and(|pod| !pod.phase.is_finished());
        if report.phase == RunPhase::Succeeded as i32 {
            assert!(self.succeeded.contains(&id), "{report:?}");
        }
        if report.reason == "CutOff" {
            assert!(report.phase == RunPhase::Returned as i32 && !report.run_attempted, "{report:?}");
            assert!(self.cut.contains(&id), "{report:?}, and it was not");
        }
        // A failure that the server has is its last word on a pod that does not go; what it is told then is of no use.
        let is_over = self.unknown.contains(&id) || self.ends.get(&id) == Some(&RunPhase::Failed);
        if report.phase >= RunPhase::Returned as i32 && !is_over {
            assert!(!is_alive, "{report:?}, and its pod is there: {:?}", self.pods.get(&id));
        }
    }

    fn connect(&mut self) {
        self.inbox.clear();
        (self.session, self.sequence, self.connected) = (self.session + 1, 0, true);
        self.put(Input::Connected { session: self.session });
        self.say(Message::Welcome(Welcome { heartbeat_ms: 1 }));
    }

    fn say(&mut self, message: Message) {
        if self.connected {
            self.sequence += 1;
            if matches!(message, Message::Welcome(_) | Message::Acknowledge(_)) {
                self.heard = self.now;
            }
            let message = Box::new(ToExecutor { sequence: self.sequence, message: Some(message) });
            self.put(Input::Message { session: self.session, message });
        }
    }

    fn acknowledge(&mut self) {
        let mut runs = Vec::new();
        for report in std::mem::take(&mut self.inbox) {
            let id: RunId = report.run_id.parse().expect("an id");
            let phase = RunPhase::try_from(report.phase).expect("a phase");
            if phase >= RunPhase::Succeeded {
                self.ends.entry(id).or_insert(phase);
            }
            runs.push(Acknowledged { run_id: report.run_id, phase: report.phase });
        }
        self.say(Message::Acknowledge(Acknowledge { runs, seen: 0 }));
    }

    /// A pod changes in the cluster.
    fn change(&mut self, id: RunId, change: impl FnOnce(&mut PodFacts)) {
        let now = self.now;
        let Some(pod) = self.pods.get_mut(&id) else { return };
        self.version += 1;
        pod.version = self.version.to_string();
        pod.since = now;
        change(pod);
        if pod.phase == PodPhase::Succeeded {
            self.succeeded.insert(id);
        }
        self.watch.push_back(Input::Pod(Box::new(pod.clone())));
    }

    fn remove(&mut self, id: RunId) {
        if let Some(pod) = self.pods.remove(&id) {
            self.watch.push_back(Input::PodRemoved { run: id, uid: pod.uid });
        }
    }

    fn answer(&mut self, fate: Fate) {
        let Some(call) = self.calls.pop_front() else { return };
        match call {
            Output::Create { run, objects } => {
                let told = &objects.pod["metadata"]["annotations"][CUT_OFF_ANNOTATION];
                let cut_off_ms = told.as_str().map(|text| text.parse().expect("a number"));
                self.create(run, cut_off_ms, fate);
            }
            Output::Delete { run, uid, how, .. } => {
                let answer = if fate == Fate::Lost || fate == Fate::Refused {
                    DeleteAnswer::Failed
                } else {
                    let answer = self.delete(run, uid.as_deref(), &how);
                    if fate == Fate::DoneUnheard { DeleteAnswer::Failed } else { answer }
                };
                self.put(Input::Deleted { run, answer });
            }
            Output::Report(_) | Output::EndSession(_) | Output::RunErrand(_) => {}
        }
    }

    fn create(&mut self, id: RunId, cut_off_ms: Option<i64>, fate: Fate) {
        if matches!(fate, Fate::Done | Fate::DoneUnheard) && !self.pods.contains_key(&id) {
            let made = self.made.entry(id).or_default();
            *made += 1;
            // Asked for again, as nothing was heard of the first, which somebody deleted before the second try arrived.
            assert!(*made == 1 || self.interfered.contains(&id), "a second pod of {id}");
            let node = if id.job.0.is_multiple_of(2) { "" } else { "node-a" };
            let uid = format!("u{made}");
            let facts = PodFacts { node: node.to_owned(), cut_off_ms, ..pod(id, &uid, PodPhase::Pending, self.now) };
            self.pods.insert(id, facts);
            self.change(id, |_| {});
        }
        let kind = match fate {
            Fate::Done => {
                let uid = self.pods[&id].uid.clone();
                return self.put(Input::Created { run: id, uid });
            }
            Fate::DoneUnheard | Fate::Lost if id.job.0.is_multiple_of(3) => RefusalKind::Unclear,
            Fate::DoneUnheard | Fate::Lost => RefusalKind::Unanswered,
            Fate::Refused => RefusalKind::Refused,
        };
        let refusal = Refusal { kind, reason: String::new(), message: String::new() };
        self.put(Input::NotCreated { run: id, refusal });
    }

    fn delete(&mut self, id: RunId, uid: Option<&str>, how: &Deletion) -> DeleteAnswer {
        let by = self.now.plus(30 * SECOND);
        let Some(pod) = self.pods.get(&id).filter(|pod| uid.is_none_or(|uid| uid == pod.uid)) else {
            return DeleteAnswer::NotFound;
        };
        match how {
            Deletion::IfVersion(version) if *version != pod.version => return DeleteAnswer::Changed,
            Deletion::Forced => self.remove(id),
            Deletion::IfVersion(_) | Deletion::Graceful if pod.phase.is_finished() => self.remove(id),
            Deletion::IfVersion(_) | Deletion::Graceful => self.change(id, |pod| {
                pod.deletion.get_or_insert(by);
            }),
        }
        DeleteAnswer::Accepted
    }

    fn progress(&mut self, id: RunId, well: bool) {
        let Some(pod) = self.pods.get(&id) else { return };
        let next = match pod.phase {
            PodPhase::Pending if !pod.node.is_empty() => PodPhase::Running,
            PodPhase::Running if well => PodPhase::Succeeded,
            PodPhase::Running => PodPhase::Failed,
            _ => return,
        };
        self.change(id, |pod| pod.phase = next);
    }

    fn act(&mut self, op: Op) {
        match op {
            Op::Lease(number) => {
                if self.connected {
                    self.leased.insert(run(number));
                }
                let cut_off_ms = self.cut_offs[usize::from(number)];
                let lease = Lease { cut_off_ms, ..lease(run(number)) };
                self.say(Message::Leases(Leases { leases: vec![lease] }));
            }
            Op::Stop(number, known) => {
                let kind = if known { StopKind::Cancelled } else { StopKind::Unknown };
                if !known {
                    self.unknown.insert(run(number));
                }
                let stop = StopRun { run_id: run(number).to_string(), reason: String::new(), kind: kind as i32 };
                self.say(Message::Stop(Stop { runs: vec![stop] }));
            }
            Op::Acknowledge => self.acknowledge(),
            Op::Connect => self.connect(),
            Op::Disconnect => {
                self.connected = false;
                self.inbox.clear();
                self.put(Input::Disconnected);
            }
            Op::Progress(number, well) => self.progress(run(number), well),
            Op::Interfere(number) => {
                let by = self.now.plus(30 * SECOND);
                self.change(run(number), |pod| {
                    pod.deletion.get_or_insert(by);
                });
                self.interfered.insert(run(number));
            }
            Op::Finish(number) => {
                if self.pods.get(&run(number)).is_some_and(|pod| pod.deletion.is_some()) {
                    self.remove(run(number));
                }
            }
            Op::Watch(count) => {
                for _ in 0..count {
                    let Some(input) = self.watch.pop_front() else { break };
                    self.put(input);
                }
            }
            Op::Relist => {
                self.watch.clear();
                self.put(Input::Pods(self.pods.values().cloned().collect()));
            }
            Op::Answer(fate) => self.answer(fate),
            Op::Tick(ms) => {
                self.now = self.now.plus(ms);
                let silent_ms = u64::try_from(self.now.since(self.heard)).expect("time goes on");
                let after_ms = |number: u8| self.cut_offs[usize::from(number)];
                let over = (0..RUNS).filter(|number| (1..=silent_ms).contains(&after_ms(*number)));
                self.cut.extend(over.map(run));
                self.put(Input::Tick);
            }
        }
    }

    /// Nothing is heard of the server for long, and the cluster does what it is asked for.
    fn fall_silent(&mut self) {
        self.act(Op::Disconnect);
        for _ in 0..60 {
            while !self.calls.is_empty() {
                self.answer(Fate::Done);
            }
            self.act(Op::Watch(u8::MAX));
            (0..RUNS).for_each(|number| self.act(Op::Finish(number)));
            self.act(Op::Watch(u8::MAX));
            self.act(Op::Tick(10 * SECOND));
        }
    }

    /// Pods that run, and that nobody means to end.
    fn running(&self) -> BTreeSet<RunId> {
        let running = self.pods.values().filter(|pod| pod.phase == PodPhase::Running && pod.deletion.is_none());
        running.map(|pod| pod.run).collect()
    }

    /// After how long it is cut off.
    fn cut_off_of(&self, id: RunId) -> u64 {
        (0..RUNS).find(|number| run(*number) == id).map_or(0, |number| self.cut_offs[usize::from(number)])
    }

    /// From here on all goes well, and everything comes to an end.
    fn settle(&mut self) {
        self.connect();
        for round in 0..60 {
            while !self.calls.is_empty() {
                self.answer(Fate::Done);
            }
            self.act(Op::Watch(u8::MAX));
            for number in 0..RUNS {
                self.act(Op::Progress(number, round % 2 == 0));
                self.act(Op::Finish(number));
            }
            self.act(Op::Watch(u8::MAX));
            self.acknowledge();
            self.act(Op::Tick(40 * SECOND));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    // INV-33
    #[test]
    fn no_second_pod_and_no_lost_end(
        cut_offs in cut_offs(),
        ops in proptest::collection::vec(op(), 1..150),
    ) {
        let mut world = World::new(cut_offs);
        for op in ops {
            world.act(op);
        }
        world.settle();
        for id in &world.leased {
            prop_assert!(world.ends.contains_key(id), "{id} has no end: {:?}", world.core.runs.get(id));
        }
        prop_assert_eq!(world.core.creating, 0);
        prop_assert!(world.core.waiting.is_empty());
        prop_assert!(world.core.runs.is_empty(), "not forgotten: {:?}", world.core.runs);
        prop_assert!(world.pods.is_empty(), "left behind: {:?}", world.pods);
    }

    // INV-33
    #[test]
    fn what_is_cut_off_stops_and_nothing_else_does(
        cut_offs in cut_offs(),
        ops in proptest::collection::vec(op(), 1..150),
        restarts in any::<bool>(),
    ) {
        let mut world = World::new(cut_offs);
        ops.into_iter().for_each(|op| world.act(op));
        // One that begins anew knows of no stops, so that what runs has no other reason to end.
        let kept = if restarts {
            world.restart();
            world.running()
        } else {
            BTreeSet::new()
        };
        world.fall_silent();
        let is_cut = |id: &RunId| world.cut_off_of(*id) > 0;
        let alive = world.pods.values().filter(|pod| !pod.phase.is_finished());
        let alive: BTreeSet<RunId> = alive.map(|pod| pod.run).collect();
        prop_assert!(!alive.iter().any(is_cut), "still there: {:?}", alive);
        let running = world.running();
        prop_assert!(kept.iter().all(|id| is_cut(id) || running.contains(id)), "of {:?} there is {:?}", kept, running);
    }

    #[test]
    fn the_same_inputs_give_the_same_outputs(ops in proptest::collection::vec(op(), 1..60)) {
        let play = || {
            let mut world = World::new([0, 60_000, 120_000, 60_000]);
            ops.iter().cloned().for_each(|op| world.act(op));
            (world.calls, world.inbox)
        };
        prop_assert_eq!(play(), play());
    }
}
