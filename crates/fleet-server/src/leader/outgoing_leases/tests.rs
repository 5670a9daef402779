//! A cluster that falls silent, from both ends: a leader over SQLite, and executors that say what theirs would.

use std::sync::Arc;
use std::time::Duration;

use pumice_clock as clock;
use pumice_fleet_model::submission::Rules;
use pumice_fleet_scheduling::ViewLimits;
use pumice_ledger::{Entry, Event, JobId, PriorityClass, Queue, Retries, TimeMs};
use pumice_wire::api::{JobSubmitRequest, JobSubmitRequestItem, submit_server::Submit as _};
use pumice_wire::executor::from_executor::Message;
use pumice_wire::kubernetes::PodSpec;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::api::{Api, Permission, Sources, Who};
use crate::database::{Database, Expect, Location, Seq};
use crate::leader::{Input, Leader, OUT_MAX, Options};

/// Longest wait for anything.
const DEADLINE: Duration = Duration::from_secs(60);
/// After so long a silent cluster's runs are started elsewhere.
const RERUN_AFTER_MS: i64 = 3_000;
const BEAT: Duration = Duration::from_millis(100);

/// One session of an executor.
struct Session<'s> {
    leader: &'s mpsc::Sender<Input>,
    name: &'static str,
    number: u64,
    said: u64,
    told: mpsc::Receiver<wire::ToExecutor>,
}

