//! Conversations with one executor, over a ledger.

use pumice_fleet_model::names::CLUSTER_LABEL;
use pumice_ledger::{
    Digest, Entry, Event, Inbox, JobId, NodeRef, PriorityClasses, Proposal, Retries, Shape, Submitted,
};
use pumice_wire::executor::from_executor::Message;

use super::*;

/// A leader's ledger and its conversations; jobs 1 to `jobs` are leased to cluster `one`.
struct Scene {
    ledger: Ledger,
    sessions: Sessions,
    said: u64,
}

impl Scene {
    /// When nothing was heard for longer than a session lasts.
    const LATE: TimeMs = TimeMs(SESSION_TIMEOUT_MS + 3);

    fn new(jobs: u128) -> Self {
        let mut ledger = Ledger::new(PriorityClasses::new());
        let at = TimeMs(0);
        let shape = Shape {
            priority_class: String::new(),
            requests: [].into(),
            template: serde_json::Value::Null,
            volcano_job: None,
            price_band: None,
            retries: None,
        };
        let queue = Event::QueueSet(Box::default());
        ledger.fold(&Entry { events: vec![queue], ..Entry::new(at, "q", "") });
        let submitted = |job| {
            let (spec, shape) = (Digest(1), Digest(2));
            Event::Submitted(Submitted { job: JobId(job), spec, shape, priority: 0, gang: None, fail_fast: false })
        };
        let events = (1..=jobs).map(submitted).collect();
        ledger.fold(&Entry { shapes: [(Digest(2), shape)].into(), events, ..Entry::new(at, "q", "s") });
        let mut scene = Self { ledger, sessions: Sessions::default(), said: 0 };
        for job in 1..=jobs {
            scene.lease(job, "one");
        }
        scene
    }

    fn lease(&mut self, job: u128, cluster: &str) {
        let at = NodeRef { cluster: cluster.to_owned(), node: "n".to_owned() };
        let lease = Proposal::Lease { jobs: vec![(JobId(job), at)], pool: "p".to_owned(), away: None };
        self.decide(Inbox { proposals: vec![lease], ..Inbox::default() });
    }

    fn decide(&mut self, inbox: Inbox) {
        self.ledger.decide(TimeMs(1), inbox, Retries::default());
        self.sessions.written();
    }

    fn cancel(&mut self, job: u128) {
        let jobs = vec![JobId(job)];
        let ask = Event::CancelAsked { jobs, filter: pumice_ledger::Filter::Active, reason: String::new() };
        self.ledger.fold(&Entry { events: vec![ask], ..Entry::new(TimeMs(1), "q", "s") });
        self.decide(Inbox::default());
    }

    fn hello(&mut self, number: u64) {
        self.said = 1;
        let hello = wire::Hello {
            executor: "one".to_owned(),
            session_id: "x".to_owned(),
            format_version: FORMAT,
            ..Default::default()
        };
        let first = wire::FromExecutor { sequence: 1, message: Some(Message::Hello(hello)) };
        self.sessions.open(&first, Some("one"), number, TimeMs(1)).expect("a session");
    }

    /// The executor says something, and what follows is decided.
    fn say(&mut self, number: u64, message: Message) {
        self.said += 1;
        let message = wire::FromExecutor { sequence: self.said, message: Some(message) };
        let received = self.sessions.receive("one", number, message, &self.ledger, TimeMs(2)).expect("good");
        self.decide(Inbox { reports: received.reports, ..Inbox::default() });
    }

    /// The answer to what was said.
    fn answer(&mut self) -> Option<wire::Acknowledge> {
        self.sessions.outgoing(&self.ledger, |_| true).into_iter().find_map(|outgoing| outgoing.answer)
    }

    fn told(&mut self) -> Vec<Order> {
        self.sessions.outgoing(&self.ledger, |_| true).into_iter().flat_map(|outgoing| outgoing.orders).collect()
    }
}

fn run(job: u128, attempt: u32) -> RunId {
    RunId { job: JobId(job), attempt }
}

fn runs(complete: bool, reports: &[(RunId, wire::RunPhase)]) -> Message {
    let report = |(run, phase): &(RunId, wire::RunPhase)| wire::RunReport {
        run_id: run.to_string(),
        phase: (*phase).into(),
        ..wire::RunReport::default()
    };
    Message::Runs(wire::Runs { complete, reports: reports.iter().map(report).collect() })
}

