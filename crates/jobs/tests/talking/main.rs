//! Watches, logs and commands against an API that answers by a script: what it says, when it hangs up.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod marked;
mod verbs;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use pumice_jobs::explain::why;
use pumice_jobs::job::{JobRef, idempotency};
use pumice_jobs::logs::{Attempt, JobLogs, LogOptions, LogStream, Pieces};
use pumice_jobs::manifest::Object;
use pumice_jobs::monitor::{RunEvent, RunMonitor};
use pumice_jobs::platform::next_command;
use pumice_jobs::submit::{self, Effect};
use pumice_jobs::{Connection, Exit};
use serde_json::{Value, json};

/// What the API does with one request.
enum Answer {
    /// Answers with a status and a JSON body.
    Json(u16, Value),
    /// Sends pieces, then ends the body properly.
    Pieces(Vec<String>),
    /// Sends pieces, then breaks the connection.
    Cut(Vec<String>),
    /// Sends pieces and never ends.
    Open(Vec<String>),
    /// Doesn't answer at all.
    Refuse,
}

/// A scripted body.
type Sent = StreamBody<BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>>;

/// A part of a path and what is answered to requests that contain it.
type Step = (&'static str, VecDeque<Answer>);

/// Requests expected for paths that contain a text, in their order, and the answers.
#[derive(Clone, Default)]
struct Script {
    steps: Arc<Mutex<Vec<Step>>>,
    seen: Arc<Mutex<Vec<String>>>,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Script {
    fn on(self, path: &'static str, answers: impl IntoIterator<Item = Answer>) -> Self {
        self.steps.lock().unwrap().push((path, answers.into_iter().collect()));
        self
    }

    fn connection(&self) -> Connection {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move { script.answer(request).await }
        });
        Connection::with_client(kube::Client::new(service, "default"), "default")
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Sent>, std::io::Error> {
        let line = format!("{} {}", request.method(), request.uri());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        if let Ok(body) = serde_json::from_slice(&body) {
            self.bodies.lock().unwrap().push(body);
        }
        self.seen.lock().unwrap().push(line.clone());
        let answer = {
            let mut steps = self.steps.lock().unwrap();
            let step = steps.iter_mut().find(|(path, answers)| line.contains(path) && !answers.is_empty());
            step.and_then(|(_, answers)| answers.pop_front())
        };
        let (code, pieces, after) = match answer.unwrap_or_else(|| panic!("not in the script: {line}")) {
            Answer::Json(code, value) => (code, vec![value.to_string()], stream::empty().boxed()),
            Answer::Pieces(pieces) => (200, pieces, stream::empty().boxed()),
            Answer::Cut(pieces) => (200, pieces, stream::iter([Err(std::io::Error::other("cut"))]).boxed()),
            Answer::Open(pieces) => (200, pieces, stream::pending().boxed()),
            Answer::Refuse => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
        };
        let frames = stream::iter(pieces).map(|piece| Ok(Frame::data(Bytes::from(piece)))).chain(after);
        Ok(Response::builder().status(code).body(StreamBody::new(frames.boxed())).unwrap())
    }
}

fn job(revision: u32, phase: &str, running: i32) -> Value {
    json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
           "metadata": {"name": "j", "namespace": "default", "uid": "u", "resourceVersion": revision.to_string()},
           "spec": {"tasks": [{"name": "t", "replicas": 1}]},
           "status": {"state": {"phase": phase}, "running": running}})
}

fn pod(revision: u32, phase: &str, state: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": "j-t-0", "namespace": "default", "uid": "p", "resourceVersion": revision.to_string()},
           "status": {"phase": phase, "containerStatuses": [
               {"name": "t", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]}})
}

fn list(revision: u32, items: Vec<Value>) -> Answer {
    Answer::Json(200, json!({"metadata": {"resourceVersion": revision.to_string()}, "items": items}))
}

fn event(kind: &str, object: Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn status(code: u16, reason: &str) -> Answer {
    let value = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                       "message": format!("{reason} happened"), "reason": reason, "code": code});
    Answer::Json(code, value)
}

fn job_ref() -> JobRef {
    JobRef { namespace: "default".into(), name: "j".into() }
}

