//! Cases against the services and a leader in this process, without any executor: jobs stay in the queue.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use pumice_fleet_model::submission::Rules;
use pumice_ledger::{PriorityClass, Retries};
use pumice_wire::api::event_server::EventServer;
use pumice_wire::api::jobs_server::JobsServer;
use pumice_wire::api::queue_service_server::QueueServiceServer;
use pumice_wire::api::submit_server::SubmitServer;
use pumice_wire::client::connect;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::transport::Endpoint;

use super::{Case, Report, Server, Settings, Spec, run};
use pumice_fleet_server::api::{Api, Permission, Sources, Who};
use pumice_fleet_server::database::{Database, Location};
use pumice_fleet_server::leader::{Input, Leader, Options};

/// A fleet without clusters.
struct Fleet {
    server: Server,
    /// Where executors would be heard; without it the leader takes it that the server ends.
    _inputs: mpsc::Sender<Input>,
    _running: JoinSet<()>,
    _directory: tempfile::TempDir,
}

async fn fleet() -> Fleet {
    let directory = tempfile::tempdir().unwrap();
    let log = Arc::new(Database::open(&Location::File(directory.path().join("fleet.db"))).await.unwrap());
    let class = PriorityClass { value: 0, preemptible: true };
    let options = Options {
        holder: "test".to_owned(),
        classes: [("armada-default".to_owned(), class)].into(),
        retries: Retries::default(),
        limits: pumice_fleet_scheduling::ViewLimits::default(),
        constraints: Arc::default(),
    };
    let (leader, inputs) = Leader::new(Arc::clone(&log), options);
    let api = Api::new(log, Rules::default(), Sources::system(), CancellationToken::new());
    let mut running = JoinSet::new();
    running.spawn(leader.run(CancellationToken::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    running.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let api = api.clone();
            let service = tower::service_fn(move |request| answer(api.clone(), request));
            let service = TowerToHyperService::new(service);
            connections.spawn(async move {
                auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await
            });
        }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let server = Server::over(connect(endpoint, None).await.unwrap());
    Fleet { server, _inputs: inputs, _running: running, _directory: directory }
}

/// What the services answer an administrator.
async fn answer(
    api: Api,
    mut request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<Body>, Infallible> {
    let permissions = Permission::ALL.iter().copied().collect();
    request.extensions_mut().insert(Arc::new(Who { name: "root".to_owned(), permissions, ..Who::default() }));
    let service = request.uri().path().split('/').nth(1).unwrap_or_default().to_owned();
    match service.as_str() {
        "api.Submit" => SubmitServer::new(api).call(request).await,
        "api.QueueService" => QueueServiceServer::new(api).call(request).await,
        "api.Event" => EventServer::new(api).call(request).await,
        "api.Jobs" => JobsServer::new(api).call(request).await,
        _ => Ok(Status::unimplemented("").into_http()),
    }
}

impl Fleet {
    async fn run(&self, text: &str, stop: &CancellationToken) -> Report {
        let case = Case { name: "case".to_owned(), spec: Spec::read(text).unwrap() };
        let settings =
            Settings { annotations: [("example.com/a".to_owned(), "b".to_owned())].into(), ..Settings::default() };
        run(&self.server, &case, &settings, stop).await
    }

    /// Why a case fails; nothing where it passes.
    async fn told(&self, text: &str) -> String {
        let report = self.run(text, &CancellationToken::new()).await;
        assert_eq!(report.notes, Vec::<String>::new(), "{text}");
        report.failure.map(|failure| failure.to_string()).unwrap_or_default()
    }
}

/// Two batches of two jobs.
const JOBS: &str = "
queue: q
numBatches: 2
batchSize: 2
jobs:
- namespace: default
  podSpec:
    containers: [{ name: main, image: busybox, resources: { limits: { cpu: 1 }, requests: { cpu: 1 } } }]
";

#[tokio::test]
async fn what_is_done_to_jobs_is_seen() {
    let fleet = fleet().await;
    for (says, outcome) in [
        ("expectedEvents: [submitted: , queued: ]\n", ""),
        ("cancel: { request: { reason: x } }\nexpectedEvents: [submitted: , cancelled: { reason: x }]\n", ""),
        ("cancelJobSet: { assertInactiveSucceeds: true }\nexpectedEvents: [submitted: , cancelled: ]\n", ""),
        (
            "triggerEvent: queued\nreprioritize: { request: { newPriority: 7 } }\n\
             expectedEvents: [submitted: , reprioritized: { newPriority: 7 }]\n",
            "",
        ),
        (
            "triggerEvent: queued\nreprioritize: { byJobSet: true, request: { newPriority: 7 } }\n\
             expectedEvents: [submitted: , reprioritized: { newPriority: 7 }]\nrandomClientId: true\n",
            "",
        ),
        (
            "timeout: 1s\nexpectedEvents: [submitted: , running: ]\n",
            "timeout after 1 s: 4 of 4 jobs wait for running (last seen: queued)",
        ),
        (
            "timeout: 1s\npreempt:  {}\nexpectedEvents: [submitted: , preempted: ]\n",
            "timeout after 1 s: preempt was not due: 0 of 4 jobs saw running; \
             4 of 4 jobs wait for preempted (last seen: queued)",
        ),
        ("timeout: 1s\ninterval: 1h\n", "timeout after 1 s, before all jobs were submitted"),
    ] {
        assert_eq!(fleet.told(&format!("{JOBS}---\n{says}")).await, outcome, "{says}");
    }
}

#[tokio::test]
async fn jobs_that_see_something_else_make_a_case_fail() {
    let fleet = fleet().await;
    let told = fleet.told(&format!("{JOBS}---\ncancel: {{}}\nexpectedEvents: [submitted: , succeeded: ]\n")).await;
    assert!(told.contains("ended with cancelled") && told.ends_with("before it saw succeeded"), "{told}");
    let refused = JOBS.replace("cpu: 1 }, requests", "cpu: 2 }, requests");
    let told = fleet.told(&refused).await;
    assert!(told.starts_with("SubmitJobs: InvalidArgument: "), "{told}");
}

#[tokio::test]
async fn without_a_number_of_batches_the_timeout_is_the_end() {
    let fleet = fleet().await;
    let endless = JOBS.replace("numBatches: 2", "interval: 10ms");
    assert_eq!(fleet.told(&format!("{endless}---\ntimeout: 1s\nexpectedEvents: [submitted: ]\n")).await, "");
    let told = fleet.told(&format!("{endless}---\ntimeout: 1s\nexpectedEvents: [running: ]\n")).await;
    assert!(told.starts_with("timeout after 1 s: "), "{told}");
}

#[tokio::test]
async fn queues_are_made_changed_looked_at_and_removed() {
    let fleet = fleet().await;
    let crud = |matches: &str| {
        format!(
            "queue: crud\n---\nqueueConfig:\n  setup: {{ numBatches: 2, batchSize: 2 }}\n  update: {{ cordoned: true }}\n  \
             assertions: [appearsInStream: true, matches: {{ cordoned: true, priorityFactor: {matches} }}, deleted: true]\n"
        )
    };
    assert_eq!(fleet.told(&crud("1")).await, "");
    let told = fleet.told(&crud("2")).await;
    assert!(told.starts_with("queue crud-") && told.ends_with(": priorityFactor is 1.0 instead of 2.0"), "{told}");
    let told = fleet.told("queue: crud\nqueueConfig: { assertions: [activeInPool: default] }\n").await;
    assert!(told.ends_with(": there is no pool default with active queues; pools: []"), "{told}");
    let told = fleet.told("queue: crud\nqueueConfig: { setup: { queueSpec: { priorityFactor: 0.5 } } }\n").await;
    assert!(told.starts_with("CreateQueue: InvalidArgument: priorityFactor: 0.5"), "{told}");
}

#[tokio::test]
async fn a_queue_with_jobs_is_removed_after_them() {
    let fleet = fleet().await;
    let text = format!("{JOBS}---\nexpectedEvents: [queued: ]\nqueueConfig: {{ assertions: [deleted: true] }}\n");
    let report = fleet.run(&text, &CancellationToken::new()).await;
    assert!(report.failure.is_none(), "{report:?}");
}

#[tokio::test]
async fn a_case_that_is_stopped_fails_and_leaves_nothing() {
    let fleet = fleet().await;
    let stop = CancellationToken::new();
    stop.cancel();
    let report = fleet.run(JOBS, &stop).await;
    assert_eq!(report.failure.map(|failure| failure.to_string()).as_deref(), Some("stopped before its end"));
    assert!(report.took < Duration::from_secs(60) && report.notes.is_empty());
}
