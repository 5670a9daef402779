//! The CronJob machine: Jobs made at the times of a schedule, for Volcano's kinds and for Kubernetes' own.
//!
//! Invariant: at most one Job for each time of the schedule, and its name follows from that time; which times were served is
//! read off the Jobs and the status, never remembered. Called by the cron controller for each CronJob that something
//! happened to, and when its next time has come.

mod batch;
mod history;
mod schedule;
mod volcano;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::{ConcurrencyPolicy, CronJob, CronJobStatus, Job};

pub use schedule::{Schedule, ScheduleError, zone_name};

/// Missed times after which something is wrong with the schedule, or with the clock.
const MISSED_MAX: usize = 100;
const MISSED: &str =
    "more than 100 times were missed; set or lower startingDeadlineSeconds, or look at the controllers' clock";

/// A kind of CronJob.
pub trait Cron {
    /// The Jobs that it makes.
    type Job: Run;
    /// The status of such a CronJob, as its API has it.
    type Status: PartialEq;

    /// The metadata of the CronJob; its uid is what its Jobs name as their owner.
    fn metadata(&self) -> &ObjectMeta;
    /// Its schedule, and the time zone that it names.
    fn times(&self) -> (&str, Option<&str>);
    /// What else it says of its Jobs.
    fn terms(&self) -> Terms;
    /// What its status says.
    fn recorded(&self) -> Recorded;
    /// The status that says this, if it is not the one that it has.
    fn changed_status(&self, next: Recorded) -> Option<Self::Status>;
    /// The same CronJob with another status.
    fn with_status(&self, status: Self::Status) -> Self
    where
        Self: Sized;
    /// The Job of one time, with this name; the time as people of its zone write it.
    fn job(&self, name: String, time: String) -> Self::Job;
}

/// A Job that a CronJob has made.
pub trait Run {
    /// The annotation with the time that it was made for.
    const TIME: &'static str;

    /// The metadata of the Job; its annotations say which time of the schedule it was made for.
    fn metadata(&self) -> &ObjectMeta;
    /// How it has ended, if it will never run again.
    fn end(&self) -> Option<End>;
    /// Its kind and name.
    fn reference(&self) -> ObjectReference;
    /// Whether it was made by the schedule, so that the next one may have to wait for it.
    fn is_scheduled(&self) -> bool {
        true
    }
}

/// How a Job has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    pub is_success: bool,
    /// When, if that is known.
    pub at: Option<Timestamp>,
    /// A word for it.
    pub word: String,
}

/// What a CronJob says of its Jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// No Jobs for now.
    pub is_suspended: bool,
    /// What becomes of a time while the Job before runs.
    pub policy: Option<ConcurrencyPolicy>,
    /// For how many seconds a time may be late.
    pub deadline_seconds: Option<i64>,
    /// How many Jobs are kept that ended well.
    pub successes_kept: Option<i32>,
    /// How many are kept of the others.
    pub failures_kept: Option<i32>,
}

/// What the status of a CronJob says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Its Jobs that have not ended.
    pub active: Vec<ObjectReference>,
    /// The last time that was served.
    pub scheduled: Option<Timestamp>,
    /// When a Job last ended well.
    pub succeeded: Option<Timestamp>,
}

/// What a step looks at.
pub struct CronView<'a, C: Cron = CronJob> {
    pub cron: &'a C,
    /// Its schedule as read in its time zone.
    pub schedule: Result<&'a Schedule, &'a ScheduleError>,
    /// The Jobs that it controls.
    pub jobs: Vec<&'a C::Job>,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum CronEffect<J = Job, S = CronJobStatus> {
    CreateJob(Box<J>),
    /// Delete a Job and what it made; the uid guards a namesake.
    DeleteJob {
        name: String,
        uid: String,
    },
    WriteStatus(Box<S>),
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
#[derive(Clone, Debug, PartialEq)]
pub struct CronPlan<J = Job, S = CronJobStatus> {
    pub effects: Vec<CronEffect<J, S>>,
    /// The next time of the schedule.
    pub wake_at: Option<Timestamp>,
}

/// What a step of a kind of CronJob wants.
pub type PlanOf<C> = CronPlan<<C as Cron>::Job, <C as Cron>::Status>;
/// A change that a step of a kind of CronJob wants.
pub type EffectOf<C> = CronEffect<<C as Cron>::Job, <C as Cron>::Status>;

/// Decides what to do about a CronJob now. `O(jobs log jobs)`, and at most a hundred looks at the schedule.
pub fn step<C: Cron>(view: &CronView<'_, C>, now: Timestamp) -> PlanOf<C> {
    let mut plan = CronPlan { effects: Vec::new(), wake_at: None };
    let (metadata, terms) = (view.cron.metadata(), view.cron.terms());
    if metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let next = history::next(view);
    history::tell(view, &next, &mut plan.effects);
    let served = next.scheduled;
    plan.effects.extend(view.cron.changed_status(next).map(|status| CronEffect::WriteStatus(Box::new(status))));
    plan.effects.extend(history::surplus(view, &terms));
    if terms.is_suspended {
        return plan;
    }
    let schedule = match view.schedule {
        Ok(schedule) => schedule,
        Err(error) => {
            plan.effects.push(warning(error.reason(), error.to_string()));
            return plan;
        }
    };
    let created = metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let base = served.unwrap_or(created);
    plan.wake_at = schedule.next(base, now);
    let deadline = terms.deadline_seconds.map(|seconds| SignedDuration::from_secs(seconds.max(0)));
    let oldest = deadline.and_then(|deadline| now.checked_sub(deadline).ok()).unwrap_or(Timestamp::MIN);
    if let Some(due) = schedule.newest(base, now).filter(|due| *due >= oldest) {
        if schedule.count(base.max(oldest), due, MISSED_MAX + 1) > MISSED_MAX {
            plan.effects.push(warning("TooManyMissedTimes", MISSED.to_owned()));
        }
        serve(view, &terms, schedule, due, &mut plan.effects);
    }
    plan
}

/// Makes the Job of one time, if those before it let it.
fn serve<C: Cron>(
    view: &CronView<'_, C>,
    terms: &Terms,
    schedule: &Schedule,
    due: Timestamp,
    effects: &mut Vec<EffectOf<C>>,
) {
    let active = || view.jobs.iter().filter(|job| job.is_scheduled() && job.end().is_none());
    match terms.policy {
        Some(ConcurrencyPolicy::Forbid) if active().next().is_some() => {
            let message = "the Job before has not ended, and concurrencyPolicy is Forbid".to_owned();
            effects.push(CronEffect::Record { is_warning: false, reason: "ForbidConcurrent", message });
            return;
        }
        Some(ConcurrencyPolicy::Replace) => effects.extend(active().filter_map(|job| history::delete(*job))),
        _ => {}
    }
    // The name says the time, so that a time has one Job however often it is made: in minutes, or in seconds where a minute
    // has several.
    let number = if schedule.is_dense() { due.as_second() } else { due.as_second().div_euclid(60) };
    let name = format!("{}-{number}", view.cron.metadata().name.as_deref().unwrap_or_default());
    effects.push(CronEffect::CreateJob(Box::new(view.cron.job(name, schedule.in_time_zone(due)))));
}

fn warning<J, S>(reason: &'static str, message: String) -> CronEffect<J, S> {
    CronEffect::Record { is_warning: true, reason, message }
}

#[cfg(test)]
mod tests;
