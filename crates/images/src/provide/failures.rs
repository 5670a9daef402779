//! Pulls that failed, and when they are tried again: after pauses that double, as a kubelet makes them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pumice_units::Backoff;

/// The pauses of a kubelet.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(10), longest: Duration::from_secs(300) };
/// What failed is forgotten this long after it could have been tried again.
const REMEMBERED: Duration = Duration::from_secs(600);

/// What failed, by name and credentials.
#[derive(Default)]
pub(super) struct Failures {
    entries: Mutex<HashMap<String, Failure>>,
}

struct Failure {
    in_a_row: u32,
    again_at: Instant,
    message: String,
}

impl Failures {
    /// What the last try said, while it is too early for the next.
    pub(super) fn wait(&self, key: &str, now: Instant) -> Option<String> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = entries.get(key).filter(|failure| failure.again_at > now)?;
        Some(failure.message.clone())
    }

    pub(super) fn add(&self, key: String, message: String, now: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, failure| failure.again_at + REMEMBERED > now);
        let in_a_row = entries.get(&key).map_or(0, |failure| failure.in_a_row + 1);
        entries.insert(key, Failure { in_a_row, again_at: now + PAUSES.pause(in_a_row), message });
    }

    pub(super) fn forget(&self, key: &str) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_a_pull_succeeds() {
        let (failures, start) = (Failures::default(), pumice_clock::monotonic());
        let mut now = start;
        let waits = |now| failures.wait("a", now).is_some();
        assert!(!waits(now));
        for expected in [10, 20, 40, 80, 160, 300, 300] {
            failures.add("a".into(), "down".into(), now);
            now += Duration::from_secs(expected);
            assert!(waits(now - Duration::from_millis(1)) && !waits(now), "{expected}");
        }
        assert_eq!(failures.wait("b", start), None);
        failures.forget("a");
        failures.add("a".into(), "down".into(), now);
        assert!(waits(now + Duration::from_secs(9)) && !waits(now + Duration::from_secs(10)));
    }
}
