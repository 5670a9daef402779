//! The wire habits of Volcano's types: round trips, nulls, unknown words.

use k8s_openapi::{Metadata as _, Resource as _};
use pumice_api::batch::{Action, Event, Job, JobPhase};
use pumice_api::bus::Command;
use pumice_api::scheduling::{PodGroup, PodGroupPhase, Queue, QueueState};
use pumice_api::shard::NodeShard;
use serde_json::{Value, json};

fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(value: Value) -> Value {
    let typed: T = serde_json::from_value(value).expect("reads");
    serde_json::to_value(&typed).expect("writes")
}

fn job() -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": { "name": "mnist", "namespace": "team" },
        "spec": {
            "schedulerName": "volcano", "minAvailable": 3, "queue": "default", "maxRetry": 3,
            "plugins": { "env": [], "ssh": ["--no-root"] },
            "policies": [{ "event": "PodEvicted", "action": "RestartJob", "timeout": "10s" }],
            "volumes": [{ "mountPath": "/data", "volumeClaim": { "accessModes": ["ReadWriteOnce"] } }],
            "networkTopology": { "mode": "soft", "highestTierAllowed": 2 },
            "tasks": [{
                "name": "ps", "replicas": 1, "minAvailable": 0, "topologyPolicy": "single-numa-node",
                "policies": [{ "events": ["*"], "exitCode": 3, "action": "CompleteJob" }],
                "dependsOn": { "name": ["worker"], "iteration": "any" },
                "partitionPolicy": { "totalPartitions": 1, "partitionSize": 1 },
                "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } },
            }],
        },
        "status": {
            "state": { "phase": "Running", "lastTransitionTime": "2026-01-02T03:04:05Z" },
            "taskStatusCount": { "ps": { "phase": { "Running": 1 } } },
            "conditions": [{ "status": "Pending", "lastTransitionTime": "2026-01-02T03:04:05Z" }],
            "running": 1, "version": 2,
        },
    })
}

#[test]
fn full_objects_survive() {
    assert_eq!(round_trip::<Job>(job()), job());
    let group = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": { "name": "g" },
        "spec": {
            "minMember": 2, "minTaskMember": { "a": 1 }, "queue": "q", "minResources": { "cpu": "2" },
            "subGroupPolicy": [{ "name": "s", "subGroupSize": 2, "minSubGroups": 0, "matchLabelKeys": ["k"] }],
        },
        "status": { "phase": "Inqueue", "conditions": [{ "type": "Unschedulable", "status": "True", "transitionID": "7" }] },
    });
    assert_eq!(round_trip::<PodGroup>(group.clone()), group);
    let queue = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": { "name": "q" },
        "spec": {
            "weight": 2, "capability": { "cpu": "4" }, "reclaimable": false, "parent": "root", "dequeueStrategy": "fifo",
            "guarantee": { "resource": { "cpu": "1" } }, "deserved": { "cpu": "2" }, "type": "x",
            "affinity": { "nodeGroupAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": ["g"] } },
        },
        "status": { "state": "Open", "allocated": { "cpu": "1" } },
    });
    assert_eq!(round_trip::<Queue>(queue.clone()), queue);
    let command = json!({
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": { "generateName": "mnist-abortjob-" },
        "action": "AbortJob", "target": { "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "mnist", "uid": "u" },
    });
    assert_eq!(round_trip::<Command>(command.clone()), command);
}

#[test]
fn nulls_and_empty_words_read_as_absent() {
    let value = json!({
        "metadata": null,
        "spec": { "tasks": null, "plugins": null, "minAvailable": null, "queue": null, "networkTopology": null,
                  "policies": [{ "event": "", "action": "" }] },
        "status": { "state": { "phase": "" }, "conditions": null },
    });
    let job: Job = serde_json::from_value(value).expect("reads");
    assert_eq!(job.status.state.phase, None);
    assert_eq!(job.spec.policies[0].event, None);
    assert_eq!(
        serde_json::to_value(&job).expect("writes"),
        json!({ "apiVersion": Job::API_VERSION, "kind": "Job", "metadata": {}, "spec": { "policies": [{}] } })
    );
    let queue: Queue = serde_json::from_value(json!({ "status": { "allocated": null } })).expect("reads");
    assert_eq!(queue, Queue::default());
}

#[test]
fn unknown_words_survive() {
    let job: Job = serde_json::from_value(json!({
        "spec": { "policies": [{ "event": "Solstice", "action": "Dance" }] }, "status": { "state": { "phase": "Dreaming" } },
    }))
    .expect("reads");
    assert_eq!(job.spec.policies[0].event, Some(Event::Other("Solstice".into())));
    assert_eq!(job.spec.policies[0].action, Some(Action::Other("Dance".into())));
    assert_eq!(job.status.state.phase, Some(JobPhase::Other("Dreaming".into())));
    let back = serde_json::to_value(&job).expect("writes");
    assert_eq!(back["status"]["state"]["phase"], "Dreaming");
}

#[test]
fn every_known_word_is_read_back() {
    fn check<T: From<&'static str> + std::fmt::Display + std::fmt::Debug>(words: &[&'static str]) {
        for word in words {
            let parsed = T::from(word);
            assert_eq!(parsed.to_string(), *word);
            assert!(!format!("{parsed:?}").starts_with("Other"), "{word}");
        }
    }
    check::<Event>(Event::WORDS);
    check::<Action>(Action::WORDS);
    check::<JobPhase>(JobPhase::WORDS);
    check::<PodGroupPhase>(PodGroupPhase::WORDS);
    check::<QueueState>(QueueState::WORDS);
}

#[test]
fn what_a_kind_requires_is_written_even_if_empty() {
    let shard = serde_json::to_value(NodeShard::default()).expect("writes");
    assert_eq!(shard["spec"], json!({ "nodesDesired": [] }));
    assert_eq!(shard.get("status"), None);
}

#[test]
fn another_kind_is_refused() {
    let error =
        serde_json::from_value::<Job>(json!({ "apiVersion": "batch/v1", "kind": "Job" })).expect_err("other group");
    assert_eq!(error.to_string(), "expected apiVersion batch.volcano.sh/v1alpha1, found batch/v1");
    let error = serde_json::from_value::<Queue>(json!({ "kind": "Job" })).expect_err("other kind");
    assert_eq!(error.to_string(), "expected kind Queue, found Job");
}

#[test]
fn metadata_is_reachable_through_the_trait() {
    let mut job = Job::default();
    job.metadata_mut().name = Some("a".into());
    assert_eq!(job.metadata().name.as_deref(), Some("a"));
}
