//! Why a case failed.

use thiserror::Error;
use tonic::{Code, Status};

use super::events::Kind;
use super::matcher::{Mismatch, Waiting};

/// Why a case failed.
#[derive(Debug, Error)]
pub enum Failure {
    /// The server does not have a call that the case needs.
    #[error("{call}: the server does not have this call ({message})")]
    Unimplemented {
        /// The call, as in `PreemptOnNode`.
        call: &'static str,
        /// What the server said.
        message: String,
    },
    /// The server refused a call, or did not answer it.
    #[error("{call}: {:?}: {}", status.code(), status.message())]
    Refused {
        call: &'static str,
        /// What the server said.
        status: Box<Status>,
    },
    /// An answer took too long.
    #[error("{call}: there was no answer in {seconds} s")]
    Unanswered {
        call: &'static str,
        /// How long it could have taken.
        seconds: u64,
    },
    /// The server refused a part of a request.
    #[error("{call}: {item}: {message}")]
    Item {
        call: &'static str,
        item: String,
        /// What the server said.
        message: String,
    },
    /// A job saw what it should not.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// Jobs did not see in time what they should.
    #[error("timeout after {seconds} s: {waiting}")]
    Late {
        seconds: u64,
        /// What they wait for.
        waiting: Waiting,
    },
    /// It was never time to do what the specification says.
    #[error("timeout after {seconds} s: {action} was not due: {saw} of {total} jobs saw {trigger}; {waiting}")]
    NotDue {
        seconds: u64,
        /// What was to be done.
        action: &'static str,
        /// The event of every job that it is due with.
        trigger: Kind,
        /// How many saw it.
        saw: usize,
        total: usize,
        /// What they wait for.
        waiting: Waiting,
    },
    /// The timeout came before jobs were there.
    #[error("timeout after {seconds} s, before all jobs were submitted")]
    NotSubmitted { seconds: u64 },
    /// A queue is not as asserted.
    #[error("queue {queue}: {problem}")]
    Queue { queue: String, problem: String },
    /// The run was ended.
    #[error("stopped before its end")]
    Stopped,
}

impl Failure {
    /// What the server said to a call.
    pub(super) fn refused(call: &'static str, status: Status) -> Self {
        match status.code() {
            Code::Unimplemented => Self::Unimplemented { call, message: unimplemented_words(&status) },
            _ => Self::Refused { call, status: Box::new(status) },
        }
    }

    /// The code of the refusal, where it is one.
    pub(super) fn code(&self) -> Option<Code> {
        match self {
            Self::Unimplemented { .. } => Some(Code::Unimplemented),
            Self::Refused { status, .. } => Some(status.code()),
            _ => None,
        }
    }
}

/// Where a whole service is missing, gRPC says nothing but the code.
fn unimplemented_words(status: &Status) -> String {
    if status.message().is_empty() { "UNIMPLEMENTED".to_owned() } else { status.message().to_owned() }
}