fn words(event: &RunEvent) -> String {
    match event {
        RunEvent::State(job) => format!("{} {}", job.status.state.phase.as_ref().unwrap(), job.status.running),
        RunEvent::Log(piece) => format!("log {}", String::from_utf8_lossy(&piece.text)),
        RunEvent::Waits(why) => format!("waits: {}", why.one_line()),
        RunEvent::LogsLost(error) => format!("logs lost: {error}"),
        RunEvent::Lost(_) => "lost".to_owned(),
        RunEvent::Back => "back".to_owned(),
        RunEvent::Ended(ending) => format!("ended {:?} {}", ending.end, ending.failures.len()),
    }
}

async fn attend(script: &Script, logs: Option<LogOptions>) -> Vec<String> {
    let mut attendance = RunMonitor::new(script.connection(), job_ref(), logs);
    let mut told = Vec::new();
    loop {
        match attendance.next().await {
            Ok(event) => {
                told.push(words(&event));
                if matches!(event, RunEvent::Ended(_)) {
                    return told;
                }
            }
            Err(error) => {
                told.push(format!("error {}", error.exit().code()));
                return told;
            }
        }
    }
}

#[tokio::test]
async fn a_job_is_followed_through_an_outage() {
    let script = Script::default().on("/jobs?limit", [list(5, vec![job(5, "Pending", 1)])]).on(
        "/jobs?watch",
        [
            Answer::Cut(vec![event("MODIFIED", job(7, "Running", 1))]),
            Answer::Refuse,
            Answer::Refuse,
            status(503, "ServiceUnavailable"),
            Answer::Open(vec![event("MODIFIED", job(9, "Completed", 0))]),
        ],
    );
    assert_eq!(
        attend(&script, None).await,
        ["Pending 1", "Running 1", "lost", "back", "Completed 0", "ended Completed 0"]
    );
    let seen = script.seen.lock().unwrap();
    let from =
        |line: &String| line.split("resourceVersion=").nth(1).map(|rest| rest.split('&').next().unwrap().to_owned());
    let revisions: Vec<_> = seen.iter().filter_map(from).collect();
    assert_eq!(revisions, ["5", "7", "7", "7", "7"], "it goes on from what it saw last");
}

#[tokio::test]
async fn a_forgotten_revision_lists_anew_and_a_missing_job_is_deleted() {
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    let script = Script::default()
        .on("/jobs?limit", [list(5, vec![job(5, "Pending", 1)]), list(90, vec![])])
        .on("/jobs?watch", [Answer::Open(vec![event("ERROR", gone)])]);
    assert_eq!(attend(&script, None).await, ["Pending 1", "ended Deleted 0"]);
}

#[tokio::test]
async fn another_job_of_the_same_name_is_not_followed() {
    let mut other = job(8, "Running", 1);
    other["metadata"]["uid"] = json!("v");
    let script = Script::default()
        .on("/jobs?limit", [list(5, vec![job(5, "Running", 1)])])
        .on("/jobs?watch", [Answer::Open(vec![event("ADDED", other)])]);
    assert_eq!(attend(&script, None).await, ["Running 1", "ended Deleted 0"]);
}

#[tokio::test]
async fn refusals_end_the_wait_with_their_code() {
    for (answer, wanted) in
        [(status(403, "Forbidden"), "error 4"), (status(404, "NotFound"), "error 3"), (list(1, vec![]), "error 3")]
    {
        let script = Script::default().on("/jobs?limit", [answer]);
        assert_eq!(attend(&script, None).await, [wanted]);
    }
}

/// A log that is cut in the middle of a line, refused once, and then given whole.
fn cut_log() -> [Answer; 3] {
    [Answer::Cut(vec!["one\nt".into()]), Answer::Refuse, Answer::Pieces(vec!["one\ntw".into(), "o\nthree".into()])]
}

#[tokio::test]
async fn lines_come_before_the_end() {
    let ended = || pod(8, "Failed", json!({"terminated": {"exitCode": 3, "reason": "Error"}}));
    // How often pods are looked at depends on who is first; each look finds the same.
    let looks = [(); 4].map(|()| list(9, vec![ended()]));
    let script = Script::default()
        .on("/jobs?limit", [list(5, vec![job(5, "Running", 1)])])
        .on("/jobs?watch", [Answer::Open(vec![event("MODIFIED", job(9, "Failed", 0))])])
        .on("/pods?limit", looks)
        .on("/pods?watch", [Answer::Open(vec![])])
        .on("/pods/j-t-0/log", cut_log());
    let lines = LogOptions { follow: true, pieces: Some(Pieces::Lines), ..LogOptions::default() };
    let told = attend(&script, Some(lines)).await;
    let lines: Vec<_> = told.iter().filter(|line| line.starts_with("log ")).collect();
    assert_eq!(lines, ["log one", "log two", "log three"], "{told:?}");
    assert_eq!(told.last().unwrap(), "ended Failed 1");
}

