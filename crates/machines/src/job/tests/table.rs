//! Rows of tables: phase by action, rules of Running and Restarting.

use std::collections::BTreeMap;

use pumice_api::batch::JobPhase;
use pumice_api::bus::Action;
use serde_json::{Value, json};

use super::model::{Model, job, simple};
use crate::job::pod_counts::PodCounts;
use crate::job::status::phase_rules;
use crate::job::{JobPod, Transition, transition};

#[test]
fn every_phase_and_action() {
    use JobPhase as P;
    use Transition as T;
    let actions = [
        Action::RestartJob,
        Action::RestartTask,
        Action::RestartPod,
        Action::RestartPartition,
        Action::AbortJob,
        Action::TerminateJob,
        Action::CompleteJob,
        Action::ResumeJob,
        Action::SyncJob,
        Action::EnqueueJob,
        Action::Other("Dance".into()),
    ];
    let kill = |phase| T::Kill(phase);
    let live = || {
        let [abort, terminate, complete] = [kill(P::Aborting), kill(P::Terminating), kill(P::Completing)];
        let target = || T::RestartTarget;
        [T::RestartJob, target(), target(), target(), abort, terminate, complete, T::Sync, T::Sync, T::Sync, T::Sync]
    };
    let all = |one: Transition| std::array::from_fn(|_| one.clone());
    let with = |mut row: [Transition; 11], at: usize, one: Transition| {
        row[at] = one;
        row
    };
    let restarting = {
        let row = with(all(T::Release), 4, kill(P::Aborting));
        with(with(row, 5, kill(P::Terminating)), 6, kill(P::Completing))
    };
    let suspended = || with(with(all(T::Settle), 7, T::Resume), 5, kill(P::Terminating));
    let table: [(JobPhase, [Transition; 11]); 10] = [
        (P::Pending, live()),
        (P::Running, live()),
        (P::Restarting, restarting),
        (P::Aborting, suspended()),
        (P::Aborted, suspended()),
        (P::Terminating, all(T::Settle)),
        (P::Completing, all(T::Settle)),
        (P::Completed, all(T::Settle)),
        (P::Failed, all(T::Settle)),
        (P::Terminated, all(T::Settle)),
    ];
    for (phase, row) in &table {
        for (action, expected) in actions.iter().zip(row) {
            assert_eq!(transition(phase, action), *expected, "{phase:?} {action:?}");
        }
    }
}

/// Where each action leads a job of two running pods in the end, when the pods stop at once.
#[test]
fn where_each_action_leads() {
    use JobPhase as P;
    let cases = [
        (Action::RestartJob, vec![P::Restarting, P::Pending], 1, 0),
        (Action::AbortJob, vec![P::Aborting, P::Aborted], 0, 0),
        (Action::TerminateJob, vec![P::Terminating, P::Terminated], 0, 0),
        (Action::CompleteJob, vec![P::Completing, P::Completed], 0, 0),
        (Action::ResumeJob, vec![], 0, 2),
        (Action::SyncJob, vec![], 0, 2),
    ];
    for (action, phases, retry, pods) in cases {
        let mut model = Model::running(simple(2, json!({})));
        model.phases.clear();
        model.command(action.clone());
        assert_eq!(model.phases, phases, "{action:?}");
        assert_eq!(model.job.status.retry_count, retry, "{action:?}");
        assert_eq!(model.pods.len(), pods, "{action:?}");
        let finished = model.phase().is_finished() || model.phase() == P::Aborted;
        assert_eq!(model.group.is_none(), finished, "{action:?}");
    }
}

