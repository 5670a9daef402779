//! A timer wheel: deadlines of entries that wait, without a task for any of them.
//!
//! Six levels of 64 slots, a millisecond each at the lowest: an entry lies in the level of the highest digit (in base
//! 64) in which its deadline differs from the time that has passed, and moves down when that digit's turn comes.
//! Invariant: every live entry is in exactly one list; it comes due at the first `advance` to its deadline or later,
//! never before. Insert and cancel are O(1), advance is O(1) amortised: an entry moves at most six times, unless its
//! deadline is more than two years away. Pure; owned by the fleet of simulated nodes.

/// Bits of a digit.
const BITS: u32 = 6;
/// Slots of a level.
const SLOTS: u64 = 1 << BITS;
/// Levels of slots: each spans 64 times what the one below does.
const LEVELS: u32 = 6;
/// Milliseconds that all levels span together.
const SPAN: u64 = 1 << (BITS * LEVELS);
/// The list of entries that are due already.
const DUE: u32 = LEVELS << BITS;
/// The list of places that hold no entry.
const FREE: u32 = DUE + 1;
const NONE: u32 = u32::MAX;

/// A waiting entry; of no use once it came due or was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerId(u32);

#[derive(Debug, Clone, Copy)]
struct Entry {
    deadline: u64,
    key: u32,
    list: u32,
    previous: u32,
    next: u32,
}

/// Entries by deadline, to the millisecond: adding, moving and taking one is a step or a few, however many there are.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// Milliseconds up to which everything has come due.
    passed: u64,
    entries: Vec<Entry>,
    heads: Vec<u32>,
    /// A bit for each slot of a level that holds something.
    filled: [u64; LEVELS as usize],
}

impl Wheel {
    /// An empty wheel at `now`, in milliseconds.
    pub(crate) fn new(now: u64) -> Self {
        let heads = vec![NONE; FREE as usize + 1];
        Self { passed: now, entries: Vec::new(), heads, filled: [0; LEVELS as usize] }
    }

    /// Lets `key` come due at `deadline`. At most 2³² - 1 entries wait at a time.
    pub(crate) fn insert(&mut self, deadline: u64, key: u32) -> TimerId {
        let entry = Entry { deadline, key, list: FREE, previous: NONE, next: NONE };
        let id = match self.heads[FREE as usize] {
            NONE => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
            id => {
                self.heads[FREE as usize] = self.entries[id as usize].next;
                self.entries[id as usize] = entry;
                id
            }
        };
        self.insert_entry(id);
        TimerId(id)
    }

    /// Forgets an entry that still waits.
    pub(crate) fn cancel(&mut self, id: TimerId) {
        self.unlink(id.0);
        self.free(id.0);
    }

    /// Lets time pass to `now` and puts the keys that came due behind those in `due`, in no order. Time that goes back
    /// counts as none.
    pub(crate) fn advance(&mut self, now: u64, due: &mut Vec<u32>) {
        self.take_due(due);
        while let Some((at, list)) = self.next_slot().filter(|(at, _)| *at <= now) {
            self.passed = self.passed.max(at);
            let mut id = std::mem::replace(&mut self.heads[list as usize], NONE);
            self.filled[(list >> BITS) as usize] &= !(1 << (u64::from(list) & (SLOTS - 1)));
            while id != NONE {
                let next = self.entries[id as usize].next;
                self.insert_entry(id);
                id = next;
            }
            self.take_due(due);
        }
        self.passed = self.passed.max(now);
    }

    /// When `advance` has something to do, or earlier: never later than the first deadline. O(levels).
    pub(crate) fn next_wake(&self) -> Option<u64> {
        if self.heads[DUE as usize] != NONE {
            return Some(self.passed);
        }
        self.next_slot().map(|(at, _)| at)
    }

    /// The slot whose turn comes first, and when.
    fn next_slot(&self) -> Option<(u64, u32)> {
        (0..LEVELS).find_map(|level| {
            let filled = self.filled[level as usize];
            if filled == 0 {
                return None;
            }
            let shift = BITS * level;
            let digit = (self.passed >> shift) & (SLOTS - 1);
            // A slot at or before the present digit comes in the next round; only the top level has such.
            let ahead = 1 + u64::from(filled.rotate_right(digit as u32 + 1).trailing_zeros());
            let slot = (digit + ahead) & (SLOTS - 1);
            Some((((self.passed >> shift) + ahead) << shift, (level << BITS) | slot as u32))
        })
    }

    fn insert_entry(&mut self, id: u32) {
        let deadline = self.entries[id as usize].deadline;
        if deadline <= self.passed {
            return self.link(id, DUE);
        }
        // What is too far away lies in the last slot that can be told from now, and is placed again there.
        let at = deadline.min(self.passed.saturating_add(SPAN - 1));
        let level = ((63 - (self.passed ^ at).leading_zeros().min(63)) / BITS).min(LEVELS - 1);
        let slot = (at >> (BITS * level)) & (SLOTS - 1);
        self.filled[level as usize] |= 1 << slot;
        self.link(id, (level << BITS) | slot as u32);
    }

    fn link(&mut self, id: u32, list: u32) {
        let first = std::mem::replace(&mut self.heads[list as usize], id);
        let entry = &mut self.entries[id as usize];
        (entry.list, entry.previous, entry.next) = (list, NONE, first);
        if first != NONE {
            self.entries[first as usize].previous = id;
        }
    }

    fn unlink(&mut self, id: u32) {
        let Entry { list, previous, next, .. } = self.entries[id as usize];
        assert!(list != FREE, "timer {id} is cancelled twice, or after it came due");
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous != NONE {
            self.entries[previous as usize].next = next;
            return;
        }
        self.heads[list as usize] = next;
        if next == NONE && list < DUE {
            self.filled[(list >> BITS) as usize] &= !(1 << (u64::from(list) & (SLOTS - 1)));
        }
    }

    fn free(&mut self, id: u32) {
        self.link(id, FREE);
    }

    /// Entries that wait. O(places).
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.list != FREE).count()
    }

    fn take_due(&mut self, due: &mut Vec<u32>) {
        let mut id = std::mem::replace(&mut self.heads[DUE as usize], NONE);
        while id != NONE {
            let Entry { key, next, .. } = self.entries[id as usize];
            due.push(key);
            self.free(id);
            id = next;
        }
    }
}

#[cfg(test)]
mod tests;
