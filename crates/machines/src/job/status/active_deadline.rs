//! `activeDeadlineSeconds`: how long a job may run in all, its restarts included.
//!
//! Invariant: since when it runs is in the status of a job that has such a deadline, written with the phase Running. Waiting
//! for room does not count, and a job that was suspended or aborted starts over, as in batch/v1. A job whose pods have all
//! ended by then ends by them.

use jiff::{SignedDuration, Timestamp};
use pumice_api::batch::{Job, JobPhase, JobStatus};
use pumice_api::names;

use crate::job::StepContext;
use crate::job::plan::{Effect, Plan};
use crate::job::restart::Targets;
use crate::job::status::phase_rules::Verdict;
use crate::job_object;

/// Key in `status.controlledResources`: the millisecond since when it runs.
const KEY: &str = "running-since";
/// `status.state.reason` of a job whose time was over, as in batch/v1.
const EXCEEDED: &str = "DeadlineExceeded";

/// Seconds that the job may run. The field counts before the annotation; what can't be read is none, admission refuses it.
fn seconds(job: &Job) -> Option<i64> {
    let annotation = || job_object::annotation(job, names::ACTIVE_DEADLINE_SECONDS)?.parse().ok();
    job.spec.active_deadline_seconds.or_else(annotation).filter(|seconds| *seconds > 0)
}

/// When its time is over. Nothing where it has no such deadline, or has not run yet.
pub(in crate::job) fn due(job: &Job) -> Option<Timestamp> {
    let seconds = seconds(job)?;
    let since = job.status.controlled_resources.get(KEY)?.parse().ok()?;
    let since = Timestamp::from_millisecond(since).ok()?;
    Some(since.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

/// Notes since when the job runs, if its phase says that it does and nothing is noted yet.
pub(in crate::job) fn note(job: &Job, next: &mut JobStatus, now: Timestamp) {
    if next.state.phase == Some(JobPhase::Running) && seconds(job).is_some() {
        next.controlled_resources.entry(KEY.to_owned()).or_insert_with(|| now.as_millisecond().to_string());
    }
}

/// Keeps what is noted; a job that got its deadline while it ran has run since now.
pub(in crate::job) fn keep(job: &Job, next: &mut JobStatus, now: Timestamp) {
    match job.status.controlled_resources.get(KEY) {
        Some(noted) if seconds(job).is_some() => {
            next.controlled_resources.insert(KEY.to_owned(), noted.clone());
        }
        _ => note(job, next, now),
    }
}

/// Forgets it: the job is suspended.
pub(in crate::job) fn forget(next: &mut JobStatus) {
    next.controlled_resources.remove(KEY);
}

impl StepContext<'_> {
    /// Ends the job if its time is over.
    pub(in crate::job) fn end_overdue(&self) -> Option<Plan> {
        let is_active = matches!(self.phase, JobPhase::Pending | JobPhase::Running | JobPhase::Restarting);
        let job = self.view.job;
        if !is_active || due(job).is_none_or(|due| due > self.now) {
            return None;
        }
        let seconds = seconds(job)?;
        if self.phase != JobPhase::Restarting && self.verdicts().iter().any(|verdict| verdict.phase.is_finished()) {
            return None;
        }
        let message = format!("the job has run for its activeDeadlineSeconds, {seconds}");
        let verdict = Verdict { phase: JobPhase::Failed, reason: EXCEEDED, message: message.clone() };
        let mut draft = self.draft();
        self.conclude(&mut draft, &verdict);
        let write = draft.write(self.now).into_iter().chain([Effect::warning(EXCEEDED, message)]);
        Some(self.with_ended(&Targets::default(), Plan::only(write.collect())))
    }
}
