//! The whole way: the API, a leader over SQLite, and executors that say what clusters would.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http_body_util::{BodyExt as _, Full};
use pumice_fleet_model::submission::Rules;
use pumice_ledger::{Entry, Event, JobId, PriorityClass, RunId, TimeMs};
use pumice_wire::api::{self as wire_api, event_server::Event as _, submit_server::Submit as _};
use pumice_wire::executor::{from_executor::Message, to_executor};
use pumice_wire::kubernetes::PodSpec;
use pumice_wire::schedulerobjects::scheduler_reporting_server::SchedulerReporting as _;
use pumice_wire::schedulerobjects::{JobReportRequest, QueueReportRequest, SchedulingReportRequest};
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::api::{self, Api, Permission, Who};
use crate::database::{Database, JobState, Location};
use crate::gateway::{Access, Gate, Gateway, Peer, ReportsFor, Users, UsersFile};
use crate::reports::Reports;

mod binoculars;
mod market;

/// Longest wait for anything.
const DEADLINE: Duration = Duration::from_secs(60);

fn options() -> Options {
    let class = PriorityClass { value: 0, preemptible: true };
    Options {
        holder: "test".to_owned(),
        classes: [("armada-default".to_owned(), class)].into(),
        retries: Retries::default(),
        limits: ViewLimits::default(),
        constraints: Arc::default(),
    }
}

/// A server: its leader runs until it is dropped, as if its process were killed.
struct Server {
    inputs: mpsc::Sender<Input>,
    _running: JoinSet<()>,
}

impl Server {
    fn start(log: &Arc<Database>) -> Self {
        let (leader, inputs) = Leader::new(Arc::clone(log), options());
        let mut running = JoinSet::new();
        running.spawn(leader.run(CancellationToken::new()));
        Self { inputs, _running: running }
    }
}

/// The executor of one cluster. It knows its pods, whatever becomes of sessions.
struct Cluster {
    name: &'static str,
    sequence: u64,
    session: Option<(u64, mpsc::Receiver<wire::ToExecutor>)>,
    /// Pods ever made.
    made: BTreeSet<RunId>,
    /// Ends that are not acknowledged.
    ended: BTreeSet<RunId>,
}

impl Cluster {
    fn new(name: &'static str) -> Self {
        Self { name, sequence: 0, session: None, made: BTreeSet::new(), ended: BTreeSet::new() }
    }

