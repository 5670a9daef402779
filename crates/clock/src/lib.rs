//! The platform's clocks. No other crate reads the time of the machine by itself: clippy refuses it (`clippy.toml`).
//!
//! - [`now`] and [`now_ms`]: the wall clock, for objects, certificates and what users see
//! - [`monotonic`]: the clock that only goes forward, for deadlines and to measure with
//! - [`SteadyClock`]: the wall clock that goes on at its own pace when it is set back
//! - [`Clock`]: a clock as a value, which tests replace; [`SystemClock`] is the machine's
//!
//! *Invariant*: pure crates do not use this one; they take the time as an argument.
//! *Called by*: components and servers.

use std::time::{Duration, Instant};

use jiff::Timestamp;

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

/// Follows the wall clock, but never goes back: when that is set back, this one goes on at its own pace, so that nothing waits for
/// an hour to come again.
#[derive(Debug)]
pub struct SteadyClock {
    last_ms: i64,
    at: tokio::time::Instant,
}

impl SteadyClock {
    /// A clock that begins with the wall clock's time.
    #[allow(clippy::new_without_default, reason = "reads the clock, which a default should not")]
    pub fn new() -> Self {
        Self { last_ms: now_ms(), at: tokio::time::Instant::now() }
    }

    /// Milliseconds since 1970; never less than the time before.
    pub fn now_ms(&mut self) -> i64 {
        self.advance(tokio::time::Instant::now(), now_ms())
    }

    fn advance(&mut self, at: tokio::time::Instant, wall_ms: i64) -> i64 {
        let passed = u32::try_from(at.saturating_duration_since(self.at).as_millis()).unwrap_or(u32::MAX);
        self.last_ms = self.last_ms.saturating_add(i64::from(passed)).max(wall_ms);
        // Parts of a millisecond count the next time.
        self.at += Duration::from_millis(u64::from(passed));
        self.last_ms
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

    #[test]
    fn time_goes_on_when_the_wall_clock_is_set_back() {
        let start = tokio::time::Instant::now();
        let mut clock = SteadyClock { last_ms: 1_000_000, at: start };
        let mut after = |millis, wall| clock.advance(start + Duration::from_millis(millis), wall);
        assert_eq!(after(10, 1_000_010), 1_000_010);
        assert_eq!(after(20, 400_000), 1_000_020, "set back");
        assert_eq!(after(520, 400_500), 1_000_520);
        assert_eq!(after(525, 400_505), 1_000_525);
        assert_eq!(after(530, 2_000_000), 2_000_000, "set forward, or woken from sleep");
    }

    #[test]
    fn many_short_steps_are_as_long_as_one_long_step() {
        let start = tokio::time::Instant::now();
        let mut clock = SteadyClock { last_ms: 1_000, at: start };
        let last = (1..=100_u64).map(|step| clock.advance(start + Duration::from_micros(step * 300), 0)).last();
        assert_eq!(last, Some(1_030));
    }
}
