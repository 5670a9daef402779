//! The platform's clocks. No other crate reads the time of the machine by itself: clippy refuses it (`clippy.toml`).
//!
//! - [`now`] and [`now_ms`]: the wall clock, for objects, certificates and what users see
//! - [`monotonic`]: the clock that only goes forward, for deadlines and to measure with
//! - [`SteadyClock`]: the wall clock that goes on at its own pace when it is set back
//! - [`Clock`]: a clock as a value, which tests replace; [`SystemClock`] is the machine's
//!
//! *Invariant*: pure crates do not use this one; they take the time as an argument.
//! *Called by*: components and servers.

#[cfg(feature = "steady")]
mod steady;

use std::time::{Duration, Instant};

use jiff::Timestamp;

#[cfg(feature = "steady")]
pub use steady::SteadyClock;

/// The wall clock's time. Somebody may set that clock: measure with [`monotonic`].
#[allow(clippy::disallowed_methods, reason = "the platform's clock")]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// Wall clock time in milliseconds since 1970.
pub fn now_ms() -> i64 {
    now().as_millisecond()
}

/// The clock that only goes forward and that nobody sets.
#[allow(clippy::disallowed_methods, reason = "the platform's clock")]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// The moment so many seconds later; far away where the clock has no such moment.
pub fn after(at: Instant, seconds: u64) -> Instant {
    const FAR: Duration = Duration::from_secs(2_147_483_647);
    at + Duration::from_secs(seconds).min(FAR)
}

/// Where timestamps of objects come from, as a value that tests replace.
pub trait Clock: Send + Sync + 'static {
    /// The time that objects which are written now bear.
    fn now(&self) -> Timestamp;
}

/// The machine's wall clock as a [`Clock`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        now()
    }
}

/// A timestamp as Kubernetes writes it: RFC 3339, UTC, whole seconds.
pub fn wire_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_in_utc() {
        let at: Timestamp = "2026-01-02T03:04:05.678Z".parse().expect("time");
        assert_eq!(wire_time(at), "2026-01-02T03:04:05Z");
    }
}
