//! Writes of one kind that wait: the newest for each object, one under way at a time, and not before they have settled.
//!
//! Invariant: of several writes for one object only the newest is made; none is lost: what comes while one is under way
//! follows it. Pure but for the times it is given. Owned by the writer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct CoalescingQueue<K, V> {
    /// How long a write waits for a newer one to replace it.
    settle: Duration,
    waiting: HashMap<K, Waiting<V>>,
    /// Keys in the order in which they may go; one whose value is gone or under way is passed over.
    ready: VecDeque<K>,
    settling: VecDeque<(Instant, K)>,
    busy: HashSet<K>,
}

#[derive(Debug)]
struct Waiting<V> {
    value: V,
    urgent: bool,
}

impl<K: Clone + Eq + Hash, V> CoalescingQueue<K, V> {
    pub(super) fn new(settle: Duration) -> Self {
        Self {
            settle,
            waiting: HashMap::new(),
            ready: VecDeque::new(),
            settling: VecDeque::new(),
            busy: HashSet::new(),
        }
    }

    /// A write to be made; an urgent one at once.
    pub(super) fn put(&mut self, key: K, value: V, urgent: bool, now: Instant) {
        let before = self.waiting.get(&key).map(|waiting| waiting.urgent);
        let urgent = urgent || before == Some(true);
        self.waiting.insert(key.clone(), Waiting { value, urgent });
        // One that waits has its place already, unless it has just become urgent.
        if !self.busy.contains(&key) && (before.is_none() || (urgent && before == Some(false))) {
            self.line_up(key, urgent, now);
        }
    }

    fn line_up(&mut self, key: K, urgent: bool, now: Instant) {
        if urgent || self.settle.is_zero() {
            self.ready.push_back(key);
        } else {
            self.settling.push_back((now + self.settle, key));
        }
    }

    /// The next write; it is under way from now on.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(K, V)> {
        while self.settling.front().is_some_and(|(at, _)| *at <= now) {
            self.ready.extend(self.settling.pop_front().map(|(_, key)| key));
        }
        while let Some(key) = self.ready.pop_front() {
            if self.busy.contains(&key) {
                continue;
            }
            if let Some(waiting) = self.waiting.remove(&key) {
                self.busy.insert(key.clone());
                return Some((key, waiting.value));
            }
        }
        None
    }

    /// The write that was under way has ended.
    pub(super) fn done(&mut self, key: &K, now: Instant) {
        self.busy.remove(key);
        if let Some(waiting) = self.waiting.get(key) {
            let urgent = waiting.urgent;
            self.line_up(key.clone(), urgent, now);
        }
    }

    /// Whether a newer write for this object waits.
    pub(super) fn has_newer(&self, key: &K) -> bool {
        self.waiting.contains_key(key)
    }

    /// When the next write has settled.
    pub(super) fn due(&self) -> Option<Instant> {
        self.settling.front().map(|(at, _)| *at)
    }

    /// Forgets all that waits.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.ready.clear();
        self.settling.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_millis(500);

    fn queue() -> (CoalescingQueue<&'static str, u32>, Instant) {
        (CoalescingQueue::new(SETTLE), Instant::now())
    }

    #[test]
    fn only_the_newest_is_written_and_once_it_has_settled() {
        let (mut queue, start) = queue();
        queue.put("a", 1, false, start);
        queue.put("a", 2, false, start + SETTLE / 2);
        assert_eq!((queue.pop(start), queue.due()), (None, Some(start + SETTLE)));
        assert_eq!(queue.pop(start + SETTLE), Some(("a", 2)), "the first one's time counts: none waits for ever");
        assert_eq!(queue.pop(start + SETTLE * 9), None);
    }

    #[test]
    fn an_urgent_one_goes_at_once_and_only_once() {
        let (mut queue, start) = queue();
        queue.put("a", 1, false, start);
        queue.put("a", 2, true, start);
        queue.put("a", 3, false, start);
        assert_eq!(queue.pop(start), Some(("a", 3)), "the newest, as soon as the urgent one would have gone");
        queue.done(&"a", start);
        assert_eq!(queue.pop(start + SETTLE), None);
    }

    #[test]
    fn what_comes_while_one_is_under_way_follows_it() {
        let (mut queue, start) = queue();
        queue.put("a", 1, true, start);
        assert_eq!(queue.pop(start), Some(("a", 1)));
        queue.put("a", 2, true, start);
        queue.put("b", 1, true, start);
        assert_eq!(queue.pop(start), Some(("b", 1)));
        assert_eq!(queue.pop(start), None);
        assert!(queue.has_newer(&"a"));
        queue.done(&"a", start);
        assert_eq!(queue.pop(start), Some(("a", 2)));
        queue.put("a", 3, false, start);
        queue.done(&"a", start + SETTLE);
        assert_eq!((queue.pop(start + SETTLE), queue.due()), (None, Some(start + SETTLE * 2)));
        queue.clear();
        assert_eq!((queue.due(), queue.pop(start + SETTLE * 9)), (None, None));
    }
}
