//! How many watches a user has at a time.
//!
//! Invariant: a watch counts from before its answer to its end, however that comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many each user has.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<HashMap<Arc<str>, usize>>);

/// A watch that goes on, until it is dropped.
#[derive(Debug)]
pub(crate) struct WatchSeat {
    watches: Arc<Watches>,
    user: Arc<str>,
}

impl Watches {
    /// One more of `user`; nothing where he has `max` already.
    pub(super) fn begin(self: &Arc<Self>, user: &str, max: usize) -> Option<WatchSeat> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let user: Arc<str> = counts.get_key_value(user).map_or_else(|| user.into(), |(user, _)| Arc::clone(user));
        let count = counts.entry(Arc::clone(&user)).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(WatchSeat { watches: Arc::clone(self), user })
    }
}

impl Drop for WatchSeat {
    fn drop(&mut self) {
        let mut counts = self.watches.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_no_more_than_that_at_a_time() {
        let watches = Arc::new(Watches::default());
        let first = watches.begin("eve", 2).expect("a seat");
        let second = watches.begin("eve", 2);
        assert!(second.is_some() && watches.begin("eve", 2).is_none());
        assert!(watches.begin("ann", 2).is_some(), "others have their own");
        drop(first);
        assert!(watches.begin("eve", 2).is_some());
        drop(second);
        assert!(watches.0.lock().expect("nobody panicked").is_empty());
    }
}
