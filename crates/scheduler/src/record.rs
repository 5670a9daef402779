//! Recordings: all that the engine's decisions follow from, beside the decisions, in a folder of segments.
//!
//! Invariant: what is in a recording between two breaks, played into a World, gives every plan again, bit for bit.
//! `tape` is what the loop holds, `queue` what waits between it and `keeper`, the thread that writes; `read` gives the
//! entries back, `replay` runs them, `cut` makes a `case` of some of them.

mod block;
mod case;
mod cut;
mod digest;
mod entry;
mod keeper;
mod play;
mod queue;
mod read;
mod redact;
mod replay;
mod segment;
mod sweep;
mod tape;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

pub use case::{About, Case, CaseError, is_case};
pub use cut::{CutError, Stretch, cut, job, time};
pub use digest::digest;
pub use entry::{Beginning, Bound, Cycle, Entry, Evicted, Flags, Told};
pub use play::{PlayError, config_of, saved_world};
pub use pumice_engine::TimeMs;
pub use read::{Break, Entries, Item, ReadError, Recording};
pub use replay::{Difference, Range, Replay, ReplayError, replay};
pub use segment::FORMAT;
pub use tape::{Recorder, Tape};

/// How long the end of the scheduler waits for the recorder.
pub(crate) const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// Where and how much is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordOptions {
    /// The folder; made if it is not there. One process records into it at a time.
    pub folder: PathBuf,
    /// Most bytes kept, at least one segment.
    pub bytes_max: u64,
    /// Longest time kept.
    pub age_max: Duration,
}

impl RecordOptions {
    /// Seven days, 10 GB.
    pub const DAYS: u32 = 7;
    /// In bytes.
    pub const BYTES: u64 = 10_000_000_000;

    /// The usual bounds.
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
        /// The folder.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another process records there.
    #[error("another process records into {folder}: name another folder")]
    Taken {
        /// The folder.
        folder: PathBuf,
    },
    /// No thread could be started.
    #[error("the thread that records could not be started")]
    Thread(#[source] std::io::Error),
}
