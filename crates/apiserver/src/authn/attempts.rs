//! How often passwords may be tried: by user, and by address.
//!
//! Invariant: bounded, in memory and in what anybody can try. Whoever is slowed down keeps no other user out but the one whose
//! name he tries, and that one for as long alone. The time is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Tries in a row of one user, and how soon there is another one.
const OF_USER: Allowance = Allowance { burst: 5, again: Duration::from_secs(12) };
/// The same of one address, behind which many may be.
const OF_ADDRESS: Allowance = Allowance { burst: 30, again: Duration::from_secs(2) };
/// Users and addresses that are remembered; then those are forgotten who could try as often as they like.
const REMEMBERED_MAX: usize = 8_192;

#[derive(Clone, Copy, Debug)]
struct Allowance {
    burst: u32,
    again: Duration,
}

impl Allowance {
    /// How long all tries together take to be there again.
    fn whole(self) -> Duration {
        self.again * self.burst
    }
}

/// When each would be as if he had never tried.
#[derive(Debug)]
struct Tries<K> {
    allowance: Allowance,
    rested: HashMap<K, Instant>,
}

impl<K: Eq + Hash> Tries<K> {
    fn new(allowance: Allowance) -> Self {
        Self { allowance, rested: HashMap::new() }
    }

    /// How long this one has to wait, if he has.
    fn wait(&self, key: &K, now: Instant) -> Option<Duration> {
        let rested = self.rested.get(key)?;
        let owed = rested.saturating_duration_since(now) + self.allowance.again;
        owed.checked_sub(self.allowance.whole()).filter(|wait| !wait.is_zero())
    }

    fn count(&mut self, key: K, now: Instant) {
        if self.rested.len() >= REMEMBERED_MAX {
            self.rested.retain(|_, rested| *rested > now);
        }
        if self.rested.len() >= REMEMBERED_MAX {
            // So many at once are an attack; those who come next are counted by their address.
            return;
        }
        let rested = self.rested.entry(key).or_insert(now);
        *rested = (*rested).max(now) + self.allowance.again;
    }
}

/// Who tried how often.
#[derive(Debug)]
pub(crate) struct Attempts(Mutex<(Tries<String>, Tries<IpAddr>)>);

impl Default for Attempts {
    fn default() -> Self {
        Self(Mutex::new((Tries::new(OF_USER), Tries::new(OF_ADDRESS))))
    }
}

impl Attempts {
    /// Counts a try, or says how long to wait for one.
    pub(crate) fn begin(&self, user: &str, address: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (users, addresses) = &mut *tries;
        let user = user.to_owned();
        let wait = users.wait(&user, now).max(address.and_then(|address| addresses.wait(&address, now)));
        if let Some(wait) = wait {
            return Err(wait);
        }
        users.count(user, now);
        if let Some(address) = address {
            addresses.count(address, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_come_back_one_by_one_and_by_user_and_address() {
        let attempts = Attempts::default();
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let here = IpAddr::from([10, 0, 0, 1]);
        for _ in 0..5 {
            assert_eq!(attempts.begin("alice", Some(here), start), Ok(()));
        }
        assert_eq!(attempts.begin("alice", Some(here), start), Err(Duration::from_secs(12)));
        assert!(attempts.begin("alice", Some(IpAddr::from([10, 0, 0, 2])), after(11)).is_err(), "from wherever");
        assert_eq!(attempts.begin("bob", Some(here), start), Ok(()), "another user");
        assert_eq!(attempts.begin("alice", Some(here), after(12)), Ok(()));
        assert!(attempts.begin("alice", Some(here), after(13)).is_err());
        // Many names from one address.
        let many =
            (0..100).filter(|number| attempts.begin(&format!("u{number}"), Some(here), after(13)).is_ok()).count();
        assert!((20..=30).contains(&many), "{many}");
        assert_eq!(attempts.begin("zoe", Some(IpAddr::from([10, 0, 0, 3])), after(13)), Ok(()));
    }

    #[test]
    fn memory_is_bounded() {
        let attempts = Attempts::default();
        let start = Instant::now();
        for number in 0..2 * REMEMBERED_MAX {
            let _ = attempts.begin(&format!("u{number}"), None, start);
        }
        assert!(attempts.0.lock().unwrap().0.rested.len() <= REMEMBERED_MAX);
        let later = start + Duration::from_secs(3600);
        assert_eq!(attempts.begin("alice", None, later), Ok(()));
        assert_eq!(attempts.0.lock().unwrap().0.rested.len(), 1);
    }
}