#[test]
fn leases_are_sent_once_a_session_and_again_in_the_next() {
    let mut scene = Scene::new(2);
    scene.hello(7);
    assert_eq!(scene.told(), [], "nothing before all runs are told");
    scene.say(7, runs(true, &[]));
    assert_eq!(scene.told(), [Order::Lease(run(1, 1)), Order::Lease(run(2, 1))]);
    assert_eq!(scene.told(), []);
    scene.hello(8);
    scene.say(8, runs(true, &[(run(1, 1), wire::RunPhase::Leased)]));
    assert_eq!(scene.told(), [Order::Lease(run(2, 1))], "the first one arrived");
}

#[test]
fn a_run_that_was_there_and_is_no_more_is_gone() {
    let mut scene = Scene::new(1);
    scene.hello(1);
    scene.say(1, runs(true, &[(run(1, 1), wire::RunPhase::Running)]));
    assert_eq!(scene.ledger.run(run(1, 1)).map(|row| row.phase), Some(RunPhase::Running));
    scene.hello(2);
    scene.say(2, runs(true, &[]));
    assert_eq!(scene.ledger.jobs().count(), 0, "it failed");
}

#[test]
fn what_the_ledger_does_not_know_is_stopped() {
    let mut scene = Scene::new(0);
    scene.lease(5, "two");
    scene.hello(1);
    scene.say(1, runs(true, &[(run(9, 1), wire::RunPhase::Running), (run(8, 1), wire::RunPhase::Succeeded)]));
    let text = "the fleet has no such run".to_owned();
    assert_eq!(scene.told(), [Order::Stop(run(9, 1), wire::StopKind::Unknown, text)]);
    assert_eq!(scene.told(), []);
}

#[test]
fn a_cancelled_run_is_stopped_until_it_is_gone() {
    let mut scene = Scene::new(1);
    scene.hello(1);
    scene.say(1, runs(true, &[(run(1, 1), wire::RunPhase::Running)]));
    let jobs = vec![JobId(1)];
    let ask = Event::CancelAsked { jobs, filter: pumice_ledger::Filter::Active, reason: String::new() };
    scene.ledger.fold(&Entry { events: vec![ask], ..Entry::new(TimeMs(3), "q", "s") });
    scene.decide(Inbox::default());
    assert!(matches!(scene.told()[..], [Order::Stop(id, wire::StopKind::Cancelled, _)] if id == run(1, 1)));
    scene.hello(2);
    scene.say(2, runs(true, &[(run(1, 1), wire::RunPhase::Running)]));
    assert_eq!(scene.told().len(), 1, "a new session is told again");
    scene.say(2, runs(false, &[(run(1, 1), wire::RunPhase::Gone)]));
    assert_eq!(scene.ledger.runs().count(), 0);
}

// INV-32
#[test]
fn a_report_is_acknowledged_when_it_is_written() {
    let mut scene = Scene::new(1);
    scene.hello(1);
    scene.said += 1;
    let message = wire::FromExecutor {
        sequence: scene.said,
        message: Some(runs(true, &[(run(1, 1), wire::RunPhase::Succeeded)])),
    };
    let received = scene.sessions.receive("one", 1, message, &scene.ledger, TimeMs(2)).expect("good");
    let acknowledged = |scene: &mut Scene| scene.sessions.outgoing(&scene.ledger, |_| true).len();
    assert_eq!(acknowledged(&mut scene), 0);
    scene.decide(Inbox { reports: received.reports, ..Inbox::default() });
    assert_eq!(acknowledged(&mut scene), 1);
    assert_eq!(acknowledged(&mut scene), 0);
}

#[test]
fn whatever_is_said_is_answered_once() {
    let mut scene = Scene::new(0);
    scene.hello(1);
    scene.say(1, Message::Nodes(wire::Nodes::default()));
    assert_eq!(scene.answer(), None, "nothing before all runs are told");
    scene.say(1, runs(true, &[]));
    let answer = |seen| Some(wire::Acknowledge { runs: vec![], seen });
    assert_eq!(scene.answer(), answer(3));
    scene.say(1, Message::Heartbeat(wire::Heartbeat::default()));
    assert_eq!(scene.answer(), answer(4));
    // One that has always something to say of its nodes says that it lives by that.
    scene.say(1, Message::Nodes(wire::Nodes::default()));
    scene.say(1, Message::Nodes(wire::Nodes::default()));
    assert_eq!(scene.answer(), answer(6));
    assert_eq!(scene.answer(), None);
}

