//! The whole loop over a scripted API: lists, watches, binds and statuses, without a server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use pumice_cluster::client_over;
use pumice_scheduler::{Handle, Options};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

type Reply = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// Longest wait for anything; only a failing test takes it.
const DEADLINE: Duration = Duration::from_secs(20);

/// A write that the scheduler made.
#[derive(Debug, Clone)]
struct Write {
    method: Method,
    path: String,
    body: Value,
}

/// Objects by plural, open watches, and what to refuse.
#[derive(Default)]
struct Api {
    objects: HashMap<&'static str, Vec<Value>>,
    watches: HashMap<&'static str, Vec<mpsc::UnboundedSender<Value>>>,
    refuse_binds: usize,
    /// Answers to the next binds that decide nothing: the code of a gateway, or of a server without time.
    put_off_binds: Vec<u16>,
    /// API groups that are served.
    groups: Vec<&'static str>,
}

#[derive(Clone)]
struct Fake {
    api: Arc<Mutex<Api>>,
    writes: mpsc::UnboundedSender<Write>,
}

const PLURALS: &[&str] = &["nodes", "pods", "podgroups", "queues", "jobs", "priorityclasses"];

impl Fake {
    fn new() -> (Self, mpsc::UnboundedReceiver<Write>) {
        let (writes, written) = mpsc::unbounded_channel();
        (Self { api: Arc::default(), writes }, written)
    }

    /// An object as the watches are to show it.
    fn put(&self, plural: &'static str, object: Value) {
        let mut api = self.api.lock().expect("no test panicked holding it");
        let objects = api.objects.entry(plural).or_default();
        let same = |other: &Value| other["metadata"]["uid"] == object["metadata"]["uid"];
        let kind = if objects.iter().any(same) { "MODIFIED" } else { "ADDED" };
        objects.retain(|other| !same(other));
        objects.push(object.clone());
        for watch in api.watches.entry(plural).or_default() {
            let _ = watch.send(json!({"type": kind, "object": object}));
        }
    }

    async fn answer(self, request: Request<kube::client::Body>) -> Result<Response<Reply>, std::convert::Infallible> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let plural = PLURALS.iter().find(|plural| path.split('/').any(|part| part == **plural)).copied().unwrap_or("");
        if path == "/apis" {
            let groups = self.api.lock().expect("no test panicked holding it").groups.clone();
            let groups: Vec<Value> = groups.iter().map(|name| json!({"name": name, "versions": []})).collect();
            return Ok(reply(StatusCode::OK, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})));
        }
        if parts.method == Method::GET {
            let watch = parts.uri.query().unwrap_or_default().contains("watch=true");
            return Ok(if watch { self.watch(plural) } else { self.list(plural) });
        }
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let write = Write { method: parts.method, path, body };
        let is_bind = write.path.ends_with("/binding");
        let refused = is_bind && {
            let mut api = self.api.lock().expect("no test panicked holding it");
            let refuse = api.refuse_binds > 0;
            api.refuse_binds = api.refuse_binds.saturating_sub(1);
            refuse
        };
        let put_off =
            if is_bind { self.api.lock().expect("no test panicked holding it").put_off_binds.pop() } else { None };
        let answer = write.body.clone();
        let _ = self.writes.send(write);
        if refused {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "no", "reason": "Forbidden", "code": 403});
            return Ok(reply(StatusCode::FORBIDDEN, &status));
        }
        if let Some(code) = put_off {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "not now", "reason": "Timeout", "code": code});
            return Ok(reply(StatusCode::from_u16(code).expect("a code of HTTP"), &status));
        }
        let object = if is_bind { json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}) } else { answer };
        Ok(reply(StatusCode::OK, &object))
    }

    fn list(&self, plural: &str) -> Response<Reply> {
        let items =
            self.api.lock().expect("no test panicked holding it").objects.get(plural).cloned().unwrap_or_default();
        reply(
            StatusCode::OK,
            &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
        )
    }

    fn watch(&self, plural: &'static str) -> Response<Reply> {
        let (sender, receiver) = mpsc::unbounded_channel::<Value>();
        self.api.lock().expect("no test panicked holding it").watches.entry(plural).or_default().push(sender);
        let lines = futures::stream::unfold(receiver, |mut receiver| async move {
            let event = receiver.recv().await?;
            Some((Ok(http_body::Frame::data(Bytes::from(format!("{event}\n")))), receiver))
        });
        Response::new(StreamBody::new(lines.boxed()).boxed_unsync())
    }
}