    /// Opens a session, as soon as somebody leads.
    async fn connect(&mut self, server: &Server, nodes: usize) {
        loop {
            let hello = wire::Hello {
                executor: self.name.to_owned(),
                session_id: String::new(),
                format_version: 1,
                runs_errands: true,
                ..Default::default()
            };
            let first = wire::FromExecutor { sequence: 1, message: Some(Message::Hello(hello)) };
            let (out, told) = mpsc::channel(OUT_MAX);
            let (answer, opened) = oneshot::channel();
            let who = Some(self.name.to_owned());
            server.inputs.send(Input::Open { first, who, out, answer }).await.expect("a server");
            if let Ok(Ok((_, number))) = opened.await {
                self.sequence = 1;
                self.session = Some((number, told));
                break;
            }
            tokio::task::yield_now().await;
        }
        let node = |index| wire::NodeState {
            name: format!("node-{index}"),
            allocatable: [("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "100Gi"), ("pods", "110")]
                .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
                .into(),
            ..wire::NodeState::default()
        };
        let nodes = wire::Nodes { complete: true, nodes: (0..nodes).map(node).collect(), removed: vec![] };
        self.say(server, Message::Nodes(nodes)).await;
        let reports = self.ended.iter().map(|run| report(*run, wire::RunPhase::Succeeded)).collect();
        self.say(server, Message::Runs(wire::Runs { complete: true, reports })).await;
    }

    async fn say(&mut self, server: &Server, message: Message) {
        self.sequence += 1;
        let message = wire::FromExecutor { sequence: self.sequence, message: Some(message) };
        let Some((number, _)) = &self.session else { return };
        let input = Input::Message { name: self.name.to_owned(), number: *number, message };
        server.inputs.send(input).await.expect("a server");
    }

    /// Deals with one message: makes the pods of leases, which end at once. False when the session is over.
    async fn step(&mut self, server: &Server) -> bool {
        let Some((_, told)) = &mut self.session else { return false };
        let Some(message) = told.recv().await else { return false };
        match message.message {
            Some(to_executor::Message::Leases(leases)) => {
                let runs: Vec<RunId> = leases.leases.iter().map(|lease| lease.run_id.parse().expect("a run")).collect();
                for (lease, run) in leases.leases.iter().zip(&runs) {
                    assert!(self.made.insert(*run), "{run} was leased twice");
                    assert!(lease.node.starts_with("node-") && lease.pod_spec.is_some());
                }
                let running = runs.iter().map(|run| report(*run, wire::RunPhase::Running)).collect();
                self.say(server, Message::Runs(wire::Runs { complete: false, reports: running })).await;
                self.ended.extend(&runs);
                let ended = runs.iter().map(|run| report(*run, wire::RunPhase::Succeeded)).collect();
                self.say(server, Message::Runs(wire::Runs { complete: false, reports: ended })).await;
            }
            Some(to_executor::Message::Acknowledge(acknowledged)) => {
                for run in acknowledged.runs.iter().filter(|run| run.phase == i32::from(wire::RunPhase::Succeeded)) {
                    self.ended.remove(&run.run_id.parse().expect("a run"));
                }
            }
            _ => {}
        }
        true
    }
}

fn report(run: RunId, phase: wire::RunPhase) -> wire::RunReport {
    wire::RunReport { run_id: run.to_string(), phase: phase.into(), ..wire::RunReport::default() }
}

/// Submits jobs of one core through the API, as a user does; their ids.
async fn submit(log: &Arc<Database>, jobs: usize) -> Vec<JobId> {
    let drawn = std::sync::atomic::AtomicU64::new(1);
    let sources = api::Sources {
        now: Box::new(|| TimeMs(clock::now_ms())),
        random: Box::new(move || drawn.fetch_add(1, std::sync::atomic::Ordering::Relaxed).into()),
    };
    let api = Api::new(Arc::clone(log), Rules::default(), sources, CancellationToken::new());
    let permissions = Permission::ALL.iter().copied().collect();
    let who = Arc::new(Who { name: "ada".to_owned(), permissions, ..Who::default() });
    let queue = wire_api::Queue { name: "q".to_owned(), priority_factor: 1.0, ..wire_api::Queue::default() };
    api.create_queue(asked(&who, queue)).await.expect("a queue");
    let resources = json!({"cpu": "1", "memory": "1Gi"});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": resources, "limits": resources}});
    let spec = PodSpec::from_json(&json!({"containers": [container]})).expect("a pod spec");
    let item = wire_api::JobSubmitRequestItem {
        namespace: "n".to_owned(),
        pod_specs: vec![spec],
        ..wire_api::JobSubmitRequestItem::default()
    };
    let job_request_items = vec![item; jobs];
    let request = wire_api::JobSubmitRequest { queue: "q".to_owned(), job_set_id: "s".to_owned(), job_request_items };
    let answer = api.submit_jobs(asked(&who, request)).await.expect("submitted").into_inner();
    answer.job_response_items.iter().map(|item| item.job_id.parse().expect("an id")).collect()
}

fn asked<T>(who: &Arc<Who>, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.extensions_mut().insert(Arc::clone(who));
    request
}

async fn ended(log: &Database, jobs: &[JobId]) -> usize {
    let rows = log.jobs(jobs).await.expect("rows");
    rows.iter().filter(|row| row.state == JobState::Succeeded).count()
}

/// How often each job has an event that ends it.
async fn ends(log: &Database) -> Vec<JobId> {
    let entries = log.events("q", "s", Seq(0), 100_000).await.expect("events");
    let mut ends: Vec<JobId> =
        entries.iter().flat_map(|(_, entry)| &entry.events).filter_map(pumice_ledger::Event::ends).collect();
    ends.sort_unstable();
    ends
}

fn sorted(jobs: &[JobId]) -> Vec<JobId> {
    let mut jobs = jobs.to_vec();
    jobs.sort_unstable();
    jobs
}

// INV-32
#[tokio::test]
async fn jobs_run_on_all_clusters_and_a_killed_leader_loses_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Arc::new(Database::open(&Location::File(folder.path().join("fleet.db"))).await.expect("a database"));
    let jobs = submit(&log, 100).await;
    let mut clusters = [Cluster::new("one"), Cluster::new("two")];
    let run = async {
        let (mut servers, mut next) = (0, Server::start(&log));
        while ended(&log, &jobs).await < jobs.len() {
            let server = next;
            servers += 1;
            for cluster in &mut clusters {
                cluster.connect(&server, 3).await;
            }
            // It follows this one, until this one is gone.
            next = Server::start(&log);
            // The first servers are killed in the middle.
            for _ in 0..if servers < 4 { 5 * servers } else { usize::MAX } {
                let [one, two] = &mut clusters;
                let (first, second) = (one.session.is_some(), two.session.is_some());
                let more = tokio::select! {
                    more = one.step(&server), if first => more,
                    more = two.step(&server), if second => more,
                    () = tokio::time::sleep(Duration::from_millis(50)) => true,
                };
                if !more || ended(&log, &jobs).await == jobs.len() {
                    break;
                }
            }
        }
        servers
    };
    let servers = tokio::time::timeout(DEADLINE, run).await.expect("all end in time");
    assert!(servers > 1, "no server was killed");
    assert_eq!(ends(&log).await, sorted(&jobs), "each ends once");
    assert!(clusters.iter().all(|cluster| !cluster.made.is_empty()), "both had work");
    log.close().await;
}

#[tokio::test]
async fn whoever_is_known_reads_metrics_of_the_whole_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Arc::new(Database::open(&Location::File(folder.path().join("fleet.db"))).await.expect("a database"));
    let jobs = submit(&log, 9).await;
    let metrics = Arc::new(Metrics::new(Arc::clone(log.writes())));
    let (leader, inputs) = Leader::new(Arc::clone(&log), options());
    let mut running = JoinSet::new();
    running.spawn(leader.counting(Arc::clone(&metrics)).run(CancellationToken::new()));
    let server = Server { inputs: inputs.clone(), _running: running };
    let sources = api::Sources::system();
    let api = Api::new(Arc::clone(&log), Rules::default(), sources, CancellationToken::new());
    let users = Users::new(UsersFile::default()).expect("nobody");
    let gate = Gate::new(Access { users, permissions: BTreeMap::new(), issuer: None, reports: ReportsFor::default() });
    let front = Gateway::new(api, inputs, Arc::new(gate)).counting(metrics);
    let ca = pumice_auth::Ca::passing(jiff::Timestamp::constant(1_764_000_000, 0)).expect("an authority");
    let shown = ca.issue_client("ada", &[], jiff::Timestamp::constant(1_764_000_000, 0)).expect("a certificate");
    let ada = front.peer(Some(&shown.certificate)).expect("ada");
    let read = async |peer: Peer| {
        let request = http::Request::get("/metrics").body(Full::new(Bytes::new())).expect("a request");
        let answer = front.clone().answer(peer, request).await;
        let status = answer.status();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("text"))
    };
    assert_eq!(read(Peer::default()).await.0, http::StatusCode::UNAUTHORIZED);

    let mut cluster = Cluster::new("one");
    cluster.connect(&server, 2).await;
    let all = async {
        while ended(&log, &jobs).await < jobs.len() {
            cluster.step(&server).await;
        }
    };
    tokio::time::timeout(DEADLINE, all).await.expect("all end in time");
    let (status, page) = read(ada).await;
    assert_eq!(status, http::StatusCode::OK);
    assert_eq!(pumice_metrics::lint(&page), Vec::<String>::new(), "{page}");
    for line in [
        "pumice_fleet_leader 1",
        "armada_queue_size{queueName=\"q\",queue=\"q\",state=\"validated\"} 0",
        "armada_cluster_capacity{cluster=\"one\",pool=\"default\",resourceType=\"cpu\"} 8",
        "armada_cluster_available_capacity{cluster=\"one\",pool=\"default\",resourceType=\"nodes\"} 2",
        "armada_scheduler_scheduled_jobs{pool=\"default\",queue=\"q\",priority_class=\"armada-default\"} 9",
        "armada_scheduler_job_state_counter_by_queue{queue=\"q\",pool=\"default\",state=\"succeeded\",priorState=\"running\"} 9",
        "pumice_fleet_executor_connected{cluster=\"one\"} 1",
        "grpc_server_handled_total{grpc_type=\"unary\",grpc_service=\"http\",grpc_method=\"unknown\",grpc_code=\"Unauthenticated\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    log.close().await;
}

