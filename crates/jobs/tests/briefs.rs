//! What jobs, pods and events come to as plain data, and which of them the server is asked for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use pumice_api::batch::Job;
use pumice_jobs::job::pod::{PodDocument, place_in};
use pumice_jobs::job::{JobDocument, JobRef};
use pumice_jobs::lookup::events;
use pumice_jobs::lookup::pods::{self, Selection, name_of};
use pumice_jobs::platform::next_command;
use pumice_jobs::{Connection, Exit};
use serde_json::{Value, json};

fn pod(index: &str, status: Value) -> Value {
    json!({
        "metadata": {"name": format!("j-main-{index}"), "uid": "u", "labels": {
            "volcano.sh/task-spec": "main", "volcano.sh/task-index": index}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "env": [{"name": "PUMICE_ATTEMPT", "value": "2"}]}]},
        "status": status,
    })
}

fn container(name: &str, state: Value) -> Value {
    json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

fn ended(exit_code: i32, reason: &str) -> Value {
    json!({"terminated": {"exitCode": exit_code, "reason": reason, "signal": if exit_code == 137 { 9 } else { 0 },
        "startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T00:00:05Z"}})
}

fn job(tasks: Value) -> Job {
    serde_json::from_value(json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"queue": "q", "minSuccess": 3, "tasks": tasks},
        "status": {"state": {"phase": "Failed", "reason": "PodFailed", "message": "a pod failed"},
                   "succeeded": 2, "failed": 1, "retryCount": 1},
    }))
    .unwrap()
}

#[test]
fn a_pod_in_short() {
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:01Z"}});
    let found: Vec<PodDocument> = [
        pod("0", json!({})),
        pod("1", json!({"phase": "Running", "containerStatuses": [container("c", running)]})),
        pod("2", json!({"phase": "Succeeded", "containerStatuses": [container("c", ended(0, "Completed"))]})),
        pod(
            "3",
            json!({"phase": "Failed", "containerStatuses": [
            container("c", ended(0, "Completed")), container("d", ended(137, "OOMKilled"))]}),
        ),
        pod("4", json!({"phase": "Failed", "reason": "Evicted", "message": "the node is full"})),
        // A container that ended while the pod goes on has no last word.
        pod("5", json!({"phase": "Running", "containerStatuses": [container("c", ended(1, "Error"))]})),
        json!({"metadata": {"name": "other"}}),
    ]
    .into_iter()
    .map(|pod| PodDocument::of(&serde_json::from_value::<Pod>(pod).unwrap()))
    .collect();
    insta::assert_json_snapshot!(found);
}

#[test]
fn a_job_in_short() {
    insta::assert_json_snapshot!(JobDocument::of(&job(json!([{"name": "main", "replicas": 5}]))));
    let fresh = JobDocument::of(&Job::default());
    assert_eq!((fresh.phase.as_str(), fresh.end, fresh.exit_code), ("New", None, None));
}

#[test]
fn an_index_is_a_pod_of_a_task() {
    let one = job(json!([{"name": "main", "replicas": 2}]));
    let two = job(json!([{"name": "a", "replicas": 1}, {"name": "b-c", "replicas": 1}]));
    assert_eq!(name_of(&one, None, 1).unwrap(), "j-main-1");
    assert_eq!(name_of(&two, Some("b-c"), 0).unwrap(), "j-b-c-0");
    for (job, task, index, exit, said) in [
        (&one, None, 2, Exit::NotFound, "job j has no pod 2: task main has 2"),
        (&one, None, u32::MAX, Exit::NotFound, "job j has no pod 4294967295: task main has 2"),
        (&one, Some("x"), 0, Exit::NotFound, "job j has no pod of task x: its tasks are main"),
        (&two, None, 0, Exit::Usage, "job j has several tasks: name one of a, b-c"),
    ] {
        let error = name_of(job, task, index).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.exit()), (said, exit));
        assert!(next_command(&error, None).is_some());
    }
    for (pod, place) in [
        ("j-main-1", Some(("main", 1))),
        ("j-b-c-0", Some(("b-c", 0))),
        ("j-main-x", None),
        ("k-main-1", None),
        ("j", None),
    ] {
        assert_eq!(place_in("j", pod), place, "{pod}");
    }
}

/// A server with two pages of what was asked for, and what it was asked.
fn server(pages: [Value; 2]) -> (Connection, Arc<Mutex<Vec<String>>>) {
    let (asked, pages) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(pages.to_vec())));
    let seen = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        seen.lock().unwrap().push(request.uri().to_string());
        let page = pages.lock().unwrap().remove(0);
        async move { Ok::<_, std::io::Error>(Response::new(Body::from(page.to_string().into_bytes()))) }
    });
    (Connection::with_client(kube::Client::new(service, "n"), "n"), asked)
}

fn of_job() -> JobRef {
    JobRef { namespace: "n".into(), name: "j".into() }
}

#[tokio::test]
async fn the_server_picks_pods_and_their_order_is_by_index() {
    let page = |items: Value, more: &str| json!({"metadata": {"continue": more}, "items": items});
    let (connection, asked) =
        server([page(json!([pod("10", json!({})), pod("9", json!({}))]), "c"), page(json!([pod("1", json!({}))]), "")]);
    let selection = Selection { task: Some("main".into()), index: Some(7), failed: true };
    let found = pods::fetch(&connection, &of_job(), &selection).await.unwrap();
    assert_eq!(found.iter().map(|pod| pod.index).collect::<Vec<_>>(), [Some(1), Some(9), Some(10)]);
    let asked = asked.lock().unwrap();
    let wanted = "labelSelector=volcano.sh%2Fjob-name%3Dj%2Cvolcano.sh%2Ftask-spec%3Dmain%2Cvolcano.sh%2Ftask-index%3D7\
                  &fieldSelector=status.phase%3DFailed";
    assert!(asked.iter().all(|path| path.contains(wanted)), "{asked:?}");
    assert!(asked[1].contains("continue=c"), "{asked:?}");
}

#[tokio::test]
async fn events_are_told_oldest_first() {
    let event = |reason: &str, times: Value| {
        let mut event =
            json!({"metadata": {}, "involvedObject": {}, "type": "Warning", "reason": reason, "message": "m"});
        event.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        event
    };
    let page = |items: Value, more: &str| json!({"metadata": {"continue": more}, "items": items});
    let (connection, asked) = server([
        page(json!([event("Late", json!({"lastTimestamp": "2026-01-01T00:00:09Z", "count": 4}))]), "c"),
        page(
            json!([
                event("Once", json!({"eventTime": "2026-01-01T00:00:01.000000Z"})),
                event(
                    "Series",
                    json!({"eventTime": "2026-01-01T00:00:01.000000Z",
                    "series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:05.000000Z"}})
                ),
            ]),
            "",
        ),
    ]);
    let found = events::fetch(&connection, &of_job(), Some("j-main-0")).await.unwrap();
    let told: Vec<_> = found.iter().map(|event| (event.reason.as_str(), event.count)).collect();
    assert_eq!(told, [("Once", 1), ("Series", 3), ("Late", 4)]);
    assert!(asked.lock().unwrap()[0].contains("involvedObject.kind%3DPod%2CinvolvedObject.name%3Dj-main-0"));
}
