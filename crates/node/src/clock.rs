//! The one place of this crate where the clock is read.
//!
//! Called by the shim and by the agent; everything below them takes the time as an argument.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// The wall clock.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// The clock that only goes forward, for deadlines.
#[allow(clippy::disallowed_methods)]
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

/// The moment so many seconds later; far away where the clock has no such moment.
pub(crate) fn after(at: Instant, seconds: u64) -> Instant {
    const FAR: Duration = Duration::from_secs(2_147_483_647);
    at + Duration::from_secs(seconds).min(FAR)
}
