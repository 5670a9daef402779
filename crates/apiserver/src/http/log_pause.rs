//! A line of the log that is written not more often than every some seconds, however often its cause comes.
//!
//! Invariant: what was not told is counted in the next line. Used where strangers can cause lines.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Least time between two lines.
const PAUSE: Duration = Duration::from_secs(10);

/// When the last line was written, and what was not told since.
#[derive(Debug, Default)]
pub(crate) struct LogPause(Mutex<(Option<Instant>, u64)>);

impl LogPause {
    /// Counts one more; where a line is due it gives how many it is of.
    pub(crate) fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, untold) = &mut *state;
        *untold += 1;
        if last.is_some_and(|last| now.duration_since(last) < PAUSE) {
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_told_is_in_the_next_line() {
        let pause = LogPause::default();
        let now = Instant::now();
        assert_eq!([pause.due(now), pause.due(now), pause.due(now)], [Some(1), None, None]);
        assert_eq!(pause.due(now + PAUSE), Some(3));
    }
}
