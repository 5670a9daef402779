//! Pods that ended and are gone.

use pumice_api::batch::JobPhase as P;
use pumice_api::bus::Action;
use pumice_api::names;
use serde_json::{Value, json};

use super::model::{Model, job, simple};

/// A running job of four pods, of which w-0 has succeeded and w-1 failed, which the status says.
fn half_done(extra: Value) -> Model {
    let mut model = Model::running(simple(4, extra));
    model.pod("j-w-0", "Succeeded");
    model.pod("j-w-1", "Failed");
    model.settle();
    model
}

fn extra() -> Value {
    json!({"minAvailable": 3, "policies": [{"event": "PodEvicted", "action": "RestartJob"}]})
}

fn note(model: &Model) -> Option<&String> {
    model.job.metadata.annotations.as_ref()?.get(names::ENDED_INDICES)
}

#[test]
fn they_count_and_are_not_made_again() {
    for seen in [true, false] {
        let mut model = half_done(extra());
        for name in ["j-w-0", "j-w-1"] {
            if seen { model.evict(name) } else { drop(model.pods.remove(name)) }
        }
        model.settle();
        assert_eq!((model.phase(), model.counts()), (P::Running, [0, 2, 1, 1, 0]), "seen: {seen}");
        assert_eq!(model.names(), ["j-w-2", "j-w-3"]);
        assert_eq!(note(&model).unwrap(), r#"{"tasks":{"w":"0,1:2"},"uid":"u1"}"#);
        model.all_pods("Succeeded");
        model.settle();
        assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 3, 1, 0]), "seen: {seen}");
        assert_eq!(model.job.status.retry_count, 0);
    }
}

/// A container that is told to end ends badly, and the kubelet says so before the pod is gone.
#[test]
fn a_pod_that_failed_because_it_was_deleted_is_made_again() {
    for (ended, again) in [("01:00:09", false), ("01:00:10", true), ("01:00:20", true)] {
        let mut model = Model::running(simple(2, json!({"minAvailable": 2})));
        let first = model.pods["j-w-0"].metadata.uid.clone();
        let status = json!({"phase": "Failed", "containerStatuses": [{
            "name": "main", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": {"terminated": {"exitCode": 143, "finishedAt": format!("2026-01-01T{ended}Z")}},
        }]});
        let pod = model.pods.get_mut("j-w-0").unwrap();
        pod.status = serde_json::from_value(status).unwrap();
        // Told at ten past one to be gone half a minute later.
        pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T01:00:40Z")).unwrap();
        pod.metadata.deletion_grace_period_seconds = Some(30);
        model.settle();
        assert_eq!(model.job.status.terminating, 1, "{ended}");
        model.reap();
        model.settle();
        let second = model.pods.get("j-w-0").map(|pod| pod.metadata.uid.clone());
        assert_eq!((second.is_some(), model.job.status.retry_count), (again, 0), "{ended}: {:?}", model.job.status);
        assert_ne!(second, Some(first), "{ended}");
    }
}

#[test]
fn nothing_is_lost_wherever_the_controller_stops() {
    for effects in 0..4 {
        let mut model = half_done(extra());
        model.evict("j-w-0");
        model.evict("j-w-1");
        let plan = model.plan(None);
        model.apply_effects(plan, effects);
        model.evicted.clear();
        model.settle();
        assert_eq!((model.phase(), model.counts()), (P::Running, [0, 2, 1, 1, 0]), "{effects}");
        assert_eq!(model.pods.len(), 2);
    }
}

#[test]
fn what_may_have_been_evicted_is_made_again() {
    let mut model = half_done(json!({"minAvailable": 1}));
    // Nobody can tell which of them had succeeded.
    model.pods.remove("j-w-0");
    model.pods.remove("j-w-2");
    model.settle();
    assert_eq!((model.phase(), model.pods.len(), note(&model)), (P::Running, 4, None));
}

#[test]
fn a_restart_makes_them_again() {
    let whole = json!({"minAvailable": 1, "policies": [{"exitCode": 7, "action": "RestartJob"}]});
    let task = json!({"minAvailable": 1, "policies": [{"exitCode": 7, "action": "RestartTask"}]});
    for extra in [whole, task] {
        let mut model = half_done(extra.clone());
        model.evict("j-w-0");
        model.evict("j-w-1");
        model.settle();
        model.pod_exits("j-w-2", "Failed", 7);
        model.settle();
        model.admit();
        model.settle();
        assert_eq!((model.names().len(), note(&model)), (4, None), "{extra}");
        assert_eq!((model.job.status.retry_count, model.counts()), (1, [4, 0, 0, 0, 0]), "{extra}");
    }
    let mut model = half_done(json!({"minAvailable": 1, "policies": [{"exitCode": 7, "action": "RestartPod"}]}));
    model.evict("j-w-0");
    model.settle();
    model.pod_exits("j-w-2", "Failed", 7);
    model.settle();
    assert_eq!(model.names(), ["j-w-1", "j-w-2", "j-w-3"], "one that is not meant stays ended");
}

#[test]
fn they_stay_ended_when_the_job_is_suspended() {
    let mut model = half_done(json!({"minAvailable": 2}));
    model.evict("j-w-0");
    model.settle();
    model.command(Action::AbortJob);
    model.settle();
    model.command(Action::ResumeJob);
    model.admit();
    model.settle();
    assert_eq!(model.names(), ["j-w-1", "j-w-2", "j-w-3"]);
    model.pod("j-w-2", "Succeeded");
    model.pod("j-w-3", "Succeeded");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 3, 1, 0]));
}

#[test]
fn a_note_that_came_with_a_manifest_means_nothing() {
    let mut copied = simple(2, json!({}));
    let text = r#"{"tasks":{"w":"0-1"},"uid":"another"}"#;
    copied.metadata.annotations = Some([(names::ENDED_INDICES.to_owned(), text.to_owned())].into());
    let model = Model::running(copied);
    assert_eq!((model.names().len(), note(&model)), (2, None));
}

#[test]
fn a_job_of_which_no_pod_is_left_ends() {
    let mut model = Model::running(job(json!({"tasks": [
        {"name": "a", "replicas": 1, "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]},
        {"name": "b", "replicas": 1}]})));
    model.pod("j-a-0", "Succeeded");
    model.evict("j-a-0");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 1, 0, 0]));
}
