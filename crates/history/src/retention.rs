//! How long the history keeps jobs, and how what is older goes: the writer removes it a portion at a time.

use std::time::Duration;

/// Days for which a job is kept after its object is gone, unless said otherwise.
pub const DAYS: u32 = 90;
/// Time between two looks for what is old.
pub(crate) const RETIRE_EVERY: Duration = Duration::from_secs(600);
/// Pause between two portions of what is old.
pub(crate) const RETIRE_PAUSE: Duration = Duration::from_millis(100);
/// Jobs forgotten at a time.
pub(crate) const RETIRED_JOBS: i64 = 500;
pub(crate) const DAY_MS: i64 = 24 * 3_600 * 1_000;
