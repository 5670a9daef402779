//! What a specification says.
//!
//! Invariant: what is in a [`Spec`] can be run: names are known, numbers are in their ranges, and no field was passed over.

mod read;
#[cfg(test)]
mod tests;
mod text;

use std::num::NonZeroU32;
use std::time::Duration;

use pumice_wire::api::{
    JobCancelRequest, JobPreemptRequest, JobReprioritizeRequest, JobSetCancelRequest, JobSubmitRequestItem,
    NodeCancelRequest, NodePreemptRequest, Queue,
};
use thiserror::Error;

use super::events::Kind;
use super::expected::{Expected, ExpectedError};

/// Largest text of a specification.
pub const SPEC_BYTES_MAX: usize = 4 << 20;
/// The timeout where none is given. Armada's waits for ever then.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);

/// A case of Armada's testsuite: what is submitted, and which events are to come of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// What it is called, where it says so itself.
    pub name: Option<String>,
    /// The queue, or what the names of its queues start with.
    pub queue: String,
    /// What ids of job sets start with; the case's name where it is not given.
    pub job_set: Option<String>,
    /// What is submitted, if anything.
    pub submission: Option<Submission>,
    /// How long everything may take.
    pub timeout: Duration,
    /// What every job has to see, in this order.
    pub expected: Vec<Expected>,
    /// What is done when all jobs are there.
    pub planned: Option<PlannedAction>,
    /// Whether the job set is cancelled once more at the end, which has to succeed.
    pub cancels_inactive: bool,
    /// Queues of its own, which it looks at.
    pub queues: Option<QueueCase>,
}

/// Jobs, and in how many requests of how many copies they are submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    pub jobs: Vec<JobSubmitRequestItem>,
    /// How many copies of each are in a request.
    pub batch_size: NonZeroU32,
    /// How many requests; without it they go on until the timeout, which is the end then.
    pub batches: Option<NonZeroU32>,
    pub interval: Duration,
    /// Whether jobs without a client id get one.
    pub random_client_id: bool,
}

/// Something to do to jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedAction {
    /// It is done when all jobs saw an event of this kind.
    pub trigger: Kind,
    pub action: Action,
}

/// A request about jobs, without the fields that say which.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// By ids.
    Cancel(JobCancelRequest),
    /// The Volcano job set.
    CancelJobSet(JobSetCancelRequest),
    /// By ids.
    Preempt(JobPreemptRequest),
    /// By ids, or the Volcano job set.
    Reprioritize {
        request: JobReprioritizeRequest,
        /// Whether it is the job set.
        by_job_set: bool,
    },
    /// On the nodes where the jobs are.
    CancelOnNode(NodeCancelRequest),
    PreemptOnNode(NodePreemptRequest),
}

impl Action {
    /// Its name in a specification.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Cancel(_) => "cancel",
            Self::CancelJobSet(_) => "cancelJobSet",
            Self::Preempt(_) => "preempt",
            Self::Reprioritize { .. } => "reprioritize",
            Self::CancelOnNode(_) => "cancelOnNode",
            Self::PreemptOnNode(_) => "preemptOnNode",
        }
    }

    /// What it waits for where nothing is said.
    fn trigger(&self) -> Kind {
        match self {
            Self::Cancel(_) | Self::CancelJobSet(_) => Kind::Queued,
            _ => Kind::Running,
        }
    }
}

/// Queues that are made for a case, and removed after it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueCase {
    /// What each is made of; its name is made.
    pub template: Queue,
    /// How many are made in a request.
    pub batch_size: NonZeroU32,
    pub batches: NonZeroU32,
    pub interval: Duration,
    /// What they are changed to.
    pub update: Option<Queue>,
    /// What has to be true of them in the end.
    pub assertions: Vec<Assertion>,
}

/// What has to be true of queues.
#[derive(Debug, Clone, PartialEq)]
pub enum Assertion {
    /// The first has active jobs in the pool.
    ActiveInPool(String),
    /// The stream of queues has them.
    AppearsInStream,
    /// They are this, but for the name.
    Matches(Box<Queue>),
    /// They are gone after they were removed.
    Deleted,
}

/// Why a text is no specification.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// It is too long.
    #[error("it has {bytes} bytes: have at most {max}", max = SPEC_BYTES_MAX)]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// It is no YAML.
    #[error("{0}")]
    Syntax(String),
    /// A document is no mapping.
    #[error("document {0} is no mapping")]
    Document(usize),
    /// Two documents say the same.
    #[error("{0} is given in two documents")]
    Twice(String),
    /// A field has no such value.
    #[error("{path}: {problem}")]
    Field { path: String, problem: String },
    /// An expected event is none.
    #[error("expectedEvents[{index}]: {source}")]
    Expected {
        index: usize,
        #[source]
        source: ExpectedError,
    },
}
