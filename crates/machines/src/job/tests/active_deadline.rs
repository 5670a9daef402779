//! `activeDeadlineSeconds`, as a field and as an annotation.

use pumice_api::batch::{Job, JobPhase as P};
use pumice_api::bus::Action;
use serde_json::{Value, json};

use super::model::{Model, simple};

fn limited(replicas: i32, seconds: i64, extra: Value) -> Job {
    let mut job = simple(replicas, extra);
    job.spec.active_deadline_seconds = Some(seconds);
    job
}

/// What happened, and what it says now.
fn phase_and_reason(model: &Model) -> (P, &str) {
    (model.phase(), model.job.status.state.reason.as_str())
}

#[test]
fn a_job_whose_time_is_over_fails_and_what_is_left_of_it_goes() {
    for by_field in [true, false] {
        let mut job = limited(3, 100, json!({}));
        if !by_field {
            job.spec.active_deadline_seconds = None;
            job.metadata.annotations =
                Some([("pumice.sh/active-deadline-seconds".to_owned(), "100".to_owned())].into());
        }
        let mut model = Model::running(job);
        model.pod("j-w-0", "Succeeded");
        model.sleep(99);
        model.settle();
        assert_eq!(model.phase(), P::Running);
        let wakes = model.plan(None).wake_at.unwrap();
        assert_eq!(wakes.duration_since(model.now).as_secs(), 1, "it is looked at again in time");
        model.sleep(1);
        model.settle();
        assert_eq!(phase_and_reason(&model), (P::Failed, "DeadlineExceeded"), "by field: {by_field}");
        assert_eq!(model.names(), ["j-w-0"], "what has ended stays");
        assert!(model.records.iter().any(|(reason, _)| *reason == "DeadlineExceeded"));
    }
}

#[test]
fn waiting_does_not_count_and_restarts_do() {
    let mut model = Model::new(limited(1, 100, json!({"maxRetry": 9})));
    model.settle();
    model.sleep(10_000);
    model.start();
    model.sleep(60);
    model.command(Action::RestartJob);
    model.start();
    model.sleep(40);
    model.settle();
    assert_eq!(phase_and_reason(&model), (P::Failed, "DeadlineExceeded"));
}

#[test]
fn a_suspended_job_starts_over() {
    let mut model = Model::running(limited(1, 100, json!({})));
    model.sleep(99);
    model.job.spec.suspend = Some(true);
    model.settle();
    model.sleep(10_000);
    model.job.spec.suspend = Some(false);
    model.settle();
    model.start();
    model.sleep(99);
    model.settle();
    assert_eq!(model.phase(), P::Running);
    model.sleep(1);
    model.settle();
    assert_eq!(phase_and_reason(&model), (P::Failed, "DeadlineExceeded"));
}

#[test]
fn a_job_whose_pods_have_all_ended_by_then_ends_by_them() {
    let mut model = Model::running(limited(2, 100, json!({})));
    model.sleep(200);
    model.all_pods("Succeeded");
    model.settle();
    assert_eq!(phase_and_reason(&model), (P::Completed, "PodsSucceeded"));
}

#[test]
fn a_deadline_may_come_later_and_go() {
    let mut model = Model::running(simple(1, json!({})));
    model.sleep(1_000);
    model.job.spec.active_deadline_seconds = Some(10);
    model.settle();
    assert_eq!(model.phase(), P::Running, "it counts from when it came");
    model.sleep(9);
    model.job.spec.active_deadline_seconds = None;
    model.sleep(100);
    model.settle();
    assert_eq!(model.phase(), P::Running);
}
