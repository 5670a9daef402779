//! When a job changes its phase by itself: rules of Pending and Running, and of Restarting.
//!
//! Invariant: total functions of counts; no rule looks at time. Called by `sync` and `kill`.

use pumice_api::batch::{JobPhase, JobSpec};

use super::census::Census;

/// `maxRetry` when the job says none, as Volcano's webhook sets it.
const MAX_RETRY_DEFAULT: i32 = 3;

/// A phase to go to, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub phase: JobPhase,
    pub reason: &'static str,
    pub message: String,
}

impl Verdict {
    fn new(phase: JobPhase, reason: &'static str, message: String) -> Self {
        Self { phase, reason, message }
    }
}

/// How often the job may restart.
pub(super) fn max_retry(spec: &JobSpec) -> i32 {
    if spec.max_retry > 0 { spec.max_retry } else { MAX_RETRY_DEFAULT }
}

/// Pending: running once the minimum has started.
pub(super) fn pending(spec: &JobSpec, census: &Census<'_>) -> Option<Verdict> {
    let counts = &census.counts;
    let started = i64::from(counts.running) + i64::from(counts.succeeded) + i64::from(counts.failed);
    (i64::from(spec.min_available) <= started).then(|| Verdict::new(JobPhase::Running, "", String::new()))
}

/// Running: finished by `minSuccess` or when all pods have ended, back to Pending when too many wait.
pub(super) fn running(spec: &JobSpec, census: &Census<'_>) -> Option<Verdict> {
    let counts = &census.counts;
    if census.replicas == 0 {
        return None;
    }
    if let Some(wanted) = spec.min_success.filter(|wanted| counts.succeeded >= *wanted) {
        let message = format!("{} pods succeeded, minSuccess is {wanted}", counts.succeeded);
        return Some(Verdict::new(JobPhase::Completed, "MinSuccess", message));
    }
    if i64::from(counts.succeeded) + i64::from(counts.failed) == census.replicas {
        return Some(ended(spec, census));
    }
    (i64::from(counts.pending) > census.replicas - i64::from(spec.min_available))
        .then(|| Verdict::new(JobPhase::Pending, "", String::new()))
}

/// All pods have ended.
fn ended(spec: &JobSpec, census: &Census<'_>) -> Verdict {
    let succeeded = census.counts.succeeded;
    let failed = |reason, message| Verdict::new(JobPhase::Failed, reason, message);
    let minimum: i64 = census.tasks.iter().map(|task| i64::from(task.min_available())).sum();
    if i64::from(spec.min_available) >= minimum {
        let short = census.tasks.iter().find_map(|task| {
            let wanted = task.spec.min_available?;
            let seen = !task.slots.is_empty();
            (seen && task.counts.succeeded < wanted).then_some((task, wanted))
        });
        if let Some((task, wanted)) = short {
            let (name, succeeded) = (&task.spec.name, task.counts.succeeded);
            return failed(
                "TooFewSuccesses",
                format!("{succeeded} pods of task {name} succeeded, its minAvailable is {wanted}"),
            );
        }
    }
    if let Some(wanted) = spec.min_success {
        return failed("TooFewSuccesses", format!("{succeeded} pods succeeded, minSuccess is {wanted}"));
    }
    let message = format!("{succeeded} of {} pods succeeded, minAvailable is {}", census.replicas, spec.min_available);
    if succeeded >= spec.min_available {
        Verdict::new(JobPhase::Completed, "PodsSucceeded", message)
    } else {
        failed("TooFewSuccesses", message)
    }
}

/// Restarting: failed when the retries are used up, Pending when enough pods have let go.
pub(super) fn restarting(spec: &JobSpec, census: &Census<'_>, retry_count: i32) -> Option<Verdict> {
    let budget = max_retry(spec);
    if retry_count >= budget {
        let message = format!("restarted {retry_count} times, maxRetry is {budget}");
        return Some(Verdict::new(JobPhase::Failed, "RetriesExhausted", message));
    }
    let free = census.replicas - i64::from(census.counts.terminating);
    (free >= i64::from(spec.min_available) || census.counts.terminating == 0)
        .then(|| Verdict::new(JobPhase::Pending, "", String::new()))
}
