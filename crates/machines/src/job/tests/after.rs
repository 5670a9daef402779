//! Jobs that wait for others.

use pumice_api::batch::{Job, JobPhase as P};
use pumice_api::bus::Action;
use serde_json::json;

use super::model::{Model, simple};
use crate::job::Effect;
use pumice_api::names::AFTER;
use pumice_api::names::AFTER_MET;

fn after(text: &str) -> Job {
    let mut job = simple(2, json!({"plugins": {"svc": []}}));
    job.metadata.annotations = Some([(AFTER.to_owned(), text.to_owned())].into());
    job
}

fn waiting(text: &str, others: &[(&str, P)]) -> Model {
    let mut model = Model::new(after(text));
    model.awaited = others.iter().map(|(name, phase)| ((*name).to_owned(), phase.clone())).collect();
    model.settle();
    model
}

fn state(model: &Model) -> (P, &str, &str) {
    let state = &model.job.status.state;
    (model.phase(), &state.reason, &state.message)
}

#[test]
fn nothing_is_made_before_each_has_ended_as_it_should() {
    let mut model = waiting("ok:a,failed:b,any:c", &[("a", P::Running), ("b", P::Pending)]);
    let message = "waits for job a to succeed; job b to fail; job c to end, which does not exist";
    assert_eq!(state(&model), (P::Pending, "WaitsForJobs", message));
    assert!(model.group.is_none() && model.applied.is_empty());
    assert!(model.records.contains(&("WaitsForJobs", message.to_owned())));
    model.awaited.insert("a".into(), P::Completed);
    model.settle();
    assert_eq!(state(&model).2, "waits for job b to fail; job c to end, which does not exist");
    model.awaited.clear();
    model.awaited.insert("c".into(), P::Aborted);
    model.awaited.insert("b".into(), P::Terminated);
    model.settle();
    assert_eq!(state(&model), (P::Pending, "", ""), "that a is gone by now makes no difference");
    model.awaited.clear();
    model.admit();
    model.settle();
    model.all_pods("Running");
    model.settle();
    assert_eq!((model.phase(), model.pods.len()), (P::Running, 2));
    assert!(!model.group.as_ref().unwrap().metadata.annotations.as_ref().unwrap().contains_key(AFTER_MET));
    model.command(Action::RestartJob);
    model.admit();
    model.settle();
    assert_eq!((model.phase(), model.pods.len()), (P::Pending, 2), "nobody is asked again");
}

#[test]
fn one_that_ends_otherwise_ends_those_that_wait() {
    let cases = [
        ("ok:a", P::Failed, "waited for job a to succeed, which is Failed"),
        ("ok:a", P::Terminated, "waited for job a to succeed, which is Terminated"),
        ("any:b,failed:a", P::Completed, "waited for job a to fail, which is Completed"),
    ];
    for (text, phase, message) in cases {
        let model = waiting(text, &[("a", phase)]);
        assert_eq!(state(&model), (P::Failed, "DependencyNotMet", message));
        assert!(model.group.is_none() && model.pods.is_empty());
        assert!(model.records.contains(&("DependencyNotMet", message.to_owned())));
    }
}

#[test]
fn a_suspended_job_may_still_succeed() {
    let mut model = waiting("ok:a", &[("a", P::Aborted)]);
    assert_eq!(state(&model).2, "waits for job a to succeed, which is suspended");
    model.awaited.insert("a".into(), P::Completed);
    model.settle();
    assert!(model.group.is_some());
}

#[test]
fn what_can_not_be_read_is_waited_for() {
    let mut model = waiting("a", &[]);
    assert_eq!(
        state(&model),
        (
            P::Pending,
            "WaitsForJobs",
            "annotation pumice.sh/after: \"a\" is none of ok:JOB, failed:JOB and any:JOB, separated by commas"
        )
    );
    model.job.metadata.annotations = None;
    model.settle();
    assert_eq!(state(&model), (P::Pending, "", ""));
    assert!(model.group.is_some());
}

#[test]
fn one_that_waits_can_be_suspended_and_ended() {
    let mut model = waiting("ok:a", &[]);
    model.command(Action::AbortJob);
    assert_eq!(model.phase(), P::Aborted);
    model.command(Action::ResumeJob);
    assert_eq!((model.phase(), model.job.status.state.reason.as_str()), (P::Pending, "WaitsForJobs"));
    model.command(Action::TerminateJob);
    assert_eq!(model.phase(), P::Terminated);
}

#[test]
fn a_job_that_has_begun_waits_for_nothing() {
    let mut model = Model::running(simple(2, json!({})));
    model.job.metadata.annotations = Some([(AFTER.to_owned(), "ok:a".to_owned())].into());
    model.awaited.insert("a".into(), P::Failed);
    model.settle();
    assert_eq!(model.phase(), P::Running);
}

#[test]
fn an_end_that_was_seen_is_written_before_anything_is_made_of_it() {
    let mut model = Model::new(after("ok:a,ok:b"));
    model.awaited.insert("a".into(), P::Completed);
    let plan = model.plan(None);
    assert!(matches!(plan.stages[0][..], [Effect::Annotate { key: AFTER_MET, .. }]), "{plan:?}");
    model.apply_effects(plan, 1);
    model.awaited.clear();
    model.awaited.insert("b".into(), P::Completed);
    model.settle();
    assert!(model.group.is_some());
    let note = &model.job.metadata.annotations.as_ref().unwrap()[AFTER_MET];
    assert_eq!(note, r#"{"met":["ok:a","ok:b"],"uid":"u1"}"#);
    model.job.metadata.uid = Some("another".into());
    model.group = None;
    model.awaited.clear();
    model.settle();
    assert_eq!(model.job.status.state.reason, "WaitsForJobs", "a copied note means nothing");
}
