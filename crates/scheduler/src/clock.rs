//! The one place where the scheduler reads the clock.

use jiff::Timestamp;
use pumice_engine::TimeMs;

/// Wall clock time, for objects.
#[allow(clippy::disallowed_methods, reason = "the shell's clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// The same for the engine.
pub(crate) fn now_ms() -> TimeMs {
    TimeMs(now().as_millisecond())
}
