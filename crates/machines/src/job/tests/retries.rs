//! Pods that failed and are made again under their index.

use pumice_api::batch::{JobPhase as P, PodRetry};
use pumice_api::bus::Action;
use serde_json::{Value, json};

use super::model::{Model, job};
use crate::job::RETRIES;
use crate::job::restart::pause;
use pumice_api::names::POD_RETRIES;

/// A job of pods of a task `w`, each of which is made again so often.
fn spec(replicas: i32, retries: i32, extra: Value) -> Value {
    let container = json!({"name": "c", "resources": {"limits": {"memory": "1Gi"}}});
    let mut spec = json!({"minAvailable": 1, "plugins": {"env": []}, "tasks": [{"name": "w", "replicas": replicas,
        "retries": retries, "template": {"spec": {"containers": [container]}}}]});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    spec
}

fn running(replicas: i32, retries: i32, extra: Value) -> Model {
    Model::running(job(spec(replicas, retries, extra)))
}

fn on_failure(action: &str) -> Value {
    json!({"policies": [{"event": "PodFailed", "action": action}]})
}

fn told<'a>(model: &'a Model, reason: &str) -> Vec<&'a str> {
    let about = model.records.iter().filter(|record| record.0 == reason);
    about.map(|record| record.1.as_str()).collect()
}

/// What `PUMICE_ATTEMPT` says in a pod.
fn attempt(model: &Model, name: &str) -> String {
    let container = &model.pods[name].spec.as_ref().unwrap().containers[0];
    let variable = container.env.iter().flatten().find(|variable| variable.name == "PUMICE_ATTEMPT");
    variable.and_then(|variable| variable.value.clone()).unwrap()
}

fn retried(indices: &str) -> Vec<PodRetry> {
    vec![PodRetry { task: "w".into(), indices: indices.into() }]
}

#[test]
fn a_pod_that_fails_is_made_again_while_the_others_run_on() {
    let mut model = running(3, 2, on_failure("AbortJob"));
    let stays = [model.uid("j-w-0"), model.uid("j-w-2")];
    for (time, expected) in [(1, "1"), (2, "1:2")] {
        model.pod_exits("j-w-1", "Failed", 3);
        model.settle();
        assert_eq!((model.phase(), model.job.status.retry_count, model.job.status.version), (P::Running, 0, 0));
        assert_eq!(model.job.status.pod_retries, retried(expected));
        assert_eq!(model.counts(), [1, 2, 0, 0, 0]);
        assert_eq!(attempt(&model, "j-w-1"), (time + 1).to_string());
        model.pod("j-w-1", "Running");
        model.settle();
    }
    assert_eq!(stays, [model.uid("j-w-0"), model.uid("j-w-2")]);
    assert_eq!(
        told(&model, "PodRetried"),
        [
            "task w, pod 1: failed with exit code 3 and made again (retry 1 of 2)",
            "task w, pod 1: failed with exit code 3 and made again after 10 s (retry 2 of 2)"
        ]
    );
    assert!(!model.job.metadata.annotations.clone().unwrap_or_default().contains_key(POD_RETRIES));
    model.pod("j-w-0", "Failed");
    model.settle();
    assert_eq!(model.job.status.pod_retries, retried("0,1:2"), "each index has its own");
    model.pod("j-w-1", "Failed");
    model.settle();
    assert_eq!(model.phase(), P::Aborted, "used up: the policy decides");
}

#[test]
fn without_a_policy_a_pod_stays_failed_in_the_end() {
    let mut model = running(2, 1, json!({}));
    model.pod("j-w-0", "Succeeded");
    for _ in 0..2 {
        model.pod("j-w-1", "Failed");
        model.settle();
    }
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 1, 1, 0]));
    let mut none = running(1, 0, json!({}));
    none.pod("j-w-0", "Failed");
    none.settle();
    assert_eq!(none.phase(), P::Failed);
}

