//! What a job is, read off its objects: its name, its state, how it ended, its pods and its rows in tables.
//!
//! Invariant: everything here is pure; it says no more than the objects do. Called by every module that talks to a platform.

mod counts;
mod document;
mod error;
pub mod idempotency;
pub mod list_columns;
mod outcome;
pub mod pod;
mod reference;
mod row;
pub mod state;

pub use counts::Counts;
pub use document::JobDocument;
pub use error::JobError;
pub use outcome::{JobEnd, PodFailure, end_of, exit_of_end, exit_of_run, pod_failures};
pub use reference::{JobRef, Selector, jobs_path};
pub use row::JobRow;

/// The most pods of a Job, as the platform allows them.
pub const REPLICAS_MAX: u32 = 100_000;
/// The annotation of pods that carries their script, where nothing else does.
pub const SCRIPT: &str = "pumice.sh/script";
/// The rule `--on-oom off`: memory stays as it is, whatever the queue says.
pub const ON_OOM_OFF: &str = "off";
