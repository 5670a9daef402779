//! How a question about the past can't be answered.

use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;

/// What helps where there is no history to ask.
const HISTORY: &str =
    "pumice up without --history=false; on a cluster its administrator's pumice history run, see docs/history.md";

/// There is no history, or nothing in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The server keeps no history, or none that it answers from.
    #[error("{url} answers no questions about its history")]
    NoHistory { url: String },
    /// The history knows of no such job.
    #[error("no job {name} of namespace {namespace} is in the history")]
    NoPast {
        /// The name looked for.
        name: String,
        namespace: String,
    },
}

impl Failure for HistoryError {
    fn exit(&self) -> Exit {
        Exit::NotFound
    }

    fn remedy(&self) -> Remedy {
        Remedy::from_text(match self {
            HistoryError::NoHistory { .. } => HISTORY,
            HistoryError::NoPast { .. } => "jobctl history --all-namespaces",
        })
    }
}
