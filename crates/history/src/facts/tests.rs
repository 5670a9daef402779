//! What versions say, by table.

use k8s_openapi::api::batch::v1 as kubernetes;
use pumice_api::batch::Job;
use pumice_api::scheduling::PodGroup;
use serde_json::{Value, json};

use super::*;
use crate::rows::Cell;

const NOW: i64 = 1_767_225_700_000;

fn gone() -> Fate {
    Fate::Gone(Timestamp::from_millisecond(NOW).unwrap())
}

/// The cells of all rows that say something, by table and column.
fn told(object: &dyn Facts, fate: Fate) -> Vec<Value> {
    let mut rows = Vec::new();
    object.rows(fate, Seen(3), &mut rows);
    let row = |row: &Row| {
        let said = row.table.columns().iter().zip(&row.cells).filter_map(|(column, cell)| {
            let value = match cell {
                Cell::Int(number) => json!((*number)?),
                Cell::Text(text) => json!(text.clone()?),
            };
            Some((column.name.to_owned(), value))
        });
        json!({ row.table.name(): said.collect::<serde_json::Map<_, _>>() })
    };
    rows.iter().map(row).collect()
}

fn metadata(kind: &str) -> Value {
    json!({"name": "train-7", "namespace": "ns", "uid": format!("{kind}-uid"), "resourceVersion": "41",
        "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"pumice.sh/user": "ann"}})
}

fn job(status: Value) -> Job {
    let container =
        json!({"name": "c", "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi", "cpu": "1"}}});
    let spec = json!({"queue": "q", "minAvailable": 2, "tasks": [
        {"name": "w", "replicas": 3, "template": {"spec": {"containers": [container.clone(), container]}}},
        {"replicas": 1, "template": {"spec": {"containers": []}}},
    ]});
    serde_json::from_value(json!({"metadata": metadata("job"), "spec": spec, "status": status})).unwrap()
}

#[test]
fn a_job_and_its_tasks() {
    let ended = job(json!({
        "state": {"phase": "Failed", "reason": "R", "message": "why", "lastTransitionTime": "2026-01-01T00:01:00Z"},
        "taskStatusCount": {"w": {"phase": {"Succeeded": 2, "Failed": 1}}}, "succeeded": 2, "failed": 1, "retryCount": 1,
        "conditions": [
            {"status": "Pending", "lastTransitionTime": "2026-01-01T00:00:01Z"},
            {"status": "Running", "lastTransitionTime": "2026-01-01T00:00:10Z"},
            {"status": "Failed", "lastTransitionTime": "2026-01-01T00:00:50Z"},
        ],
    }));
    insta::assert_json_snapshot!(told(&ended, Fate::There));
}

#[test]
fn a_job_that_is_deleted_before_its_end_ended_then() {
    let says = |job: Job, fate| {
        let row = told(&job, fate).pop().unwrap();
        ["phase", "ended", "gone"].map(|name| row["job"][name].clone())
    };
    let running = || job(json!({"state": {"phase": "Running"}}));
    assert_eq!(says(running(), Fate::There), [json!("Running"), Value::Null, Value::Null]);
    assert_eq!(says(running(), gone()), [json!("Deleted"), json!(NOW), json!(NOW)]);
    let done = job(json!({"state": {"phase": "Completed", "lastTransitionTime": "2026-01-01T00:01:00Z"}}));
    assert_eq!(says(done, gone()), [json!("Completed"), json!(1_767_225_660_000_i64), json!(NOW)]);
    assert_eq!(says(job(json!({})), Fate::There)[0], "Pending");
}

