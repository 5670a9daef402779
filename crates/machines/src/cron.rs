//! The CronJob machine: Jobs made at the times of a schedule.
//!
//! Invariant: at most one Job for each time of the schedule, and its name follows from that time; which times were served is
//! read off the Jobs and the status, never remembered. Called by the cron controller for each CronJob that something
//! happened to, and when its next time has come.

mod create;
mod history;
mod schedule;

use jiff::{SignedDuration, Timestamp};
use pumice_api::batch::{ConcurrencyPolicy, CronJob, CronJobStatus, Job};

pub use schedule::{Schedule, ScheduleError, zone_name};

/// Missed times after which something is wrong with the schedule, or with the clock.
const MISSED_MAX: usize = 100;
const MISSED: &str =
    "more than 100 times were missed; set or lower startingDeadlineSeconds, or look at the controllers' clock";

/// What a step looks at.
pub struct CronView<'a> {
    /// The CronJob.
    pub cron: &'a CronJob,
    /// Its schedule as read in its time zone.
    pub schedule: Result<&'a Schedule, &'a ScheduleError>,
    /// The Jobs that it controls.
    pub jobs: Vec<&'a Job>,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum CronEffect {
    /// Make a Job.
    CreateJob(Box<Job>),
    /// Delete a Job and what it made; the uid guards a namesake.
    DeleteJob {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Replace the status.
    WriteStatus(Box<CronJobStatus>),
    /// Record an event on the CronJob.
    Record {
        /// Whether it is a warning.
        is_warning: bool,
        /// CamelCase word.
        reason: &'static str,
        /// A sentence for people.
        message: String,
    },
}

/// Changes to make in their order, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CronPlan {
    /// The changes.
    pub effects: Vec<CronEffect>,
    /// The next time of the schedule.
    pub wake_at: Option<Timestamp>,
}

/// Decides what to do about a CronJob now. `O(jobs log jobs)`, and at most a hundred looks at the schedule.
pub fn step(view: &CronView<'_>, now: Timestamp) -> CronPlan {
    let mut plan = CronPlan::default();
    if view.cron.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let status = history::status(view);
    history::tell(view, &status, &mut plan.effects);
    let served = status.last_schedule_time.as_ref().map(|time| time.0);
    if status != view.cron.status {
        plan.effects.push(CronEffect::WriteStatus(Box::new(status)));
    }
    plan.effects.extend(history::surplus(view));
    if view.cron.spec.suspend == Some(true) {
        return plan;
    }
    let schedule = match view.schedule {
        Ok(schedule) => schedule,
        Err(error) => {
            plan.effects.push(warning(error.reason(), error.to_string()));
            return plan;
        }
    };
    let created = view.cron.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let base = served.unwrap_or(created);
    plan.wake_at = schedule.next(base, now);
    let deadline = view.cron.spec.starting_deadline_seconds.map(|seconds| SignedDuration::from_secs(seconds.max(0)));
    let oldest = deadline.and_then(|deadline| now.checked_sub(deadline).ok()).unwrap_or(Timestamp::MIN);
    if let Some(due) = schedule.newest(base, now).filter(|due| *due >= oldest) {
        if schedule.count(base.max(oldest), due, MISSED_MAX + 1) > MISSED_MAX {
            plan.effects.push(warning("TooManyMissedTimes", MISSED.to_owned()));
        }
        serve(view, schedule, due, &mut plan.effects);
    }
    plan
}

/// Makes the Job of one time, if those before it let it.
fn serve(view: &CronView<'_>, schedule: &Schedule, due: Timestamp, effects: &mut Vec<CronEffect>) {
    let active = || view.jobs.iter().filter(|job| !history::has_ended(job));
    match view.cron.spec.concurrency_policy {
        Some(ConcurrencyPolicy::Forbid) if active().next().is_some() => {
            let message = "the Job before has not ended, and concurrencyPolicy is Forbid".to_owned();
            effects.push(CronEffect::Record { is_warning: false, reason: "ForbidConcurrent", message });
            return;
        }
        Some(ConcurrencyPolicy::Replace) => effects.extend(active().filter_map(|job| history::delete(job))),
        _ => {}
    }
    effects.push(CronEffect::CreateJob(Box::new(create::job(view.cron, schedule, due))));
}

fn warning(reason: &'static str, message: String) -> CronEffect {
    CronEffect::Record { is_warning: true, reason, message }
}

#[cfg(test)]
mod tests;
