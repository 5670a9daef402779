//! Time to live of a finished job.
//!
//! Invariant: only Completed, Failed and Terminated expire, counted from `state.lastTransitionTime`. Called by `cleanup`.

use jiff::{SignedDuration, Timestamp};
use pumice_api::batch::Job;

/// When a job is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::job) enum Due {
    Never,
    At(Timestamp),
    Now,
}

pub(in crate::job) fn due(job: &Job, now: Timestamp) -> Due {
    let state = &job.status.state;
    let finished = state.phase.as_ref().is_some_and(|phase| phase.is_finished());
    let (Some(seconds), Some(ended), true) =
        (job.spec.ttl_seconds_after_finished, &state.last_transition_time, finished)
    else {
        return Due::Never;
    };
    match ended.0.checked_add(SignedDuration::from_secs(i64::from(seconds))) {
        Ok(at) if at <= now => Due::Now,
        Ok(at) => Due::At(at),
        Err(_) => Due::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_api::batch::JobPhase;

    #[test]
    fn only_finished_jobs_with_a_time_to_live_expire() {
        let cases = [
            (JobPhase::Completed, Some(10), 109, Due::At(Timestamp::from_second(110).unwrap())),
            (JobPhase::Completed, Some(10), 110, Due::Now),
            (JobPhase::Failed, Some(0), 100, Due::Now),
            (JobPhase::Terminated, Some(5), 200, Due::Now),
            (JobPhase::Completed, None, 200, Due::Never),
            (JobPhase::Aborted, Some(0), 200, Due::Never),
            (JobPhase::Running, Some(0), 200, Due::Never),
        ];
        for (phase, ttl, now, expected) in cases {
            let mut job = Job::default();
            job.spec.ttl_seconds_after_finished = ttl;
            job.status.state.phase = Some(phase.clone());
            job.status.state.last_transition_time =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::from_second(100).unwrap()));
            assert_eq!(due(&job, Timestamp::from_second(now).unwrap()), expected, "{phase:?} {ttl:?} {now}");
        }
    }
}