#[test]
fn rules_of_running() {
    // Pod phases of one task, or of tasks `a` and `b`, as letters.
    let one = |min: i32, extra: Value| {
        let mut spec = json!({"minAvailable": min, "tasks": [{"name": "a", "replicas": 4, "minAvailable": min}]});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        spec
    };
    let two = |min: i32, a: i32, b: i32| {
        json!({"minAvailable": min, "tasks": [
            {"name": "a", "replicas": 2, "minAvailable": a}, {"name": "b", "replicas": 2, "minAvailable": b}]})
    };
    let goals = |job: Value, task: Value| {
        json!({"minAvailable": 1, "minSuccess": job, "tasks": [
            {"name": "a", "replicas": 2, "minAvailable": 0, "minSuccess": task}, {"name": "b", "replicas": 2, "minAvailable": 0}]})
    };
    type Case = (&'static str, Value, &'static str, Option<(JobPhase, &'static str)>);
    let cases: Vec<Case> = vec![
        ("scaled to zero", json!({"tasks": [{"name": "a", "replicas": 0}]}), "", None),
        ("minSuccess reached", one(1, json!({"minSuccess": 2})), "SSRR", Some((JobPhase::Completed, "MinSuccess"))),
        ("minSuccess not reached", one(1, json!({"minSuccess": 2})), "SRRR", None),
        ("minSuccess missed", one(1, json!({"minSuccess": 2})), "SFFF", Some((JobPhase::Failed, "TooFewSuccesses"))),
        (
            "a task's minSuccess reached",
            goals(json!(null), json!(1)),
            "SRRR",
            Some((JobPhase::Completed, "MinSuccess")),
        ),
        ("another task's successes don't count", goals(json!(null), json!(1)), "RRSS", None),
        (
            "a task's minSuccess missed",
            goals(json!(null), json!(2)),
            "SFSS",
            Some((JobPhase::Failed, "TooFewSuccesses")),
        ),
        ("the job's and the task's", goals(json!(3), json!(1)), "SRSS", Some((JobPhase::Completed, "MinSuccess"))),
        ("the job's but not the task's", goals(json!(2), json!(1)), "RRSS", None),
        ("the task's but not the job's", goals(json!(3), json!(1)), "SRRR", None),
        ("all succeeded", one(4, json!({})), "SSSS", Some((JobPhase::Completed, "PodsSucceeded"))),
        ("enough succeeded", one(2, json!({})), "SSFF", Some((JobPhase::Completed, "PodsSucceeded"))),
        ("too few succeeded", one(3, json!({})), "SSFF", Some((JobPhase::Failed, "TooFewSuccesses"))),
        ("some still run", one(1, json!({})), "SFFR", None),
        ("too many wait", one(3, json!({})), "PPRR", Some((JobPhase::Pending, ""))),
        ("few wait", one(2, json!({})), "PPRR", None),
        ("task minimum missed", two(3, 2, 1), "SFSS", Some((JobPhase::Failed, "TooFewSuccesses"))),
        ("task minimum ignored below the sum", two(2, 2, 1), "SFSS", Some((JobPhase::Completed, "PodsSucceeded"))),
    ];
    for (name, spec, letters, expected) in cases {
        let job = job(spec);
        let pods = pods_of(&job, letters);
        let verdict = phase_rules::running(&job.spec, &PodCounts::take(&job, &pods));
        let got = verdict.as_ref().map(|verdict| (verdict.phase.clone(), verdict.reason));
        assert_eq!(got, expected, "{name}");
    }
}

#[test]
fn rules_of_restarting_and_pending() {
    let job = job(json!({"minAvailable": 3, "tasks": [{"name": "a", "replicas": 4}]}));
    let restarting = |letters: &str, retry| {
        let pods = pods_of(&job, letters);
        phase_rules::restarting(&job.spec, &PodCounts::take(&job, &pods), retry).map(|verdict| verdict.phase)
    };
    assert_eq!(restarting("TTRR", 1), None, "two places are free, three are needed");
    assert_eq!(restarting("TRRR", 1), Some(JobPhase::Pending));
    assert_eq!(restarting("TTTT", 3), Some(JobPhase::Failed), "no retry left");
    let pending = |letters: &str| {
        let pods = pods_of(&job, letters);
        phase_rules::pending(&job.spec, &PodCounts::take(&job, &pods)).map(|verdict| verdict.phase)
    };
    assert_eq!(pending("RRPP"), None);
    assert_eq!(pending("RRSP"), Some(JobPhase::Running));
    assert_eq!(pending("FSRP"), Some(JobPhase::Running));
    assert_eq!(pending("RRT"), None, "a pod that goes does not count");
}

fn pods_of(job: &pumice_api::batch::Job, letters: &str) -> BTreeMap<String, crate::job::PodFacts> {
    let slots = job.spec.tasks.iter().flat_map(|task| (0..task.replicas).map(move |index| (task, index)));
    let built = slots.zip(letters.chars()).map(|((task, index), letter)| {
        let mut pod = crate::job::pods::build(job, task, index, &[], &Default::default(), &Default::default(), None);
        let phase = match letter {
            'P' => "Pending",
            'S' => "Succeeded",
            'F' => "Failed",
            _ => "Running",
        };
        pod.status = serde_json::from_value(json!({"phase": phase})).unwrap();
        if letter == 'T' {
            pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        let facts = JobPod::observe(&pod).unwrap().facts;
        (facts.name.clone(), facts)
    });
    built.collect()
}
