//! Pods of leases, as golden files.

use std::collections::BTreeMap;

use pumice_wire::api::{IngressConfig, ServiceConfig};
use pumice_wire::kubernetes::PodSpec;
use serde_json::json;

use super::*;
use crate::executor::facts::PodFacts;

const RUN: &str = "00000000000000000000000001-2";

fn lease(spec: &Value) -> Lease {
    let texts = |all: &[(&str, &str)]| all.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    Lease {
        run_id: RUN.to_owned(),
        job_id: "00000000000000000000000001".to_owned(),
        attempt: 2,
        queue: "q".to_owned(),
        job_set: "set/1".to_owned(),
        user: "ada".to_owned(),
        namespace: "n".to_owned(),
        node: "node-a".to_owned(),
        pod_spec: Some(PodSpec::from_json(spec).expect("encodes")),
        labels: texts(&[("app", "x"), ("armada_queue_id", "forged")]),
        annotations: texts(&[("note", "y")]),
        ..Lease::default()
    }
}

fn built(lease: &Lease) -> Objects {
    build(RUN.parse().expect("parses"), lease, &Settings::default()).expect("builds")
}

#[test]
fn a_plain_pod() {
    let spec = json!({ "restartPolicy": "Always", "containers": [{ "name": "main", "image": "busybox" }] });
    insta::assert_json_snapshot!(built(&lease(&spec)).pod);
}

#[test]
fn a_gang_with_variables_of_its_own_and_two_places_to_be() {
    let term = |zone: &str| json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] });
    let other = json!({ "matchFields": [{ "key": "metadata.name", "operator": "NotIn", "values": ["node-b"] }] });
    let spec = json!({
        "initContainers": [{ "name": "first", "image": "busybox" }],
        "containers": [{ "name": "main", "image": "busybox", "env": [
            { "name": "ARMADA_QUEUE", "value": "mine" }, { "name": "COPY", "value": "$(ARMADA_JOB_ID)" }] }],
        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [term("a"), term("b"), other, {}] } } },
    });
    let mut lease = lease(&spec);
    for (key, text) in
        [(annotations::GANG_ID, "g"), (annotations::GANG_CARDINALITY, "2"), (annotations::GANG_UNIFORMITY, "zone")]
    {
        lease.annotations.insert(key.to_owned(), text.to_owned());
    }
    lease.labels.insert("zone".to_owned(), "a".to_owned());
    insta::assert_json_snapshot!(built(&lease).pod);
}

#[test]
fn services_and_ingresses_stand_beside_it() {
    let spec = json!({ "containers": [{ "name": "main", "image": "busybox", "ports": [
        { "containerPort": 80 }, { "containerPort": 81 }, { "containerPort": 82, "hostPort": 82 }] }] });
    let services = vec![
        ServiceConfig { r#type: 0, ports: vec![80, 9], name: String::new() },
        ServiceConfig { r#type: 1, ports: vec![82], name: String::new() },
        ServiceConfig { r#type: 1, ports: vec![81], name: "own".to_owned() },
    ];
    let ingresses = vec![
        IngressConfig { ports: vec![80], tls_enabled: true, ..IngressConfig::default() },
        IngressConfig { ports: vec![81], use_cluster_ip: true, cert_name: "c".to_owned(), ..IngressConfig::default() },
    ];
    let objects = built(&Lease { services, ingresses, ..lease(&spec) });
    insta::assert_json_snapshot!(json!({ "services": objects.services, "ingresses": objects.ingresses }));
}

#[test]
fn what_nothing_can_be_made_of_is_refused() {
    let spec = json!({ "containers": [{ "name": "main", "image": "busybox" }] });
    let whole = lease(&spec);
    let broken = Some(PodSpec::from_raw(vec![0x0a, 0x05, 1]));
    let run = RUN.parse().expect("parses");
    let error = |lease: &Lease| build(run, lease, &Settings::default()).expect_err("refuses");
    assert!(matches!(error(&Lease { pod_spec: broken, ..whole.clone() }), PodError::Spec { .. }));
    assert_eq!(error(&Lease { pod_spec: None, ..whole.clone() }), PodError::NoContainers);
    assert_eq!(error(&Lease { node: String::new(), ..whole }), PodError::NoNode);
}

#[test]
fn the_pod_tells_after_how_long_it_is_cut_off_and_nobody_else_does() {
    let spec = json!({ "containers": [{ "name": "main", "image": "busybox" }] });
    for (cut_off_ms, told) in [(0, None), (150_000, Some(150_000)), (u64::MAX, Some(i64::MAX))] {
        let mut lease = Lease { cut_off_ms, ..lease(&spec) };
        lease.annotations.insert(CUT_OFF_ANNOTATION.to_owned(), "1".to_owned());
        let pod = serde_json::from_value(built(&lease).pod).expect("a pod");
        assert_eq!(PodFacts::of(&pod).expect("of a run").cut_off_ms, told);
    }
}

#[test]
fn the_same_lease_gives_the_same_pod() {
    let spec = json!({ "containers": [{ "name": "main", "image": "busybox" }] });
    let lease = Lease { labels: BTreeMap::new(), ..lease(&spec) };
    assert_eq!(built(&lease), built(&lease));
}

#[test]
fn a_whole_job() {
    let job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": { "name": "train", "finalizers": ["x/y"], "labels": { "team": "a", RUN_LABEL: "forged" },
            "annotations": { "note": "mine" } },
        "spec": {
            "minAvailable": 2, "queue": "theirs", "priorityClassName": "armada-default", "ttlSecondsAfterFinished": 1,
            "plugins": { "svc": [] },
            "tasks": [{ "name": "worker", "replicas": 2, "template": {
                "metadata": { "labels": { "role": "worker" } },
                "spec": { "priorityClassName": "armada-default", "restartPolicy": "OnFailure",
                    "containers": [{ "name": "main", "image": "busybox", "env": [{ "name": "X", "value": "y" }] }] } } }],
        },
    });
    let mut lease = lease(&json!({}));
    lease.annotations.insert(annotations::VOLCANO_JOB.to_owned(), job.to_string());
    lease.cut_off_ms = 60_000;
    let objects = built(&lease);
    assert_eq!(objects.kind, Kind::Job);
    insta::assert_json_snapshot!(objects.pod);
}

#[test]
fn a_run_is_read_of_the_names_of_its_pods() {
    let run: RunId = RUN.parse().expect("parses");
    for name in [pod_name(run), format!("{}-worker-0", pod_name(run)), format!("{}-a-b-12", pod_name(run))] {
        assert_eq!(run_of(&name), Some(run), "{name}");
    }
    for name in ["armada-", "armada-x-1", "other", "armada-00000000000000000000000001"] {
        assert_eq!(run_of(name), None, "{name}");
    }
}