// INV-36
#[tokio::test]
async fn what_is_over_goes_and_streams_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Arc::new(Database::open(&Location::File(folder.path().join("fleet.db"))).await.expect("a database"));
    let jobs = submit(&log, 3).await;
    let server = Server::start(&log);
    let mut cluster = Cluster::new("one");
    cluster.connect(&server, 2).await;
    let all = async {
        while ended(&log, &jobs).await < jobs.len() {
            cluster.step(&server).await;
        }
    };
    tokio::time::timeout(DEADLINE, all).await.expect("all end in time");
    drop(server);
    let api = Api::new(Arc::clone(&log), Rules::default(), api::Sources::system(), CancellationToken::new());
    let permissions = Permission::ALL.iter().copied().collect();
    let who = Arc::new(Who { name: "ada".to_owned(), permissions, ..Who::default() });
    let told = async |from_message_id: String, error_if_missing| {
        let (id, queue) = ("s".to_owned(), "q".to_owned());
        let request = wire_api::JobSetRequest { id, queue, watch: false, from_message_id, error_if_missing };
        let stream = api.get_job_set_events(asked(&who, request)).await?.into_inner();
        stream.map(|message| message.map(|message| message.id)).try_collect::<Vec<String>>().await
    };
    let ids = told(String::new(), true).await.expect("a story");
    assert!(ids.len() > 9, "{ids:?}");

    let (leader, inputs) = Leader::new(Arc::clone(&log), options());
    let mut running = JoinSet::new();
    let retention = Retention { job_sets_ms: 1, client_ids_ms: 1 };
    running.spawn(leader.keeping(retention).run(CancellationToken::new()));
    let gone = async {
        while !log.events("q", "s", Seq(0), 1).await.expect("events").is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await.expect("it goes in time");
    assert_eq!(log.jobs(&jobs).await.expect("rows"), [], "its jobs went before");
    assert_eq!(told(ids[1].clone(), false).await.expect("an end"), Vec::<String>::new());
    let missing = told(ids[1].clone(), true).await.expect_err("it says so");
    assert_eq!(missing.code(), tonic::Code::NotFound);
    assert!(log.queues().await.expect("queues").contains_key("q"), "the queue stays");
    drop(inputs);
    log.close().await;
}

