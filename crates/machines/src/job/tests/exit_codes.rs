//! Which exit codes policies see.

use k8s_openapi::api::core::v1::PodStatus;
use pumice_api::batch::JobPhase as P;
use serde_json::{Value, json};

use super::model::{Model, job};

/// A running job of one pod: containers `a` and `b`, an init container and a sidecar, with so many seconds to run.
fn running(policies: Value) -> Model {
    let template = json!({"spec": {
        "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
        "containers": [{"name": "a"}, {"name": "b"}],
        "activeDeadlineSeconds": 600,
    }});
    let tasks = json!([{"name": "w", "replicas": 1, "template": template}]);
    Model::running(job(json!({"minAvailable": 1, "policies": policies, "tasks": tasks})))
}

fn status(more: Value, codes: &[(&str, i32)], init: &[(&str, i32)]) -> PodStatus {
    let ended = |(name, code): &(&str, i32)| {
        json!({"name": name, "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T01:00:10Z"}}})
    };
    let all = |codes: &[(&str, i32)]| codes.iter().map(ended).collect::<Vec<_>>();
    let mut status = json!({"phase": "Failed", "startTime": "2026-01-01T00:50:10Z",
        "containerStatuses": all(codes), "initContainerStatuses": all(init)});
    status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(status).unwrap()
}

#[test]
fn a_container_that_failed_by_itself_counts_wherever_it_stands() {
    let target = |at: &str| {
        json!({"conditions": [{"type": "DisruptionTarget", "status": "True",
            "lastTransitionTime": format!("2026-01-01T{at}Z")}]})
    };
    let deadline = json!({"reason": "DeadlineExceeded"});
    let early = json!({"reason": "DeadlineExceeded", "startTime": "2026-01-01T00:50:30Z"});
    let none = json!({});
    let cases = [
        ("the first", &none, vec![("a", 42), ("b", 0)], vec![], true),
        ("the second", &none, vec![("a", 0), ("b", 42)], vec![], true),
        ("behind another that failed", &none, vec![("a", 1), ("b", 42)], vec![], true),
        ("an init container", &none, vec![], vec![("setup", 42)], true),
        ("a sidecar, which was stopped", &none, vec![("a", 1), ("b", 0)], vec![("proxy", 42)], false),
        ("none", &none, vec![("a", 1), ("b", 0)], vec![("setup", 0)], false),
        ("before the eviction", &target("01:00:11"), vec![("a", 42), ("b", 143)], vec![], true),
        ("after the eviction", &target("01:00:10"), vec![("a", 42), ("b", 143)], vec![], false),
        ("when the deadline was over", &deadline, vec![("a", 42), ("b", 0)], vec![], false),
        ("before it was", &early, vec![("a", 42), ("b", 143)], vec![], true),
    ];
    for (name, more, codes, init, expected) in cases {
        let mut model = running(json!([{"exitCode": 42, "action": "RestartJob"}]));
        model.pods.get_mut("j-w-0").unwrap().status = Some(status(more.clone(), &codes, &init));
        model.settle();
        let restarted = model.phases.contains(&P::Restarting);
        assert_eq!((restarted, model.job.status.retry_count), (expected, i32::from(expected)), "{name}");
    }
}

#[test]
fn the_first_rule_that_any_container_matches_wins() {
    let mut model = running(json!([{"exitCode": 3, "action": "AbortJob"}, {"exitCode": 42, "action": "RestartJob"}]));
    model.pods.get_mut("j-w-0").unwrap().status = Some(status(json!({}), &[("a", 42), ("b", 3)], &[]));
    model.settle();
    assert_eq!(model.phase(), P::Aborted);
    let told = model.records.iter().find(|record| record.0 == "ExecuteAction").map(|record| record.1.as_str());
    assert_eq!(told, Some("Start to execute action AbortJob: PodFailed of task w, pod 0, exit codes 42, 3"));
}
