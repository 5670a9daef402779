//! The rules behind a real API server: who asks, what is stored, what is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use pumice_admission::VolcanoAdmission;
use pumice_apiserver::ApiServer;
use pumice_auth::{Identity, Policy};
use pumice_machines::job::{Effect, JobView, step};
use pumice_store::Store;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";
const QUEUES: &str = "/apis/scheduling.volcano.sh/v1beta1/queues";

/// An answer: code, warnings, body.
pub type Answer = (StatusCode, Vec<String>, Value);

pub async fn server() -> ApiServer {
    let store = Store::in_memory(pumice_store::Options::default()).expect("store");
    let admission = Arc::new(VolcanoAdmission::default());
    let server = ApiServer::builder(store, Policy::new(Vec::new())).admission(admission).build().await.expect("server");
    for definition in pumice_api::crds::all() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (code, _, body) = send(&server, "root", Method::POST, path, definition).await;
        assert_eq!(code, StatusCode::CREATED, "{body}");
    }
    for name in ["root", "default"] {
        let (code, _, body) = send(&server, "root", Method::POST, QUEUES, queue(name, json!({}))).await;
        assert_eq!(code, StatusCode::CREATED, "{body}");
    }
    server
}

pub async fn send(server: &ApiServer, user: &str, method: Method, path: &str, body: Value) -> Answer {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(Full::from(body.to_string())).expect("request");
    let service = server.client_service(Identity::new(user, ["system:masters"]));
    let response = service.oneshot(request).await.expect("infallible");
    let code = response.status();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|warning| warning.to_str().expect("text").to_owned()).collect();
    let bytes = response.into_body().collect().await.expect("body").to_bytes();
    (code, warnings, serde_json::from_slice(&bytes).expect("JSON"))
}

fn queue(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": { "name": name }, "spec": spec })
}

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": { "name": name },
        "spec": { "tasks": [{ "replicas": 2, "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } } }] },
    })
}

#[tokio::test]
async fn a_new_job_has_the_status_that_its_controller_would_write() {
    let server = server().await;
    let mut sent = job("j");
    sent["status"] = json!({ "state": { "phase": "Completed" }, "succeeded": 7 });
    let (_, _, stored) = send(&server, "ann", Method::POST, JOBS, sent).await;
    assert_eq!(stored["status"]["state"]["phase"], "Pending");
    assert_eq!((&stored["status"]["succeeded"], &stored["status"]["minAvailable"]), (&Value::Null, &json!(2)));
    let job: pumice_api::batch::Job = serde_json::from_value(stored).expect("a job");
    let view = JobView {
        job: &job,
        pods: &BTreeMap::new(),
        evicted: &[],
        group: None,
        queue_exists: true,
        claims: &BTreeSet::new(),
        applied: &BTreeMap::new(),
        priorities: &BTreeMap::new(),
        awaited: &BTreeMap::new(),
        network_policies: false,
        profiles: &BTreeMap::new(),
        largest_node: None,
        command: None,
    };
    let now = job.metadata.creation_timestamp.clone().expect("the server gives one").0;
    let effects: Vec<Effect> = step(&view, now).stages.into_iter().flatten().collect();
    assert!(matches!(effects.as_slice(), [Effect::CreateGroup(_)]), "{effects:?}");
}

#[tokio::test]
async fn a_job_that_says_nothing_has_the_memory_rule_of_its_queue() {
    const RULE: &str = "pumice.sh/on-oom";
    let server = server().await;
    let mut grown = queue("grown", json!({}));
    grown["metadata"]["annotations"] = json!({ RULE: "much" });
    let (code, _, body) = send(&server, "root", Method::POST, QUEUES, grown.clone()).await;
    let refused = body["message"]
        .as_str()
        .is_some_and(|text| text.contains("annotation pumice.sh/on-oom of queue grown: \"much\""));
    assert!(code == StatusCode::BAD_REQUEST && refused, "{body}");
    grown["metadata"]["annotations"] = json!({ RULE: "factor=1.5,ceiling=8Gi" });
    let (code, _, body) = send(&server, "root", Method::POST, QUEUES, grown).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    let rule_of = async |name: &str, in_queue: &str, annotations: Value, policies: Value| {
        let mut job = job(name);
        job["metadata"]["annotations"] = annotations;
        (job["spec"]["queue"], job["spec"]["policies"]) = (in_queue.into(), policies);
        job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] =
            json!({ "limits": { "memory": "1Gi" } });
        let (code, _, stored) = send(&server, "ann", Method::POST, JOBS, job).await;
        assert_eq!(code, StatusCode::CREATED, "{stored}");
        stored["metadata"]["annotations"][RULE].clone()
    };
    assert_eq!(rule_of("plain", "grown", Value::Null, json!([])).await, "factor=1.5,ceiling=8Gi");
    assert_eq!(rule_of("other", "default", Value::Null, json!([])).await, Value::Null);
    assert_eq!(rule_of("off", "grown", json!({ RULE: "off" }), json!([])).await, "off");
    let restarts = json!([{ "event": "OOMKilled", "action": "RestartJob" }]);
    assert_eq!(rule_of("restarts", "grown", Value::Null, restarts).await, Value::Null);
    let failed = json!([{ "event": "PodFailed", "action": "RestartJob" }]);
    assert_eq!(rule_of("failed", "grown", json!({}), failed).await, "factor=1.5,ceiling=8Gi");
}

