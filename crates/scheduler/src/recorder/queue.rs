//! What waits between the loop, which hands entries over, and the thread that writes them.
//!
//! Invariant: handing over takes a lock that is held for moments, and wakes the thread once for many entries: it sleeps
//! until something is there, then lets more gather. What is in the queue is bounded by whoever hands over, see `record`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::sender::Batch;

/// How long entries gather before they are taken,
const GATHER: Duration = Duration::from_millis(20);
/// unless so many are there.
const GATHERED: usize = 8_192;
/// No number of entries wakes the thread: it is awake.
const AWAKE: usize = usize::MAX;

#[derive(Debug)]
struct State {
    batches: Vec<Batch>,
    /// The thread sleeps until so many entries are there.
    wanted: usize,
    /// One of the ends has gone.
    closed: bool,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    more: Condvar,
    /// Entries that were handed over and are not written yet.
    entries: AtomicUsize,
}

impl Queue {
    /// A thread that panicked left the state whole: each change of it is one call.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both ends of a queue.
pub(super) fn queue() -> (QueueSender, QueueReceiver) {
    let state = State { batches: Vec::new(), wanted: AWAKE, closed: false };
    let queue = Arc::new(Queue { state: Mutex::new(state), more: Condvar::new(), entries: AtomicUsize::new(0) });
    (QueueSender(Arc::clone(&queue)), QueueReceiver(queue))
}

/// The end of the queue that the scheduling loop writes to. It never waits for the disk.
#[derive(Debug)]
pub(super) struct QueueSender(Arc<Queue>);

impl QueueSender {
    /// Entries that wait, or are being written.
    pub(super) fn entries(&self) -> usize {
        self.0.entries.load(Ordering::Relaxed)
    }

    /// Hands over; false if nobody takes any more.
    pub(super) fn give(&self, batch: Batch) -> bool {
        let entries = batch.len();
        let mut state = self.0.lock();
        if state.closed {
            return false;
        }
        // Before it is taken: the count never goes below zero.
        let there = self.0.entries.fetch_add(entries, Ordering::Relaxed) + entries;
        state.batches.push(batch);
        if there >= state.wanted {
            state.wanted = AWAKE;
            drop(state);
            self.0.more.notify_one();
        }
        true
    }
}

impl Drop for QueueSender {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.more.notify_one();
    }
}

/// What the thread gets.
pub(super) enum Taken {
    /// These, in order.
    Batches(Vec<Batch>),
    Nothing,
    /// Nothing will come any more.
    Closed,
}

/// The end of the queue that the writing thread reads from.
#[derive(Debug)]
pub(super) struct QueueReceiver(Arc<Queue>);

impl QueueReceiver {
    /// What has gathered; waits so long for the first of it.
    pub(super) fn take(&self, patience: Duration) -> Taken {
        let mut state = self.sleep(1, patience);
        if state.batches.is_empty() {
            return if state.closed { Taken::Closed } else { Taken::Nothing };
        }
        drop(state);
        state = self.sleep(GATHERED, GATHER);
        Taken::Batches(std::mem::take(&mut state.batches))
    }

    /// Sleeps until so many entries are there or no more come.
    fn sleep(&self, wanted: usize, at_most: Duration) -> MutexGuard<'_, State> {
        let mut state = self.0.lock();
        state.wanted = wanted;
        let short = |state: &mut State| !state.closed && self.0.entries.load(Ordering::Relaxed) < wanted;
        let waited = self.0.more.wait_timeout_while(state, at_most, short);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.wanted = AWAKE;
        state
    }

    /// So many that were taken are written.
    pub(super) fn written(&self, entries: usize) {
        self.0.entries.fetch_sub(entries, Ordering::Relaxed);
    }
}

impl Drop for QueueReceiver {
    /// A thread that ends for whatever cause takes no more, and holds nothing.
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.batches = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use pumice_engine::PodUid;
    use pumice_recording::Feedback;

    use super::*;

    fn feedback() -> Batch {
        Batch::Feedback(Feedback::Gated { uid: "u".into() })
    }

    #[test]
    fn what_is_given_is_taken_in_order_until_the_giver_has_gone() {
        let (sender, receiver) = queue();
        assert!(matches!(receiver.take(Duration::ZERO), Taken::Nothing));
        let taking = std::thread::spawn(move || {
            let mut taken = Vec::new();
            loop {
                match receiver.take(Duration::from_secs(60)) {
                    Taken::Batches(batches) => {
                        receiver.written(batches.iter().map(Batch::len).sum());
                        taken.extend(batches);
                    }
                    Taken::Nothing => {}
                    Taken::Closed => return taken,
                }
            }
        });
        let uids = || (0..10_000).map(|uid| PodUid::from(uid.to_string()));
        for uid in uids() {
            assert!(sender.give(Batch::Feedback(Feedback::Gated { uid })));
        }
        while sender.entries() > 0 {
            std::thread::yield_now();
        }
        drop(sender);
        let taken = taking.join().unwrap();
        let taken = taken.into_iter().filter_map(|batch| match batch {
            Batch::Feedback(Feedback::Gated { uid }) => Some(uid),
            _ => None,
        });
        assert!(taken.eq(uids()));
    }

    #[test]
    fn nothing_is_kept_for_a_thread_that_has_gone() {
        let (sender, receiver) = queue();
        assert!(sender.give(feedback()));
        drop(receiver);
        assert!(!sender.give(feedback()));
    }
}
