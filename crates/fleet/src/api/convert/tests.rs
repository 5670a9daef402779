//! Submissions from the wire, case by case.

use serde_json::{Value, json};

use super::*;
use crate::submit::annotations;

/// A request with one pod spec for each item, the fields of items changed.
pub(in crate::api) fn request(items: &[Value]) -> JobSubmitRequest {
    let amounts = json!({ "cpu": "500m", "memory": "64Mi" });
    let spec = json!({
        "containers": [{ "name": "main", "image": "busybox", "ports": [{ "containerPort": 80 }],
            "resources": { "requests": amounts, "limits": amounts } }],
    });
    let items = items.iter().map(|changes| {
        let mut item = json!({ "namespace": "lab", "podSpecs": [spec] });
        for (name, value) in changes.as_object().expect("object") {
            item[name] = value.clone();
        }
        item
    });
    let request = json!({ "queue": "q", "jobSetId": "set", "jobRequestItems": Vec::from_iter(items) });
    serde_json::from_value(request).expect("a request")
}

pub(in crate::api) fn written(items: &[Value]) -> Submission {
    let by = Request { user: "ada".to_owned(), at: TimeMs(1_764_000_000_000), random: u128::MAX };
    submission(request(items), &Rules::default(), &by).expect("it breaks no rule")
}

#[test]
fn a_job_is_written_as_its_executor_and_the_scheduler_need_it() {
    let written = written(&[json!({
        "priority": 1.6,
        "clientId": "mine",
        "labels": { "job": "{JobId}" },
        "externalJobUri": "https://elsewhere",
        "services": [{ "type": "Headless", "ports": [80], "name": "not-allowed" }],
        "annotations": { annotations::GANG_ID: "g", annotations::GANG_CARDINALITY: "2",
            annotations::GANG_UNIFORMITY: "rack" },
    })]);
    let [job] = written.jobs.as_slice() else { panic!("{written:?}") };
    let spec: Value = serde_json::from_slice(&job.spec).expect("JSON");
    let told = json!({
        "user": written.user, "at": written.at, "submitted": job.submitted, "clientId": job.client_id,
        "uri": job.external_uri, "namespace": job.namespace, "spec": spec,
        "shapes": written.shapes,
    });
    insta::assert_json_snapshot!(told);
}

#[test]
fn jobs_that_are_alike_share_what_is_kept() {
    let other = json!({ "priority": 9, "clientId": "b" });
    let written = written(&[json!({}), other, json!({ "labels": { "a": "b" } }), json!({ "namespace": "else" })]);
    let jobs: Vec<&Submitted> = written.jobs.iter().map(|job| &job.submitted).collect();
    assert_eq!(jobs[0].spec, jobs[1].spec);
    assert!(jobs[0].spec != jobs[2].spec && jobs[0].spec != jobs[3].spec);
    assert_eq!(jobs[0].shape, jobs[2].shape);
    assert!(jobs.iter().all(|job| written.shapes.contains_key(&job.shape)));
    assert!(jobs.is_sorted_by(|one, next| one.job < next.job), "ids are in the request's order");
}

#[test]
fn digests_do_not_depend_on_the_order_of_fields() {
    let one: Value = serde_json::from_str(r#"{"a": {"x": 1, "y": [{"p": 1, "q": 2}]}, "b": 2}"#).expect("JSON");
    let two: Value = serde_json::from_str(r#"{"b": 2, "a": {"y": [{"q": 2, "p": 1}], "x": 1}}"#).expect("JSON");
    assert_eq!(canonical(one).expect("writes"), canonical(two).expect("writes"));
    let (digest, _) = canonical(json!({})).expect("writes");
    assert_eq!(digest.to_string(), "44136fa355b3678a1146ad16f7e8649e", "the first half of the SHA-256 of {{}}");
}

#[test]
fn a_specification_is_what_the_lease_is_made_of() {
    let written =
        written(&[json!({ "labels": { "job": "{JobId}", "text": "{{JobId}}" }, "services": [{ "ports": [80] }],
        "ingress": [{ "ports": [80], "tlsEnabled": true }] })]);
    let job = &written.jobs[0];
    let spec = JobSpec::read(&job.spec).expect("reads");
    assert_eq!(spec.write().expect("writes"), (job.submitted.spec, job.spec.clone()));
    let run = pumice_ledger::RunId { job: job.submitted.job, attempt: 2 };
    let lease = spec.lease(run, "q", "set", "n1").expect("has a form");
    assert_eq!((lease.labels["job"].clone(), lease.labels["text"].as_str()), (run.job.to_string(), "JobId"));
    assert_eq!((lease.user.as_str(), lease.run_id, lease.attempt), ("ada", run.to_string(), 2));
    assert_eq!((lease.services.len(), lease.ingresses.len(), lease.ingresses[0].tls_enabled), (1, 1, true));
    let pod_spec = lease.pod_spec.expect("set").to_json().expect("decodes");
    assert_eq!(pod_spec["priorityClassName"], "armada-default");
}

#[test]
fn what_can_not_be_is_refused_with_its_place() {
    let by = Request { user: String::new(), at: TimeMs(0), random: 0 };
    let mut broken = request(&[json!({}), json!({})]);
    broken.job_request_items[1].pod_specs = vec![PodSpec::from_raw(vec![0x0a, 0x05, 1])];
    let mut large = request(&[json!({})]);
    large.job_request_items[0].pod_specs = vec![PodSpec::from_raw(vec![0; 65_536])];
    for (request, place) in [
        (broken, "jobRequestItems[1].podSpec:"),
        (large, "jobRequestItems[0].podSpec: it has more than 65535 bytes"),
        (request(&[json!({ "namespace": "" })]), "jobRequestItems[0].namespace:"),
        (request(&[json!({ "podSpecs": [] })]), "jobRequestItems[0].podSpec: it is missing"),
    ] {
        let error = submission(request, &Rules::default(), &by).expect_err("refused").to_string();
        assert!(error.starts_with(place), "{error}");
    }
}
