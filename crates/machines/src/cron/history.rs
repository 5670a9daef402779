//! The Jobs that a CronJob has made: which are active, which times they were made for, which may go.

use jiff::Timestamp;

use super::{Cron, CronEffect, CronView, EffectOf, Recorded, Run, Terms};

/// Completed Jobs kept where the CronJob does not say.
const COMPLETED_KEPT: i32 = 3;
/// Failed and terminated Jobs kept where the CronJob does not say.
const FAILED_KEPT: i32 = 1;

/// What the status is to say, by the Jobs.
pub(super) fn next<C: Cron>(view: &CronView<'_, C>) -> Recorded {
    let before = view.cron.recorded();
    let ends = view.jobs.iter().filter_map(|job| job.end()).filter(|end| end.is_success).filter_map(|end| end.at);
    let served = view.jobs.iter().filter_map(|job| made_for(*job));
    let mut active: Vec<&&C::Job> = view.jobs.iter().filter(|job| job.end().is_none()).collect();
    active.sort_by_key(|job| (made_for(**job), job.metadata().name.clone()));
    Recorded {
        active: active.into_iter().map(|job| job.reference()).collect(),
        scheduled: before.scheduled.max(served.max()),
        succeeded: before.succeeded.max(ends.max()),
    }
}

/// Tells of Jobs that were active and are no more.
pub(super) fn tell<C: Cron>(view: &CronView<'_, C>, next: &Recorded, effects: &mut Vec<EffectOf<C>>) {
    let before = view.cron.recorded();
    for gone in before.active.iter().filter(|job| !next.active.iter().any(|now| now.uid == job.uid)) {
        let name = gone.name.as_deref().unwrap_or_default();
        let job = view.jobs.iter().find(|job| job.metadata().uid == gone.uid);
        let (reason, message) = match job.and_then(|job| job.end()) {
            Some(end) => ("SawCompletedJob", format!("job {name} has ended: {}", end.word)),
            None => ("StaleReference", format!("job {name} is gone")),
        };
        effects.push(CronEffect::Record { is_warning: false, reason, message });
    }
}

/// The oldest of the Jobs that ended, beyond those that are kept.
pub(super) fn surplus<C: Cron>(view: &CronView<'_, C>, terms: &Terms) -> Vec<EffectOf<C>> {
    let kinds =
        [(true, terms.successes_kept.unwrap_or(COMPLETED_KEPT)), (false, terms.failures_kept.unwrap_or(FAILED_KEPT))];
    let mut effects = Vec::new();
    for (is_success, kept) in kinds {
        let is_one = |job: &&&C::Job| job.end().is_some_and(|end| end.is_success == is_success);
        let mut ended: Vec<&C::Job> = view.jobs.iter().filter(is_one).copied().collect();
        ended.sort_by_key(|job| (job.metadata().creation_timestamp.as_ref().map(|time| time.0), made_for(*job)));
        let surplus = ended.len().saturating_sub(usize::try_from(kept).unwrap_or(0));
        effects.extend(ended.into_iter().take(surplus).filter_map(delete));
    }
    effects
}

/// Deletes a Job, unless that is under way.
pub(super) fn delete<J: Run, S>(job: &J) -> Option<CronEffect<J, S>> {
    let metadata = job.metadata();
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(CronEffect::DeleteJob { name: metadata.name.clone()?, uid: metadata.uid.clone()? })
}

/// The time of the schedule that a Job was made for.
fn made_for<J: Run>(job: &J) -> Option<Timestamp> {
    job.metadata().annotations.as_ref()?.get(J::TIME)?.parse().ok()
}