#[tokio::test]
async fn new_pods_are_followed_and_lines_come_once_across_a_cut() {
    let waiting = pod(6, "Pending", json!({"waiting": {}}));
    let running = pod(7, "Running", json!({"running": {}}));
    let ended = pod(8, "Succeeded", json!({"terminated": {"exitCode": 0}}));
    let script = Script::default()
        .on("/pods?limit", [list(5, vec![]), list(9, vec![ended.clone()])])
        .on(
            "/pods?watch",
            [Answer::Open(vec![event("ADDED", waiting), event("MODIFIED", running), event("MODIFIED", ended)])],
        )
        .on("/pods/j-t-0/log", cut_log());
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let mut logs = JobLogs::new(script.connection(), job_ref(), options);
    let mut lines = Vec::new();
    while lines.len() < 3 {
        lines.push(String::from_utf8(logs.next().await.unwrap().unwrap().text).unwrap());
    }
    logs.job_ended();
    assert!(logs.next().await.is_none(), "the last look finds nothing new");
    assert_eq!(lines, ["one", "two", "three"]);
}

#[tokio::test]
async fn the_pods_of_a_huge_job_are_not_listed() {
    let mut huge = job(5, "Completed", 0);
    huge["spec"]["tasks"][0]["replicas"] = json!(300_000);
    let script = Script::default().on("/jobs?limit", [list(5, vec![huge])]);
    let told = attend(&script, Some(LogOptions { follow: true, ..LogOptions::default() })).await;
    assert_eq!(told, ["Completed 0", "ended Completed 0"]);
    assert!(script.seen.lock().unwrap().iter().all(|line| !line.contains("/pods")));
}

#[tokio::test]
async fn logs_up_to_now_and_long_lines() {
    let long = "x".repeat(100_000);
    let script = Script::default()
        .on("/pods?limit", [list(9, vec![pod(8, "Succeeded", json!({"terminated": {"exitCode": 0}}))])])
        .on("/pods/j-t-0/log", [Answer::Pieces(vec!["a\n\n".into(), long.clone(), "\nend\n".into()])]);
    let options = LogOptions { tail_lines: Some(3), ..LogOptions::default() };
    let mut logs = JobLogs::new(script.connection(), job_ref(), options);
    let mut lengths = Vec::new();
    while let Some(line) = logs.next().await {
        lengths.push(line.unwrap().text.len());
    }
    assert_eq!(lengths, [1, 0, 100_000, 3]);
    let seen = script.seen.lock().unwrap();
    assert!(seen[1].contains("follow=false") && seen[1].contains("tailLines=3"), "{seen:?}");
}

#[tokio::test]
async fn bytes_of_one_pod_come_as_they_are_written_and_once_across_a_cut() {
    let running = pod(7, "Running", json!({"running": {}}));
    let script = Script::default()
        .on("/jobs?limit", [list(5, vec![job(5, "Running", 1)])])
        .on("/jobs?watch", [Answer::Open(vec![])])
        .on("/pods?limit", [list(5, vec![running])])
        .on("/pods?watch", [Answer::Open(vec![])])
        .on(
            "/pods/j-t-0/log",
            [Answer::Cut(vec!["\r 10%".into(), "\r 20%".into()]), Answer::Open(vec!["\r 10%\r 20%\r 30%".into()])],
        );
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let mut attendance = RunMonitor::new(script.connection(), job_ref(), Some(options));
    let mut written = String::new();
    while written.len() < 15 {
        if let RunEvent::Log(piece) = attendance.next().await.unwrap() {
            written.push_str(std::str::from_utf8(&piece.text).unwrap());
        }
    }
    assert_eq!(written, "\r 10%\r 20%\r 30%");
}

/// What nodes retain of the job's one pod: two attempts.
fn retained() -> Answer {
    let pod = |uid: &str, attempt: u32| {
        json!({"pod": "j-t-0", "uid": uid, "node": "n1", "owner": "u", "namespace": "default", "attempt": attempt,
               "removedAt": "2026-01-01T00:00:00Z", "runs": [{"container": "t", "restart": 0, "bytes": 4}]})
    };
    Answer::Json(200, json!({"kind": "RetainedLogs", "pods": [pod("u1", 1), pod("u2", 2)], "silentNodes": []}))
}

