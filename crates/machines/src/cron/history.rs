//! The Jobs that a CronJob has made: which are active, which times they were made for, which may go.

use jiff::Timestamp;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pumice_api::batch::{CronJobStatus, Job, JobPhase};
use pumice_api::names;

use super::{CronEffect, CronView};

/// Completed Jobs kept where the CronJob does not say.
const COMPLETED_KEPT: i32 = 3;
/// Failed and terminated Jobs kept where the CronJob does not say.
const FAILED_KEPT: i32 = 1;

/// Whether a Job will never run again. A suspended one may.
pub(super) fn has_ended(job: &Job) -> bool {
    job.status.state.phase.as_ref().is_some_and(JobPhase::is_finished)
}

/// The status as the Jobs say it.
pub(super) fn status(view: &CronView<'_>) -> CronJobStatus {
    let before = &view.cron.status;
    let completed = view.jobs.iter().filter(|job| job.status.state.phase == Some(JobPhase::Completed));
    let ends = completed.filter_map(|job| job.status.state.last_transition_time.as_ref()).map(|time| time.0);
    let served = view.jobs.iter().filter_map(|job| made_for(job));
    let newest = |known: &Option<Time>, seen: Option<Timestamp>| known.as_ref().map(|time| time.0).max(seen).map(Time);
    let mut active: Vec<&&Job> = view.jobs.iter().filter(|job| !has_ended(job)).collect();
    active.sort_by_key(|job| (made_for(job), job.metadata.name.clone()));
    CronJobStatus {
        active: active.into_iter().map(|job| reference(job)).collect(),
        last_schedule_time: newest(&before.last_schedule_time, served.max()),
        last_successful_time: newest(&before.last_successful_time, ends.max()),
    }
}

/// Tells of Jobs that were active and are no more.
pub(super) fn tell(view: &CronView<'_>, next: &CronJobStatus, effects: &mut Vec<CronEffect>) {
    for gone in view.cron.status.active.iter().filter(|job| !next.active.iter().any(|now| now.uid == job.uid)) {
        let name = gone.name.as_deref().unwrap_or_default();
        let job = view.jobs.iter().find(|job| job.metadata.uid == gone.uid);
        let (reason, message) = match job.and_then(|job| job.status.state.phase.as_ref()) {
            Some(phase) => ("SawCompletedJob", format!("job {name} has ended: {phase}")),
            None => ("StaleReference", format!("job {name} is gone")),
        };
        effects.push(CronEffect::Record { is_warning: false, reason, message });
    }
}

/// The oldest of the Jobs that ended, beyond those that are kept.
pub(super) fn surplus(view: &CronView<'_>) -> Vec<CronEffect> {
    let spec = &view.cron.spec;
    let kinds: [(&[JobPhase], i32); 2] = [
        (&[JobPhase::Completed], spec.successful_jobs_history_limit.unwrap_or(COMPLETED_KEPT)),
        (&[JobPhase::Failed, JobPhase::Terminated], spec.failed_jobs_history_limit.unwrap_or(FAILED_KEPT)),
    ];
    let mut effects = Vec::new();
    for (phases, kept) in kinds {
        let is_one = |job: &&&Job| job.status.state.phase.as_ref().is_some_and(|phase| phases.contains(phase));
        let mut ended: Vec<&Job> = view.jobs.iter().filter(is_one).copied().collect();
        ended.sort_by_key(|job| (job.metadata.creation_timestamp.as_ref().map(|time| time.0), made_for(job)));
        let surplus = ended.len().saturating_sub(usize::try_from(kept).unwrap_or(0));
        effects.extend(ended.into_iter().take(surplus).filter_map(delete));
    }
    effects
}

/// Deletes a Job, unless that is under way.
pub(super) fn delete(job: &Job) -> Option<CronEffect> {
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(CronEffect::DeleteJob { name: job.metadata.name.clone()?, uid: job.metadata.uid.clone()? })
}

/// The time of the schedule that a Job was made for.
fn made_for(job: &Job) -> Option<Timestamp> {
    job.metadata.annotations.as_ref()?.get(names::CRON_JOB_TIME)?.parse().ok()
}

fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some(Job::API_VERSION.to_owned()),
        kind: Some(Job::KIND.to_owned()),
        namespace: job.metadata.namespace.clone(),
        name: job.metadata.name.clone(),
        uid: job.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