#[test]
fn what_is_said_beside_an_unwritten_report_is_answered_with_it() {
    let mut scene = Scene::new(1);
    scene.hello(1);
    scene.say(1, runs(true, &[]));
    scene.answer();
    let mut hear = |sequence, message| {
        let message = wire::FromExecutor { sequence, message: Some(message) };
        scene.sessions.receive("one", 1, message, &scene.ledger, TimeMs(2)).expect("good").reports
    };
    let reports = hear(3, runs(false, &[(run(1, 1), wire::RunPhase::Succeeded)]));
    hear(4, Message::Heartbeat(wire::Heartbeat::default()));
    assert_eq!(scene.answer(), None);
    scene.decide(Inbox { reports, ..Inbox::default() });
    let answer = scene.answer().expect("an answer");
    assert_eq!((answer.runs.len(), answer.seen), (1, 4));
}

#[test]
fn repeats_are_left_out_and_gaps_end_the_session() {
    let mut scene = Scene::new(1);
    scene.hello(1);
    let mut send = |number, sequence| {
        let message = wire::FromExecutor { sequence, message: Some(runs(true, &[])) };
        scene.sessions.receive("one", number, message, &scene.ledger, TimeMs(2)).map(|received| received.reports.len())
    };
    assert_eq!(send(1, 1), Ok(0));
    assert_eq!(send(1, 3), Err(Broken::Gap { found: 3, wanted: 2 }));
    assert_eq!(send(2, 2), Err(Broken::Replaced("one".to_owned())));
    assert_eq!(send(1, 2), Ok(0));
}

// INV-34
#[test]
fn only_who_it_is_speaks_for_an_executor() {
    let mut sessions = Sessions::default();
    let mut open = |name: &str, who: Option<&str>, format| {
        let hello = wire::Hello {
            executor: name.to_owned(),
            session_id: String::new(),
            format_version: format,
            ..Default::default()
        };
        let first = wire::FromExecutor { sequence: 1, message: Some(Message::Hello(hello)) };
        sessions.open(&first, who, 1, TimeMs(0)).map(|_| ())
    };
    assert_eq!(open("one", Some("one"), FORMAT), Ok(()));
    assert!(matches!(open("one", Some("two"), FORMAT), Err(Broken::Forged { .. })));
    assert!(matches!(open("a/b", None, FORMAT), Err(Broken::Name(_))));
    assert!(matches!(open("", None, FORMAT), Err(Broken::Name(_))));
    assert_eq!(open("one", None, 9), Err(Broken::Format(9)));
}

#[test]
fn nodes_go_to_their_pools() {
    let mut scene = Scene::new(0);
    scene.hello(1);
    let node = |name: &str, pool: &str| wire::NodeState {
        name: name.to_owned(),
        pool: pool.to_owned(),
        allocatable: [("cpu".to_owned(), "1500m".to_owned()), ("memory".to_owned(), "bad".to_owned())].into(),
        ..wire::NodeState::default()
    };
    let mut send = |sequence, complete, nodes| {
        let nodes = Message::Nodes(wire::Nodes { complete, nodes, removed: vec![] });
        let message = wire::FromExecutor { sequence, message: Some(nodes) };
        let received = scene.sessions.receive("one", 1, message, &scene.ledger, TimeMs(2)).expect("good");
        let word = |delta: Delta| match delta {
            Delta::NodeUpsert(facts) => format!("{} {:?}", facts.name, facts.allocatable),
            Delta::NodeRemove(name) => format!("-{name}"),
            _ => String::new(),
        };
        let told = received.nodes.into_iter().map(|(pool, delta)| (pool, word(delta)));
        told.filter(|(_, word)| !word.is_empty()).map(|(pool, word)| format!("{pool}: {word}")).collect::<Vec<_>>()
    };
    let amounts = r#"{"cpu": 1500, "memory": 0}"#;
    assert_eq!(
        send(2, true, vec![node("a", ""), node("b", "gpu")]),
        [format!("default: one/a {amounts}"), format!("gpu: one/b {amounts}"),]
    );
    assert_eq!(send(3, false, vec![node("a", "gpu")]), ["default: -one/a".to_owned(), format!("gpu: one/a {amounts}")]);
    assert_eq!(send(4, true, vec![node("a", "gpu")])[0], "gpu: -one/b");
}