#[tokio::test]
async fn logs_of_pods_that_are_gone_are_read_where_nodes_retain_them() {
    for (attempt, there, uid) in [
        (Attempt::Latest, false, "u2"),
        (Attempt::Previous, false, "u1"),
        (Attempt::Number(1), false, "u1"),
        (Attempt::Previous, true, "u2"),
    ] {
        let pods = if there { vec![pod(8, "Running", json!({"running": {}}))] } else { vec![] };
        let log = ["log?node=n1&uid=u1&container=t&restart=0", "log?node=n1&uid=u2&container=t&restart=0"];
        let script = Script::default()
            .on("/pods?limit", [list(9, pods)])
            .on(log[0], [Answer::Pieces(vec!["u1\n".into()])])
            .on(log[1], [Answer::Pieces(vec!["u2\n".into()])])
            .on("/apis/logs.pumice.sh/v1alpha1/namespaces/default/jobs/j", [retained()]);
        let options = LogOptions { attempt, pods_total: 1, stream: Some(LogStream::Stderr), ..LogOptions::default() };
        let mut logs = JobLogs::new(script.connection(), job_ref(), options);
        let line = logs.next().await.unwrap().unwrap();
        assert_eq!((line.text.as_slice(), line.pod.as_str()), (uid.as_bytes(), "j-t-0"), "{attempt:?} {there}");
        assert!(logs.next().await.is_none());
        assert_eq!(logs.gone_seen().len(), 1);
        assert!(script.seen.lock().unwrap().last().unwrap().contains("&stream=Stderr"));
    }
}

#[tokio::test]
async fn a_log_that_is_set_aside_a_moment_later_is_found() {
    let nothing = Answer::Json(200, json!({"kind": "RetainedLogs", "pods": [], "silentNodes": []}));
    let script = Script::default()
        .on("/pods?limit", [list(9, vec![])])
        .on("uid=u2", [Answer::Pieces(vec!["u2\n".into()])])
        .on("/apis/logs.pumice.sh/v1alpha1/namespaces/default/jobs/j", [nothing, retained()]);
    let options = LogOptions { pods_total: 1, ..LogOptions::default() };
    let mut logs = JobLogs::new(script.connection(), job_ref(), options);
    assert_eq!(logs.next().await.unwrap().unwrap().text, b"u2");
}

#[tokio::test]
async fn a_kubernetes_without_such_logs_has_none() {
    for answer in [status(404, "NotFound"), status(403, "Forbidden")] {
        let script = Script::default().on("/pods?limit", [list(9, vec![])]).on("/apis/logs.pumice.sh", [answer]);
        let options = LogOptions { pods_total: 1, ..LogOptions::default() };
        let mut logs = JobLogs::new(script.connection(), job_ref(), options);
        assert!(logs.next().await.is_none());
        assert!(logs.retained().is_none() && logs.pods_seen() == 0);
    }
}

#[tokio::test]
async fn logs_up_to_now_come_by_task_and_index() {
    let of = |task: &str, index: u32| {
        let mut pod = pod(8, "Failed", json!({"terminated": {"exitCode": 1}}));
        pod["metadata"]["name"] = json!(format!("j-{task}-{index}"));
        pod["metadata"]["labels"] = json!({"volcano.sh/task-spec": task, "volcano.sh/task-index": index.to_string()});
        pod
    };
    let pods = vec![of("b", 0), of("a", 10), of("a", 9), of("a", 2)];
    let mut script = Script::default().on("/pods?limit", [list(9, pods)]);
    for path in ["/pods/j-b-0/log", "/pods/j-a-10/log", "/pods/j-a-9/log", "/pods/j-a-2/log"] {
        script = script.on(path, [Answer::Pieces(vec!["one\n".into(), "two\n".into()])]);
    }
    let mut logs = JobLogs::new(script.connection(), job_ref(), LogOptions::default());
    let mut lines = Vec::new();
    while let Some(line) = logs.next().await {
        let line = line.unwrap();
        lines.push(format!("{} {}", line.pod, String::from_utf8(line.text).unwrap()));
    }
    let wanted = ["j-a-2", "j-a-9", "j-a-10", "j-b-0"].map(|pod| [format!("{pod} one"), format!("{pod} two")]);
    assert_eq!(lines, wanted.concat());
    assert_eq!(logs.pods_seen(), 4);
}