/// What the server's leader says of a fleet with this log.
fn reports(log: &Arc<Database>, server: &Server) -> Reports {
    let api = Api::new(Arc::clone(log), Rules::default(), api::Sources::system(), CancellationToken::new());
    Reports::new(api, server.inputs.clone())
}

#[tokio::test]
async fn whoever_may_watch_is_told_why_a_job_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Arc::new(Database::open(&Location::File(folder.path().join("fleet.db"))).await.expect("a database"));
    let jobs = submit(&log, 9).await;
    let server = Server::start(&log);
    let reports = reports(&log, &server);
    let stranger = asked(&Arc::new(Who::default()), JobReportRequest { job_id: jobs[0].to_string() });
    let refused = reports.get_job_report(stranger).await.expect_err("a stranger's");
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    let who = Arc::new(Who { reads_all: true, ..Who::default() });
    let told = async |id: JobId| {
        // Until somebody leads nobody knows.
        loop {
            let request = JobReportRequest { job_id: id.to_string() };
            match reports.get_job_report(asked(&who, request)).await {
                Ok(answer) => return answer.into_inner().report,
                Err(status) if status.code() == tonic::Code::Unavailable => tokio::task::yield_now().await,
                Err(status) => panic!("{status}"),
            }
        }
    };
    assert!(told(jobs[0]).await.contains("no executor has told of any nodes"), "{}", told(jobs[0]).await);

    // Two nodes of four cores each: the ninth job waits.
    let mut cluster = Cluster::new("one");
    cluster.connect(&server, 2).await;
    let waits = async {
        loop {
            let said = told(jobs[8]).await;
            if said.contains("pool default") {
                return said;
            }
            tokio::task::yield_now().await;
        }
    };
    let said = tokio::time::timeout(DEADLINE, waits).await.expect("a round looks at it");
    assert!(said.contains("cpu") && said.contains("waits"), "{said}");
    let said = told(jobs[0]).await;
    assert!(said.contains("of cluster one"), "{said}");

    let queue = QueueReportRequest { queue_name: "q".to_owned(), verbosity: 0 };
    let said = reports.get_queue_report(asked(&who, queue)).await.expect("a queue").into_inner().report;
    assert!(said.contains("queue q: 1 jobs wait, 9 have not ended"), "{said}");
    let said = reports.get_scheduling_report(asked(&who, SchedulingReportRequest::default())).await;
    let said = said.expect("rounds").into_inner().report;
    assert!(said.contains("over 2 nodes") && said.contains("\n  queue q: cpu ") && said.contains("; 1 wait"), "{said}");
    let unknown = JobReportRequest { job_id: JobId(7).to_string() };
    let refused = reports.get_job_report(asked(&who, unknown)).await.expect_err("there is none");
    assert_eq!(refused.code(), tonic::Code::NotFound);
    let nobody = tonic::Request::new(SchedulingReportRequest::default());
    let refused = reports.get_scheduling_report(nobody).await.expect_err("nobody asks");
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    log.close().await;
}

