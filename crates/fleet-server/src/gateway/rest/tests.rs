//! Requests over plain HTTP to the services in process, over a log in SQLite.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use pumice_fleet_model::submission::Rules;
use pumice_ledger::TimeMs;
use pumice_wire::rest::{Answer, ROUTES};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::api::{Permission, Sources};
use crate::database::{Database, Location};
use crate::executor_commands::ExecutorCommands;

const DEADLINE: Duration = Duration::from_secs(20);
/// What this server answers of Armada's services.
const SERVED: [&str; 8] =
    ["api.Submit", POLICIES, "api.Event", "api.Jobs", "api.Executor", "api.Node", REPORTING, "binoculars.Binoculars"];

struct Home {
    api: Api,
    log: Arc<Database>,
    /// Of a server that does not lead.
    reports: Reports,
    binoculars: Binoculars,
    stopping: CancellationToken,
    _directory: tempfile::TempDir,
}

struct Answered {
    status: u16,
    headers: HeaderMap,
    /// Its lines.
    told: Vec<Value>,
}

async fn home() -> Home {
    let directory = tempfile::tempdir().unwrap();
    let log = Arc::new(Database::open(&Location::File(directory.path().join("fleet.db"))).await.unwrap());
    let drawn = AtomicU64::new(0);
    let sources = Sources {
        now: Box::new(|| TimeMs(1_764_000_000_000)),
        random: Box::new(move || u128::from(drawn.fetch_add(1, Ordering::Relaxed)) << 32),
    };
    let stopping = CancellationToken::new();
    let api = Api::new(log.clone(), Rules::default(), sources, stopping.clone());
    let reports = Reports::new(api.clone(), tokio::sync::mpsc::channel(1).0);
    let binoculars = Binoculars::new(api.clone(), ExecutorCommands::new(tokio::sync::mpsc::channel(1).0));
    Home { api, log, reports, binoculars, stopping, _directory: directory }
}

fn root() -> Option<Arc<Who>> {
    let permissions = Permission::ALL.iter().copied().collect();
    Some(Arc::new(Who { name: "root".to_owned(), permissions, ..Who::default() }))
}

fn request(method: &str, uri: &str, body: impl ToString) -> Request<Body> {
    Request::builder().method(method).uri(uri).body(Body::new(body.to_string())).unwrap()
}

/// An error, as its call's answer has it.
#[derive(Debug, PartialEq)]
struct Refused {
    /// The status of the answer.
    http: u16,
    /// The code that a client of gRPC would have.
    grpc: i64,
    message: String,
}

impl Home {
    /// What root is told.
    async fn ask(&self, method: &str, uri: &str, body: impl ToString) -> Answered {
        self.tell(root(), request(method, uri, body)).await
    }

    async fn tell(&self, who: Option<Arc<Who>>, request: Request<Body>) -> Answered {
        let (parts, body) = answer(&self.api, &self.reports, &self.binoculars, who, request).await.into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        let told = serde_json::Deserializer::from_slice(&text).into_iter().map(|line| line.unwrap()).collect();
        assert_eq!(parts.headers["content-type"], "application/json");
        Answered { status: parts.status.as_u16(), headers: parts.headers, told }
    }

    /// The one message of an answer.
    async fn told(&self, method: &str, uri: &str, body: Value) -> Value {
        let mut answered = self.ask(method, uri, body).await;
        assert_eq!((answered.status, answered.told.len()), (200, 1), "{method} {uri} {:?}", answered.told);
        answered.told.remove(0)
    }

    async fn refused(&self, method: &str, uri: &str, body: &str) -> Refused {
        let answered = self.ask(method, uri, body).await;
        let [told] = answered.told.as_slice() else { panic!("{:?}", answered.told) };
        assert_eq!(told["details"], json!([]));
        let message = told["message"].as_str().unwrap();
        Refused { http: answered.status, grpc: told["code"].as_i64().unwrap(), message: message.to_owned() }
    }
}

fn job(changes: Value) -> Value {
    let amounts = json!({ "cpu": "500m", "memory": "64Mi" });
    let containers = json!([{ "name": "main", "image": "busybox",
        "resources": { "requests": amounts, "limits": amounts } }]);
    let mut job = json!({ "namespace": "lab", "podSpecs": [{ "containers": containers }] });
    job.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    job
}

