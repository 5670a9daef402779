//! How long a container waits before it is started again, as in the kubelet.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
/// A run this long makes the next failure the first one again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// The waits of one container: nothing, then 10 s, doubling up to 5 min.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// The wait after a run that lasted `ran`.
    pub(crate) fn after_run(&mut self, ran: Duration) -> Duration {
        if ran >= FORGIVEN_AFTER {
            self.next = Duration::ZERO;
        }
        let wait = self.next;
        self.next = (self.next * 2).clamp(FIRST, LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_five_minutes_and_are_forgiven() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..8).map(|_| backoff.after_run(Duration::from_secs(1)).as_secs()).collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.after_run(Duration::from_secs(700)).as_secs(), 0);
        assert_eq!(backoff.after_run(Duration::ZERO).as_secs(), 10);
    }
}