#[test]
fn a_session_in_which_nothing_is_said_any_more_is_stale() {
    let mut scene = Scene::new(0);
    scene.hello(7);
    let stale = |scene: &Scene, at| scene.sessions.stale(TimeMs(at));
    assert!(stale(&scene, 30_001).is_empty());
    assert_eq!(stale(&scene, 30_002), [("one".to_owned(), 7)]);
    scene.say(7, Message::Heartbeat(wire::Heartbeat::default()));
    assert!(stale(&scene, 30_002).is_empty());
    scene.sessions.close("one", 7);
    assert!(stale(&scene, 90_000).is_empty(), "it has none");
}

#[test]
fn what_stops_on_a_cluster_that_is_gone_for_good_has_stopped() {
    let mut scene = Scene::new(2);
    scene.hello(1);
    let node = wire::NodeState { name: "n".to_owned(), ..wire::NodeState::default() };
    scene.say(1, Message::Nodes(wire::Nodes { complete: true, nodes: vec![node], removed: vec![] }));
    scene.cancel(1);
    assert_eq!(scene.ledger.run(run(1, 1)).map(|row| row.phase), Some(RunPhase::Stopping));
    let gone = |scene: &Scene, now| scene.sessions.gone("one", &scene.ledger, now);
    assert_eq!(gone(&scene, Scene::LATE), [], "its session is open");
    scene.sessions.close("one", 1);
    assert_eq!(gone(&scene, TimeMs(3)), [], "it may come back at any moment");
    assert!(scene.sessions.forget("one", TimeMs(3)).is_empty());
    let reports = gone(&scene, Scene::LATE);
    assert_eq!(reports, [Report { cluster: "one".to_owned(), run: run(1, 1), kind: ReportKind::Gone }]);
    scene.decide(Inbox { reports, ..Inbox::default() });
    assert!(scene.ledger.run(run(1, 1)).is_none());
    assert_eq!(scene.ledger.run(run(2, 1)).map(|row| row.phase), Some(RunPhase::Leased), "it may run");
    let told = scene.sessions.forget("one", Scene::LATE);
    assert!(matches!(&told[..], [_, (_, Delta::NodeRemove(name))] if name == "one/n"), "{told:?}");
    assert!(scene.sessions.forget("one", Scene::LATE).is_empty());
    assert_eq!(scene.sessions.silent(Scene::LATE).len(), 1, "what runs there is still waited for");
    assert_eq!(scene.sessions.gone("two", &scene.ledger, Scene::LATE), []);
}

#[test]
fn nothing_new_is_to_start_on_nodes_of_a_cordoned_cluster() {
    let mut scene = Scene::new(0);
    let set = |scene: &mut Scene, cordoned| {
        let event = Event::ExecutorSet { executor: "one".to_owned(), cordoned, reason: "repair".to_owned() };
        scene.ledger.fold(&Entry { events: vec![event], ..Entry::new(TimeMs(1), "", "") });
        scene.sessions.nodes("one", &scene.ledger)
    };
    let closed = |told: &[(String, Delta)]| -> Vec<bool> {
        let nodes = told.iter().filter_map(|(_, delta)| match delta {
            Delta::NodeUpsert(facts) => Some(facts.unschedulable),
            _ => None,
        });
        nodes.collect()
    };
    assert!(set(&mut scene, true).is_empty(), "nobody knows of its nodes");
    scene.hello(1);
    let node = |name: &str, unschedulable| wire::NodeState {
        name: name.to_owned(),
        unschedulable,
        ..wire::NodeState::default()
    };
    let nodes = wire::Nodes { complete: true, nodes: vec![node("a", false), node("b", true)], removed: vec![] };
    let message = wire::FromExecutor { sequence: 2, message: Some(Message::Nodes(nodes)) };
    let received = scene.sessions.receive("one", 1, message, &scene.ledger, TimeMs(2)).expect("good");
    assert_eq!(closed(&received.nodes), [true, true]);
    let told = set(&mut scene, false);
    assert_eq!(closed(&told), [false, true], "what the cluster itself says stays");
    let said = |told: &[(String, Delta)]| {
        let why = told.iter().find_map(|(_, delta)| match delta {
            Delta::NodeUpsert(facts) => Some(facts.annotations.get(pumice_engine::NODE_CLOSED).cloned()),
            _ => None,
        });
        why.flatten().unwrap_or_default()
    };
    let told = set(&mut scene, true);
    assert_eq!((closed(&told), said(&told).as_str()), (vec![true, true], ""), "it is cordoned, and called so");
    assert!(scene.sessions.away(TimeMs(9)).is_empty());
    let told = scene.sessions.close("one", 1);
    assert_eq!((closed(&told), said(&told).as_str()), (vec![true, true], "of cluster one, which is not heard of"));
    let told = set(&mut scene, false);
    assert_eq!((closed(&told), said(&told).as_str()), (vec![true, true], "of cluster one, which is not heard of"));
    assert_eq!(scene.sessions.away(TimeMs(9)), [("one".to_owned(), 7)].into());
}

