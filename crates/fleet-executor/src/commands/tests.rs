//! Errands over a cluster of one pod and one node.

use std::convert::Infallible;
use std::sync::Mutex;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use pumice_cluster::client_over;
use pumice_wire::executor::{LogPart, ReadLog};
use serde_json::Value;

use super::*;

const RUN: &str = "00000000000000000000000001-1";

/// What was asked of the cluster.
type Asked = Arc<Mutex<Vec<String>>>;

fn cluster() -> (Client, Asked) {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let client = client_over(tower::service_fn(move |request: Request<kube::client::Body>| {
        let noted = Arc::clone(&noted);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let body = String::from_utf8_lossy(&body).into_owned();
            noted.lock().unwrap().push(format!("{} {} {body}", parts.method, parts.uri));
            Ok::<_, Infallible>(answer(&parts.method, parts.uri.path()))
        }
    }));
    (client, asked)
}

fn answer(method: &Method, path: &str) -> Response<Full<Bytes>> {
    let state = json!({"terminated": {"exitCode": 0}});
    let status = json!({"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"armada_job_run_id": RUN}},
        "spec": {"containers": [{"name": "main"}]}, "status": {"containerStatuses": [status]}});
    let refused = |code: u16, reason: &str| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": "so"});
        (code, status.to_string())
    };
    let (code, text) = match (method.as_str(), path) {
        ("GET", "/api/v1/namespaces/n/pods/p") => (200, pod.to_string()),
        ("GET", "/api/v1/namespaces/n/pods/p/log") => {
            (200, "2026-01-01T00:00:00.1Z a\n2026-01-01T00:00:00.2Z b\n".to_owned())
        }
        ("GET", "/api/v1/namespaces/closed/pods/p") => refused(403, "Forbidden"),
        ("PATCH", "/api/v1/nodes/node-1") => (200, json!({"metadata": {"name": "node-1"}}).to_string()),
        ("PATCH", "/api/v1/nodes/slow") => refused(500, "InternalError"),
        _ => refused(404, "NotFound"),
    };
    Response::builder().status(code).body(Full::new(Bytes::from(text))).unwrap()
}

fn read(namespace: &str) -> ReadLog {
    ReadLog {
        run_id: RUN.to_owned(),
        namespace: namespace.to_owned(),
        pod_name: "p".to_owned(),
        bytes_max: 1000,
        ..ReadLog::default()
    }
}

#[tokio::test]
async fn a_part_of_a_log_is_read() {
    let (client, asked) = cluster();
    let since_ns = 1_767_225_600 * 1_000_000_000 + 200_000_000;
    let part = log::read(&client, ReadLog { since_ns, tail_lines: Some(5), ..read("n") }).await.unwrap();
    assert_eq!(part, LogPart { lines: b"2026-01-01T00:00:00.2Z b\n".to_vec(), more: false, ended: true });
    let asked = asked.lock().unwrap().join("\n");
    for said in ["container=main", "timestamps=true", "tailLines=5", "sinceTime=2026-01-01T00%3A00%3A00Z"] {
        assert!(asked.contains(said), "{asked}");
    }
    assert!(!asked.contains("follow"), "{asked}");
    let cut = log::read(&client, ReadLog { bytes_max: 30, ..read("n") }).await.unwrap();
    assert_eq!(cut, LogPart { lines: b"2026-01-01T00:00:00.1Z a\n".to_vec(), more: true, ended: true });
    for (namespace, problem, said) in [
        ("other", ErrandProblem::NotFound, "there is no pod p in namespace other: pods are removed some time after"),
        ("closed", ErrandProblem::Denied, "its executor may not read pods: run `pumice roles executor"),
    ] {
        let Refused(refusal) = log::read(&client, read(namespace)).await.unwrap_err();
        assert_eq!(refusal.problem, i32::from(problem), "{refusal:?}");
        assert!(refusal.message.starts_with(said), "{refusal:?}");
    }
}

#[tokio::test]
async fn a_node_is_cordoned_with_its_labels() {
    let (client, asked) = cluster();
    let cordon = |node: &str| CordonNode { node: node.to_owned(), labels: [("a".to_owned(), "b".to_owned())].into() };
    cordoned(&client, cordon("node-1")).await.unwrap();
    let asked = asked.lock().unwrap().join("\n");
    let body: Value = serde_json::from_str(asked.splitn(3, ' ').nth(2).unwrap()).unwrap();
    assert_eq!(body, json!({"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": true}}));
    for (node, problem) in [("node-2", ErrandProblem::NotFound), ("slow", ErrandProblem::Failed)] {
        let Refused(refusal) = cordoned(&client, cordon(node)).await.unwrap_err();
        assert_eq!(refusal.problem, i32::from(problem), "{refusal:?}");
    }
}
