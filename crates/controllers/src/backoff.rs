//! How long to wait after a failure.
//!
//! Invariant: waits double from the first to the longest, and never end: our own errors end no job.

use std::time::Duration;

use pumice_cluster::Failure;
use pumice_units::Backoff;

/// The wait after `failures` failures in a row (from 1), the last of this kind.
pub(crate) fn wait(kind: Failure, failures: u32) -> Duration {
    let (first, longest) = match kind {
        // Somebody was faster; the answer brought the newer state.
        Failure::Conflict | Failure::NotFound => (Duration::from_millis(2), Duration::from_secs(5)),
        Failure::AlreadyExists => (Duration::from_millis(100), Duration::from_secs(10)),
        Failure::Unavailable => (Duration::from_millis(50), Duration::from_secs(30)),
        // A quota may get room, a rule may change.
        Failure::Forbidden => (Duration::from_millis(500), Duration::from_secs(60)),
        Failure::Invalid => (Duration::from_secs(1), Duration::from_secs(300)),
    };
    Backoff { first, longest }.pause(failures.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let millis = |failures| wait(Failure::Unavailable, failures).as_millis();
        assert_eq!([1, 2, 3].map(millis), [50, 100, 200]);
        assert_eq!(millis(u32::MAX), 30_000);
        assert_eq!(wait(Failure::Conflict, 1), Duration::from_millis(2));
    }
}
