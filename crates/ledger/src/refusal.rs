//! Why an event is refused.

use crate::ids::{JobId, RunId};

/// Why an event changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The job has ended, or never was.
    #[error("job {0} is not active")]
    NoJob(JobId),
    /// The run is not the one that counts, or is not in that state.
    #[error("run {0} is not where this could happen to it")]
    NoRun(RunId),
    /// The job is there already.
    #[error("job {0} was submitted before")]
    Twice(JobId),
    /// The entry does not carry the job's shape.
    #[error("job {0} comes without its shape")]
    NoShape(JobId),
    /// The job waits for no node, or is to end.
    #[error("job {0} does not wait for a node")]
    NotWaiting(JobId),
    /// Nobody asked for it, or it was told before.
    #[error("jobs of job set {job_set} of queue {queue} are not to be told of another place")]
    NotAsked { queue: String, job_set: String },
    /// The queue has jobs.
    #[error("queue {0} has jobs that have not ended")]
    QueueInUse(String),
}
