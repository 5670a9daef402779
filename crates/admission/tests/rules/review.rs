//! The same rules behind AdmissionReview: what is read, what is answered, and that any bytes have an answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use proptest::prelude::*;
use pumice_admission::VolcanoAdmission;
use pumice_admission::review::{BadReview, REVIEW_BYTES_MAX, Request};
use pumice_admission::server::{ROUTES, Route, route};
use pumice_apiserver::ObjectReader;
use serde_json::{Value, json};

/// Queues `default` and `closed`, and namespaces of which `team` has a queue.
struct Cluster;

impl ObjectReader for Cluster {
    fn get(&self, resource: &str, _: &str, name: &str) -> Option<Value> {
        self.list(resource, None).into_iter().find(|object| object["metadata"]["name"] == name)
    }

    fn list(&self, resource: &str, _: Option<&str>) -> Vec<Value> {
        match resource {
            "scheduling.volcano.sh/queues" => vec![
                json!({"metadata": {"name": "default"}, "spec": {}, "status": {"state": "Open"}}),
                json!({"metadata": {"name": "closed"}, "spec": {}, "status": {"state": "Closed"}}),
            ],
            _ => vec![
                json!({"metadata": {"name": "team", "annotations": {"scheduling.volcano.sh/queue-name": "default"}}}),
            ],
        }
    }
}

fn at(path: &str) -> &'static Route {
    route(path).expect("a path")
}

fn ask(path: &str, request: Value) -> Value {
    let (group, resource) = match path.split('/').nth(1).expect("a path") {
        "queues" => ("scheduling.volcano.sh", "queues"),
        "podgroups" => ("scheduling.volcano.sh", "podgroups"),
        "pods" => ("", "pods"),
        "jobtemplates" => ("flow.volcano.sh", "jobtemplates"),
        _ => ("batch.volcano.sh", "jobs"),
    };
    let mut whole = json!({
        "uid": "u-1", "kind": {"group": group, "version": "v1", "kind": "Any"},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "name": "n", "namespace": "team", "operation": "CREATE", "userInfo": {"username": "ann", "groups": ["g"]},
    });
    whole.as_object_mut().expect("an object").extend(request.as_object().expect("an object").clone());
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole}).to_string();
    let request = Request::read(body.as_bytes(), at(path)).expect("a review");
    let phase = if path.ends_with("mutate") {
        pumice_admission::server::Phase::Mutate
    } else {
        pumice_admission::server::Phase::Validate
    };
    let verdict = request.judge(&VolcanoAdmission::default(), phase, &Cluster, Timestamp::UNIX_EPOCH);
    let answer: Value = serde_json::from_slice(&request.answer(verdict.expect("a verdict"))).expect("JSON");
    assert_eq!((&answer["apiVersion"], &answer["kind"]), (&"admission.k8s.io/v1".into(), &"AdmissionReview".into()));
    assert_eq!(answer["response"]["uid"], "u-1");
    answer["response"].clone()
}

fn job(queue: &str) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "n"},
        "spec": {"queue": queue, "minAvailable": 1, "tasks": [
            {"name": "t", "replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        ]},
    })
}

/// The object after the answer's patch.
fn patched(mut object: Value, response: &Value) -> Value {
    assert_eq!((&response["allowed"], &response["patchType"]), (&true.into(), &"JSONPatch".into()), "{response}");
    let patch = STANDARD.decode(response["patch"].as_str().expect("a patch")).expect("base64");
    let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a JSON patch");
    json_patch::patch(&mut object, &patch).expect("it applies");
    object
}

#[test]
fn what_is_left_out_comes_as_a_patch() {
    let mut sent = job("");
    sent["spec"]["tasks"][0].as_object_mut().expect("a task").remove("name");
    let response = ask("/jobs/mutate", json!({"object": sent}));
    let filled = patched(sent, &response);
    assert_eq!(
        (&filled["spec"]["queue"], &filled["spec"]["tasks"][0]["name"]),
        (&"default".into(), &"default0".into())
    );
    assert_eq!(filled["metadata"]["annotations"], json!({"pumice.sh/user": "ann"}));
    assert_eq!(filled["status"], Value::Null, "an API server drops it");
    let again = ask("/jobs/mutate", json!({"operation": "UPDATE", "object": filled, "oldObject": filled}));
    assert_eq!(again, json!({"uid": "u-1", "allowed": true}), "nothing is left to fill in");

    let group = json!({"metadata": {"name": "g"}, "spec": {"queue": "default", "minMember": 1}});
    assert_eq!(ask("/podgroups/mutate", json!({"object": group})), json!({"uid": "u-1", "allowed": true}));
}

