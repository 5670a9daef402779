//! What groups hold, by queue and priority: what preemption could make room of. Invariant: the sums are those of the groups
//! that hold something, as they were at the last refresh. Kept by the backlog, so that a cycle need not look at all groups;
//! read by `enqueue`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::ids::{GroupId, QueueId};
use crate::share;
use crate::world::groups::GroupRow;
use crate::world::tables::Tables;

#[derive(Debug, Default)]
struct Sum {
    groups: u32,
    amounts: Vec<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct Holdings {
    of: FxHashMap<GroupId, (QueueId, i32, Vec<i64>)>,
    sums: BTreeMap<(QueueId, i32), Sum>,
}

impl Holdings {
    /// Of all groups. O(groups).
    pub(super) fn of(tables: &Tables) -> Self {
        let mut holdings = Self::default();
        tables.groups.table.iter().for_each(|(group, row)| holdings.set(group, Some(row)));
        holdings
    }

    /// The group is like this now, or gone.
    pub(super) fn set(&mut self, group: GroupId, row: Option<&GroupRow>) {
        if let Some((queue, priority, amounts)) = self.of.remove(&group)
            && let Some(sum) = self.sums.get_mut(&(queue, priority))
        {
            sum.groups -= 1;
            share::add(&mut sum.amounts, &amounts, -1);
            if sum.groups == 0 {
                self.sums.remove(&(queue, priority));
            }
        }
        if let Some(row) = row.filter(|row| row.counts.ready() > 0) {
            let sum = self.sums.entry((row.queue, row.priority)).or_default();
            sum.groups += 1;
            share::add(&mut sum.amounts, &row.allocated, 1);
            self.of.insert(group, (row.queue, row.priority, row.allocated.clone()));
        }
    }

    /// What groups of lower priority hold in the queue. O(priorities).
    pub(crate) fn below(&self, queue: QueueId, priority: i32) -> Vec<i64> {
        let mut lower = Vec::new();
        for (_, sum) in self.sums.range((queue, i32::MIN)..(queue, priority)) {
            share::add(&mut lower, &sum.amounts, 1);
        }
        lower
    }
}
