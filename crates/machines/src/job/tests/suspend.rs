//! `suspend`, as a field and as an annotation.

use pumice_api::batch::JobPhase as P;
use pumice_api::bus::Action;
use serde_json::json;

use super::model::{Model, simple};

/// Says it as a field, or as an annotation.
fn suspend(model: &mut Model, by_field: bool, suspended: bool) {
    if by_field {
        model.job.spec.suspend = Some(suspended);
    } else {
        let annotations = model.job.metadata.annotations.get_or_insert_default();
        annotations.insert("pumice.sh/suspend".to_owned(), suspended.to_string());
    }
}

#[test]
fn a_job_that_is_made_suspended_has_nothing_until_it_is_taken_back() {
    for by_field in [true, false] {
        let mut model = Model::new(simple(2, json!({})));
        suspend(&mut model, by_field, true);
        model.settle();
        assert_eq!(model.phase(), P::Aborted);
        assert!(model.group.is_none() && model.pods.is_empty(), "it waits in no queue");
        assert_eq!(model.job.status.state.reason, "Suspended");
        suspend(&mut model, by_field, false);
        model.settle();
        model.start();
        assert_eq!(model.counts(), [0, 2, 0, 0, 0]);
        assert_eq!(model.job.status.retry_count, 0, "that costs no retry");
    }
}

#[test]
fn what_has_ended_is_kept_and_the_rest_runs_again() {
    for by_field in [true, false] {
        let mut model = Model::running(simple(3, json!({})));
        model.pod("j-w-0", "Succeeded");
        model.settle();
        suspend(&mut model, by_field, true);
        model.settle();
        assert_eq!((model.phase(), model.counts()), (P::Aborted, [0, 0, 1, 0, 0]));
        assert!(model.group.is_none());
        suspend(&mut model, by_field, false);
        model.settle();
        model.admit();
        model.settle();
        assert_eq!(model.counts(), [2, 0, 1, 0, 0], "by field: {by_field}");
        model.all_pods("Succeeded");
        model.settle();
        assert_eq!(model.phase(), P::Completed);
    }
}

#[test]
fn the_field_counts_before_the_annotation() {
    let mut model = Model::running(simple(1, json!({})));
    suspend(&mut model, true, false);
    suspend(&mut model, false, true);
    model.settle();
    assert_eq!(model.phase(), P::Running);
}

#[test]
fn a_job_that_a_person_aborted_stays_so() {
    let mut model = Model::running(simple(1, json!({"suspend": false})));
    model.command(Action::AbortJob);
    model.settle();
    assert_eq!((model.phase(), model.job.status.state.reason.as_str()), (P::Aborted, "AbortJob"));
}

#[test]
fn a_job_that_has_ended_is_not_suspended() {
    let mut model = Model::running(simple(1, json!({})));
    model.all_pods("Succeeded");
    model.settle();
    suspend(&mut model, true, true);
    model.settle();
    assert_eq!(model.phase(), P::Completed);
}

#[test]
fn a_job_that_starts_over_is_suspended_on_the_way() {
    let mut model = Model::running(simple(2, json!({})));
    model.linger = true;
    let plan = model.plan(Some(&Action::RestartJob));
    model.apply(plan, usize::MAX);
    assert_eq!(model.phase(), P::Restarting);
    suspend(&mut model, true, true);
    for _ in 0..3 {
        model.settle();
        model.reap();
    }
    model.settle();
    assert_eq!((model.phase(), model.counts()), (P::Aborted, [0, 0, 0, 0, 0]));
}

#[test]
fn a_suspended_job_is_cancelled_without_starting_again() {
    // Suspended by a Command or by its spec; while its pods run, while they still stop, before it had any.
    for (by_spec, started, stopped) in
        [(false, true, true), (false, true, false), (false, false, true), (true, true, true), (true, false, true)]
    {
        let case = format!("by spec: {by_spec}, started: {started}, stopped: {stopped}");
        let spec = simple(2, json!({"plugins": {"svc": []}}));
        let mut model = if started { Model::running(spec) } else { Model::new(spec) };
        model.linger = !stopped;
        model.settle();
        if started {
            model.pod("j-w-0", "Succeeded");
            model.settle();
        }
        if by_spec {
            suspend(&mut model, true, true);
        } else {
            model.command(Action::AbortJob);
        }
        model.settle();
        assert_eq!(model.phase(), if stopped { P::Aborted } else { P::Aborting }, "{case}");
        model.phases.clear();
        model.command(Action::TerminateJob);
        model.settle();
        model.reap();
        model.settle();
        assert_eq!(model.phases, [P::Terminating, P::Terminated], "{case}");
        assert_eq!(model.job.status.state.reason, "TerminateJob", "{case}");
        let succeeded = i32::from(started);
        assert_eq!(model.counts(), [0, 0, succeeded, 0, 0], "what has ended is kept; {case}");
        assert!(model.group.is_none() && model.applied.is_empty(), "{case}");
        assert_eq!(model.job.status.retry_count, 0, "{case}");
        model.command(Action::ResumeJob);
        model.settle();
        assert_eq!(model.phase(), P::Terminated, "it stays so; {case}");
    }
}
