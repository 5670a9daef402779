//! The order in which the jobs of a queue wait.
//!
//! Jobs of a queue that have the same shape stand in one line. A line's order is the queue's, so of a line only the first
//! few need to be looked at: where they do not fit the rest does not either.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::collections::binary_heap::{BinaryHeap, PeekMut};

use rustc_hash::FxHashMap;

use crate::ids::{JobId, TimeMs};
use crate::interned::ShapeIx;

/// The order in which jobs of a queue wait: class, place, time, id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderKey {
    pub class: Reverse<i32>,
    pub priority: u32,
    pub submitted: TimeMs,
    pub job: JobId,
}

/// The next job of a line whose shape has a rank. Its fields are in the order in which they say which of two goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedTurn {
    class: Reverse<i32>,
    rank: usize,
    turn: OrderKey,
    line: usize,
}

/// The jobs of a queue that wait, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueOrder {
    lines: FxHashMap<ShapeIx, BTreeSet<OrderKey>>,
    /// The first of each line.
    heads: BTreeSet<(OrderKey, ShapeIx)>,
    waiting: usize,
    /// How often a job came or went.
    version: u64,
}

impl QueueOrder {
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
    pub(crate) fn insert(&mut self, turn: OrderKey, shape: ShapeIx) -> bool {
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
    pub(crate) fn remove(&mut self, turn: OrderKey, shape: ShapeIx) -> bool {
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

    fn head_moved(&mut self, before: Option<OrderKey>, shape: ShapeIx) {
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
        let mut next: BinaryHeap<Reverse<(OrderKey, usize)>> = BinaryHeap::new();
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
        let mut next: BinaryHeap<Reverse<RankedTurn>> = BinaryHeap::new();
        let mut ranks = Vec::with_capacity(lines.len());
        for index in 0..lines.len() {
            let same = index > 0 && lines[index - 1].0 == lines[index].0;
            let rank = if same { ranks[index - 1] } else { index };
            ranks.push(rank);
            let first = lines[index].1.next();
            next.extend(first.map(|turn| Reverse(RankedTurn { class: turn.class, rank, turn: *turn, line: index })));
        }
        let mut out = Vec::with_capacity(most.min(self.waiting));
        while out.len() < most {
            let Some(Reverse(RankedTurn { rank, turn, line, .. })) = next.pop() else { break };
            out.push(turn.job);
            let following = lines[line].1.next();
            next.extend(following.map(|turn| Reverse(RankedTurn { class: turn.class, rank, turn: *turn, line })));
        }
        out
    }
}

/// Where a job stands in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    pub class: i32,
    /// Its own priority: lower goes first.
    pub priority: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(class: i32, priority: u32, submitted: i64, job: u128) -> OrderKey {
        OrderKey { class: Reverse(class), priority, submitted: TimeMs(submitted), job: JobId(job) }
    }

    #[test]
    fn jobs_are_given_out_in_order_and_few_of_each_line() {
        let mut lines = QueueOrder::default();
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
        let mut lines = QueueOrder::default();
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
}
