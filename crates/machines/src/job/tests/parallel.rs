//! Tasks of which only some pods are there at once.

use pumice_api::batch::JobPhase as P;
use pumice_api::bus::Action;
use serde_json::{Value, json};

use super::model::{Model, job};
use crate::job::{Effect, MAX_PARALLEL};

/// A job of `replicas` pods of a task `w`, of which `most` may be there at once, and of one more task if `beside` is given.
fn spec(replicas: i32, most: i32, extra: Value) -> Value {
    let resources = json!({"requests": {"cpu": "1"}});
    let mut spec = json!({"minAvailable": 1, "tasks": [{"name": "w", "replicas": replicas, "minAvailable": 1,
        "maxParallel": most, "template": {"spec": {"containers": [{"name": "c", "resources": resources}]}}}]});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    spec
}

fn running(replicas: i32, most: i32, extra: Value) -> Model {
    Model::running(job(spec(replicas, most, extra)))
}

fn names(indices: &[i32]) -> Vec<String> {
    indices.iter().map(|index| format!("j-w-{index}")).collect()
}

/// Indices of the pods that have not ended.
fn alive(model: &Model) -> Vec<i32> {
    let live = model.names().into_iter().filter(|name| !model.has_ended(name));
    let mut indices: Vec<i32> = live.map(|name| name.rsplit('-').next().unwrap().parse().unwrap()).collect();
    indices.sort_unstable();
    indices
}

#[test]
fn the_next_is_made_when_one_ends_until_all_have() {
    let mut model = running(7, 3, json!({}));
    assert_eq!((alive(&model), model.counts()), (vec![0, 1, 2], [0, 3, 0, 0, 0]));
    for (end, phase, left) in [
        (1, "Succeeded", vec![0, 2, 3]),
        (0, "Failed", vec![2, 3, 4]),
        (4, "Succeeded", vec![2, 3, 5]),
        (2, "Succeeded", vec![3, 5, 6]),
        (3, "Succeeded", vec![5, 6]),
        (6, "Succeeded", vec![5]),
    ] {
        model.pod(&format!("j-w-{end}"), phase);
        model.settle();
        assert_eq!((alive(&model), model.phase()), (left, P::Running), "after {end}");
    }
    model.pod("j-w-5", "Succeeded");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 6, 1, 0]));
}

#[test]
fn the_annotation_means_the_same() {
    let mut spec = spec(5, 1, json!({}));
    let task = spec["tasks"][0].as_object_mut().unwrap();
    task.remove("maxParallel");
    task["template"]["metadata"] = json!({"annotations": {MAX_PARALLEL.annotation: "2"}});
    assert_eq!(alive(&Model::running(job(spec))), [0, 1]);
}

#[test]
fn what_still_stops_has_its_place() {
    let mut model = running(4, 2, json!({}));
    model.linger = true;
    model.evict("j-w-0");
    model.settle();
    assert_eq!(model.names(), names(&[0, 1]), "it may run on for a while");
    model.reap();
    model.settle();
    assert_eq!(model.names(), names(&[0, 1]), "the same index again, it has no result");
    model.job.spec.tasks[0].replicas = 1;
    model.settle();
    model.job.spec.tasks[0].replicas = 3;
    model.settle();
    assert_eq!(model.names(), names(&[0, 1]));
    model.job.spec.tasks[0].max_parallel = Some(3);
    model.settle();
    assert_eq!(model.names(), names(&[0, 1, 2]), "it may change");
}

#[test]
fn surplus_pods_that_stop_count_too() {
    let mut model = running(5, 2, json!({}));
    for name in ["j-w-1", "j-w-2"] {
        model.pod(name, "Succeeded");
        model.settle();
    }
    assert_eq!(alive(&model), [0, 3]);
    model.job.spec.tasks[0].replicas = 3;
    model.job.spec.tasks[0].max_parallel = Some(1);
    model.evict("j-w-0");
    model.linger = true;
    model.settle();
    assert_eq!(alive(&model), [3], "of no wanted index, and it stops");
    model.reap();
    model.settle();
    assert_eq!(alive(&model), [0]);
}

#[test]
fn what_has_ended_is_not_made_again_after_a_suspend_or_when_it_is_removed() {
    let mut model = running(5, 2, json!({}));
    for name in ["j-w-0", "j-w-1"] {
        model.pod(name, "Succeeded");
    }
    model.settle();
    model.evict("j-w-1");
    model.command(Action::AbortJob);
    assert_eq!((model.phase(), alive(&model)), (P::Aborted, vec![]));
    model.command(Action::ResumeJob);
    model.admit();
    model.settle();
    assert_eq!((alive(&model), model.counts()), (vec![2, 3], [2, 0, 2, 0, 0]));
    for index in [2, 3, 4] {
        model.pod(&format!("j-w-{index}"), "Succeeded");
        model.settle();
    }
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 5, 0, 0]));
}

#[test]
fn a_restart_of_the_job_begins_with_the_first() {
    let mut model = running(4, 2, json!({"policies": [{"event": "PodFailed", "action": "RestartJob"}]}));
    model.linger = true;
    model.pod("j-w-0", "Succeeded");
    model.settle();
    model.pod("j-w-1", "Failed");
    model.settle();
    model.reap();
    model.settle();
    model.admit();
    model.settle();
    assert_eq!((model.job.status.retry_count, alive(&model)), (1, vec![0, 1]));
}

#[test]
fn enough_successes_end_it_though_pods_were_never_made() {
    let mut model = running(9, 2, json!({"minSuccess": 3}));
    for index in 0..3 {
        model.pod(&format!("j-w-{index}"), "Succeeded");
        model.settle();
    }
    assert_eq!((model.phase(), model.job.status.succeeded, model.pods.len()), (P::Completed, 3, 3));
}

#[test]
fn the_group_asks_for_no_more_than_can_be_there() {
    let mut spec = spec(9, 2, json!({"minAvailable": 3}));
    spec["tasks"][0]["minAvailable"] = 0.into();
    let mut beside = spec["tasks"][0].clone();
    beside["name"] = "v".into();
    beside["replicas"] = 1.into();
    beside["minAvailable"] = 1.into();
    spec["tasks"].as_array_mut().unwrap().push(beside);
    let mut model = Model::new(job(spec));
    model.settle();
    let group = &model.group.as_ref().unwrap().spec;
    assert_eq!((group.min_member, group.min_resources.as_ref().unwrap()["cpu"].0.as_str()), (3, "3"));
    model.job.spec.tasks[0].min_available = None;
    model.settle();
    assert_eq!(model.group.as_ref().unwrap().spec.min_task_member["w"], 2, "all that may be there at once");
}

#[test]
fn of_very_many_only_those_are_made() {
    let mut model = Model::new(job(spec(100_000, 200, json!({}))));
    model.settle();
    model.admit();
    let made = |model: &Model| {
        let plan = model.plan(None);
        plan.stages.iter().flatten().filter(|effect| matches!(effect, Effect::CreatePod(_))).count()
    };
    assert_eq!(made(&model), 200);
    model.settle();
    model.all_pods("Running");
    (0..50).for_each(|index| model.pod(&format!("j-w-{index}"), "Succeeded"));
    assert_eq!(made(&model), 50);
}