impl<'s> Session<'s> {
    /// Opens one as soon as somebody leads, of a cluster with one node and these runs.
    async fn open(leader: &'s mpsc::Sender<Input>, name: &'static str, reports: Vec<wire::RunReport>) -> Self {
        let hello = wire::Hello {
            executor: name.to_owned(),
            session_id: String::new(),
            format_version: 1,
            ..Default::default()
        };
        let first = wire::FromExecutor { sequence: 1, message: Some(Message::Hello(hello)) };
        let (number, told) = loop {
            let (out, told) = mpsc::channel(OUT_MAX);
            let (answer, opened) = oneshot::channel();
            let input = Input::Open { first: first.clone(), who: Some(name.to_owned()), out, answer };
            leader.send(input).await.expect("a leader");
            if let Ok(opened) = opened.await {
                break (opened.expect("a good hello").1, told);
            }
            tokio::task::yield_now().await;
        };
        let mut session = Self { leader, name, number, said: 1, told };
        let amounts = [("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "100Gi"), ("pods", "110")];
        let node = wire::NodeState {
            name: "node".to_owned(),
            allocatable: amounts.map(|(name, amount)| (name.to_owned(), amount.to_owned())).into(),
            ..wire::NodeState::default()
        };
        session.say(Message::Nodes(wire::Nodes { complete: true, nodes: vec![node], removed: vec![] })).await;
        session.say(Message::Runs(wire::Runs { complete: true, reports })).await;
        session
    }

    async fn say(&mut self, message: Message) {
        self.said += 1;
        let message = wire::FromExecutor { sequence: self.said, message: Some(message) };
        let input = Input::Message { name: self.name.to_owned(), number: self.number, message };
        self.leader.send(input).await.expect("a leader");
    }

    async fn report(&mut self, run: RunId, phase: wire::RunPhase) {
        self.say(Message::Runs(wire::Runs { complete: false, reports: vec![report(run, phase)] })).await;
    }

    /// The first of what it is told that is wanted. It says that it lives meanwhile.
    async fn next<T>(&mut self, mut wanted: impl FnMut(&to_executor::Message) -> Option<T>) -> T {
        let find = async {
            loop {
                match timeout(BEAT, self.told.recv()).await {
                    Ok(message) => {
                        let message = message.expect("the session goes on").message.expect("of a kind");
                        if let Some(found) = wanted(&message) {
                            return found;
                        }
                    }
                    Err(_) => self.say(Message::Heartbeat(wire::Heartbeat::default())).await,
                }
            }
        };
        timeout(DEADLINE, find).await.expect("it comes in time")
    }

    async fn lease(&mut self) -> (RunId, u64) {
        let lease = |lease: &wire::Lease| (lease.run_id.parse().expect("a run"), lease.cut_off_ms);
        self.next(|message| match message {
            to_executor::Message::Leases(leases) => leases.leases.first().map(lease),
            _ => None,
        })
        .await
    }

    /// Waits until all that it said is dealt with.
    async fn answered(&mut self) {
        let said = self.said;
        self.next(|message| match message {
            to_executor::Message::Acknowledge(answer) => (answer.seen >= said).then_some(()),
            _ => None,
        })
        .await;
    }

    async fn close(self) {
        let input = Input::Closed { name: self.name.to_owned(), number: self.number };
        self.leader.send(input).await.expect("a leader");
    }
}

fn report(run: RunId, phase: wire::RunPhase) -> wire::RunReport {
    wire::RunReport { run_id: run.to_string(), phase: phase.into(), ..wire::RunReport::default() }
}

async fn define(log: &Database, rerun_after_ms: i64) {
    let queue = Queue { name: "q".to_owned(), rerun_after_ms, ..Queue::default() };
    let entry =
        Entry { events: vec![Event::QueueSet(Box::new(queue))], ..Entry::new(TimeMs(clock::now_ms()), "q", "") };
    log.request(entry, Expect::Any).await.expect("written");
}

/// Submits a job, as a user does.
async fn submit(log: &Arc<Database>) -> JobId {
    let sources = Sources { now: Box::new(|| TimeMs(clock::now_ms())), random: Box::new(|| 1) };
    let api = Api::new(Arc::clone(log), Rules::default(), sources, CancellationToken::new());
    let resources = json!({ "cpu": "1", "memory": "1Gi" });
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": resources, "limits": resources } });
    let item = JobSubmitRequestItem {
        namespace: "n".to_owned(),
        pod_specs: vec![PodSpec::from_json(&json!({ "containers": [container] })).expect("a pod spec")],
        ..JobSubmitRequestItem::default()
    };
    let message = JobSubmitRequest { queue: "q".to_owned(), job_set_id: "s".to_owned(), job_request_items: vec![item] };
    let mut request = tonic::Request::new(message);
    let permissions = Permission::ALL.iter().copied().collect();
    request.extensions_mut().insert(Arc::new(Who { name: "ada".to_owned(), permissions, ..Who::default() }));
    let answer = api.submit_jobs(request).await.expect("submitted").into_inner();
    answer.job_response_items[0].job_id.parse().expect("an id")
}

/// A leader over the log, until what is returned last is dropped.
fn lead(log: &Arc<Database>) -> (mpsc::Sender<Input>, JoinSet<()>) {
    lead_with(log, Retries::default())
}

fn lead_with(log: &Arc<Database>, retries: Retries) -> (mpsc::Sender<Input>, JoinSet<()>) {
    let options = Options {
        holder: "test".to_owned(),
        classes: [("armada-default".to_owned(), PriorityClass { value: 0, preemptible: true })].into(),
        retries,
        limits: ViewLimits::default(),
        constraints: Arc::default(),
    };
    let (leader, inputs) = Leader::new(Arc::clone(log), options);
    let mut running = JoinSet::new();
    running.spawn(leader.run(CancellationToken::new()));
    (inputs, running)
}

/// What was decided of the job set, in words.
async fn decided(log: &Database) -> Vec<String> {
    let entries = log.events("q", "s", Seq(0), 1_000).await.expect("events");
    let word = |event: &Event| match event {
        Event::Leased { run, at, .. } => format!("{} leased to {}", run.attempt, at.cluster),
        Event::Running { run, .. } => format!("{} running", run.attempt),
        Event::RunLost { run } => format!("{} lost", run.attempt),
        Event::Succeeded { run } => format!("{} succeeded", run.attempt),
        other => format!("{other:?}"),
    };
    let is_told = |event: &&Event| !matches!(event, Event::Submitted(_) | Event::Pending { .. });
    entries.iter().flat_map(|(_, entry)| &entry.events).filter(is_told).map(word).collect()
}

#[test]
fn a_cluster_is_not_asked_for_what_is_on_no_node() {
    let amounts = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), json!("1"))).collect::<Value>();
    let resources = |names: &[&str]| json!({ "requests": amounts(names), "limits": amounts(names) });
    let spec = |names: &[&str]| {
        json!({
            "containers": [{ "name": "c", "resources": resources(names) }, { "name": "bare" }],
            "initContainers": [{ "name": "i", "resources": resources(names) }],
            "resources": resources(names),
        })
    };
    let floating = [("licence".to_owned(), BTreeMap::new())].into();
    let mut asked = spec(&["cpu", "licence"]);
    drop_floating(&mut asked, &floating);
    assert_eq!(asked, spec(&["cpu"]));
}

