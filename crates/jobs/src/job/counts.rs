//! How many pods of a job run, wait and have ended.
//!
//! Invariant: counts come from the job's status, not from its pods, so a job of 300,000 pods costs the same as one of three.
//! Pure. Called by everything that tells how far a job is.

use pumice_api::batch::{Job, JobPhase, JobStatus};
use serde::Serialize;

/// Counts of a job's pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Pods the job asks for.
    pub total: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub running: u64,
    /// Pods that wait or do not exist yet.
    pub waiting: u64,
}

impl Counts {
    /// The counts in a job's status.
    pub fn of(job: &Job) -> Self {
        Counts::new(job.spec.tasks.iter().map(|task| task.replicas), &job.status)
    }

    /// The counts of tasks of so many pods, by the job's status.
    pub fn new(replicas: impl Iterator<Item = i32>, status: &JobStatus) -> Self {
        let positive = |n: i32| u64::try_from(n).unwrap_or(0);
        let total = replicas.map(positive).sum();
        let succeeded = positive(status.succeeded);
        let failed = positive(status.failed);
        let running = positive(status.running);
        // Pods that are being deleted neither run nor wait, and those of a job that has ended wait for nothing.
        let ended = status.state.phase.as_ref().is_some_and(|phase| {
            matches!(phase, JobPhase::Completed | JobPhase::Failed | JobPhase::Terminated | JobPhase::Aborted)
        });
        let left = u64::saturating_sub(total, succeeded + failed + running + positive(status.terminating));
        let waiting = if ended { 0 } else { left };
        Counts { total, succeeded, failed, running, waiting }
    }

    /// Pods that have ended.
    pub(crate) fn done(&self) -> u64 {
        self.succeeded + self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_a_job_that_has_ended_wait_for_nothing() {
        let waiting = |phase: Option<JobPhase>| {
            let mut status = JobStatus { succeeded: 1, ..JobStatus::default() };
            status.state.phase = phase;
            Counts::new([4].into_iter(), &status).waiting
        };
        for phase in [JobPhase::Completed, JobPhase::Failed, JobPhase::Terminated, JobPhase::Aborted] {
            assert_eq!(waiting(Some(phase)), 0);
        }
        assert_eq!([waiting(None), waiting(Some(JobPhase::Pending)), waiting(Some(JobPhase::Running))], [3, 3, 3]);
    }
}
