//! The wall clock's time for those who wait: it goes on at its own pace when somebody sets the wall clock back.

use std::time::Duration;

use crate::now_ms;

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

#[cfg(test)]
mod tests {
    use super::*;

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