#[tokio::test]
async fn a_cordoned_cluster_gets_nothing_until_it_is_let_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Arc::new(Database::open(&Location::File(folder.path().join("fleet.db"))).await.expect("a database"));
    let jobs = submit(&log, 6).await;
    let ask = async |event| {
        let entry =
            Entry { user: "ada".to_owned(), events: vec![event], ..Entry::new(TimeMs(clock::now_ms()), "", "") };
        log.request(entry, crate::database::Expect::Any).await.expect("written");
    };
    let executor = || "one".to_owned();
    ask(Event::ExecutorSet { executor: executor(), cordoned: true, reason: "repair".to_owned() }).await;
    let server = Server::start(&log);
    let mut cluster = Cluster::new("one");
    cluster.connect(&server, 2).await;
    let reports = reports(&log, &server);
    let who = Arc::new(Who::default());
    let looked = async {
        loop {
            let told = reports.get_scheduling_report(asked(&who, SchedulingReportRequest::default())).await;
            let told = told.map(|told| told.into_inner().report).unwrap_or_default();
            if told.contains("over 2 nodes") {
                return told;
            }
            tokio::task::yield_now().await;
        }
    };
    let told = tokio::time::timeout(DEADLINE, looked).await.expect("a round looks at its nodes");
    assert!(told.contains("executor one is cordoned by ada: repair"), "{told}");
    let rows = log.jobs(&jobs).await.expect("rows");
    assert!(rows.iter().all(|row| row.state == JobState::Queued), "{rows:?}");
    ask(Event::ExecutorUnset { executor: executor() }).await;
    let run = async {
        while ended(&log, &jobs).await < jobs.len() {
            tokio::select! {
                more = cluster.step(&server) => assert!(more, "its session goes on"),
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    };
    tokio::time::timeout(DEADLINE, run).await.expect("all end in time");
    assert_eq!(cluster.made.len(), jobs.len());
    log.close().await;
}
