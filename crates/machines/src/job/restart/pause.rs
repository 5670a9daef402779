//! How long a restart waits.
//!
//! Invariant: the wait follows from the job alone: its count of retries, and when it entered Restarting. The first retry is
//! made at once, the next waits ten seconds, each further one twice as long as the one before, up to five minutes. Called by
//! `restart`, and for the retries of single pods, each of which counts for itself, by `retries`.

use jiff::{SignedDuration, Timestamp};
use pumice_api::batch::{Job, JobPhase};
use pumice_units::GoDuration;

use crate::job_object;

/// What the second retry of a job waits, a Go duration; annotation of a Job.
pub(in crate::job) const RETRY_BACKOFF: &str = "pumice.sh/retry-backoff";
/// What the second retry waits, unless the job says something else.
const FIRST: SignedDuration = SignedDuration::from_secs(10);
/// No retry waits longer, unless the job asks for a longer first wait.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// When a job that is Restarting may go on; `None` = at once.
pub(in crate::job) fn due(job: &Job) -> Option<Timestamp> {
    let wait = wait(job, job.status.retry_count);
    if wait <= SignedDuration::ZERO {
        return None;
    }
    let restarting = job.status.conditions.iter().find(|condition| condition.status == JobPhase::Restarting)?;
    let entered = restarting.last_transition_time.as_ref()?.0;
    Some(entered.checked_add(wait).unwrap_or(Timestamp::MAX))
}

/// What a retry waits, the first being 1.
pub(in crate::job) fn wait(job: &Job, retry: impl Into<i64>) -> SignedDuration {
    let said = job_object::annotation(job, RETRY_BACKOFF).and_then(|text| text.parse::<GoDuration>().ok());
    let first = said.map_or(FIRST, |said| SignedDuration::from_nanos(said.as_nanos().max(0)));
    let doublings = match retry.into() {
        ..=1 => return SignedDuration::ZERO,
        retry => u32::try_from(retry - 2).unwrap_or(u32::MAX).min(30),
    };
    first.saturating_mul(1 << doublings).min(LONGEST.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let seconds = |retry_count, text: Option<&str>| {
            let mut job = Job::default();
            let annotation = |text: &str| [(RETRY_BACKOFF.to_owned(), text.to_owned())].into();
            job.metadata.annotations = text.map(annotation);
            wait(&job, retry_count).as_secs()
        };
        assert_eq!(
            [0, 1, 2, 3, 4, 6, 7, i32::MAX].map(|retry| seconds(retry, None)),
            [0, 0, 10, 20, 40, 160, 300, 300]
        );
        assert_eq!([1, 2, 3, 4].map(|retry| seconds(retry, Some("90s"))), [0, 90, 180, 300]);
        assert_eq!([1, 2, 3].map(|retry| seconds(retry, Some("0s"))), [0, 0, 0]);
        assert_eq!([2, 3].map(|retry| seconds(retry, Some("1h"))), [3600, 3600]);
        assert_eq!(seconds(2, Some("-5s")), 0);
        assert_eq!(seconds(2, Some("soon")), 10, "what can't be read changes nothing");
    }
}