#[test]
fn a_pod_away_from_home_tolerates_what_keeps_others_off() {
    let taint = |value: Option<&str>, effect: Option<&str>| AwayToleration {
        key: "gpu".to_owned(),
        value: value.map(str::to_owned),
        effect: effect.map(str::to_owned),
    };
    let tolerations = vec![taint(None, None), taint(Some("a100"), Some("NoSchedule"))];
    let away = Away { way: 0, node_types: vec!["gpu".to_owned()], priority: 1, tolerations };
    let any = json!({ "key": "gpu", "operator": "Exists" });
    let one = json!({ "key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule" });
    for before in [json!({}), json!({ "tolerations": [any] })] {
        let mut pod = before;
        tolerate(&mut pod, &away);
        assert_eq!(pod, json!({ "tolerations": [any, one] }));
    }
}

#[tokio::test]
async fn a_job_of_a_silent_cluster_ends_elsewhere_and_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Arc::new(Database::open(&Location::File(folder.path().join("fleet.db"))).await.expect("a database"));
    define(&log, RERUN_AFTER_MS).await;
    let job = submit(&log).await;
    let (inputs, _running) = lead(&log);

    let mut one = Session::open(&inputs, "one", vec![]).await;
    let (first, cut_off_ms) = one.lease().await;
    assert_eq!((first.job, cut_off_ms), (job, 1_500));
    one.report(first, wire::RunPhase::Running).await;
    // A leader with nothing to do answers, too.
    for _ in 0..3 {
        one.answered().await;
        one.say(Message::Heartbeat(wire::Heartbeat::default())).await;
    }
    one.close().await;

    let mut two = Session::open(&inputs, "two", vec![]).await;
    let (second, _) = two.lease().await;
    assert_eq!((second.job, second.attempt), (job, 2));
    // However slow this machine is, nothing more is lost.
    define(&log, 0).await;
    two.report(second, wire::RunPhase::Running).await;
    two.answered().await;

    let mut one = Session::open(&inputs, "one", vec![report(first, wire::RunPhase::Running)]).await;
    let stop = one.next(|message| match message {
        to_executor::Message::Stop(stop) => stop.runs.first().cloned(),
        _ => None,
    });
    let stop = stop.await;
    assert_eq!((stop.run_id, stop.kind), (first.to_string(), wire::StopKind::Unknown.into()));
    for late in [wire::RunPhase::Succeeded, wire::RunPhase::Returned, wire::RunPhase::Gone] {
        one.report(first, late).await;
        one.answered().await;
    }
    let so_far = ["1 leased to one", "1 running", "1 lost", "2 leased to two", "2 running"];
    assert_eq!(decided(&log).await, so_far);
    two.report(second, wire::RunPhase::Succeeded).await;
    two.answered().await;
    one.report(first, wire::RunPhase::Failed).await;
    one.answered().await;
    assert_eq!(decided(&log).await, [so_far.as_slice(), &["2 succeeded"]].concat());
    log.close().await;
}

