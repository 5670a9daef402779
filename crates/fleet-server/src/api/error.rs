//! Why a request is refused, and the status that says so.

use std::sync::Arc;

use pumice_ledger::JobId;
use thiserror::Error as ThisError;
use tonic::{Code, Status};

use super::Refusal;
use crate::database;

/// Why a request is not done.
#[derive(Debug, ThisError)]
pub enum Error {
    /// No listener said who asks.
    #[error("nobody is known to make this request: log in")]
    Nobody,
    /// It is not allowed.
    #[error("{user} may not {what}: the permission {permission} allows it{or}")]
    Denied {
        user: String,
        what: String,
        /// What would allow it everywhere.
        permission: &'static str,
        /// What would allow it, too.
        or: String,
    },
    /// A field has to be there.
    #[error("{field}: it is missing")]
    Missing { field: &'static str },
    /// There is too much of something.
    #[error("{field}: there are {count}: have at most {max} in a request")]
    TooMany {
        field: &'static str,
        /// How much there is.
        count: usize,
        /// How much there may be.
        max: usize,
    },
    /// A text is too long.
    #[error("{field}: it has {bytes} bytes: have at most {max}")]
    TooLong {
        field: &'static str,
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        max: usize,
    },
    /// A text is no id.
    #[error("{field}: {source}")]
    Id {
        field: &'static str,
        #[source]
        source: pumice_ledger::IdError,
    },
    /// A field has no such value.
    #[error("{field}: {problem}")]
    Field {
        field: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The submission is refused.
    #[error(transparent)]
    Submit(#[from] Refusal),
    /// There is no such queue.
    #[error("there is no queue {0}")]
    NoQueue(String),
    /// There is no such job set.
    #[error("there is no job set {job_set} in queue {queue}")]
    NoJobSet { queue: String, job_set: String },
    /// There is no such executor.
    #[error("there is no executor {name}: there are {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    NoExecutor {
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The executor is not gone.
    #[error("executor {0} was heard of lately, and is not gone: stop it, and try again half a minute later")]
    Lives(String),
    /// This server does not know.
    #[error("this server does not lead, and does not know whether there is an executor {0}: ask another one")]
    NotLeading(String),
    /// There is no such job, or none any more.
    #[error("there is no job {0}")]
    NoJob(JobId),
    /// The job has not come so far.
    #[error("job {job} {stands}")]
    NoPod {
        job: JobId,
        /// How it stands, and what to do.
        stands: String,
    },
    /// No cluster has such a node.
    #[error("no cluster has a node {0}")]
    NoNode(String),
    /// It is not clear which node is meant.
    #[error("nodes of the name {node} are in the clusters {clusters}: say which, as in {first}/{node}")]
    Nodes {
        node: String,
        /// Those that have one.
        clusters: String,
        first: String,
    },
    /// It stands in the configuration, which no request changes.
    #[error(
        "the retry policy {0} stands in the fleet's configuration (scheduling.retryPolicy.policies): change it there"
    )]
    Configured(String),
    /// The configuration names it.
    #[error(
        "the retry policy {0} is that of queues that name none (scheduling.retryPolicy.defaultPolicyName): change that before"
    )]
    Default(String),
    #[error("the server is stopping: ask again, another one answers")]
    Stopping,
    /// A task of the server broke off.
    #[error("the request broke off")]
    Broken,
    /// The database does not do it.
    #[error(transparent)]
    Database(#[from] database::Error),
}

impl Error {
    fn code(&self) -> Code {
        match self {
            Error::Nobody => Code::Unauthenticated,
            Error::Denied { .. } => Code::PermissionDenied,
            Error::Missing { .. }
            | Error::TooMany { .. }
            | Error::TooLong { .. }
            | Error::Id { .. }
            | Error::Field { .. }
            | Error::Submit(_)
            | Error::Nodes { .. } => Code::InvalidArgument,
            Error::NoQueue(_)
            | Error::NoJobSet { .. }
            | Error::NoExecutor { .. }
            | Error::NoJob(_)
            | Error::NoNode(_) => Code::NotFound,
            Error::NoPod { .. } | Error::Configured(_) | Error::Default(_) | Error::Lives(_) => {
                Code::FailedPrecondition
            }
            Error::Stopping | Error::NotLeading(_) => Code::Unavailable,
            Error::Broken => Code::Internal,
            Error::Database(error) => code_of(error),
        }
    }
}

fn code_of(error: &database::Error) -> Code {
    match error {
        database::Error::NoQueue(_) | database::Error::NoPolicy(_) => Code::NotFound,
        database::Error::QueueExists(_) | database::Error::PolicyExists(_) => Code::AlreadyExists,
        database::Error::QueueInUse(_) | database::Error::PolicyInUse { .. } => Code::FailedPrecondition,
        database::Error::TooLong { .. } | database::Error::Unwritable => Code::InvalidArgument,
        database::Error::Failed(_) | database::Error::Closed => Code::Unavailable,
        database::Error::Unreadable { .. } => Code::DataLoss,
        _ => Code::Internal,
    }
}

/// The status has the error as its source, for whoever logs it; the message is for whoever asked.
impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let mut status = Status::new(error.code(), error.to_string());
        status.set_source(Arc::new(error));
        status
    }
}