fn reply(code: StatusCode, body: &Value) -> Response<Reply> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = code;
    response
}

fn node(cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "node", "resourceVersion": "1"},
        "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "110"}}})
}

fn queue() -> Value {
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
        "metadata": {"name": "default", "uid": "q", "resourceVersion": "1"}, "spec": {"weight": 1}})
}

fn group(min: u32) -> Value {
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ns", "uid": "g", "resourceVersion": "1"},
        "spec": {"minMember": min, "queue": "default"}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
            "annotations": {"scheduling.k8s.io/group-name": "g"}},
        "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"}})
}

/// Runs the scheduler beside `story`, to the story's end.
async fn beside(fake: Fake, story: impl AsyncFnOnce(Handle)) {
    let scheduler = Options::new(client_over(service(fake))).build().expect("the built-in configuration is good");
    let handle = scheduler.handle();
    let shutdown = CancellationToken::new();
    let run = scheduler.run(shutdown.clone());
    let story = async {
        tokio::time::timeout(DEADLINE, story(handle)).await.expect("in time");
        shutdown.cancel();
    };
    let (result, ()) = tokio::join!(run, story);
    result.expect("the scheduler goes on until it is told to stop");
}

fn service(
    fake: Fake,
) -> impl tower::Service<
    Request<kube::client::Body>,
    Response = Response<Reply>,
    Error = std::convert::Infallible,
    Future = futures::future::BoxFuture<'static, Result<Response<Reply>, std::convert::Infallible>>,
> + Send
+ 'static {
    tower::service_fn(move |request| -> futures::future::BoxFuture<'static, _> {
        Box::pin(fake.clone().answer(request))
    })
}

/// The next write that `wanted` takes; others are passed over.
async fn next(written: &mut mpsc::UnboundedReceiver<Write>, wanted: impl Fn(&Write) -> bool) -> Write {
    loop {
        let write = written.recv().await.expect("the scheduler is alive");
        if wanted(&write) {
            return write;
        }
    }
}

fn is_bind(write: &Write) -> bool {
    write.path.ends_with("/binding")
}

fn is_group(write: &Write) -> bool {
    write.path.ends_with("/namespaces/ns/podgroups/g")
}

#[tokio::test]
async fn a_gang_is_admitted_waits_with_a_reason_and_is_bound_when_there_is_room() {
    let (fake, mut written) = Fake::new();
    fake.put("nodes", node("1"));
    fake.put("queues", queue());
    fake.put("podgroups", group(2));
    let world = fake.clone();
    beside(fake, async move |handle| {
        // Nothing known of its pods: it is let in, so that they are made.
        let write = next(&mut written, is_group).await;
        assert_eq!(write.method, Method::PATCH);
        assert_eq!(write.body["status"]["phase"], "Inqueue");
        assert_eq!(write.body["metadata"]["uid"], "g");
        world.put("pods", pod("p-0"));
        world.put("pods", pod("p-1"));
        let write = next(&mut written, |write| write.path.ends_with("/pods/p-0/status")).await;
        let condition = &write.body["status"]["conditions"][0];
        assert_eq!(
            (condition["type"].as_str(), condition["reason"].as_str()),
            (Some("PodScheduled"), Some("Unschedulable"))
        );
        let waiting = handle.why("ns", "g").expect("it waits");
        assert!(waiting.why.to_string().starts_with("room for 1 of 2 pods; 0/1 nodes fit the next one"), "{waiting:?}");
        assert_eq!((waiting.why.could.len(), waiting.why.line.as_ref().map(|line| line.ahead)), (2, Some(0)));
        let listed = handle.list(None);
        assert_eq!(listed.iter().map(|one| &one.why.reasons).collect::<Vec<_>>(), [&waiting.why.reasons]);
        world.put("nodes", node("2"));
        let mut bound = [next(&mut written, is_bind).await.path, next(&mut written, is_bind).await.path];
        bound.sort();
        assert_eq!(bound, ["p-0", "p-1"].map(|name| format!("/api/v1/namespaces/ns/pods/{name}/binding")));
        let running = |write: &Write| is_group(write) && write.body["status"]["phase"] == "Running";
        next(&mut written, running).await;
        assert_eq!(handle.why("ns", "g"), None);
    })
    .await;
}

