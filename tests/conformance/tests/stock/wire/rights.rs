//! What each component may do, tried with its own certificate.

use pumice_api::names::{USER_ADMISSION, USER_CONTROLLERS, USER_GC, USER_HISTORY, USER_NODE, USER_SCHEDULER};
use serde_json::{Value, json};

use super::{JOBS, MAPS, PODS, QUEUES, SECRETS, Wire, job, map, node, pod, queue};
use crate::cluster::Cluster;

const NODES: &str = "/api/v1/nodes";
const EVENTS: &str = "/api/v1/namespaces/default/events";

async fn code(wire: &Wire, verb: &str, path: &str) -> u16 {
    let answer = match verb {
        "get" => wire.get(path).await,
        // Not an object: whoever may write is told so, whoever may not is not.
        "post" => wire.post(path, &json!([])).await,
        "put" => wire.put(path, &json!([])).await,
        "patch" => wire.merge(path, &json!([])).await,
        _ => wire.delete(path, &json!({"dryRun": ["All"]})).await,
    };
    answer.code
}

#[tokio::test(flavor = "multi_thread")]
async fn components_have_the_rights_they_need_and_no_more() {
    let cluster = Cluster::start().await;
    let admin = &cluster.wire;
    for (path, object) in
        [(QUEUES, queue("default")), (JOBS, job("x")), (PODS, pod("x")), (MAPS, map("x")), (NODES, node("x"))]
    {
        admin.post(path, &object).await.is(201);
    }
    let binding = "pods/x/binding";
    let allowed: &[(&str, &[(&str, &str)])] = &[
        (
            USER_SCHEDULER,
            &[
                ("get", PODS),
                ("get", NODES),
                ("get", JOBS),
                ("get", QUEUES),
                ("post", binding),
                ("patch", "pods/x/status"),
                // It evicts.
                ("delete", "pods/x"),
                ("post", EVENTS),
            ],
        ),
        (
            USER_CONTROLLERS,
            &[
                ("post", PODS),
                ("delete", "pods/x"),
                ("post", MAPS),
                ("post", SECRETS),
                ("patch", "jobs/x/status"),
                // Flows and schedules make Jobs.
                ("post", JOBS),
                ("post", EVENTS),
            ],
        ),
        (
            USER_NODE,
            &[
                ("get", PODS),
                ("patch", "pods/x/status"),
                ("delete", "pods/x"),
                ("post", NODES),
                ("patch", "nodes/x/status"),
            ],
        ),
        (USER_ADMISSION, &[("get", QUEUES)]),
        (USER_HISTORY, &[("get", PODS), ("get", JOBS)]),
        (USER_GC, &[("get", PODS), ("delete", "pods/x"), ("delete", "jobs/x"), ("patch", "jobs/x")]),
    ];
    let refused: &[(&str, &[(&str, &str)])] = &[
        (
            USER_SCHEDULER,
            &[
                ("post", PODS),
                ("put", "pods/x"),
                ("get", SECRETS),
                ("get", MAPS),
                ("delete", "jobs/x"),
                ("delete", "nodes/x"),
                ("patch", "jobs/x/status"),
                ("delete", PODS),
            ],
        ),
        (
            USER_CONTROLLERS,
            &[
                ("post", binding),
                ("patch", "nodes/x"),
                ("patch", "pods/x/status"),
                ("delete", "nodes/x"),
                ("post", NODES),
            ],
        ),
        (
            USER_NODE,
            &[
                ("get", SECRETS),
                ("get", MAPS),
                ("post", PODS),
                ("post", binding),
                ("post", SECRETS),
                ("put", "configmaps/x"),
                ("get", JOBS),
                ("get", QUEUES),
                ("delete", "nodes/x"),
                ("patch", "pods/x"),
            ],
        ),
        (USER_ADMISSION, &[("get", PODS), ("get", SECRETS), ("post", QUEUES), ("delete", "queues/x")]),
        (
            USER_HISTORY,
            &[
                ("get", SECRETS),
                ("get", MAPS),
                ("get", QUEUES),
                ("post", PODS),
                ("patch", "jobs/x"),
                ("patch", "jobs/x/status"),
                ("delete", "pods/x"),
                ("post", EVENTS),
            ],
        ),
        (USER_GC, &[("post", PODS), ("put", "jobs/x"), ("post", binding)]),
    ];
    for (table, may) in [(allowed, true), (refused, false)] {
        for (user, tries) in table {
            let wire = cluster.user(user, &[]).await;
            for (verb, path) in *tries {
                let code = code(&wire, verb, &full(path)).await;
                assert_eq!(code != 403, may, "{user} {verb} {path}: {code}");
            }
        }
    }
}

/// `pods/x/status` as a path.
fn full(path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let (resource, rest) = path.split_once('/').unwrap_or((path, ""));
    let collection = match resource {
        "pods" => PODS,
        "configmaps" => MAPS,
        "nodes" => NODES,
        "jobs" => JOBS,
        _ => QUEUES,
    };
    format!("{collection}/{rest}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_not_a_right() {
    let cluster = Cluster::start().await;
    // A header can't make a client somebody else.
    let user = cluster.user("eve", &[]).await;
    let headers = [
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
        ("impersonate-user", "admin"),
        ("impersonate-group", "system:masters"),
    ];
    user.call(http::Method::GET, SECRETS, &headers, "").await.is(403);
    user.call(http::Method::GET, SECRETS, &[("authorization", "Bearer abc")], "").await.refused();
    // Being called like the group is not being in it.
    cluster.user("system:masters", &[]).await.get(SECRETS).await.is(403);
    cluster.user("anyone", &["system:masters"]).await.get(SECRETS).await.is(200);
    cluster.nobody().delete(SECRETS, &Value::Null).await.refused();
}

impl super::Answer {
    #[track_caller]
    fn refused(self) {
        assert!(matches!(self.code, 401 | 403), "{}: {}", self.code, self.text);
    }
}