#[test]
fn further_retries_wait_ever_longer() {
    let mut model = running(2, 3, json!({}));
    model.watches_time = true;
    model.linger = true;
    model.pod("j-w-0", "Failed");
    model.settle();
    assert_eq!(attempt(&model, "j-w-0"), "2", "the first comes at once");
    for (wait, next) in [(10, "3"), (20, "4")] {
        model.pod("j-w-0", "Failed");
        model.settle();
        assert_eq!((model.phase(), model.counts()), (P::Running, [0, 1, 0, 0, 1]));
        let due = model.plan(None).wake_at.unwrap();
        assert_eq!(due.duration_since(model.now).as_secs(), wait);
        model.sleep(wait - 1);
        model.settle();
        assert_ne!(attempt(&model, "j-w-0"), next);
        model.sleep(1);
        model.settle();
        assert_eq!(attempt(&model, "j-w-0"), next);
    }
    let mut quick = job(spec(1, 3, json!({})));
    quick.metadata.annotations = Some([(pause::RETRY_BACKOFF.to_owned(), "0s".to_owned())].into());
    let mut model = Model::running(quick);
    model.watches_time = true;
    for next in ["2", "3", "4"] {
        model.pod("j-w-0", "Failed");
        model.settle();
        assert_eq!(attempt(&model, "j-w-0"), next);
    }
}

#[test]
fn a_pause_of_a_clock_that_goes_wrong_is_over() {
    let mut model = running(1, 3, json!({}));
    model.watches_time = true;
    model.pod("j-w-0", "Failed");
    model.settle();
    model.sleep(3600);
    model.pod("j-w-0", "Failed");
    model.sleep(-3600);
    model.settle();
    assert_eq!(attempt(&model, "j-w-0"), "3");
}

#[test]
fn a_lost_node_and_an_eviction_cost_nothing() {
    let condition = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let cases = [
        (json!({"phase": "Failed", "reason": "NodeLost"}), true),
        (json!({"phase": "Failed", "reason": "Terminated", "message": "node shutdown"}), true),
        (json!({"phase": "Failed", "reason": "Evicted", "conditions": condition}), true),
        (json!({"phase": "Failed", "reason": "Evicted", "message": "used too much disk"}), false),
        (json!({"phase": "Failed", "reason": "DeadlineExceeded"}), false),
    ];
    for (status, free) in cases {
        let mut model = running(2, 1, on_failure("AbortJob"));
        for _ in 0..3 {
            let before = model.uid("j-w-1");
            model.pods.get_mut("j-w-1").unwrap().status = serde_json::from_value(status.clone()).unwrap();
            model.settle();
            if !free {
                break;
            }
            assert_ne!(model.uid("j-w-1"), before, "{status}");
        }
        assert_eq!(model.phase(), P::Running, "{status}");
        assert_eq!(model.job.status.pod_retries.is_empty(), free, "{status}");
        assert_eq!(told(&model, "PodReplaced").len(), usize::from(free), "{status}");
    }
    // Without retries it is what it was.
    let mut spec = spec(2, 0, on_failure("AbortJob"));
    spec["tasks"][0].as_object_mut().unwrap().remove("retries");
    let mut model = Model::running(job(spec));
    model.pods.get_mut("j-w-1").unwrap().status =
        serde_json::from_value(json!({"phase": "Failed", "reason": "NodeLost"})).unwrap();
    model.settle();
    assert_eq!(model.phase(), P::Aborted);
}

#[test]
fn more_memory_goes_first() {
    let policies = json!({"policies": [
        {"event": "OOMKilled", "action": "ScaleUpMemory", "scaleUp": {"tries": 1}},
        {"event": "PodFailed", "action": "AbortJob"}]});
    let mut model = running(2, 1, policies);
    model.out_of_memory("j-w-1");
    model.settle();
    assert_eq!((model.limit("j-w-1"), model.job.status.pod_retries.len()), ("2Gi", 0));
    assert_eq!(attempt(&model, "j-w-1"), "2", "it is a second run all the same");
    model.out_of_memory("j-w-1");
    model.settle();
    assert_eq!((model.limit("j-w-1"), attempt(&model, "j-w-1").as_str()), ("2Gi", "3"), "raised as often as may be");
    assert_eq!(model.job.status.pod_retries, retried("1"));
    model.out_of_memory("j-w-1");
    model.settle();
    assert_eq!(model.phase(), P::Aborted);
}

