//! Small numbers for names, and the order in which jobs wait.
//!
//! Jobs of a queue that have the same shape stand in one line. A line's order is the queue's, so of a line only the first
//! few need to be looked at: where they do not fit the rest does not either.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::ids::JobId;
use crate::job::Turn;

/// A number for each of a kind of names, counted by how often it is used; free again when nobody does.
macro_rules! index {
    ($($name:ident),*) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub u32);

        impl From<u32> for $name {
            fn from(number: u32) -> Self {
                Self(number)
            }
        }

        impl From<$name> for usize {
            fn from(index: $name) -> usize {
                index.0 as usize
            }
        }
    )*};
}
index!(QueueIx, SetIx, ShapeIx, GangIx);

/// Rows by name and by number.
#[derive(Debug, Clone)]
pub(crate) struct Interned<K, V, I> {
    rows: Vec<Option<(K, V)>>,
    by_name: FxHashMap<K, I>,
    free: Vec<u32>,
}

impl<K, V, I> Default for Interned<K, V, I> {
    fn default() -> Self {
        Self { rows: Vec::new(), by_name: FxHashMap::default(), free: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, V, I: Copy + From<u32> + Into<usize>> Interned<K, V, I> {
    pub(crate) fn find(&self, name: &K) -> Option<I> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn intern(&mut self, name: &K, row: impl FnOnce() -> V) -> I {
        if let Some(index) = self.find(name) {
            return index;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            u32::try_from(self.rows.len() - 1).expect("fewer than 2^32 names")
        });
        self.rows[number as usize] = Some((name.clone(), row()));
        self.by_name.insert(name.clone(), number.into());
        number.into()
    }

    pub(crate) fn remove(&mut self, index: I) {
        let place = index.into();
        if let Some((name, _)) = self.rows[place].take() {
            self.by_name.remove(&name);
            self.free.push(u32::try_from(place).expect("fewer than 2^32 names"));
        }
    }

    pub(crate) fn row(&self, index: I) -> &V {
        &self.rows[index.into()].as_ref().expect("an index is only held while its row is there").1
    }

    pub(crate) fn row_mut(&mut self, index: I) -> &mut V {
        &mut self.rows[index.into()].as_mut().expect("an index is only held while its row is there").1
    }

    pub(crate) fn name(&self, index: I) -> &K {
        &self.rows[index.into()].as_ref().expect("an index is only held while its row is there").0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter().flatten().map(|(name, row)| (name, row))
    }
}

/// The class, the rank of a line, and the turn: which of two jobs goes first.
type Ranked = (Reverse<i32>, usize, Turn);

/// The jobs of a queue that wait, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines {
    lines: FxHashMap<ShapeIx, BTreeSet<Turn>>,
    /// The first of each line.
    heads: BTreeSet<(Turn, ShapeIx)>,
    waiting: usize,
    /// How often a job came or went.
    version: u64,
}

impl Lines {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Another one whenever a job came or went: in between the same jobs stand in the same order.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// How many lines there are.
    pub(crate) fn count(&self) -> usize {
        self.lines.len()
    }

    /// Whether it was not there.
    pub(crate) fn insert(&mut self, turn: Turn, shape: ShapeIx) -> bool {
        let line = self.lines.entry(shape).or_default();
        let before = line.first().copied();
        let is_new = line.insert(turn);
        if is_new {
            self.waiting += 1;
            self.version += 1;
            self.head_moved(before, shape);
        }
        is_new
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, turn: Turn, shape: ShapeIx) -> bool {
        let Some(line) = self.lines.get_mut(&shape) else { return false };
        let before = line.first().copied();
        let was_there = line.remove(&turn);
        if was_there {
            self.waiting -= 1;
            self.version += 1;
            self.head_moved(before, shape);
        }
        was_there
    }

    fn head_moved(&mut self, before: Option<Turn>, shape: ShapeIx) {
        let line = self.lines.get(&shape);
        let now = line.and_then(|line| line.first().copied());
        if now == before {
            return;
        }
        if let Some(before) = before {
            self.heads.remove(&(before, shape));
        }
        match now {
            Some(now) => drop(self.heads.insert((now, shape))),
            None => drop(self.lines.remove(&shape)),
        }
    }

    /// The first jobs in order, at most `per_line` of a line and `most` in all. O(given out · log lines).
    pub(crate) fn first(&self, per_line: usize, most: usize) -> Vec<JobId> {
        let mut out = Vec::with_capacity(most.min(self.waiting));
        let mut heads = self.heads.iter().peekable();
        // Lines of which one was given out: what follows in them, and what stands next.
        let mut opened = Vec::new();
        let mut next: BinaryHeap<Reverse<(Turn, usize)>> = BinaryHeap::new();
        while out.len() < most {
            let from_head = match (heads.peek(), next.peek()) {
                (Some((head, _)), Some(Reverse((turn, _)))) => head < turn,
                (head, _) => head.is_some(),
            };
            if from_head {
                let head = heads.next().and_then(|(turn, shape)| Some((turn, self.lines.get(shape)?)));
                let Some((turn, line)) = head else { break };
                out.push(turn.job);
                let mut rest = line.iter().skip(1).take(per_line.saturating_sub(1));
                next.extend(rest.next().map(|following| Reverse((*following, opened.len()))));
                opened.push(rest);
            } else {
                let Some(mut first) = next.peek_mut() else { break };
                let Reverse((turn, line)) = &mut *first;
                out.push(turn.job);
                match opened[*line].next() {
                    Some(following) => *turn = *following,
                    None => drop(PeekMut::pop(first)),
                }
            }
        }
        out
    }

