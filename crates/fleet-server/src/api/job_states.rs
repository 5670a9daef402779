//! Rows of jobs and runs, as Armada's API tells of them.

use pumice_ledger::{RunId, TimeMs};
use pumice_wire::api::{self, JobDetails, JobRunDetails, JobRunState};
use pumice_wire::wellknown::Timestamp;

use super::spec::JobTold;
use crate::database::{JobRow, JobState, RunRow, RunState};

/// A time on the wire.
pub(super) fn time(at: TimeMs) -> Timestamp {
    let (seconds, ms) = (at.0.div_euclid(1_000), at.0.rem_euclid(1_000));
    Timestamp { seconds, nanos: i32::try_from(ms).unwrap_or(0) * 1_000_000 }
}

/// A job's state. One whose run has to leave first waits like any other.
pub fn job_state(state: JobState) -> api::JobState {
    match state {
        JobState::Queued | JobState::Leaving => api::JobState::Queued,
        JobState::Leased => api::JobState::Leased,
        JobState::Pending => api::JobState::Pending,
        JobState::Running => api::JobState::Running,
        JobState::Succeeded => api::JobState::Succeeded,
        JobState::Failed => api::JobState::Failed,
        JobState::Rejected => api::JobState::Rejected,
        JobState::Cancelled => api::JobState::Cancelled,
        JobState::Preempted => api::JobState::Preempted,
    }
}

fn run_state(state: RunState) -> JobRunState {
    match state {
        RunState::Leased => JobRunState::RunStateLeased,
        RunState::Pending => JobRunState::RunStatePending,
        RunState::Running => JobRunState::RunStateRunning,
        RunState::Succeeded => JobRunState::RunStateSucceeded,
        RunState::Failed => JobRunState::RunStateFailed,
        RunState::Cancelled => JobRunState::RunStateCancelled,
        RunState::Preempted => JobRunState::RunStatePreempted,
        RunState::Returned => JobRunState::RunsStateLeaseReturned,
        RunState::Lost => JobRunState::RunStateLeaseExpired,
    }
}

/// What the row tells of its job.
pub(super) fn job_told(row: &JobRow) -> JobTold<'_> {
    JobTold { job: row.job, queue: &row.queue, job_set: &row.job_set, priority: row.priority, submitted: row.submitted }
}

/// A job, without its specification and its runs.
pub fn job_details(row: &JobRow) -> JobDetails {
    let latest = (row.attempts > 0).then_some(RunId { job: row.job, attempt: row.attempts });
    let cancelled = if row.state == JobState::Cancelled { row.ended } else { None };
    JobDetails {
        job_id: row.job.to_string(),
        queue: row.queue.clone(),
        jobset: row.job_set.clone(),
        namespace: row.namespace.clone(),
        state: job_state(row.state).into(),
        submitted_ts: Some(time(row.submitted)),
        cancel_ts: cancelled.map(time),
        cancel_reason: row.cancel_reason.clone().unwrap_or_default(),
        last_transition_ts: Some(time(row.last_transition)),
        latest_run_id: latest.map(|run| run.to_string()).unwrap_or_default(),
        job_spec: None,
        job_runs: Vec::new(),
        cancel_user: row.cancel_user.clone().unwrap_or_default(),
    }
}

/// A run, as Armada's calls tell of it.
pub fn run_details(row: &RunRow) -> JobRunDetails {
    JobRunDetails {
        run_id: row.run.to_string(),
        job_id: row.run.job.to_string(),
        state: run_state(row.state).into(),
        cluster: row.at.cluster.clone(),
        node: row.at.node.clone(),
        leased_ts: Some(time(row.leased)),
        pending_ts: row.pending.map(time),
        started_ts: row.started.map(time),
        finished_ts: row.finished.map(time),
        ingress_addresses: addresses(&row.ingress),
    }
}

/// Addresses by port; the wire's ports have a sign.
pub(super) fn addresses(by_port: &std::collections::BTreeMap<u32, String>) -> std::collections::BTreeMap<i32, String> {
    let port = |(port, address): (&u32, &String)| Some((i32::try_from(*port).ok()?, address.clone()));
    by_port.iter().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_milliseconds() {
        for (ms, seconds, nanos) in [(0, 0, 0), (1_500, 1, 500_000_000), (-1, -1, 999_000_000)] {
            assert_eq!(time(TimeMs(ms)), Timestamp { seconds, nanos });
        }
    }
}