#[tokio::test]
async fn every_route_of_a_service_that_there_is_makes_its_call() {
    let home = home().await;
    for route in ROUTES {
        let method = format!("{:?}", route.method).to_uppercase();
        let uri = route.template.replace(['{', '}'], "");
        let answered = home.ask(&method, &uri, "").await;
        let told = &answered.told[0];
        let unserved = format!("this server has no {}:", route.service);
        let is_unserved = told["message"].as_str().is_some_and(|message| message.starts_with(&unserved));
        assert_eq!(!is_unserved, SERVED.contains(&route.service), "{route:?} {told}");
        let is_line = told.get("result").or(told.get("error")).is_some();
        if is_unserved {
            assert_eq!((answered.status, &told["code"]), (501, &json!(12)), "{route:?} {told}");
        } else {
            assert_eq!(is_line, route.answer == Answer::Stream, "{route:?} {told}");
        }
    }
}

#[tokio::test]
async fn queues_are_made_changed_told_and_removed() {
    let home = home().await;
    let queue = |name: &str, factor: f64| json!({ "name": name, "priorityFactor": factor });
    assert_eq!(home.told("POST", "/v1/queue", queue("a", 1.0)).await, json!({}));
    assert_eq!(home.told("PUT", "/v1/queue/a", queue("other", 2.0)).await, json!({}));
    assert_eq!(home.told("GET", "/v1/queue/a?name=b&x=1", json!(null)).await["priorityFactor"], 2.0);

    let list = json!({ "queues": [queue("a", 1.0), queue("b.c", 1.0)] });
    let failed = home.told("POST", "/v1/batched/create_queues", list).await;
    assert_eq!(failed["failedQueues"][0]["queue"]["name"], "a");
    let list = json!({ "queues": [queue("none", 1.0), queue("b.c", 3.0)] });
    let failed = home.told("PUT", "/v1/batched/update_queues", list).await;
    assert_eq!(failed["failedQueues"][0]["queue"]["name"], "none");
    assert_eq!(home.told("GET", "/v1/queue/b%2Ec", json!(null)).await["priority_factor"], Value::Null);
    assert_eq!(home.told("GET", "/v1/queue/b%2Ec", json!(null)).await["priorityFactor"], 3.0);

    let all = home.ask("GET", "/v1/batched/queues", "").await;
    let names: Vec<&Value> = all.told.iter().map(|line| &line["result"]["queue"]["name"]).collect();
    assert_eq!(names, [&json!("a"), &json!("b.c"), &Value::Null]);
    assert_eq!((all.status, &all.told[2]), (200, &json!({ "result": { "end": {} } })));
    assert_eq!(home.ask("GET", "/v1/batched/queues?num=1", "").await.told.len(), 2);

    assert_eq!(home.told("DELETE", "/v1/queue/a", json!(null)).await, json!({}));
    assert_eq!(home.ask("GET", "/v1/queue/a", "").await.status, 404);
    assert_eq!(home.told("POST", "/v1/queues/active", json!({})).await, json!({}));
}

#[tokio::test]
async fn reports_are_the_leaders_to_give() {
    let home = home().await;
    let job = format!("/v1/job/{}/scheduler-report", "0".repeat(26));
    let of_queue = "/v1/scheduling-report?mostRecentForQueue.queueName=q";
    for path in ["/v1/scheduling-report?verbosity=1", of_queue, "/v1/queue/q/scheduler-report", &job] {
        let Refused { http, grpc, message } = home.refused("GET", path, "").await;
        assert_eq!((http, grpc), (503, 14), "{path} {message}");
    }
    for path in ["/v1/job/mine/scheduler-report", "/v1/scheduling-report?mostRecentForJob.jobId=mine"] {
        let Refused { http, message, .. } = home.refused("GET", path, "").await;
        assert!(http == 400 && message.starts_with("jobId: "), "{path} {message}");
    }
}

#[tokio::test]
async fn what_is_beside_a_message_over_grpc_comes_in_headers() {
    let home = home().await;
    let mut asked = request("POST", "/v1/binoculars/log", json!({ "jobId": "0".repeat(26) }));
    asked.headers_mut().insert("Grpc-Metadata-Pumice-Log-Pod", "first".parse().unwrap());
    let told = home.tell(root(), asked).await;
    let message = told.told[0]["message"].as_str().unwrap();
    assert!(told.status == 400 && message.starts_with("pumice-log-pod: have the number"), "{message}");
}

