//! One run from its lease to its end: an API server of three kinds on one side, a server of one script on the other.

use std::convert::Infallible;
use std::sync::Mutex;

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use pumice_cluster::client_over;
use pumice_wire::executor::executors_server::{Executors, ExecutorsServer};
use pumice_wire::executor::{
    Acknowledge, Acknowledged, CordonNode, Errand, ErrandAnswer, ErrandAnswered, Lease, Leases, NodeCordoned, RunPhase,
    RunReport, Stop, StopRun, ToExecutor, Welcome, errand, errand_answer, to_executor,
};
use pumice_wire::kubernetes::PodSpec;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::*;
use pumice_testkit::grpc::serve;

const RUN: &str = "00000000000000000000000001-1";
const LIMIT: Duration = Duration::from_secs(60);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Pods, and who watches them.
struct Cluster {
    pods: Mutex<Vec<Value>>,
    changes: broadcast::Sender<(&'static str, Value)>,
}

impl Cluster {
    fn changed(&self, kind: &'static str, pod: Value) {
        // Nobody may watch yet: the list has it then.
        let _ = self.changes.send((kind, pod));
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        if query.contains("watch=") || query.contains("watch=true") {
            return self.watch(path == "/api/v1/pods");
        }
        let answer = match (parts.method, path.as_str()) {
            (Method::GET, "/api/v1/nodes") => json!({ "kind": "NodeList", "apiVersion": "v1",
                "metadata": { "resourceVersion": "1" },
                "items": [{ "metadata": { "name": "node-a" }, "status": { "allocatable": { "cpu": "4" } } }] }),
            (Method::GET, "/api/v1/pods") => json!({ "kind": "PodList", "apiVersion": "v1",
                "metadata": { "resourceVersion": "1" }, "items": *self.pods.lock().expect("whole") }),
            (Method::GET, path) if path.starts_with("/apis/batch.volcano.sh") => {
                // A stock cluster has no such kind.
                let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                    "reason": "NotFound", "message": "the server could not find the requested resource" });
                let missing = Response::builder().status(404).body(Full::new(Bytes::from(status.to_string())));
                return missing.expect("a response").map(BodyExt::boxed_unsync);
            }
            (Method::GET, _) => json!({ "kind": "EventList", "apiVersion": "v1",
                "metadata": { "resourceVersion": "1" }, "items": [] }),
            (Method::POST, _) => {
                let mut pod: Value = serde_json::from_slice(&body).expect("a pod");
                if let Some(class) = pod["spec"]["priorityClassName"].as_str() {
                    let message = format!("pods is forbidden: no PriorityClass with name {class} was found");
                    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                        "reason": "Forbidden", "message": message });
                    let refused = Response::builder().status(403).body(Full::new(Bytes::from(status.to_string())));
                    return refused.expect("a response").map(BodyExt::boxed_unsync);
                }
                pod["metadata"]["uid"] = json!("u");
                pod["metadata"]["resourceVersion"] = json!("2");
                pod["status"] = json!({ "phase": "Running" });
                self.pods.lock().expect("whole").push(pod.clone());
                self.changed("ADDED", pod.clone());
                pod
            }
            (Method::DELETE, _) => {
                let pod = self.pods.lock().expect("whole").pop().expect("a pod");
                self.changed("DELETED", pod.clone());
                pod
            }
            (Method::PATCH, "/api/v1/nodes/node-a") => json!({ "metadata": { "name": "node-a" } }),
            (method, path) => panic!("{method} {path}"),
        };
        Response::new(Full::new(Bytes::from(answer.to_string())).boxed_unsync())
    }

    fn watch(&self, of_pods: bool) -> Response<Body> {
        let changes = stream::unfold(self.changes.subscribe(), move |mut changes| async move {
            loop {
                let (kind, object) = changes.recv().await.ok()?;
                if of_pods {
                    let line = format!("{}\n", json!({ "type": kind, "object": object }));
                    return Some((Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(line))), changes));
                }
            }
        });
        Response::new(StreamBody::new(changes).boxed_unsync())
    }
}