#[tokio::test]
async fn a_job_is_filled_in_stamped_and_kept() {
    let server = server().await;
    let (code, warnings, stored) = send(&server, "ann", Method::POST, JOBS, job("j")).await;
    assert_eq!((code, warnings), (StatusCode::CREATED, Vec::new()), "{stored}");
    assert_eq!(stored["metadata"]["annotations"], json!({ "pumice.sh/user": "ann" }));
    let spec = &stored["spec"];
    assert_eq!(
        (&spec["minAvailable"], &spec["queue"], &spec["tasks"][0]["name"]),
        (&json!(2), &json!("default"), &json!("default0"))
    );

    let path = format!("{JOBS}/j");
    let (code, _, body) = send(&server, "bob", Method::PATCH, &path, json!({ "spec": { "minAvailable": 1 } })).await;
    assert_eq!((code, &body["metadata"]["annotations"]["pumice.sh/user"]), (StatusCode::OK, &json!("ann")));
    let (code, _, body) =
        send(&server, "bob", Method::PATCH, &path, json!({ "spec": { "schedulerName": "other" } })).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{body}");
    let wanted =
        "admission webhook \"validatejob.volcano.sh\" denied the request: job updates may not change fields other than";
    assert!(body["message"].as_str().is_some_and(|message| message.starts_with(wanted)), "{body}");
    let steal = json!({ "metadata": { "annotations": { "pumice.sh/user": "bob" } } });
    let (code, _, body) = send(&server, "bob", Method::PATCH, &path, steal).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{body}");

    // The status has its own path, and no rules.
    let status = json!({ "status": { "state": { "phase": "Running" }, "running": 2 } });
    let (code, _, body) = send(&server, "root", Method::PATCH, &format!("{path}/status"), status).await;
    assert_eq!((code, &body["status"]["running"]), (StatusCode::OK, &json!(2)));
}

#[tokio::test]
async fn bad_jobs_are_refused_and_nothing_is_stored() {
    let server = server().await;
    let with = |pointer: &str, value: Value| {
        let mut job = job("bad");
        let (parent, name) = pointer.rsplit_once('/').expect("pointer");
        job.pointer_mut(parent).expect("parent")[name] = value;
        job
    };
    let cases = [
        (
            with("/spec/queue", json!("nowhere")),
            "unable to find job queue: queue.scheduling.volcano.sh \"nowhere\" not found;",
        ),
        (
            with("/spec/minAvailable", json!(3)),
            "job 'minAvailable' should not be greater than total replicas in tasks;",
        ),
        (with("/spec/queue", json!("root")), "can not submit job to root queue;"),
        (
            json!({ "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": { "name": "bad" }, "spec": {} }),
            "No task specified in job spec",
        ),
        (with("/spec/minAvailable", json!(-1)), "spec.minAvailable in body should be greater than or equal to 0"),
    ];
    for (job, wanted) in cases {
        let (code, _, body) = send(&server, "ann", Method::POST, JOBS, job).await;
        assert!(code == StatusCode::BAD_REQUEST || code == StatusCode::UNPROCESSABLE_ENTITY, "{body}");
        assert!(body["message"].as_str().is_some_and(|message| message.contains(wanted)), "{wanted}: {body}");
    }
    let (_, _, list) = send(&server, "ann", Method::GET, JOBS, json!(null)).await;
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn warnings_reach_the_client() {
    let server = server().await;
    let mut job = job("j");
    job["spec"]["volumes"] = json!([{ "mountPath": "/in" }]);
    let (code, warnings, body) = send(&server, "ann", Method::POST, JOBS, job).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("volume /in names no claim"), "{warnings:?}");
}

#[tokio::test]
async fn queues_keep_their_tree() {
    let server = server().await;
    let (code, _, body) =
        send(&server, "root", Method::POST, QUEUES, queue("top", json!({ "capability": { "cpu": "4" } }))).await;
    assert_eq!((code, &body["spec"]["reclaimable"]), (StatusCode::CREATED, &json!(true)), "{body}");
    let leaf = queue("leaf", json!({ "parent": "top", "capability": { "cpu": "8" } }));
    let (code, _, body) = send(&server, "root", Method::POST, QUEUES, leaf).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(
        body["message"].as_str().is_some_and(|message| message.contains("exceeds its ancestor's capability")),
        "{body}"
    );
    let (code, _, body) = send(&server, "root", Method::POST, QUEUES, queue("leaf", json!({ "parent": "top" }))).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");

    for (name, wanted) in [("default", "`default` queue can not be deleted"), ("top", "has 1 child queues")] {
        let (code, _, body) = send(&server, "root", Method::DELETE, &format!("{QUEUES}/{name}"), json!({})).await;
        assert_eq!(code, StatusCode::BAD_REQUEST);
        assert!(body["message"].as_str().is_some_and(|message| message.contains(wanted)), "{body}");
    }
    let (code, _, body) = send(&server, "root", Method::DELETE, &format!("{QUEUES}/leaf"), json!({})).await;
    assert_eq!(code, StatusCode::OK, "{body}");
}

