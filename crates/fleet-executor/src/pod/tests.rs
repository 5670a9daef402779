//! Pods of leases, as golden files.

use std::collections::BTreeMap;

use pumice_fleet_model::grants::Grants;
use pumice_fleet_model::names::former_pod_name;
use pumice_wire::api::{IngressConfig, ServiceConfig};
use pumice_wire::kubernetes::PodSpec;
use serde_json::json;

use super::*;
use crate::facts::PodFacts;

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
    let settings = Settings { queue_access: Grants::privileged(), ..Settings::default() };
    build(RUN.parse().expect("parses"), lease, &settings).expect("builds")
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

/// What the server takes is refused by a cluster that does not grant it: a single pod and a Volcano job.
#[test]
fn a_cluster_grants_by_itself_what_queues_may_do() {
    let host = json!({ "containers": [{ "name": "main", "image": "busybox" }], "hostNetwork": true });
    let job = json!({ "spec": { "tasks": [{ "name": "t", "template": { "spec": host } }] } });
    let whole =
        |lease: Lease| Lease { annotations: [(annotations::VOLCANO_JOB.to_owned(), job.to_string())].into(), ..lease };
    let run = RUN.parse().expect("parses");
    let plain = lease(&json!({ "containers": [{ "name": "main", "image": "busybox" }] }));
    let granted = |queue: &str, access: Value| Settings {
        queue_access: serde_json::from_value(json!({ queue: access })).expect("grants"),
        ..Settings::default()
    };
    let privileged = || granted(&plain.queue, json!({ "pods": "privileged" }));
    let elsewhere = granted(&plain.queue, json!({ "namespaces": ["other"] }));
    for (lease, settings, problem) in [
        (lease(&host), Settings::default(), Some("podSpec.hostNetwork")),
        (lease(&host), privileged(), None),
        (whole(lease(&host)), Settings::default(), Some("podSpec.hostNetwork")),
        (whole(lease(&host)), privileged(), None),
        (plain.clone(), elsewhere.clone(), Some("namespace")),
        (whole(plain.clone()), elsewhere, Some("namespace")),
        (Lease { namespace: "kube-system".to_owned(), ..plain.clone() }, Settings::default(), Some("namespace")),
    ] {
        let built = build(run, &lease, &settings).map_err(|error| error.to_string());
        match (&built, problem) {
            (Ok(_), None) => {}
            (Err(said), Some(problem)) => assert!(said.contains(problem), "{said}"),
            _ => panic!("{built:?} and not {problem:?}"),
        }
    }
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
fn the_first_attempt_has_armadas_name_and_each_later_one_the_next() {
    let job = "00000000000000000000000001";
    for (attempt, number) in [(1, 0), (2, 1), (11, 10)] {
        let run = RunId { job: pumice_ledger::JobId(1), attempt };
        assert_eq!((pod_number(run), pod_name(run)), (number, format!("armada-{job}-{number}")));
        assert_eq!(former_pod_name(run), format!("armada-{job}-{attempt}"));
    }
}
