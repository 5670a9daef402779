//! How objects can't be submitted.

use crate::error::{CORRECT, Failure, Remedy};
use crate::exit_code::Exit;
use crate::job::JobRef;
use crate::platform::call::CallError;

/// Queues named where one is unknown.
const QUEUES_NAMED_MAX: usize = 8;

/// An object that can't be submitted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// It lacks what every server would ask for.
    #[error("{}{detail}", front(.origin))]
    Check {
        /// Where it comes from.
        origin: String,
        detail: String,
    },
    /// The server has no such kind.
    #[error("{}the server does not know {kind} of {api_version}", front(.origin))]
    NotServed {
        /// Where it comes from.
        origin: String,
        kind: String,
        /// Its group and version.
        api_version: String,
    },
    /// The server refused it or did not answer.
    #[error("{}{source}", front(.origin))]
    Call {
        /// Where it comes from.
        origin: String,
        kind: String,
        /// Its name, or the start of it.
        name: String,
        #[source]
        source: Box<CallError>,
    },
    /// The job is for a queue that nobody made.
    #[error("{}there is no queue {queue}{}", front(.origin), known_queues(.known))]
    NoQueue {
        /// Where the job comes from.
        origin: String,
        queue: String,
        /// Those that there are; empty if they can't be listed.
        known: Vec<String>,
    },
    /// There is a job of that name.
    #[error(
        "{}there is a job {name} in namespace {namespace} already: choose another name, or none for one that is made up; \
         `jobctl delete {name}` removes the one that is there",
        front(.origin)
    )]
    NameTaken {
        /// Where the job comes from.
        origin: String,
        name: String,
        namespace: String,
    },
    /// Another job was submitted with the same idempotency key.
    #[error("--idempotency-key {key:?} is that of job {name} in namespace {namespace}, which asks for something else")]
    OtherJob {
        key: String,
        /// The job that has it.
        name: String,
        namespace: String,
    },
}

impl Failure for SubmitError {
    fn exit(&self) -> Exit {
        match self {
            SubmitError::Check { .. } => Exit::Usage,
            SubmitError::Call { source, .. } => source.exit(),
            SubmitError::NotServed { .. } | SubmitError::NoQueue { .. } => Exit::NotFound,
            SubmitError::OtherJob { .. } | SubmitError::NameTaken { .. } => Exit::Conflict,
        }
    }

    fn remedy(&self) -> Remedy {
        match self {
            SubmitError::Check { .. } | SubmitError::NotServed { .. } => Remedy::from_text(CORRECT),
            SubmitError::Call { source, .. } => source.remedy(),
            SubmitError::NoQueue { .. } => Remedy::from_text("jobctl queue list"),
            SubmitError::OtherJob { name, namespace, .. } | SubmitError::NameTaken { name, namespace, .. } => {
                let job = JobRef { namespace: namespace.clone(), name: name.clone() };
                Remedy::Do(format!("jobctl get {name}{}", job.namespace_flag()))
            }
        }
    }
}

/// The place of an object, before what is wrong with it. A job that is made of flags has none.
fn front(origin: &str) -> String {
    if origin.is_empty() { String::new() } else { format!("{origin}: ") }
}

/// The queues that there are, as the end of a sentence; nothing if they are not known.
pub fn known_queues(known: &[String]) -> String {
    let more = if known.len() > QUEUES_NAMED_MAX { ", ..." } else { "" };
    match &known[..known.len().min(QUEUES_NAMED_MAX)] {
        [] => String::new(),
        [only] => format!("; the only one is {only}"),
        some => format!("; there are {}{more}", some.join(", ")),
    }
}