#[tokio::test]
async fn executors_are_cordoned_and_let_go() {
    let home = home().await;
    let cordon = json!({ "cordoned": true, "cordonReason": "repair" });
    assert_eq!(home.told("PUT", "/v1/executor_settings/east", cordon).await, json!({}));
    let known = home.log.load().await.unwrap().executors;
    assert_eq!((known["east"].cordoned, known["east"].cordon_reason.as_str()), (true, "repair"));
    assert_eq!(home.told("DELETE", "/v1/executor_settings/east", json!({})).await, json!({}));
    assert!(home.log.load().await.unwrap().executors.is_empty());
    assert_eq!(home.told("POST", "/v1/executor/cancel/east", json!({ "pools": ["gpu"] })).await, json!({}));
    assert_eq!(home.told("POST", "/v1/node/preempt/n1", json!({ "executor": "east" })).await, json!({}));
    let refused = home.refused("POST", "/v1/node/cancel/n1", "{}").await;
    assert_eq!(refused, Refused { http: 400, grpc: 3, message: "executor: it is missing".to_owned() });
}

#[tokio::test]
async fn jobs_are_submitted_told_and_cancelled() {
    let home = home().await;
    home.told("POST", "/v1/queue", json!({ "name": "q", "priorityFactor": 1 })).await;
    let items = [job(json!({ "externalJobUri": "https://elsewhere" })), job(json!({ "unknown": [1] }))];
    // Both forms of a name are one.
    let submission = json!({ "queue": "q", "job_set_id": "a/b", "jobRequestItems": items });
    let submitted = home.told("POST", "/v1/job/submit", submission).await;
    let ids: Vec<&str> =
        submitted["jobResponseItems"].as_array().unwrap().iter().map(|item| item["jobId"].as_str().unwrap()).collect();
    let [one, two] = ids[..] else { panic!("{submitted}") };

    let states = home.told("POST", "/v1/job/status", json!({ "jobIds": [two] })).await;
    assert_eq!(states["jobStates"], json!({ two: "QUEUED" }));
    let by_uri = json!({ "queue": "q", "jobset": "a/b", "externalJobUri": "https://elsewhere" });
    let states = home.told("POST", "/v1/job/statusUsingExternalJobUri", by_uri).await;
    assert_eq!(states["jobStates"], json!({ one: "QUEUED" }));
    let details = home.told("POST", "/v1/job/details", json!({ "jobIds": [one], "expandJobSpec": true })).await;
    assert_eq!(details["jobDetails"][one]["jobSpec"]["owner"], "root");
    assert_eq!(home.told("POST", "/v1/job/errors", json!({ "jobIds": [one] })).await, json!({}));
    assert_eq!(home.told("POST", "/v1/run/details", json!({ "runIds": [format!("{one}-1")] })).await, json!({}));

    let of = json!({ "queue": "q", "jobSetId": "a/b", "jobIds": [one], "newPriority": 4 });
    assert_eq!(
        home.told("POST", "/v1/job/reprioritize", of.clone()).await["reprioritizationResults"],
        json!({ one: "" })
    );
    let preempted = home.told("POST", "/v1/job/preempt", of.clone()).await;
    assert_eq!(preempted, json!({ "preemptionResults": { one: "it waits, and has no node to leave" } }));
    assert_eq!(home.told("POST", "/v1/job/cancel", of).await, json!({ "cancelledIds": [one] }));
    let of_set = json!({ "queue": "q", "jobSetId": "a/b" });
    assert_eq!(home.told("POST", "/v1/jobset/cancel", of_set).await, json!({}));

    // What the path says counts more than what the body does.
    let told = home.ask("POST", "/v1/job-set/q/a%2Fb", json!({ "queue": "other", "id": "other" })).await.told;
    let kind = |line: &Value| line["result"]["message"].as_object().unwrap().keys().next().unwrap().clone();
    let kinds: Vec<String> = told.iter().map(kind).collect();
    assert_eq!(kinds[..4], ["submitted", "queued", "submitted", "queued"]);
    let from = json!({ "fromMessageId": told[1]["result"]["id"] });
    assert_eq!(home.ask("POST", "/v1/job-set/q/a%2Fb", from).await.told, told[2..]);
}