#[tokio::test]
async fn a_waiting_job_is_asked_why() {
    let why =
        Answer::Json(200, json!({"stage": "Pending", "reasons": [{"a": 1}], "text": "no cpu at all\n└─ its details"}));
    let script = Script::default()
        .on("/jobs?limit", [list(5, vec![job(5, "Pending", 0)])])
        .on("/why.pumice.sh/v1alpha1/namespaces/default/jobs/j", [why])
        .on("/jobs?watch", [Answer::Open(vec![])]);
    let mut attendance = RunMonitor::new(script.connection(), job_ref(), None);
    let told = [words(&attendance.next().await.unwrap()), words(&attendance.next().await.unwrap())];
    assert_eq!(told, ["Pending 0", "waits: no cpu at all"]);
}

#[tokio::test]
async fn who_asks_why_at_once_gets_the_first_word() {
    let said = || Answer::Json(200, json!({"stage": "Allocate", "reasons": [{"a": 1}], "text": "no cpu at all"}));
    let unseen = || status(404, "NotFound");
    let job = || Answer::Json(200, job(5, "Pending", 0));
    let group = Answer::Json(200, json!({"status": {"phase": "Pending"}}));
    let script = Script::default()
        .on("/why.pumice.sh/", [unseen(), unseen(), said()])
        .on("/jobs/j", [job(), job()])
        .on("/podgroups/", [unseen(), group])
        .on("/pods?", [list(5, vec![])]);
    let why = why::fetch_first_word(&script.connection(), &job_ref()).await.unwrap();
    assert_eq!((why.stage.as_str(), why.text.as_str()), ("Allocate", "no cpu at all"), "{:?}", script.seen);
}

#[tokio::test]
async fn a_word_that_never_comes_is_not_waited_for_long() {
    let repeated = |answer: &dyn Fn() -> Answer| (0..40).map(|_| answer()).collect::<Vec<_>>();
    let script = Script::default()
        .on("/why.pumice.sh/", repeated(&|| status(404, "NotFound")))
        .on("/jobs/j", repeated(&|| Answer::Json(200, job(5, "Pending", 0))))
        .on("/podgroups/", repeated(&|| status(404, "NotFound")));
    let why = why::fetch_first_word(&script.connection(), &job_ref()).await.unwrap();
    assert_eq!(why.text, "the job controller has not made the job's group yet");
}

fn object(body: Value) -> Object {
    Object { body, origin: "f:1".into() }
}

#[tokio::test]
async fn jobs_are_created_and_settings_brought_up_to_date() {
    let queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
                       "metadata": {"name": "q"}, "spec": {"weight": 2}});
    let stored = |revision: &str| {
        Answer::Json(200, json!({"kind": "Queue", "metadata": {"name": "q", "resourceVersion": revision}}))
    };
    let resources = json!({"resources": [{"name": "queues", "kind": "Queue", "namespaced": false}]});
    let script = Script::default()
        .on(
            "POST /apis/scheduling.volcano.sh/v1beta1/queues?",
            [status(409, "AlreadyExists"), status(409, "AlreadyExists")],
        )
        .on("GET /apis/scheduling.volcano.sh/v1beta1/queues/q", [stored("1"), stored("2")])
        .on("PATCH /apis/scheduling.volcano.sh/v1beta1/queues/q?", [stored("2"), stored("2")])
        .on("GET /apis/scheduling.volcano.sh/v1beta1", [Answer::Json(200, resources)])
        .on("POST /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs?", [Answer::Json(201, job(1, "", 0))]);
    let objects = [object(queue.clone()), object(queue), object(job(0, "", 0))];
    let mut told = Vec::new();
    let done = submit::submit(&script.connection(), &objects, |one| told.push((one.reference(), one.effect))).await;
    assert_eq!(done.unwrap()[2].job(), Some(job_ref()));
    assert_eq!(
        told,
        [
            ("queue/q".to_owned(), Effect::Configured),
            ("queue/q".to_owned(), Effect::Unchanged),
            ("job/j".to_owned(), Effect::Created)
        ]
    );
}