#[tokio::test]
async fn groups_need_their_queue() {
    let server = server().await;
    let path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups";
    let group = |queue: &str| json!({ "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": { "name": "g" }, "spec": { "queue": queue } });
    let (code, _, body) = send(&server, "ann", Method::POST, path, group("nowhere")).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{body}");
    let annotate = json!({ "metadata": { "annotations": { "scheduling.volcano.sh/queue-name": "team" } } });
    let (code, _, body) = send(&server, "root", Method::PATCH, "/api/v1/namespaces/default", annotate).await;
    assert_eq!(code, StatusCode::OK, "{body}");
    send(&server, "root", Method::POST, QUEUES, queue("team", json!({}))).await;
    let (code, _, body) = send(&server, "ann", Method::POST, path, group("default")).await;
    assert_eq!((code, &body["spec"]["queue"]), (StatusCode::CREATED, &json!("team")), "{body}");
}

#[tokio::test]
async fn applying_a_manifest_again_changes_nothing() {
    let server = server().await;
    let (code, _, created) = send(&server, "ann", Method::POST, JOBS, job("again")).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    // kubectl's patch of a list replaces it by the manifest's own, without what was filled in.
    let patch = json!({ "spec": { "tasks": job("again")["spec"]["tasks"] } });
    let (code, _, patched) = send(&server, "ann", Method::PATCH, &format!("{JOBS}/again"), patch).await;
    assert_eq!(code, StatusCode::OK, "{patched}");
    assert_eq!(patched, created);
}

#[tokio::test]
async fn pods_templates_and_hyper_nodes_pass_here_too() {
    let server = server().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |annotations: Value| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "annotations": annotations },
            "spec": { "schedulerName": "volcano", "containers": [{ "name": "c", "image": "i" }] } })
    };
    let (code, _, body) =
        send(&server, "ann", Method::POST, pods, pod(json!({ "volcano.sh/jdb-min-available": "0" }))).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{body}");
    let wanted = "admission webhook \"validatepod.volcano.sh\" denied the request: invalid value <\"0\">";
    assert!(body["message"].as_str().is_some_and(|message| message.starts_with(wanted)), "{body}");
    let gate = "scheduling.volcano.sh/queue-allocation-gate";
    let (code, _, body) = send(&server, "ann", Method::POST, pods, pod(json!({ gate: "true" }))).await;
    assert_eq!((code, &body["spec"]["schedulingGates"]), (StatusCode::CREATED, &json!([{ "name": gate }])), "{body}");

    let templates = "/apis/flow.volcano.sh/v1alpha1/namespaces/default/jobtemplates";
    let template = json!({ "apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobTemplate", "metadata": { "name": "t" },
        "spec": job("j")["spec"] });
    let (code, _, body) = send(&server, "ann", Method::POST, templates, template).await;
    assert_eq!(
        (code, &body["metadata"]["annotations"]["pumice.sh/user"]),
        (StatusCode::CREATED, &json!("ann")),
        "{body}"
    );

    let hyper_nodes = "/apis/topology.volcano.sh/v1alpha1/hypernodes";
    let hyper_node = |pattern: &str| {
        json!({ "apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode",
        "metadata": { "name": "h" }, "spec": { "tier": 1, "members": [{ "type": "Node", "selector": { "regexMatch": { "pattern": pattern } } }] } })
    };
    let (code, _, body) = send(&server, "root", Method::POST, hyper_nodes, hyper_node("(")).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{body}");
    let (code, _, body) = send(&server, "root", Method::POST, hyper_nodes, hyper_node("^n")).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
}

/// Volcano's controllers begin only once they have listed them.
#[tokio::test]
async fn what_nothing_acts_on_is_stored_with_a_warning() {
    let server = server().await;
    let path = "/apis/config.volcano.sh/v1alpha1/namespaces/default/colocationconfigurations";
    let configuration = json!({ "apiVersion": "config.volcano.sh/v1alpha1", "kind": "ColocationConfiguration",
        "metadata": { "name": "c" }, "spec": { "memoryQos": { "highRatio": 80 } } });
    let (code, warnings, body) = send(&server, "root", Method::POST, path, configuration).await;
    assert_eq!((code, &body["spec"]["memoryQos"]["highRatio"]), (StatusCode::CREATED, &json!(80)), "{body}");
    assert!(
        warnings.len() == 1 && warnings[0].contains("nothing here acts on a ColocationConfiguration"),
        "{warnings:?}"
    );
}