fn cluster() -> (Arc<Cluster>, Client) {
    let cluster = Arc::new(Cluster { pods: Mutex::default(), changes: broadcast::channel(16).0 });
    let answering = Arc::clone(&cluster);
    let client = client_over(tower::service_fn(move |request| {
        let cluster = Arc::clone(&answering);
        async move { Ok::<_, Infallible>(cluster.answer(request).await) }
    }));
    (cluster, client)
}

/// Hands each session to the test, and answers to errands.
struct Server(Sender<Ends>, Sender<ErrandAnswer>);

type Ends = (Streaming<FromExecutor>, Sender<Result<ToExecutor, Status>>);

#[tonic::async_trait]
impl Executors for Server {
    type SessionStream = BoxStream<'static, Result<ToExecutor, Status>>;

    async fn session(
        &self,
        request: tonic::Request<Streaming<FromExecutor>>,
    ) -> Result<tonic::Response<Self::SessionStream>, Status> {
        let (sender, receiver) = channel(16);
        assert_eq!(request.metadata().get("authorization").expect("a token"), "Bearer secret");
        self.0.send((request.into_inner(), sender)).await.map_err(|_| Status::cancelled("the test is over"))?;
        let answers =
            stream::unfold(
                receiver,
                |mut receiver| async move { receiver.recv().await.map(|message| (message, receiver)) },
            );
        Ok(tonic::Response::new(answers.boxed()))
    }

    async fn answer(&self, request: tonic::Request<ErrandAnswer>) -> Result<tonic::Response<ErrandAnswered>, Status> {
        assert_eq!(request.metadata().get("authorization").expect("a token"), "Bearer secret");
        self.1.send(request.into_inner()).await.map_err(|_| Status::cancelled("the test is over"))?;
        Ok(tonic::Response::new(ErrandAnswered {}))
    }
}

struct Talk {
    from: Streaming<FromExecutor>,
    to: Sender<Result<ToExecutor, Status>>,
    sent: u64,
    seen: u64,
}

impl Talk {
    async fn next(&mut self) -> Message {
        let message = timeout(LIMIT, self.from.message()).await.expect("in time").expect("whole").expect("one more");
        self.seen += 1;
        assert_eq!(message.sequence, self.seen);
        message.message.expect("of this version")
    }

    /// The next report of that phase.
    async fn report(&mut self, phase: RunPhase) -> RunReport {
        loop {
            let Message::Runs(runs) = self.next().await else { continue };
            if let Some(report) = runs.reports.into_iter().find(|report| report.phase == phase as i32) {
                return report;
            }
        }
    }

    async fn say(&mut self, message: to_executor::Message) {
        self.sent += 1;
        let message = ToExecutor { sequence: self.sent, message: Some(message) };
        self.to.send(Ok(message)).await.expect("it listens");
    }

    async fn begin(&mut self) -> (usize, usize) {
        self.say(to_executor::Message::Welcome(Welcome { heartbeat_ms: 1000 })).await;
        let Message::Hello(hello) = self.next().await else { panic!("no hello") };
        assert_eq!((hello.executor.as_str(), hello.format_version), ("east", FORMAT));
        let Message::Nodes(nodes) = self.next().await else { panic!("no nodes") };
        let Message::Runs(runs) = self.next().await else { panic!("no runs") };
        assert!(nodes.complete && runs.complete);
        (nodes.nodes.len(), runs.reports.len())
    }
}

