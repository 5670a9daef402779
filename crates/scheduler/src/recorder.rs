//! The recorder: writes down what the engine's decisions follow from, beside the decisions; see `pumice_recording`.
//!
//! Invariant: the loop hands over what it does and never waits; what is left out is a hole that the recording says.
//! `sender` is what the loop has, `queue` what waits between it and `writer`, the thread; `retention` drops what is old.

mod queue;
mod retention;
mod sender;
#[cfg(test)]
mod tests;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

pub use sender::{RecordSender, Recorder};

/// How long the end of the scheduler waits for the recorder.
pub(crate) const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// Where and how much is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordOptions {
    /// The folder; made if it is not there. One process records into it at a time.
    pub folder: PathBuf,
    /// Most bytes kept, at least one segment.
    pub bytes_max: u64,
    pub age_max: Duration,
}

impl RecordOptions {
    /// How many days are kept where nothing else is said; see `retention`.
    pub const DAYS: u32 = retention::DAYS;
    /// How many bytes are kept where nothing else is said; see `retention`.
    pub const BYTES: u64 = retention::BYTES;

    /// Options for a folder with the usual bounds of size and age.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, bytes_max: Self::BYTES, age_max: Duration::from_secs(86_400) * Self::DAYS }
    }
}

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The folder can't be made, read or written.
    #[error("nothing can be recorded in {folder}: make it writable, or name another folder")]
    Folder {
        folder: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Another process records there.
    #[error("another process records into {folder}: name another folder")]
    Taken { folder: PathBuf },
    /// No thread could be started.
    #[error("the thread that records could not be started")]
    Thread(#[source] std::io::Error),
}
