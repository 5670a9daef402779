//! How long to wait between tries that fail.
//!
//! Invariant: pauses double from the first to the longest. What a failure is, when it is forgotten and whether chance is added, is
//! the caller's.

use std::time::Duration;

/// The first and the longest pause between tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The pause that is doubled.
    pub first: Duration,
    /// The bound of all pauses, the first one too.
    pub longest: Duration,
}

impl Backoff {
    /// The pause that was doubled so often: the first one for 0, so that it takes the failures in a row before this one.
    #[must_use]
    pub fn pause(self, doublings: u32) -> Duration {
        // Longer than that is the longest in any case, and more would not fit.
        self.first.saturating_mul(1 << doublings.min(31)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };
        let pauses = [0, 1, 2, 5, 6, 31, 32, u32::MAX].map(|failures| backoff.pause(failures).as_millis());
        assert_eq!(pauses, [500, 1000, 2000, 16_000, 30_000, 30_000, 30_000, 30_000]);
        let endless = Backoff { first: Duration::from_secs(u64::MAX), longest: Duration::MAX };
        assert_eq!(endless.pause(9), Duration::MAX);
    }
}
