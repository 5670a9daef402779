//! When to look at something again.
//!
//! Invariant: at most one time for each key, the earliest that was asked for. Owned by the loop.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

/// Times at which a loop looks at something again, each with what it is about.
pub struct Timers<K> {
    by_time: BTreeSet<(Instant, K)>,
    by_key: HashMap<K, Instant>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: HashMap::new() }
    }
}

impl<K: Clone + Ord + Hash> Timers<K> {
    /// Asks for a look at `at`, or earlier.
    pub fn at(&mut self, key: &K, at: Instant) {
        match self.by_key.get(key) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                self.by_time.remove(&(*later, key.clone()));
            }
            None => {}
        }
        self.by_key.insert(key.clone(), at);
        self.by_time.insert((at, key.clone()));
    }

    /// The next time anything is due.
    pub fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes one key that is due.
    pub fn pop(&mut self, now: Instant) -> Option<K> {
        let (at, _) = self.by_time.first()?;
        if *at > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }
}

/// Sleeps until `at`, for ever where nothing is due: what a loop waits for beside its channels.
pub async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::time::Duration;

    #[test]
    fn the_earliest_time_of_a_key_counts() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut timers = Timers::default();
        timers.at(&"a", after(5));
        timers.at(&"a", after(9));
        timers.at(&"b", after(3));
        timers.at(&"b", after(1));
        assert_eq!(timers.next(), Some(after(1)));
        assert_eq!(timers.pop(after(4)), Some("b"));
        assert_eq!(timers.pop(after(4)), None);
        assert_eq!(timers.pop(after(9)), Some("a"));
        assert_eq!(timers.next(), None);
    }

    #[tokio::test]
    async fn a_loop_sleeps_until_something_is_due_and_for_ever_otherwise() {
        let start = Instant::now();
        until(Some(start + Duration::from_millis(5))).await;
        assert!(start.elapsed() >= Duration::from_millis(5));
        until(Some(start)).now_or_never().expect("what is past is due now");
        assert_eq!(until(None).now_or_never(), None, "nothing is due");
    }
}