#[test]
fn refusals_are_the_rules_words_without_the_webhook_that_the_server_names_itself() {
    let response = ask("/jobs/validate", json!({"object": job("closed")}));
    assert_eq!(
        response,
        json!({"uid": "u-1", "allowed": false, "status": {
            "status": "Failure", "code": 400, "reason": "BadRequest",
            "message": "can only submit job to queue with state `Open`, queue `closed` status is `Closed`;",
        }})
    );
    assert_eq!(ask("/jobs/validate", json!({"object": job("default")}))["allowed"], true);
    let taken = json!({"metadata": {"name": "default"}, "spec": {}});
    let response = ask("/queues/validate", json!({"operation": "DELETE", "oldObject": taken}));
    assert_eq!(response["status"]["message"], "`default` queue can not be deleted");
    // A user can't be another one.
    let mut stolen = job("default");
    stolen["metadata"]["annotations"] = json!({"pumice.sh/user": "bob"});
    let response = ask("/jobs/mutate", json!({"operation": "UPDATE", "object": stolen, "oldObject": job("default")}));
    assert_eq!(response["allowed"], false, "{response}");
}

#[test]
fn warnings_come_along_and_are_not_too_long() {
    let mut sent = job("default");
    let path = format!("/{}ä", "x".repeat(246));
    sent["spec"]["volumes"] = json!([{ "mountPath": path }]);
    let response = ask("/jobs/validate", json!({"object": sent}));
    let warnings = response["warnings"].as_array().expect("warnings");
    assert!(warnings.iter().all(|warning| warning.as_str().is_some_and(|text| text.len() <= 256)), "{warnings:?}");
    assert!(warnings[0].as_str().is_some_and(|text| text.ends_with('…')), "{warnings:?}");
}

#[test]
fn a_template_of_jobs_that_would_be_refused_is_told() {
    let mut template = job("default");
    (template["apiVersion"], template["kind"]) = ("flow.volcano.sh/v1alpha1".into(), "JobTemplate".into());
    let good = ask("/jobtemplates/mutate", json!({"object": template}));
    assert_eq!((&good["allowed"], &good["warnings"]), (&true.into(), &Value::Null), "{good}");
    template["spec"]["tasks"][0]["template"]["spec"]["securityContext"] = json!({"runAsUser": -1});
    let told = ask("/jobtemplates/mutate", json!({"object": template}));
    let warning = "a Job made of this is refused: spec.task[0].spec.securityContext.runAsUser: Invalid value: -1";
    assert!(told["warnings"][0].as_str().is_some_and(|text| text.starts_with(warning)), "{told}");
    assert_eq!(told["allowed"], true, "a flow may mend it");
}

#[test]
fn what_is_no_review_is_said_to_be_none() {
    let read = |body: &str| Request::read(body.as_bytes(), at("/jobs/validate")).map(drop).expect_err("refused");
    let review = |inner: &str| format!(r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"{inner}}}"#);
    let about = |group: &str| {
        review(&format!(
            r#", "request": {{"uid": "u", "kind": {{"kind": "Job"}}, "operation": "CREATE", "resource":
               {{"group": "{group}", "version": "v1alpha1", "resource": "jobs"}}}}"#
        ))
    };
    assert!(matches!(read(""), BadReview::Read(_)));
    assert!(matches!(read("{}"), BadReview::Kind { .. }));
    assert!(matches!(read(&review("")), BadReview::Empty));
    assert!(matches!(read(&about("batch")), BadReview::Resource { .. }));
    assert!(Request::read(about("batch.volcano.sh").as_bytes(), at("/jobs/validate")).is_ok());
    let deep = review(&format!(r#", "request": {}1{}"#, "[".repeat(100_000), "]".repeat(100_000)));
    assert!(matches!(read(&deep), BadReview::Read(_)));
    assert!(matches!(read(&" ".repeat(REVIEW_BYTES_MAX + 1)), BadReview::TooLong));
}

proptest! {
    #[test]
    fn any_object_has_an_answer(
        object in super::any_input::any_json(),
        old in super::any_input::any_json(),
        place in 0..ROUTES.len(),
        operation in prop::sample::select(&["CREATE", "UPDATE", "DELETE", "CONNECT"][..]),
    ) {
        let path = ROUTES[place].path;
        if !["hypernodes", "cronjobs", "jobflows", "jobtemplates", "tenants"].iter().any(|kind| path.contains(kind)) {
            let response = ask(path, json!({"operation": operation, "object": object, "oldObject": old}));
            prop_assert!(response["allowed"].is_boolean());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for route in ROUTES {
            let _ = Request::read(&bytes, route);
        }
    }
}