#[test]
fn errands_go_to_whoever_knows_of_them_and_has_told_its_runs() {
    let mut scene = Scene::new(1);
    assert_eq!(scene.sessions.errand_session("one"), Err(Unreached::Away));
    for (number, runs_errands, reached) in [(1, true, Ok(1)), (2, false, Err(Unreached::Old("0.9".to_owned())))] {
        let hello = wire::Hello {
            executor: "one".to_owned(),
            format_version: FORMAT,
            release: "0.9".to_owned(),
            runs_errands,
            ..Default::default()
        };
        let first = wire::FromExecutor { sequence: 1, message: Some(Message::Hello(hello)) };
        scene.said = 1;
        scene.sessions.open(&first, Some("one"), number, TimeMs(1)).expect("a session");
        assert_eq!(scene.sessions.errand_session("one"), Err(Unreached::Away), "its runs are not known");
        let nodes = vec![wire::NodeState { name: "n".to_owned(), ..Default::default() }];
        scene.say(number, Message::Nodes(wire::Nodes { complete: true, nodes, removed: Vec::new() }));
        scene.say(number, Message::Runs(wire::Runs { complete: true, reports: Vec::new() }));
        assert_eq!(scene.sessions.errand_session("one"), reached);
    }
    assert_eq!(scene.sessions.homes("n"), ["one"]);
    assert_eq!(scene.sessions.homes("m"), Vec::<String>::new());
    scene.sessions.close("one", 2);
    assert_eq!(scene.sessions.errand_session("one"), Err(Unreached::Away));
}

#[test]
fn nodes_are_all_known_once_nobody_is_away() {
    let mut scene = Scene::new(1);
    scene.sessions.expect(&scene.ledger, TimeMs(0));
    let known = |scene: &Scene, now: i64| {
        let nodes = scene.sessions.all_nodes(&scene.ledger, TimeMs(0), TimeMs(now))?;
        Some(nodes.map(|(cluster, node)| format!("{cluster}/{}", node.name)).collect::<Vec<_>>())
    };
    assert_eq!(known(&scene, SESSION_TIMEOUT_MS + 1), None, "a cluster with runs is not back");
    scene.hello(7);
    let node = wire::NodeState { name: "n".to_owned(), ..wire::NodeState::default() };
    scene.say(7, Message::Nodes(wire::Nodes { complete: true, nodes: vec![node], removed: vec![] }));
    assert_eq!(known(&scene, SESSION_TIMEOUT_MS), None, "others may yet come");
    assert_eq!(known(&scene, SESSION_TIMEOUT_MS + 1), Some(vec!["one/n".to_owned()]));
    scene.sessions.close("one", 7);
    assert_eq!(known(&scene, SESSION_TIMEOUT_MS + 1), None, "its nodes may come back");
}

#[test]
fn which_cluster_runs_whole_jobs_is_known_by_who_says_it() {
    let mut scene = Scene::new(1);
    scene.hello(7);
    let node = |name: &str, labels: &[(&str, &str)]| wire::NodeState {
        name: name.to_owned(),
        labels: labels.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect(),
        ..wire::NodeState::default()
    };
    let nodes = vec![node("a", &[(CLUSTER_LABEL, "true")]), node("b", &[(CLUSTER_LABEL, "another")]), node("c", &[])];
    scene.say(7, Message::Nodes(wire::Nodes { complete: true, nodes, removed: Vec::new() }));
    for (node, cluster) in [("a", Some("one")), ("b", Some("one")), ("c", None)] {
        let at = NodeRef { cluster: "one".to_owned(), node: node.to_owned() };
        assert_eq!(scene.sessions.node_label(&at, CLUSTER_LABEL), cluster, "{node}");
    }
}
