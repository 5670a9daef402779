//! Laws, whatever happens: a cluster and a server that are slow, lose messages and are interfered with.
//!
//! The cluster's truth changes at once; the executor sees it later, or in one new list. Calls have their effect or not, and
//! their answers may be lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::tests::{SECOND, lease, pod, run};
use super::*;
use crate::executor::facts::PodPhase;
use crate::wire::executor::{
    Acknowledge, Acknowledged, Leases, RunPhase, Stop, StopKind, StopRun, ToExecutor, Welcome, to_executor::Message,
};

const RUNS: u8 = 4;

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
    succeeded: BTreeSet<RunId>,
    leased: BTreeSet<RunId>,
    unknown: BTreeSet<RunId>,
    /// What the server was told first.
    ends: BTreeMap<RunId, RunPhase>,
}

impl World {
    fn new(cut_off_ms: u64) -> Self {
        let settings = Settings { starts_max: 2, finished_max: 1, ..Settings::default() };
        let mut world = Self {
            core: Core::new(settings).expect("patterns are good"),
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
            succeeded: BTreeSet::new(),
            leased: BTreeSet::new(),
            unknown: BTreeSet::new(),
            ends: BTreeMap::new(),
        };
        world.put(Input::Pods(Vec::new()));
        world.connect();
        world.say(Message::Welcome(Welcome { heartbeat_ms: 1, cut_off_ms }));
        world
    }

    fn put(&mut self, input: Input) {
        for output in self.core.apply(self.now, input) {
            match output {
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
        if report.phase >= RunPhase::Returned as i32 && !self.unknown.contains(&id) {
            assert!(!is_alive, "{report:?}, and its pod is there: {:?}", self.pods.get(&id));
        }
    }

    fn connect(&mut self) {
        self.inbox.clear();
        (self.session, self.sequence, self.connected) = (self.session + 1, 0, true);
        self.put(Input::Connected { session: self.session });
    }

    fn say(&mut self, message: Message) {
        if self.connected {
            self.sequence += 1;
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
            Output::Create { run, .. } => self.create(run, fate),
            Output::Delete { run, uid, how, .. } => {
                let answer = if fate == Fate::Lost || fate == Fate::Refused {
                    DeleteAnswer::Failed
                } else {
                    let answer = self.delete(run, uid.as_deref(), &how);
                    if fate == Fate::DoneUnheard { DeleteAnswer::Failed } else { answer }
                };
                self.put(Input::Deleted { run, answer });
            }
            Output::Report(_) | Output::EndSession(_) => {}
        }
    }

    fn create(&mut self, id: RunId, fate: Fate) {
        if matches!(fate, Fate::Done | Fate::DoneUnheard) && !self.pods.contains_key(&id) {
            let made = self.made.entry(id).or_default();
            *made += 1;
            assert_eq!(*made, 1, "a second pod of {id}");
            let node = if id.job.0.is_multiple_of(2) { "" } else { "node-a" };
            let facts = PodFacts { node: node.to_owned(), ..pod(id, "u", PodPhase::Pending, self.now) };
            self.pods.insert(id, facts);
            self.change(id, |_| {});
        }
        let kind = match fate {
            Fate::Done => return self.put(Input::Created { run: id, uid: "u".to_owned() }),
            Fate::DoneUnheard | Fate::Lost => RefusalKind::Unclear,
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
                self.say(Message::Leases(Leases { leases: vec![lease(run(number))] }));
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
                self.put(Input::Tick);
            }
        }
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

    #[test]
    fn no_second_pod_and_no_lost_end(
        cut_off_ms in prop_oneof![Just(0_u64), Just(60_000)],
        ops in proptest::collection::vec(op(), 1..150),
    ) {
        let mut world = World::new(cut_off_ms);
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

    #[test]
    fn the_same_inputs_give_the_same_outputs(ops in proptest::collection::vec(op(), 1..60)) {
        let play = || {
            let mut world = World::new(60_000);
            ops.iter().cloned().for_each(|op| world.act(op));
            (world.calls, world.inbox)
        };
        prop_assert_eq!(play(), play());
    }
}