#[test]
fn where_the_definitions_are_volcanos_annotations_say_both() {
    let mut spec = spec(2, 0, on_failure("AbortJob"));
    let task = spec["tasks"][0].as_object_mut().unwrap();
    task.remove("retries");
    task["template"]["metadata"] = json!({"annotations": {RETRIES.annotation: "2"}});
    let mut model = Model::new(job(spec));
    model.prunes = true;
    model.settle();
    model.admit();
    model.settle();
    model.all_pods("Running");
    for next in ["2", "3"] {
        model.pod("j-w-1", "Failed");
        model.settle();
        assert_eq!((model.phase(), attempt(&model, "j-w-1").as_str()), (P::Running, next));
    }
    assert!(model.job.status.pod_retries.is_empty());
    let note = &model.job.metadata.annotations.as_ref().unwrap()[POD_RETRIES];
    assert_eq!(note, r#"{"retries":[{"indices":"1:2","task":"w"}],"uid":"u1"}"#);
    assert!(!model.group.as_ref().unwrap().metadata.annotations.clone().unwrap().contains_key(POD_RETRIES));
    model.pod("j-w-1", "Failed");
    model.settle();
    assert_eq!(model.phase(), P::Aborted);
}

#[test]
fn nothing_is_lost_or_done_twice_wherever_the_controller_stops() {
    for prunes in [false, true] {
        for effects in 0..8 {
            let mut model = running(3, 3, on_failure("AbortJob"));
            model.prunes = prunes;
            model.linger = true;
            model.pod("j-w-0", "Failed");
            model.pod("j-w-2", "Failed");
            let plan = model.plan(None);
            model.apply_effects(plan, effects);
            // And once more, in the next plan.
            let plan = model.plan(None);
            model.apply_effects(plan, effects / 2);
            model.settle();
            assert_eq!((model.phase(), model.job.status.retry_count), (P::Running, 0), "{prunes} {effects}");
            let attempts = ["j-w-0", "j-w-1", "j-w-2"].map(|name| attempt(&model, name));
            assert_eq!(attempts, ["2", "1", "2"], "{prunes} {effects}");
            assert_eq!(model.job.status.pod_retries.is_empty(), prunes, "{effects}");
        }
    }
}

#[test]
fn retries_survive_suspends_and_restarts_of_the_job() {
    let policies = json!({"policies": [{"event": "PodFailed", "action": "RestartJob"}]});
    let mut model = running(2, 1, policies);
    model.pod("j-w-1", "Failed");
    model.command(Action::AbortJob);
    assert_eq!((model.phase(), model.job.status.pod_retries.clone()), (P::Aborted, retried("1")));
    model.command(Action::ResumeJob);
    model.admit();
    model.settle();
    assert_eq!((attempt(&model, "j-w-0"), attempt(&model, "j-w-1")), ("1".to_owned(), "2".to_owned()));
    model.all_pods("Running");
    model.settle();
    model.pod("j-w-1", "Failed");
    model.settle();
    assert_eq!(model.job.status.retry_count, 1, "used up");
    model.admit();
    model.settle();
    assert_eq!((attempt(&model, "j-w-0"), attempt(&model, "j-w-1")), ("2".to_owned(), "3".to_owned()));
}

#[test]
fn a_restart_of_others_takes_a_retried_pod_along() {
    let policies = json!({"policies": [{"exitCode": 3, "action": "RestartTask"}]});
    let mut spec = spec(2, 1, policies);
    let mut beside = spec["tasks"][0].clone();
    beside["name"] = "v".into();
    beside.as_object_mut().unwrap().remove("retries");
    spec["tasks"].as_array_mut().unwrap().push(beside);
    let mut model = Model::running(job(spec));
    model.linger = true;
    model.pod("j-w-0", "Failed");
    model.pod_exits("j-v-1", "Failed", 3);
    model.settle();
    model.reap();
    model.settle();
    assert_eq!((model.job.status.retry_count, model.job.status.pod_retries.clone()), (1, retried("0")));
    assert_eq!((model.pods.len(), model.counts()), (4, [3, 1, 0, 0, 0]));
}

#[test]
fn a_retry_waits_for_room_like_any_other() {
    let mut spec = spec(4, 1, json!({}));
    spec["tasks"][0]["maxParallel"] = 2.into();
    spec["tasks"][0]["minAvailable"] = 1.into();
    let mut model = Model::running(job(spec));
    model.pod("j-w-0", "Failed");
    model.settle();
    assert_eq!(model.unfinished("w"), 2);
    for _ in 0..6 {
        model.all_pods("Succeeded");
        model.settle();
    }
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 4, 0, 0]));
}
