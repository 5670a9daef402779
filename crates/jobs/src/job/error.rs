//! How a job can't be what is wanted of it: it isn't there, has ended, or goes on.

use super::reference::JobRef;
use crate::error::{Error, Failure, Remedy};
use crate::exit_code::Exit;

/// A job, or a pod of one, is not as a command needs it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The job does not exist.
    #[error("no job {name} in namespace {namespace}")]
    NoJob {
        /// The name looked for.
        name: String,
        namespace: String,
    },
    /// The job has ended, and its object is gone since.
    #[error("job {name} in namespace {namespace} ended {ended} and has been removed")]
    Removed {
        /// The name looked for.
        name: String,
        namespace: String,
        /// When it ended, for people.
        ended: String,
        /// What names the namespace again in a command, where that is needed.
        flag: String,
    },
    /// `last` was asked for and there is none.
    #[error("no job at all in namespace {namespace}")]
    NoJobs { namespace: String },
    /// Nothing is what was asked for.
    #[error("no job {wanted} in namespace {namespace}")]
    NoMatch {
        /// What was asked for.
        wanted: String,
        namespace: String,
    },
    /// A pattern stands for several jobs where one is wanted.
    #[error("{pattern} means {hits} jobs, and this is for one")]
    Several {
        pattern: String,
        /// How many jobs it hits.
        hits: usize,
    },
    /// The job still goes on.
    #[error("job {name} has not ended")]
    NotEnded {
        name: String,
        /// What repeats its namespace on a command line; may be empty.
        flag: String,
    },
    /// The job is suspended, and goes on when it is resumed.
    #[error("job {name} is suspended")]
    Suspended {
        name: String,
        /// What repeats its namespace on a command line; may be empty.
        flag: String,
    },
    /// The platform's controllers do not end a suspended job.
    #[error("job {name} stays suspended: the controllers of this platform do not end a suspended job")]
    StaysSuspended {
        name: String,
        /// What repeats its namespace on a command line; may be empty.
        flag: String,
    },
    /// No pod of the job has failed, or the one asked for has not.
    #[error("no pod {}of job {job} has failed", index.map(|index| format!("of index {index} ")).unwrap_or_default())]
    NoFailure {
        job: String,
        index: Option<u32>,
        /// What repeats its namespace on a command line; may be empty.
        flag: String,
    },
    /// A pod that was named is not one of the job's.
    #[error("job {job} has no pod {pod}")]
    NoPod { job: String, pod: String },
    /// An index was asked for without saying of which task.
    #[error("job {job} has several tasks: name one of {tasks}")]
    WhichTask { job: String, tasks: String },
}

impl JobError {
    /// Whether an error says that the job does not exist.
    pub fn is_no_job(error: &Error) -> bool {
        matches!(error.downcast_ref(), Some(JobError::NoJob { .. }))
    }
}

impl JobRef {
    /// The error that says it does not exist.
    pub fn missing(&self) -> JobError {
        JobError::NoJob { name: self.name.clone(), namespace: self.namespace.clone() }
    }
}

impl Failure for JobError {
    fn exit(&self) -> Exit {
        match self {
            JobError::NoJob { .. }
            | JobError::Removed { .. }
            | JobError::NoJobs { .. }
            | JobError::NoMatch { .. }
            | JobError::NoFailure { .. }
            | JobError::NoPod { .. } => Exit::NotFound,
            JobError::NotEnded { .. } | JobError::Suspended { .. } | JobError::StaysSuspended { .. } => Exit::Conflict,
            JobError::Several { .. } | JobError::WhichTask { .. } => Exit::Usage,
        }
    }

    fn remedy(&self) -> Remedy {
        Remedy::Do(match self {
            JobError::NoJob { namespace, .. }
            | JobError::NoJobs { namespace }
            | JobError::NoMatch { namespace, .. } => {
                format!("jobctl list --namespace {namespace}")
            }
            JobError::Removed { name, flag, .. } => format!("jobctl history {name}{flag}"),
            JobError::NoFailure { job, flag, .. } => format!("jobctl get {job}{flag}"),
            JobError::NotEnded { name, flag } => format!("jobctl cancel {name}{flag}"),
            JobError::Suspended { name, flag } => format!("jobctl resume {name}{flag}"),
            JobError::StaysSuspended { name, flag } => format!("jobctl delete --force {name}{flag}"),
            JobError::Several { pattern, .. } => format!("jobctl list '{pattern}'"),
            JobError::NoPod { job, .. } | JobError::WhichTask { job, .. } => format!("jobctl logs {job}"),
        })
    }
}
