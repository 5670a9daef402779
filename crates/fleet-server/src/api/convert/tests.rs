//! Submissions from the wire, case by case.

use pumice_fleet_model::grants::Grants;
use pumice_fleet_model::submission::annotations;
use pumice_ledger::RunId;
use serde_json::{Value, json};

use super::*;

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
    let rules = Rules { queue_access: Grants::privileged(), ..Rules::default() };
    submission(request(items), &rules, &by).expect("it breaks no rule")
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
    let spec: Value = serde_json::from_slice(&written.specs[&job.submitted.spec]).expect("JSON");
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
    assert_eq!(canonical(&one).expect("writes"), canonical(&two).expect("writes"));
    let (digest, _) = canonical(&json!({})).expect("writes");
    assert_eq!(digest.to_string(), "44136fa355b3678a1146ad16f7e8649e", "the first half of the SHA-256 of {{}}");
}

#[test]
fn a_specification_is_what_the_lease_is_made_of() {
    let written =
        written(&[json!({ "labels": { "job": "{JobId}", "text": "{{JobId}}" }, "services": [{ "ports": [80] }],
        "ingress": [{ "ports": [80], "tlsEnabled": true }] })]);
    let job = &written.jobs[0];
    let bytes = &written.specs[&job.submitted.spec];
    let spec = JobSpec::read(bytes).expect("reads");
    assert_eq!(spec.write().expect("writes"), (job.submitted.spec, bytes.clone()));
    let value = serde_json::to_value(&spec).expect("JSON");
    assert_eq!(canonical(&value).expect("writes").1, *bytes, "its fields are in order");
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

#[test]
fn jobs_that_ask_for_the_same_are_written_as_if_each_were_alone() {
    let gang = json!({ annotations::GANG_ID: "g", annotations::GANG_CARDINALITY: "2" });
    let items = [
        json!({ "priority": 1, "clientId": "a", "annotations": { annotations::EXTERNAL_JOB_URI: "at://all" } }),
        json!({ "annotations": gang }),
        json!({ "priority": 2, "annotations": { annotations::EXTERNAL_JOB_URI: "at://all" } }),
        json!({ "annotations": gang, "clientId": "b" }),
        json!({ "annotations": { annotations::EXTERNAL_JOB_URI: "at://all" }, "externalJobUri": "at://own" }),
    ];
    let together = written(&items);
    for (index, item) in items.iter().enumerate() {
        let alone = written(std::slice::from_ref(item));
        let mut wanted = alone.jobs[0].clone();
        wanted.submitted.job = together.jobs[index].submitted.job;
        assert_eq!(together.jobs[index], wanted);
        assert_eq!(together.specs[&wanted.submitted.spec], alone.specs[&wanted.submitted.spec]);
        assert_eq!(together.shapes[&wanted.submitted.shape], alone.shapes[&wanted.submitted.shape]);
    }
    assert_eq!((together.specs.len(), together.shapes.len()), (2, 1));
}

#[test]
fn the_first_that_is_wrong_is_told_also_among_jobs_that_are_alike() {
    let by = Request { user: String::new(), at: TimeMs(0), random: 0 };
    let (long, bad) = (json!({ "clientId": "x".repeat(101) }), json!({ "namespace": "" }));
    let long_again = "jobRequestItems[2].clientId:";
    for (items, place) in [
        (vec![json!({}), json!({}), long.clone(), bad.clone()], long_again),
        (vec![json!({}), bad.clone(), long.clone()], "jobRequestItems[1].namespace:"),
        (vec![bad.clone(), json!({}), bad], "jobRequestItems[0].namespace:"),
        (vec![json!({}), json!({ "namespace": "else" }), long, json!({ "priority": "NaN" })], long_again),
        (vec![json!({}), json!({ "priority": "NaN" })], "jobRequestItems[1].priority:"),
    ] {
        let error = submission(request(&items), &Rules::default(), &by).expect_err("refused").to_string();
        assert!(error.starts_with(place), "{error}");
    }
}

#[test]
fn programs_make_no_shape() {
    let amounts = json!({ "cpu": "500m", "memory": "64Mi" });
    let spec = |seed: &str| {
        let container = json!({ "name": "main", "image": "busybox", "command": ["run", seed], "args": [seed],
            "env": [{ "name": "SEED", "value": seed }], "ports": [{ "containerPort": 80, "hostPort": 8080 }],
            "resources": { "requests": amounts, "limits": amounts } });
        json!({ "containers": [container], "nodeSelector": { "zone": "a" }, "hostNetwork": true,
            "tolerations": [{ "key": "gpu", "operator": "Exists" }] })
    };
    let written = written(&["1", "2"].map(|seed| json!({ "podSpecs": [spec(seed)] })));
    let [one, two] = [0, 1].map(|job: usize| &written.jobs[job].submitted);
    assert_ne!(one.spec, two.spec);
    assert_eq!(one.shape, two.shape);
    // It is the one of the whole pod spec.
    let kept = JobSpec::read(&written.specs[&one.spec]).expect("reads");
    let whole: core::PodSpec = serde_json::from_value(kept.pod_spec).expect("a pod spec");
    let metadata = ObjectMeta { namespace: Some(kept.namespace), ..ObjectMeta::default() };
    let template = pumice_translate::pod_template(&metadata, &whole);
    assert_eq!(written.shapes[&one.shape].template, serde_json::to_value(template).expect("writes"));
}

#[test]
fn a_whole_job_is_written_with_what_each_of_its_pods_asks_for() {
    let amounts = json!({ "cpu": "500m", "memory": "64Mi" });
    let task = |name: &str, replicas: i64, least: i64| {
        json!({ "name": name, "replicas": replicas, "minAvailable": least, "template": {
            "metadata": { "labels": { "role": name } },
            "spec": { "nodeSelector": { "disk": name }, "containers": [{ "name": "main", "image": "busybox",
                "resources": { "requests": amounts, "limits": amounts } }] } } })
    };
    let job = json!({ "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": { "name": "train" },
        "spec": { "minAvailable": 2, "tasks": [task("master", 1, 1), task("worker", 3, 1)] } });
    let item = json!({ "namespace": "lab", "annotations": { annotations::VOLCANO_JOB: job.to_string() } });
    let request = serde_json::from_value(json!({ "queue": "q", "jobSetId": "set", "jobRequestItems": [item, item] }));
    let rules = Rules { volcano_jobs: submission::VolcanoJobs::judged_by(|_, _| Ok(())), ..Rules::default() };
    let by = Request { user: "ada".to_owned(), at: TimeMs(1_764_000_000_000), random: u128::MAX };
    let written = submission(request.expect("a request"), &rules, &by).expect("it breaks no rule");
    let [first, second] = written.jobs.as_slice() else { panic!("{written:?}") };
    assert_eq!((first.submitted.spec, first.submitted.shape), (second.submitted.spec, second.submitted.shape));
    let shape = &written.shapes[&first.submitted.shape];
    assert_eq!((shape.requests["cpu"], shape.requests["memory"]), (2_000, 4 * (64 << 20)), "all of it together");
    let whole = shape.volcano_job.as_ref().expect("it is whole");
    assert_eq!((whole.least, whole.parts.iter().map(|part| part.pods).collect::<Vec<_>>()), (2, vec![1, 1, 2]));
    assert_eq!(whole.parts[1].requests["cpu"], 500);
    let template = whole.parts[2].template.to_string();
    assert!(template.contains("worker"), "{template}");
    let spec = JobSpec::read(&written.specs[&first.submitted.spec]).expect("a specification");
    let run = RunId { job: first.submitted.job, attempt: 1 };
    let lease = spec.lease(run, "q", "set", "").expect("it has a form on the wire");
    let told: Value = serde_json::from_str(&lease.annotations[annotations::VOLCANO_JOB]).expect("JSON");
    assert_eq!(told["spec"]["tasks"].as_array().map(Vec::len), Some(2));
}
