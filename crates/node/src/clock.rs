//! The one place of this crate where the clock is read.
//!
//! Called by the shim and by the agent; everything below them takes the time as an argument.

use std::time::Instant;

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