/// What is said for all queues: nothing starts elsewhere, and the executor stops the run after the same time.
#[tokio::test]
async fn a_job_of_a_cluster_that_stays_away_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Arc::new(Database::open(&Location::File(folder.path().join("fleet.db"))).await.expect("a database"));
    define(&log, 0).await;
    submit(&log).await;
    let (inputs, _running) = lead_with(&log, Retries { heartbeat_timeout_ms: RERUN_AFTER_MS, ..Retries::default() });
    let mut one = Session::open(&inputs, "one", vec![]).await;
    let (run, cut_off_ms) = one.lease().await;
    assert_eq!(cut_off_ms, u64::try_from(RERUN_AFTER_MS).expect("a time"));
    one.report(run, wire::RunPhase::Running).await;
    one.answered().await;
    one.close().await;
    let so_far = ["1 leased to one", "1 running"];
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let failed = loop {
        let decided = decided(&log).await;
        if decided.len() > so_far.len() {
            break decided;
        }
        assert!(tokio::time::Instant::now() < deadline, "{decided:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(failed[..2], so_far);
    assert!(failed.len() == 4 && failed[2].starts_with("RunFailed") && failed[3].starts_with("Failed"), "{failed:?}");
    assert!(failed[3].contains("nothing was heard of its cluster one for 3 s (executorTimeout)"), "{failed:?}");
    log.close().await;
}

#[tokio::test]
async fn a_job_that_ran_out_of_memory_gets_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Arc::new(Database::open(&Location::File(folder.path().join("fleet.db"))).await.expect("a database"));
    let rule =
        json!({ "action": "Retry", "onCategory": "oom", "mutate": { "resources": { "memory": { "factor": 1.5 } } } });
    let policy = json!({ "name": "more", "retryLimit": 2, "defaultAction": "Fail", "rules": [rule] });
    let policy = Event::RetryPolicySet(Box::new(serde_json::from_value(policy).expect("a policy")));
    let entry = Entry { events: vec![policy], ..Entry::new(TimeMs(clock::now_ms()), "", "") };
    log.request(entry, Expect::Any).await.expect("written");
    let queue = Queue { name: "q".to_owned(), retry_policies: vec!["more".to_owned()], ..Queue::default() };
    let entry =
        Entry { events: vec![Event::QueueSet(Box::new(queue))], ..Entry::new(TimeMs(clock::now_ms()), "q", "") };
    log.request(entry, Expect::Any).await.expect("written");
    submit(&log).await;
    let (inputs, _running) = lead(&log);
    let mut one = Session::open(&inputs, "one", vec![]).await;
    for (attempt, memory) in [(1, "1Gi"), (2, "1536Mi"), (3, "2304Mi")] {
        let lease = one.next(|message| match message {
            to_executor::Message::Leases(leases) => leases.leases.first().cloned(),
            _ => None,
        });
        let lease = lease.await;
        let pod = lease.pod_spec.expect("a pod").to_json().expect("JSON");
        let resources = &pod["containers"][0]["resources"];
        assert_eq!(lease.attempt, attempt);
        assert_eq!(
            (&resources["requests"]["memory"], &resources["limits"]["memory"]),
            (&json!(memory), &json!(memory))
        );
        let run = lease.run_id.parse().expect("a run");
        let failed = wire::RunReport { category: "oom".to_owned(), ..report(run, wire::RunPhase::Failed) };
        one.say(Message::Runs(wire::Runs { complete: false, reports: vec![failed] })).await;
    }
    one.answered().await;
    let decided = decided(&log).await;
    let last = decided.last().expect("something");
    assert!(last.starts_with("Failed") && last.contains("retryLimit of policy more"), "{decided:?}");
    log.close().await;
}