#[test]
fn a_job_of_kubernetes() {
    let cases = [
        (json!({}), "Pending"),
        (json!({"active": 1, "startTime": "2026-01-01T00:00:05Z"}), "Running"),
        (json!({"conditions": [{"type": "Suspended", "status": "True"}]}), "Suspended"),
        (
            json!({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}]}),
            "Completed",
        ),
        (json!({"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}), "Failed"),
        (json!({"conditions": [{"type": "Failed", "status": "False"}], "active": 2}), "Running"),
    ];
    for (status, phase) in cases {
        let job: kubernetes::Job = serde_json::from_value(json!({"metadata": metadata("job"), "status": status,
            "spec": {"completions": 2, "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}}}}))
        .unwrap();
        let row = told(&job, Fate::There).pop().unwrap();
        assert_eq!((&row["job"]["phase"], &row["job"]["cpu_milli"]), (&json!(phase), &json!(4000)));
        assert_eq!(row["job"]["ended"].is_i64(), phase == "Completed", "an end without a time has none");
    }
}

fn pod(of: &str, status: Value) -> SeenPod {
    let mut metadata = metadata("pod");
    metadata["annotations"] = json!({"volcano.sh/task-spec": "w", "volcano.sh/task-index": "3"});
    metadata["ownerReferences"] =
        json!([{"apiVersion": of, "kind": "Job", "name": "train-7", "uid": "job-uid", "controller": true}]);
    let spec = json!({"nodeName": "n1", "containers": [
        {"name": "a", "resources": {"requests": {"cpu": "250m", "memory": "1Mi"}}}, {"name": "b"}]});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

#[test]
fn an_attempt_that_was_killed_for_memory() {
    let killed = pod(
        "batch.volcano.sh/v1alpha1",
        json!({
            "phase": "Failed", "startTime": "2026-01-01T00:00:02Z",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"},
                {"type": "DisruptionTarget", "status": "True", "message": "preempt for ns/big; 0.1 core-hours lost"}],
            "containerStatuses": [
                {"name": "a", "restartCount": 1, "image": "", "imageID": "", "ready": false,
                    "lastState": {"terminated": {"exitCode": 1, "startedAt": "2026-01-01T00:00:03Z"}},
                    "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "startedAt": "2026-01-01T00:00:10Z",
                        "finishedAt": "2026-01-01T00:00:20Z"}}},
                {"name": "b", "restartCount": 0, "image": "", "imageID": "", "ready": false,
                    "state": {"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:04Z", "finishedAt": "2026-01-01T00:00:21Z"}}},
            ],
        }),
    );
    insta::assert_json_snapshot!(told(&killed, gone()));
}

#[test]
fn attempts_end_in_many_ways() {
    let says = |status: Value, fate| {
        let row = told(&pod("batch/v1", status), fate).pop().unwrap();
        ["phase", "reason", "exit_code", "ended"].map(|name| row["attempt"][name].clone())
    };
    let at = |seconds: i64| json!(1_767_225_600_000_i64 + seconds * 1000);
    let refused = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "m", "startTime": "2026-01-01T00:00:02Z"});
    assert_eq!(says(refused, Fate::There), [json!("Failed"), json!("OutOfcpu"), Value::Null, at(2)]);
    let state = json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:09Z"}});
    let done = json!({"phase": "Succeeded",
        "containerStatuses": [{"name": "a", "restartCount": 0, "image": "", "imageID": "", "ready": false, "state": state}]});
    assert_eq!(says(done, Fate::There), [json!("Succeeded"), json!(""), json!(0), at(9)]);
    assert_eq!(says(json!({"phase": "Running"}), gone()), [json!("Deleted"), json!(""), Value::Null, json!(NOW)]);
    assert_eq!(says(json!({}), Fate::There), [json!("Pending"), json!(""), Value::Null, Value::Null]);
}

#[test]
fn pods_of_no_job_have_no_place() {
    for (api, wanted) in [("batch/v1", 1), ("batch.volcano.sh/v1alpha1", 1), ("kubeflow.org/v1", 0), ("v1", 0)] {
        assert_eq!(told(&pod(api, json!({})), Fate::There).len(), wanted, "{api}");
    }
    assert!(told(&SeenPod::default(), gone()).is_empty());
    assert!(pod("batch/v1", json!({"phase": "Running"})).runs() && !pod("batch/v1", json!({"phase": "Failed"})).runs());
}

#[test]
fn a_group_tells_since_when_it_waits_and_when_it_was_placed() {
    let group = |conditions: Value| -> PodGroup {
        let mut metadata = metadata("group");
        metadata["ownerReferences"] = json!([{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train-7", "uid": "job-uid", "controller": true}]);
        serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": {"conditions": conditions}})).unwrap()
    };
    let condition = |kind: &str, status: &str, reason: &str, second: u8| {
        json!({"type": kind, "status": status, "reason": reason, "message": "why", "transitionID": "1",
            "lastTransitionTime": format!("2026-01-01T00:00:0{second}Z")})
    };
    let rows = told(
        &group(json!([
            condition("Unschedulable", "True", "NotEnoughResources", 1),
            condition("Scheduled", "True", "tasks in gang are ready", 2),
            condition("Unschedulable", "False", "Scheduled", 3)
        ])),
        Fate::There,
    );
    let classes: Vec<_> = rows
        .iter()
        .map(|row| (row["waits"]["class"].as_str().unwrap(), row["waits"]["since"].as_i64().unwrap() % 10_000))
        .collect();
    assert_eq!(classes, [("NotEnoughResources", 1_000), (PLACED, 2_000)]);
    assert!(told(&PodGroup::default(), Fate::There).is_empty());
}
