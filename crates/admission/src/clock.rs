//! The one place where the webhook server reads the clock.

use jiff::Timestamp;

/// Wall clock time, for first statuses and certificates.
#[allow(clippy::disallowed_methods, reason = "the shell's clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
