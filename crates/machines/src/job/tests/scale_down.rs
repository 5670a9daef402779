//! Who leaves when a task shrinks.

use pumice_api::batch::{Job, JobPhase as P};
use serde_json::{Value, json};

use super::model::{Model, simple};

fn pending_first(replicas: i32, extra: Value) -> Job {
    let mut job = simple(replicas, extra);
    job.spec.min_available = 1;
    job.metadata.annotations = Some([("pumice.sh/scale-down".to_owned(), "pending-first".to_owned())].into());
    job
}

/// A job of five pods, of which the second and the last run.
fn half_running(job: Job) -> Model {
    let mut model = Model::new(job);
    model.settle();
    model.admit();
    model.settle();
    model.pod("j-w-1", "Running");
    model.pod("j-w-4", "Running");
    model.settle();
    model
}

#[test]
fn those_that_wait_leave_before_those_that_run() {
    let mut model = half_running(pending_first(5, json!({})));
    model.job.spec.tasks[0].replicas = 3;
    model.settle();
    assert_eq!(model.names(), ["j-w-0", "j-w-1", "j-w-4"], "of those that wait the highest");
    model.job.spec.tasks[0].replicas = 1;
    model.settle();
    assert_eq!(model.names(), ["j-w-1"], "and of those that run");
    assert_eq!(model.counts(), [0, 1, 0, 0, 0]);
    model.job.spec.tasks[0].replicas = 3;
    model.settle();
    assert_eq!(model.names(), ["j-w-0", "j-w-1", "j-w-2"], "the lowest that are free");
    model.all_pods("Succeeded");
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Completed, [0, 0, 3, 0, 0]));
}

#[test]
fn who_was_told_to_leave_leaves_whatever_becomes_of_the_others() {
    let mut model = half_running(pending_first(5, json!({})));
    model.linger = true;
    model.job.spec.tasks[0].replicas = 2;
    model.settle();
    model.pod("j-w-0", "Running");
    model.settle();
    model.reap();
    model.settle();
    assert_eq!(model.names(), ["j-w-1", "j-w-4"]);
}

#[test]
fn what_has_ended_is_kept() {
    let mut model = half_running(pending_first(5, json!({})));
    model.pod("j-w-4", "Succeeded");
    model.settle();
    model.job.spec.tasks[0].replicas = 2;
    model.settle();
    assert_eq!((model.names(), model.counts()), (vec!["j-w-1", "j-w-4"], [0, 1, 1, 0, 0]));
}

#[test]
fn where_nothing_is_said_or_plugins_number_pods_the_highest_leave() {
    let said_nothing = {
        let mut job = pending_first(5, json!({}));
        job.metadata.annotations = None;
        job
    };
    for job in [said_nothing, pending_first(5, json!({"plugins": {"env": []}}))] {
        let mut model = half_running(job);
        model.job.spec.tasks[0].replicas = 2;
        model.settle();
        assert_eq!(model.names(), ["j-w-0", "j-w-1"]);
    }
}
