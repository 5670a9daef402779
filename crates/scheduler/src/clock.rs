//! The one place where the scheduler reads the clock.

use std::time::Duration;

use jiff::Timestamp;
use pumice_engine::TimeMs;
use tokio::time::Instant;

/// Wall clock time, for objects.
#[allow(clippy::disallowed_methods, reason = "the shell's clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// The engine's time: follows the wall clock, and goes on at its own pace when that is set back, so that nothing waits
/// for an hour to come again.
#[derive(Debug)]
pub(crate) struct Clock {
    last: TimeMs,
    at: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { last: wall_ms(), at: Instant::now() }
    }

    pub(crate) fn now_ms(&mut self) -> TimeMs {
        self.advance(Instant::now(), wall_ms())
    }

    fn advance(&mut self, at: Instant, wall: TimeMs) -> TimeMs {
        let passed = u32::try_from(at.saturating_duration_since(self.at).as_millis()).unwrap_or(u32::MAX);
        self.last = self.last.plus_ms(i64::from(passed)).max(wall);
        // Parts of a millisecond count the next time.
        self.at += Duration::from_millis(u64::from(passed));
        self.last
    }
}

fn wall_ms() -> TimeMs {
    TimeMs(now().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_when_the_wall_clock_is_set_back() {
        let start = Instant::now();
        let mut clock = Clock { last: TimeMs(1_000_000), at: start };
        let mut after = |millis, wall| clock.advance(start + Duration::from_millis(millis), TimeMs(wall)).0;
        assert_eq!(after(10, 1_000_010), 1_000_010);
        assert_eq!(after(20, 400_000), 1_000_020, "set back");
        assert_eq!(after(520, 400_500), 1_000_520);
        assert_eq!(after(525, 400_505), 1_000_525);
        assert_eq!(after(530, 2_000_000), 2_000_000, "set forward, or woken from sleep");
    }

    #[test]
    fn many_short_steps_are_as_long_as_one_long_step() {
        let start = Instant::now();
        let mut clock = Clock { last: TimeMs(1_000), at: start };
        let last = (1..=100_u64).map(|step| clock.advance(start + Duration::from_micros(step * 300), TimeMs(0))).last();
        assert_eq!(last, Some(TimeMs(1_030)));
    }
}
