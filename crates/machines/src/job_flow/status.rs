//! What a flow says of its Jobs.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pumice_api::batch::{Job, JobPhase};
use pumice_api::flow::{FlowPhase, FlowState, JobFlowStatus, JobHistory, JobOfFlow, JobRun};
use pumice_units::GoDuration;

use super::{StepContext, is_retried};

/// Most phases remembered of a Job, the newest.
pub(super) const HISTORY_MAX: usize = 32;

/// The status as it should be now.
pub(super) fn next(context: &StepContext<'_>, now: Timestamp) -> JobFlowStatus {
    let before = &context.view.flow.status;
    let mut next = JobFlowStatus::default();
    for flow in &context.flows {
        let name = context.job_name(&flow.name);
        let known = before.job_status_list.iter().find(|job| job.name == name);
        match (context.job(&flow.name), known) {
            (Some(job), known) => {
                let phase = job.status.state.phase.clone().unwrap_or(JobPhase::Pending);
                next.conditions.insert(name.clone(), run(job));
                let of_job = course_of(&name, job, &phase, known, now);
                // One that is made again has not failed the flow.
                if !is_retried(context.view.flow, flow, &of_job) {
                    list(&mut next, name, &phase);
                }
                next.job_status_list.push(of_job);
            }
            // It failed, was deleted, and is made again.
            (None, Some(known)) if is_retried(context.view.flow, flow, known) => {
                next.job_status_list.push(known.clone());
            }
            // It completed and was deleted since.
            (None, Some(known)) if context.is_completed(&flow.name) => {
                if let Some(run) = before.conditions.get(&name) {
                    next.conditions.insert(name.clone(), run.clone());
                }
                next.job_status_list.push(known.clone());
                next.completed_jobs.push(name);
            }
            (None, _) => {}
        }
    }
    let phase = phase(before.state.phase.as_ref(), &next, context.flows.len());
    next.state = FlowState { phase: Some(phase) };
    next
}

/// Puts a Job into the list of its phase. A Job on its way to an end is in none.
fn list(status: &mut JobFlowStatus, name: String, phase: &JobPhase) {
    let list = match phase {
        JobPhase::Pending => &mut status.pending_jobs,
        JobPhase::Running => &mut status.running_jobs,
        JobPhase::Failed => &mut status.failed_jobs,
        JobPhase::Completed => &mut status.completed_jobs,
        JobPhase::Terminated => &mut status.terminated_jobs,
        JobPhase::Completing | JobPhase::Terminating => return,
        JobPhase::Aborting | JobPhase::Aborted | JobPhase::Restarting | JobPhase::Other(_) => &mut status.un_know_jobs,
    };
    list.push(name);
}

/// An end is final. A flow without Jobs stays Pending.
fn phase(before: Option<&FlowPhase>, next: &JobFlowStatus, flows: usize) -> FlowPhase {
    match before {
        Some(FlowPhase::Succeed) => return FlowPhase::Succeed,
        Some(FlowPhase::Failed) => return FlowPhase::Failed,
        Some(FlowPhase::Terminating) => return FlowPhase::Terminating,
        _ => {}
    }
    if !next.failed_jobs.is_empty() || !next.terminated_jobs.is_empty() {
        FlowPhase::Failed
    } else if flows > 0 && next.completed_jobs.len() == flows {
        FlowPhase::Succeed
    } else if !next.running_jobs.is_empty() || !next.completed_jobs.is_empty() || before == Some(&FlowPhase::Running) {
        FlowPhase::Running
    } else {
        FlowPhase::Pending
    }
}

fn run(job: &Job) -> JobRun {
    JobRun {
        phase: job.status.state.phase.clone(),
        create_time: job.metadata.creation_timestamp.clone(),
        running_duration: job.status.running_duration.clone(),
        task_status_count: job.status.task_status_count.clone(),
    }
}

fn course_of(name: &str, job: &Job, phase: &JobPhase, known: Option<&JobOfFlow>, now: Timestamp) -> JobOfFlow {
    let mut histories = known.map(|known| known.running_histories.clone()).unwrap_or_default();
    // One that was made again may have failed again before anybody looked.
    let is_another = known.is_some_and(|known| known.start_timestamp != job.metadata.creation_timestamp);
    if is_another || histories.last().and_then(|last| last.state.as_ref()) != Some(phase) {
        let since = job.status.state.last_transition_time.clone().unwrap_or(Time(now));
        if let Some(last) = histories.last_mut() {
            last.end_timestamp = Some(since.clone());
        }
        histories.push(JobHistory { start_timestamp: Some(since), end_timestamp: None, state: Some(phase.clone()) });
        let surplus = histories.len().saturating_sub(HISTORY_MAX);
        histories.drain(..surplus);
    }
    JobOfFlow {
        name: name.to_owned(),
        state: Some(phase.clone()),
        start_timestamp: job.metadata.creation_timestamp.clone(),
        end_timestamp: ended_at(job),
        restart_count: job.status.retry_count.max(0),
        running_histories: histories,
    }
}

/// Creation and the time from there to the end.
fn ended_at(job: &Job) -> Option<Time> {
    let created = job.metadata.creation_timestamp.as_ref()?.0;
    let lasted: GoDuration = job.status.running_duration.as_ref()?.parse().ok()?;
    created.checked_add(SignedDuration::from_nanos(lasted.as_nanos())).ok().map(Time)
}
