//! Queue positions: how much work waits of each namespace in each queue, by its rank in the order.
//!
//! Invariant: the sums are those of the groups that were put in. Ranks are as fine as a priority and a minute of
//! creation: who waits since the same minute has the same rank. Sizes are parts of what the cluster offered when the group came.
//! Kept by the pending index; read by `start_estimates`.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use rustc_hash::FxHashMap;

use crate::ids::{GroupId, QueueNamespace, TimeMs};

const MINUTE_MS: i64 = 60_000;

/// Higher priorities first, then the oldest.
type Rank = (Reverse<i32>, i32);

/// How much work waits: sums over groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) groups: i64,
    /// What the minima ask for, in parts per million of the cluster.
    pub(crate) size: i64,
    /// The same times the seconds that they are expected to run.
    pub(crate) work: i64,
    /// Groups of which nothing tells how long they will run.
    pub(crate) unknown: i64,
}

impl Waiting {
    pub(crate) fn add(&mut self, other: Self, sign: i64) {
        self.groups += sign * other.groups;
        self.size = self.size.saturating_add(sign * other.size);
        self.work = self.work.saturating_add(sign * other.work);
        self.unknown += sign * other.unknown;
    }
}

/// One group's part. Small: there is one for each that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) owner: QueueNamespace,
    rank: Rank,
    size: u32,
    /// How long it is expected to run.
    seconds: Option<NonZeroU32>,
}

impl Entry {
    /// `size` in parts per million of the cluster, `run_ms` as far as that is known.
    pub(crate) fn new(owner: QueueNamespace, priority: i32, created: TimeMs, size: i64, run_ms: Option<i64>) -> Self {
        let least = |amount: i64| u32::try_from(amount.max(0)).unwrap_or(u32::MAX);
        let minute = created.0.div_euclid(MINUTE_MS).clamp(i64::from(i32::MIN), i64::from(i32::MAX));
        let seconds = run_ms.map(|run| NonZeroU32::new(least(run / 1_000)).unwrap_or(NonZeroU32::MIN));
        let rank = (Reverse(priority), i32::try_from(minute).unwrap_or(i32::MAX));
        Self { owner, rank, size: least(size), seconds }
    }

    /// Whether its rank is before the other's, as far as ranks tell.
    pub(crate) fn rank_order(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }

    pub(crate) fn waiting(&self) -> Waiting {
        let size = i64::from(self.size);
        let seconds = self.seconds.map_or(1, |seconds| i64::from(seconds.get()));
        Waiting { groups: 1, size, work: size.saturating_mul(seconds), unknown: i64::from(self.seconds.is_none()) }
    }
}

#[derive(Debug, Default)]
struct NamespaceRanks {
    ranks: BTreeMap<Rank, Waiting>,
    all: Waiting,
}

#[derive(Debug, Default)]
pub(crate) struct QueuePositions {
    /// By group.
    entries: Vec<Option<Entry>>,
    lines: FxHashMap<QueueNamespace, NamespaceRanks>,
}

impl QueuePositions {
    pub(crate) fn entry(&self, group: GroupId) -> Option<&Entry> {
        self.entries.get(group.index())?.as_ref()
    }

    /// Makes room for groups of all numbers below `span`, at once.
    pub(crate) fn reach(&mut self, span: usize) {
        if self.entries.len() < span {
            self.entries.resize(span, None);
        }
    }

    /// Puts the group at its rank, or takes it out.
    pub(crate) fn set(&mut self, group: GroupId, entry: Option<Entry>) {
        if self.entries.len() <= group.index() {
            self.entries.resize(group.index() + 1, None);
        }
        if let Some(old) = std::mem::replace(&mut self.entries[group.index()], entry)
            && let Some(line) = self.lines.get_mut(&old.owner)
        {
            line.all.add(old.waiting(), -1);
            if let Some(rank) = line.ranks.get_mut(&old.rank) {
                rank.add(old.waiting(), -1);
                if rank.groups == 0 {
                    line.ranks.remove(&old.rank);
                }
            }
            if line.all.groups == 0 {
                self.lines.remove(&old.owner);
            }
        }
        if let Some(entry) = entry {
            let line = self.lines.entry(entry.owner).or_default();
            line.all.add(entry.waiting(), 1);
            line.ranks.entry(entry.rank).or_default().add(entry.waiting(), 1);
        }
    }

    /// What waits before the entry in its own queue and namespace; of those of its rank every second one. O(ranks).
    pub(crate) fn before(&self, entry: &Entry) -> Waiting {
        let mut before = Waiting::default();
        let Some(line) = self.lines.get(&entry.owner) else { return before };
        line.ranks.range(..entry.rank).for_each(|(_, waiting)| before.add(*waiting, 1));
        if let Some(beside) = line.ranks.get(&entry.rank) {
            let mut others = *beside;
            others.add(entry.waiting(), -1);
            let half = |amount: i64| amount / 2 + amount % 2;
            let (groups, unknown) = (half(others.groups), half(others.unknown));
            before.add(Waiting { groups, unknown, size: half(others.size), work: half(others.work) }, 1);
        }
        before
    }

    /// All that waits of one namespace in one queue.
    pub(crate) fn of(&self, owner: QueueNamespace) -> Waiting {
        self.lines.get(&owner).map_or_else(Waiting::default, |line| line.all)
    }

    /// All that waits of each namespace in each queue, in no order that means anything.
    pub(crate) fn all(&self) -> impl Iterator<Item = (QueueNamespace, Waiting)> {
        self.lines.iter().map(|(owner, line)| (*owner, line.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{NamespaceId, QueueId};

    fn entry(priority: i32, minute: i64, size: i64) -> Entry {
        let created = TimeMs(minute * MINUTE_MS + 5);
        Entry::new((QueueId(0), NamespaceId(0)), priority, created, size, Some(10_000))
    }

    #[test]
    fn what_is_more_important_or_older_comes_before() {
        let mut lines = QueuePositions::default();
        let all = [entry(0, 5, 1), entry(0, 6, 10), entry(1, 9, 100), entry(0, 6, 20)];
        for (group, entry) in all.iter().enumerate() {
            lines.set(GroupId::from(group), Some(*entry));
        }
        let sizes: Vec<i64> = all.iter().map(|entry| lines.before(entry).size).collect();
        assert_eq!(sizes, [100, 111, 0, 106]);
        lines.set(GroupId::from(2), None);
        lines.set(GroupId::from(0), Some(entry(0, 7, 1)));
        assert_eq!(lines.before(&all[1]).size, 10, "half of the other in its minute");
        (0..4).for_each(|group| lines.set(GroupId::from(group), None));
        assert_eq!(lines.all().count(), 0);
    }
}