    /// The same where the lines of a class have ranks, the lowest first, and turns count among equal ones. O(lines + given out
    /// · log lines).
    pub(crate) fn first_ranked<K: Ord>(&self, per_line: usize, most: usize, rank: impl Fn(ShapeIx) -> K) -> Vec<JobId> {
        let mut lines: Vec<_> =
            self.lines.iter().map(|(shape, line)| (rank(*shape), line.iter().take(per_line))).collect();
        // All of a line are of one shape, so of one class.
        lines.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut next: BinaryHeap<Reverse<(Ranked, usize)>> = BinaryHeap::new();
        let mut ranks = Vec::with_capacity(lines.len());
        for index in 0..lines.len() {
            let same = index > 0 && lines[index - 1].0 == lines[index].0;
            ranks.push(if same { ranks[index - 1] } else { index });
            let first = lines[index].1.next();
            next.extend(first.map(|turn| Reverse(((turn.class, ranks[index], *turn), index))));
        }
        let mut out = Vec::with_capacity(most.min(self.waiting));
        while out.len() < most {
            let Some(Reverse(((_, rank, turn), line))) = next.pop() else { break };
            out.push(turn.job);
            next.extend(lines[line].1.next().map(|turn| Reverse(((turn.class, rank, *turn), line))));
        }
        out
    }
}

/// Where a job stands in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its class's value.
    pub class: i32,
    /// Its own priority: lower goes first.
    pub priority: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TimeMs;

    fn turn(class: i32, priority: u32, submitted: i64, job: u128) -> Turn {
        Turn { class: Reverse(class), priority, submitted: TimeMs(submitted), job: JobId(job) }
    }

    #[test]
    fn jobs_are_given_out_in_order_and_few_of_each_line() {
        let mut lines = Lines::default();
        for job in 0..10 {
            lines.insert(turn(0, 0, i64::try_from(job).unwrap(), job), ShapeIx(0));
        }
        lines.insert(turn(0, 0, 3, 100), ShapeIx(1));
        lines.insert(turn(9, 5, 99, 101), ShapeIx(2));
        lines.insert(turn(0, 1, 0, 102), ShapeIx(1));
        let ids = |jobs: Vec<JobId>| jobs.into_iter().map(|job| job.0).collect::<Vec<_>>();
        assert_eq!(ids(lines.first(3, 100)), [101, 0, 1, 2, 100, 102]);
        assert_eq!(ids(lines.first(100, 5)), [101, 0, 1, 2, 3]);
        lines.remove(turn(9, 5, 99, 101), ShapeIx(2));
        lines.remove(turn(0, 0, 0, 0), ShapeIx(0));
        assert_eq!(ids(lines.first(1, 100)), [1, 100]);
        assert_eq!(lines.waiting(), 11);
    }

    #[test]
    fn ranks_go_after_classes_and_before_turns() {
        let mut lines = Lines::default();
        for (class, job, shape) in [(0, 0, 0), (0, 1, 0), (0, 2, 1), (0, 3, 2), (9, 4, 3), (0, 5, 2)] {
            lines.insert(turn(class, 0, 0, job), ShapeIx(shape));
        }
        let ids = |per_line, most, ranks: [i32; 4]| {
            let jobs = lines.first_ranked(per_line, most, |shape| ranks[shape.0 as usize]);
            jobs.into_iter().map(|job| job.0).collect::<Vec<_>>()
        };
        assert_eq!(ids(9, 9, [0, 0, 0, 0]), [4, 0, 1, 2, 3, 5], "as without ranks");
        assert_eq!(ids(9, 9, [7, 5, 5, 9]), [4, 2, 3, 5, 0, 1]);
        assert_eq!(ids(1, 9, [7, 5, 5, 9]), [4, 2, 3, 0]);
        assert_eq!(ids(9, 3, [7, 5, 1, 9]), [4, 3, 5]);
    }

    #[test]
    fn a_number_is_free_again_with_its_name() {
        let mut names: Interned<String, u8, QueueIx> = Interned::default();
        let first = names.intern(&"a".to_owned(), || 1);
        let second = names.intern(&"b".to_owned(), || 2);
        assert_eq!((first, second), (QueueIx(0), QueueIx(1)));
        names.remove(first);
        assert_eq!(names.find(&"a".to_owned()), None);
        assert_eq!(names.intern(&"c".to_owned(), || 3), first);
        assert_eq!(names.iter().count(), 2);
    }
}
