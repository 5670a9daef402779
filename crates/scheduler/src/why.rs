//! `why.pumice.sh/v1alpha1`: why Jobs wait, and how queues and nodes stand, as an aggregated API. Called by whoever wires it into an API server.
//!
//! Invariant: an object is there while its Job waits, and as long as there are records of evictions to tell of; another Job
//! is 404.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use pumice_engine::{Could, EvictionRecord, Expected};
use serde::Serialize;
use serde_json::{Value, json};

use crate::ask::{Handle, Waiting};

/// The API group under which explanations are served.
pub const GROUP: &str = "why.pumice.sh";
/// The one version of [`GROUP`].
pub const VERSION: &str = "v1alpha1";

impl Handle {
    /// Answers a GET of `.../jobs`, `.../namespaces/NS/jobs` or `.../namespaces/NS/jobs/NAME`, below
    /// `/apis/why.pumice.sh/v1alpha1`, and of `.../queues/NAME` and `.../nodes/NAME`. Blocks for a cycle at most.
    pub fn answer(&self, path: &str) -> Response<Bytes> {
        let prefix = format!("/apis/{GROUP}/{VERSION}/");
        let parts: Vec<&str> =
            path.strip_prefix(&prefix).unwrap_or_default().trim_end_matches('/').split('/').collect();
        match parts[..] {
            ["jobs"] => json_response(StatusCode::OK, &list(&self.list(None))),
            ["namespaces", namespace, "jobs"] => json_response(StatusCode::OK, &list(&self.list(Some(namespace)))),
            ["namespaces", namespace, "jobs", name] => match self.why(namespace, name) {
                Some(waiting) => json_response(StatusCode::OK, &object(&waiting)),
                None => {
                    let message = format!("jobs.{GROUP} {name:?} not found: it does not wait for the scheduler");
                    status(StatusCode::NOT_FOUND, "NotFound", &message)
                }
            },
            ["queues", name] => match self.queue_why(name) {
                Some(queue) => json_response(StatusCode::OK, &of_cluster("QueueWhy", name, &queue)),
                None => not_known("queues", name),
            },
            ["nodes", name] => match self.node_why(&name.into()) {
                Some(node) => json_response(StatusCode::OK, &of_cluster("NodeWhy", name, &node)),
                None => not_known("nodes", name),
            },
            _ => status(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource"),
        }
    }
}

/// An object of the cluster, with its text for people.
fn of_cluster(kind: &str, name: &str, told: &(impl Serialize + ToString)) -> Value {
    json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {"name": name},
        "status": told,
        "text": told.to_string(),
    })
}

fn not_known(resource: &str, name: &str) -> Response<Bytes> {
    let message = format!("{resource}.{GROUP} {name:?} not found: the scheduler does not know it");
    status(StatusCode::NOT_FOUND, "NotFound", &message)
}

/// What to answer while there is no scheduler to ask.
pub fn not_ready() -> Response<Bytes> {
    status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the scheduler is starting; ask again in a moment")
}

