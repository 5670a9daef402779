//! The one place where the history reads the clock.

use jiff::Timestamp;
use tokio::time::Instant;

/// Wall clock time.
#[allow(clippy::disallowed_methods, reason = "the shell's clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// For deadlines.
pub(crate) fn instant() -> Instant {
    Instant::now()
}