#[tokio::test]
async fn a_refused_bind_is_tried_again() {
    let (fake, mut written) = Fake::new();
    fake.api.lock().expect("no test panicked holding it").refuse_binds = 1;
    fake.put("nodes", node("1"));
    fake.put("queues", queue());
    fake.put("podgroups", group(1));
    fake.put("pods", pod("p-0"));
    beside(fake, async move |handle| {
        let first = next(&mut written, is_bind).await;
        let refused = async {
            loop {
                if let Some(waiting) = handle.why("ns", "g")
                    && waiting.why.to_string().contains("could not be bound")
                {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        refused.await;
        let second = next(&mut written, is_bind).await;
        assert_eq!(first.body, second.body);
        assert_eq!(second.body["target"]["name"], "n");
    })
    .await;
}

// INV-16
#[tokio::test]
async fn a_bind_that_was_not_decided_on_keeps_its_room_and_is_asked_again() {
    let (fake, mut written) = Fake::new();
    fake.api.lock().expect("no test panicked holding it").put_off_binds = vec![504, 429];
    fake.put("nodes", node("1"));
    fake.put("queues", queue());
    fake.put("podgroups", group(1));
    fake.put("pods", pod("p-0"));
    fake.put("pods", pod("p-1"));
    beside(fake, async move |_| {
        let first = next(&mut written, is_bind).await;
        for _ in 0..2 {
            let again = next(&mut written, is_bind).await;
            assert_eq!(first.path, again.path, "the node has room for one");
            assert_eq!(first.body, again.body);
        }
    })
    .await;
}

#[tokio::test]
async fn the_first_queues_are_made() {
    let (fake, mut written) = Fake::new();
    beside(fake, async move |_| {
        let is_queue = |write: &Write| write.method == Method::POST && write.path.ends_with("/queues");
        let names = [next(&mut written, is_queue).await, next(&mut written, is_queue).await];
        let names = names.map(|write| write.body["metadata"]["name"].as_str().map(str::to_owned));
        assert_eq!(names, [Some("root".to_owned()), Some("default".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn a_queue_is_told_that_nothing_reads_what_it_deserves() {
    let (fake, mut written) = Fake::new();
    let mut queue = queue();
    queue["spec"]["deserved"] = json!({"cpu": "24"});
    fake.put("queues", queue);
    beside(fake, async move |_| {
        let event = next(&mut written, |write| write.path.ends_with("/namespaces/default/events")).await.body;
        assert_eq!((event["reason"].as_str(), event["type"].as_str()), (Some("NoEffect"), Some("Warning")));
        assert_eq!(event["involvedObject"]["kind"], "Queue");
        assert!(
            event["message"].as_str().is_some_and(|text| text.starts_with("spec.deserved has no effect")),
            "{event}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_gang_that_no_node_fits_is_admitted_where_an_autoscaler_is_served() {
    let (fake, mut written) = Fake::new();
    fake.api.lock().expect("no test panicked holding it").groups = vec!["apps", "karpenter.sh"];
    fake.put("nodes", node("1m"));
    fake.put("queues", queue());
    fake.put("podgroups", group(1));
    fake.put("pods", pod("p-0"));
    beside(fake, async move |handle| {
        next(&mut written, |write| is_group(write) && write.body["status"]["phase"] == "Inqueue").await;
        let why = handle.why("ns", "g").expect("it waits").why.to_string();
        assert!(why.contains("its pods are there for an autoscaler to see"), "{why}");
    })
    .await;
}