#[tokio::test]
async fn who_watches_is_told_at_once_and_why_it_ends() {
    let home = home().await;
    home.told("POST", "/v1/queue", json!({ "name": "q", "priorityFactor": 1 })).await;
    let watch = request("POST", "/v1/job-set/q/set", json!({ "watch": true }));
    let response = answer(&home.api, &home.reports, &home.binoculars, root(), watch).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let submission = json!({ "queue": "q", "jobSetId": "set", "jobRequestItems": [job(json!({}))] });
    home.told("POST", "/v1/job/submit", submission).await;
    let mut lines = Vec::new();
    while let Some(frame) = tokio::time::timeout(DEADLINE, body.frame()).await.expect("it comes in time") {
        let line = frame.unwrap().into_data().unwrap();
        assert!(line.ends_with(b"\n"));
        lines.push(serde_json::from_slice::<Value>(&line).unwrap());
        if lines.len() == 2 {
            home.stopping.cancel();
        }
    }
    assert_eq!((lines.len(), &lines[2]["error"]["code"]), (3, &json!(14)));
    assert!(lines[0]["result"]["message"]["submitted"].is_object());
}

#[tokio::test]
async fn requests_that_are_refused_say_why() {
    let home = home().await;
    for (method, uri, body, expected) in [
        ("GET", "/v1/nothing", "", (404, 5, "no call")),
        ("GET", "/", "", (404, 5, "no call")),
        ("GET", "/v1/job/submit", "", (501, 12, "no call has this method")),
        ("PATCH", "/v1/queue/a", "", (501, 12, "no call has this method")),
        ("POST", "/v1/job/submit", "{", (400, 3, "the body: EOF while parsing an object at line 1 column 1")),
        (
            "POST",
            "/v1/job/submit",
            "{\n \"queue\": 1}",
            (400, 3, "the body: invalid type: integer `1`, expected a string at line 2"),
        ),
        ("POST", "/v1/job/submit", "{} {}", (400, 3, "the body: trailing characters")),
        ("POST", "/v1/job/submit", "[]", (400, 3, "the body: invalid type")),
        ("POST", "/v1/job/submit", " \n", (400, 3, "queue: it is missing")),
        ("GET", "/v1/batched/queues?num=x", "", (400, 3, "the query: invalid digit")),
        ("GET", "/v1/queue/a", "", (404, 5, "there is no queue a")),
        ("GET", "/v1/retry-policy/a", "", (404, 5, "there is no retry policy a")),
        ("POST", "/v1/retry-policy", "{}", (400, 3, "defaultAction: it is neither")),
    ] {
        let Refused { http, grpc, message } = home.refused(method, uri, body).await;
        assert_eq!((http, grpc), (expected.0, expected.1), "{method} {uri} {message}");
        assert!(message.starts_with(expected.2), "{method} {uri} {message}");
    }
    // Of a call that streams, too, but as a line.
    let told = home.ask("POST", "/v1/job-set/none/set", "").await;
    let error = json!({ "code": 5, "message": "there is no queue none", "details": [] });
    assert_eq!((told.status, told.told), (404, vec![json!({ "error": error })]));
    let bob = Some(Arc::new(Who { name: "bob".to_owned(), ..Who::default() }));
    let told = home.tell(bob, request("POST", "/v1/queue", json!({ "name": "a", "priorityFactor": 1 }))).await;
    assert_eq!((told.status, &told.told[0]["code"]), (403, &json!(7)));
}

#[tokio::test]
async fn nobodys_body_is_not_read() {
    let home = home().await;
    let unread = stream::poll_fn(|_| -> std::task::Poll<Option<Result<Frame<Bytes>, std::fmt::Error>>> {
        panic!("it is read");
    });
    let request = Request::post("/v1/job/submit").body(Body::new(StreamBody::new(unread))).unwrap();
    let response = answer(&home.api, &home.reports, &home.binoculars, None, request).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let told = home.tell(None, self::request("GET", "/v1/queue/a", "")).await;
    assert_eq!((told.status, &told.told[0]["code"]), (401, &json!(16)));
    assert_eq!(told.headers["www-authenticate"], "Bearer");
}

#[tokio::test]
async fn bodies_are_not_endless() {
    let home = home().await;
    let chunk = Bytes::from_static(&[b' '; 1 << 20]);
    let endless = stream::repeat_with(move || Ok::<_, std::fmt::Error>(Frame::data(chunk.clone())));
    let request = Request::post("/v1/job/submit").body(Body::new(StreamBody::new(endless))).unwrap();
    let response = answer(&home.api, &home.reports, &home.binoculars, root(), request).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let told: Value = serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(told["code"], 8);
}
