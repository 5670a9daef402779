//! The one place where the controllers read the clock.

use jiff::Timestamp;

/// Wall clock time, for the machines and for what users see.
#[allow(clippy::disallowed_methods, reason = "the shell's clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