#[tokio::test]
async fn a_lease_becomes_a_pod_and_ends_over_two_sessions() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("bound");
    let (sessions, mut arriving) = channel(4);
    let (answers, mut answered) = channel(4);
    let mut tasks = serve(listener, ExecutorsServer::new(Server(sessions, answers)));
    let (cluster, client) = cluster();
    let options = Options {
        name: "east".to_owned(),
        servers: vec![format!("http://{address}")],
        tls: None,
        authorization: Some("Bearer secret".to_owned()),
        client,
        settings: Settings::default(),
    };
    let shutdown = CancellationToken::new();
    tasks.spawn(build(options).expect("builds").run(shutdown.clone()));

    let mut arrive = async || {
        let (from, to) = timeout(LIMIT, arriving.recv()).await.expect("in time").expect("a session");
        Talk { from, to, sent: 0, seen: 0 }
    };
    let mut talk = arrive().await;
    assert_eq!(talk.begin().await, (1, 0));
    // The cluster knows no classes; the pod is made all the same.
    let spec = json!({ "containers": [{ "name": "main", "image": "busybox" }], "priorityClassName": "armada-default" });
    let lease = Lease {
        run_id: RUN.to_owned(),
        namespace: "n".to_owned(),
        node: "node-a".to_owned(),
        pod_spec: Some(PodSpec::from_json(&spec).expect("encodes")),
        ..Lease::default()
    };
    talk.say(to_executor::Message::Leases(Leases { leases: vec![lease] })).await;
    let report = talk.report(RunPhase::Running).await;
    assert_eq!((report.pod_uid.as_str(), report.namespace.as_str()), ("u", "n"));
    assert_eq!(cluster.pods.lock().expect("whole").len(), 1);
    while !matches!(talk.next().await, Message::Heartbeat(Heartbeat { seen: 2, .. })) {}
    let cordon = CordonNode { node: "node-a".to_owned(), ..CordonNode::default() };
    let errand = Errand { errand_id: 7, limit_ms: 10_000, errand: Some(errand::Errand::CordonNode(cordon)) };
    talk.say(to_executor::Message::Errand(errand)).await;
    let answer = timeout(LIMIT, answered.recv()).await.expect("in time").expect("an answer");
    let cordoned = errand_answer::Answer::Cordoned(NodeCordoned {});
    assert_eq!(answer, ErrandAnswer { errand_id: 7, answer: Some(cordoned) });
    drop(talk);

    let mut talk = arrive().await;
    assert_eq!(talk.begin().await, (1, 1));
    let stop = StopRun { run_id: RUN.to_owned(), ..StopRun::default() };
    talk.say(to_executor::Message::Stop(Stop { runs: vec![stop] })).await;
    let gone = talk.report(RunPhase::Gone).await;
    assert!(cluster.pods.lock().expect("whole").is_empty());
    let known = Acknowledged { run_id: gone.run_id, phase: gone.phase };
    talk.say(to_executor::Message::Acknowledge(Acknowledge { runs: vec![known], seen: 0 })).await;
    shutdown.cancel();
    assert!(timeout(LIMIT, tasks.join_next()).await.expect("in time").expect("a task").is_ok());
}

#[tokio::test]
async fn addresses_and_tokens_that_cannot_be_used_are_refused() {
    let options = |server: &str, tls, token: Option<&str>| Options {
        name: "east".to_owned(),
        servers: vec![server.to_owned()],
        tls,
        authorization: token.map(str::to_owned),
        client: cluster().1,
        settings: Settings::default(),
    };
    for address in ["https://a", "a", "http://a b"] {
        assert!(matches!(build(options(address, None, None)), Err(BuildError::Address { .. })), "{address}");
    }
    assert!(matches!(build(options("http://a", None, Some("a\nb"))), Err(BuildError::Token)));
    let ca = pumice_auth::Ca::passing(jiff::Timestamp::constant(1_764_000_000, 0)).expect("an authority");
    let tls = || Some(Arc::new(pumice_auth::client_config(ca.pem(), None).expect("a client's side")));
    assert!(matches!(build(options("http://a", tls(), None)), Err(BuildError::Address { .. })));
    assert!(build(options("https://a", tls(), None)).is_ok());
}
