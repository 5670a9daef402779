//! The one place where the fleet reads the clock.

use std::time::Instant;

use jiff::Timestamp;
use pumice_ledger::TimeMs;

/// Wall clock time.
#[allow(clippy::disallowed_methods, reason = "the shell's clock")]
pub(crate) fn now_ms() -> TimeMs {
    TimeMs(Timestamp::now().as_millisecond())
}

/// Wall clock time, as certificates and tokens have it.
#[allow(clippy::disallowed_methods, reason = "the shell's clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// A clock that nobody sets, to measure with.
#[allow(clippy::disallowed_methods, reason = "the shell's clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