fn list(all: &[Waiting]) -> Value {
    let items: Vec<Value> = all.iter().map(object).collect();
    json!({"kind": "WhyList", "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {}, "items": items})
}

fn object(waiting: &Waiting) -> Value {
    let why = &waiting.why;
    let reasons = &why.reasons;
    json!({
        "kind": "Why",
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {"name": waiting.name, "namespace": waiting.namespace},
        "group": waiting.group,
        "queue": waiting.queue,
        "stage": reasons.stage,
        "since": time(reasons.since.0),
        "minimum": reasons.minimum,
        "approximate": reasons.approximate,
        "expected": reasons.expected.as_ref().map(expected),
        "reasons": reasons.reasons,
        "line": why.line,
        "held": why.holders,
        "spared": why.spared,
        "roomOn": why.room_on.iter().map(|(node, pods)| json!({"node": node, "pods": pods})).collect::<Vec<_>>(),
        "could": why.could.iter().map(could).collect::<Vec<_>>(),
        "evictions": why.evictions.iter().map(eviction_record).collect::<Vec<_>>(),
        "startsNext": why.starts_next,
        "fitsEmpty": why.fits_empty,
        "bounded": why.bounded,
        "text": why.to_string(),
    })
}

/// The record of an eviction, with its time as the API writes times, and the same for people.
fn eviction_record(record: &EvictionRecord) -> Value {
    let mut value = json!(record);
    value["at"] = json!(time(record.at.0));
    value["text"] = record.to_string().into();
    value
}

/// A change, and the same for people.
fn could(could: &Could) -> Value {
    let mut value = json!(could);
    value["text"] = could.to_string().into();
    value
}

fn expected(expected: &Expected) -> Value {
    json!({
        "at": time(expected.at.0),
        "early": time(expected.early.0),
        "late": time(expected.late.0),
        "promised": expected.promised,
    })
}

fn time(milliseconds: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(milliseconds).ok().map(|time| time.to_string())
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response<Bytes> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    json_response(code, &body)
}

fn json_response(code: StatusCode, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use pumice_engine::{
        Config, Delta, GroupFacts, GroupPhase, GroupStatus, NodeFacts, OwnerFacts, QueueFacts, TimeMs, World,
    };

    use super::*;
    use crate::ask::Shared;
    use crate::metrics::Metrics;

    fn waiting_world() -> World {
        let mut world = World::new(Config::default());
        world.apply(&Delta::QueueUpsert(QueueFacts { name: "default".into(), ..QueueFacts::default() }));
        world.apply(&Delta::NodeUpsert(NodeFacts { name: "n0".into(), ..NodeFacts::default() }));
        world.apply(&Delta::GroupUpsert(Box::new(GroupFacts {
            namespace: "ns".into(),
            name: "mnist-1234".into(),
            uid: "u".into(),
            min_member: 1,
            owner: Some(OwnerFacts { kind: "Job".into(), name: "mnist".into(), uid: "1234".into() }),
            status: GroupStatus { phase: GroupPhase::Inqueue, ..GroupStatus::default() },
            ..GroupFacts::default()
        })));
        world.cycle(TimeMs(1_700_000_000_000));
        world
    }

    fn get(path: &str) -> (u16, Value) {
        let response = Handle::new(Shared::new(waiting_world()), Metrics::default()).answer(path);
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap())
    }

    #[test]
    fn a_waiting_job_is_found_by_its_own_and_its_groups_name() {
        for name in ["mnist", "mnist-1234"] {
            let (code, body) = get(&format!("/apis/why.pumice.sh/v1alpha1/namespaces/ns/jobs/{name}"));
            assert_eq!(code, 200, "{body}");
            assert_eq!(body["kind"], "Why");
            assert_eq!(body["metadata"], json!({"name": "mnist", "namespace": "ns"}));
            assert_eq!(body["stage"], "NoPods");
            assert_eq!(body["reasons"][0], json!({"code": "notEnoughTasks", "min": 1, "valid": 0}));
            assert_eq!(body["text"], "waits for its pods to be made: 0 of 1");
            assert_eq!(body["since"], "2023-11-14T22:13:20Z");
        }
    }

    #[test]
    fn lists_and_errors_have_their_shapes() {
        let (code, body) = get("/apis/why.pumice.sh/v1alpha1/jobs");
        assert_eq!((code, body["items"].as_array().unwrap().len()), (200, 1));
        let (_, body) = get("/apis/why.pumice.sh/v1alpha1/namespaces/elsewhere/jobs");
        assert_eq!(body["items"], json!([]));
        for (path, kind) in [("queues/default", "QueueWhy"), ("nodes/n0", "NodeWhy")] {
            let (code, body) = get(&format!("/apis/why.pumice.sh/v1alpha1/{path}"));
            assert_eq!((code, body["kind"].as_str()), (200, Some(kind)), "{body}");
            assert!(body["text"].as_str().unwrap().contains(body["metadata"]["name"].as_str().unwrap()), "{body}");
        }
        for path in [
            "/apis/why.pumice.sh/v1alpha1/nodes/none",
            "/apis/why.pumice.sh/v1alpha1/queues/none",
            "/apis/why.pumice.sh/v1alpha1/namespaces/ns/jobs/other",
            "/apis/why.pumice.sh/v1alpha1/pods",
            "/",
        ] {
            let (code, body) = get(path);
            assert_eq!((code, body["reason"].as_str()), (404, Some("NotFound")), "{path}");
        }
    }

    #[test]
    fn before_the_scheduler_is_there_clients_are_told_to_come_back() {
        assert_eq!(not_ready().status(), 503);
    }
}
