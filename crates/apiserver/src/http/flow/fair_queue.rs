//! A queue in which users take turns.
//!
//! Invariant: a request waits only while all turns are taken, or all that its own user may have. Whenever a turn is free, the
//! user who has waited longest since his last one gets it, however many requests others have waiting. A request that is given
//! up leaves nothing behind.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// How much there is of everything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Requests at a time.
    pub(super) running: usize,
    /// Requests of one user at a time.
    pub(super) running_of_user: usize,
    /// Requests of one user that wait.
    pub(super) waiting_of_user: usize,
    pub(super) wait: Duration,
}

/// Why there is no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoTurn {
    QueueFull,
    TimeOut,
}

#[derive(Debug)]
pub(super) struct FairQueue {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    users: HashMap<Arc<str>, User>,
    /// Users with requests that wait, the next one first.
    round: VecDeque<Arc<str>>,
}

#[derive(Debug, Default)]
struct User {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// Leave to go on, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    queue: Arc<FairQueue>,
    user: Arc<str>,
}

impl FairQueue {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that have a turn, and those that wait for one.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.running, state.users.values().map(|user| user.waiting.len()).sum())
    }

    /// Waits for a turn of `user`.
    pub(super) async fn turn(self: &Arc<Self>, user: &str) -> Result<Turn, NoTurn> {
        let turn = {
            let mut state = self.state();
            let name: Arc<str> = match state.users.get_key_value(user) {
                Some((name, _)) => Arc::clone(name),
                None => user.into(),
            };
            let is_free = state.running < self.limits.running;
            let of_user = state.users.entry(Arc::clone(&name)).or_default();
            if is_free && of_user.waiting.is_empty() && of_user.running < self.limits.running_of_user {
                of_user.running += 1;
                state.running += 1;
                return Ok(Turn { queue: Arc::clone(self), user: name });
            }
            of_user.waiting.retain(|waiter| !waiter.is_closed());
            if of_user.waiting.len() >= self.limits.waiting_of_user {
                return Err(NoTurn::QueueFull);
            }
            let (waiter, turn) = oneshot::channel();
            of_user.waiting.push_back(waiter);
            if of_user.waiting.len() == 1 && !state.round.contains(&name) {
                state.round.push_back(name);
            }
            turn
        };
        match tokio::time::timeout(self.limits.wait, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(NoTurn::TimeOut),
        }
    }

    fn give_back(self: &Arc<Self>, user: &Arc<str>) {
        let granted = {
            let mut state = self.state();
            state.running -= 1;
            if let Some(of_user) = state.users.get_mut(user) {
                of_user.running -= 1;
            }
            state.forget_idle(user);
            state.grant(&self.limits)
        };
        // Whoever has given up meanwhile gives it back at once, for which the state must be free.
        for (user, waiter) in granted {
            let _ = waiter.send(Turn { queue: Arc::clone(self), user });
        }
    }
}

impl State {
    fn forget_idle(&mut self, user: &Arc<str>) {
        if self.users.get(user).is_some_and(|user| user.running == 0 && user.waiting.is_empty()) {
            self.users.remove(user);
        }
    }

    /// Takes those out of the queue whose turn it is.
    fn grant(&mut self, limits: &Limits) -> Vec<(Arc<str>, oneshot::Sender<Turn>)> {
        let mut granted = Vec::new();
        let mut passed_over = 0;
        while self.running < limits.running && passed_over < self.round.len() {
            let Some(name) = self.round.pop_front() else { break };
            let Some(user) = self.users.get_mut(&name) else { continue };
            while user.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                user.waiting.pop_front();
            }
            if user.running >= limits.running_of_user && !user.waiting.is_empty() {
                self.round.push_back(name);
                passed_over += 1;
                continue;
            }
            let Some(waiter) = user.waiting.pop_front() else {
                self.forget_idle(&name);
                continue;
            };
            user.running += 1;
            self.running += 1;
            passed_over = 0;
            if !user.waiting.is_empty() {
                self.round.push_back(Arc::clone(&name));
            }
            granted.push((name, waiter));
        }
        granted
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.queue.give_back(&self.user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { running: 4, running_of_user: 3, waiting_of_user: 100, wait: Duration::from_secs(60) };

    #[tokio::test]
    async fn users_take_turns_however_many_requests_they_have() {
        let queue = FairQueue::new(LIMITS);
        let running: Vec<_> = futures::future::try_join_all((0..3).map(|_| queue.turn("eve"))).await.expect("turns");
        let ann = queue.turn("ann").await.expect("a turn");
        // All are taken. Eve's many requests come before bob's one.
        let mut eves: Vec<_> = (0..50).map(|_| Box::pin(queue.turn("eve"))).collect();
        for one in &mut eves {
            assert!(futures::poll!(one).is_pending());
        }
        let mut bob = Box::pin(queue.turn("bob"));
        assert!(futures::poll!(&mut bob).is_pending());
        drop(ann);
        // Eve has all that she may have.
        let bob = bob.await.expect("a turn");
        assert_eq!(queue.counts(), (4, 50));
        // Whoever asks anew comes before eve's second one.
        let mut ann = Box::pin(queue.turn("ann"));
        assert!(futures::poll!(&mut ann).is_pending());
        drop(running);
        let ann = ann.await.expect("a turn");
        assert_eq!(queue.counts(), (4, 48));
        drop((ann, bob));
        assert_eq!(queue.counts(), (3, 47));
        drop(eves);
        assert_eq!(queue.counts(), (0, 0));
    }

    #[tokio::test]
    async fn who_waits_for_too_long_or_with_too_many_gets_none() {
        let queue = FairQueue::new(Limits { waiting_of_user: 1, running: 1, wait: Duration::from_millis(1), ..LIMITS });
        let turn = queue.turn("eve").await.expect("a turn");
        let mut first = Box::pin(queue.turn("eve"));
        assert!(futures::poll!(&mut first).is_pending());
        assert_eq!(queue.turn("eve").await.err(), Some(NoTurn::QueueFull));
        assert_eq!(first.await.err(), Some(NoTurn::TimeOut));
        // What was given up is in nobody's way.
        let mut next = Box::pin(queue.turn("ann"));
        assert!(futures::poll!(&mut next).is_pending());
        drop(turn);
        drop(next.await.expect("a turn, as it was given before anybody looked at the time"));
        assert_eq!(queue.counts(), (0, 0));
        let state = queue.state();
        assert!(state.users.is_empty() && state.round.is_empty());
    }
}