#[tokio::test]
async fn refused_objects_say_where_and_which_code() {
    for (code, reason, exit) in [
        (409, "AlreadyExists", Exit::Conflict),
        (403, "Forbidden", Exit::Denied),
        (422, "Invalid", Exit::Usage),
        (503, "ServiceUnavailable", Exit::Unreachable),
    ] {
        let script = Script::default().on("POST ", [status(code, reason)]);
        let error = submit::submit(&script.connection(), &[object(job(0, "", 0))], |_| {}).await.unwrap_err();
        let error = pumice_jobs::Error::from(error);
        assert_eq!(error.exit(), exit, "{reason}");
        if exit == Exit::Conflict {
            assert_eq!(
                error.to_string(),
                "f:1: there is a job j in namespace default already: choose another name, or none for one that is made up; \
                 `jobctl delete j` removes the one that is there"
            );
            assert_eq!(next_command(&error, None).unwrap(), "jobctl get j");
        }
    }
    let script = Script::default().on("GET /apis/v9", []).on("GET /api/v9", [status(404, "NotFound")]);
    let unknown = json!({"apiVersion": "v9", "kind": "Nothing", "metadata": {"name": "x"}});
    let error = submit::submit(&script.connection(), &[object(unknown)], |_| {}).await.unwrap_err();
    assert_eq!(error.to_string(), "f:1: the server does not know Nothing of v9");
}

/// A script's ConfigMap as it is rendered, before its job is there.
fn belonging() -> Object {
    object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a.sh": "x"}}))
}

fn core_kinds() -> Answer {
    Answer::Json(200, json!({"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": true}]}))
}

#[tokio::test]
async fn what_a_job_brings_along_is_owned_by_it() {
    let script = Script::default()
        .on("POST /apis/", [Answer::Json(201, job(1, "", 0))])
        .on("GET /api/v1", [core_kinds()])
        .on("POST /api/v1/namespaces/default/configmaps?", [Answer::Json(201, json!({"kind": "ConfigMap"}))]);
    let mut told = Vec::new();
    let objects = [object(job(0, "", 0)), belonging()];
    let done = |one: &submit::Submitted| told.push(one.reference());
    let submitted = submit::submit_with_belongings(&script.connection(), &objects[0], &objects[1..], done).await;
    assert_eq!(submitted.unwrap().effect, Effect::Created);
    assert_eq!(told, ["job/j"], "a user hears of the job");
    let owner = json!([{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u"}]);
    assert_eq!(script.bodies.lock().unwrap()[1]["metadata"]["ownerReferences"], owner);
}

#[tokio::test]
async fn a_job_whose_belongings_are_refused_is_taken_back() {
    let script = Script::default()
        .on("POST /apis/", [Answer::Json(201, job(1, "", 0))])
        .on("GET /api/v1", [core_kinds()])
        .on("POST /api/v1/", [status(403, "Forbidden")])
        .on("DELETE /apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/j", [Answer::Json(200, json!({}))]);
    let objects = [object(job(0, "", 0)), belonging()];
    let error = submit::submit_with_belongings(&script.connection(), &objects[0], &objects[1..], |_| {}).await;
    assert_eq!(pumice_jobs::Error::from(error.unwrap_err()).exit(), Exit::Denied);
    let seen = script.seen.lock().unwrap().clone();
    assert!(seen.iter().any(|line| line.starts_with("DELETE ")), "{seen:?}");
}

#[tokio::test]
async fn a_key_gives_the_job_that_has_it_and_refuses_another() {
    let keyed = |replicas: u32| {
        let mut body = job(0, "", 0);
        body["metadata"] =
            json!({"generateName": "x-", "namespace": "default", "annotations": {idempotency::KEY: "k"}});
        body["spec"]["tasks"][0]["replicas"] = replicas.into();
        object(body)
    };
    let there = submit::sealed(keyed(1).body, &[]);
    let name = there["metadata"]["name"].as_str().unwrap().to_owned();
    for (replicas, same) in [(1, true), (2, false)] {
        let script = Script::default()
            .on("POST ", [status(409, "AlreadyExists")])
            .on("/jobs/key-k-", [Answer::Json(200, there.clone())]);
        let found = submit::submit_with_belongings(&script.connection(), &keyed(replicas), &[], |_| {}).await;
        match found {
            Ok(found) => assert_eq!((found.effect, found.name(), same), (Effect::Unchanged, name.as_str(), true)),
            Err(error) => {
                let error = pumice_jobs::Error::from(error);
                assert_eq!((error.exit(), same), (Exit::Conflict, false), "{error}");
                assert_eq!(next_command(&error, None), Some(format!("jobctl get {name}")));
            }
        }
    }
}
