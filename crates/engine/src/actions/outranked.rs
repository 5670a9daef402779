//! What groups of lower priority hold, by queue: a group that preemption can make room for is admitted although its
//! queue is full; otherwise it would never have pods to preempt for. Worked out once a cycle, when first asked.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::config::Action;
use crate::cycle::Cycle;
use crate::ids::{DimId, GroupId, QueueId};
use crate::minimum::Missing;
use crate::queue_limit;
use crate::share;

/// What groups hold, by queue and priority.
type Held = FxHashMap<QueueId, BTreeMap<i32, Vec<i64>>>;

/// Nothing is placed while groups are admitted, so that what was worked out once stays true.
#[derive(Debug, Default)]
pub(super) struct Outranked {
    held: Option<Held>,
    /// What pods can take now on all nodes together, by dimension.
    room: FxHashMap<DimId, i64>,
}

impl Outranked {
    /// Would the minimum fit, within the queue's limit, if those of lower priority in its queue left?
    pub(super) fn make_room(&mut self, cycle: &Cycle<'_>, group: GroupId, missing: &Missing) -> bool {
        if !cycle.config.has(Action::Preempt) && !cycle.config.has(Action::GangPreempt) {
            return false;
        }
        let row = cycle.tables.groups.row(group);
        let held = self.held.get_or_insert_with(|| held(cycle));
        let mut lower = Vec::new();
        for (_, amounts) in held.get(&row.queue).into_iter().flat_map(|held| held.range(..row.priority)) {
            share::add(&mut lower, amounts, 1);
        }
        if lower.is_empty() {
            return false;
        }
        let mut used = cycle.tables.queues.row(row.queue).own.held();
        share::add(&mut used, &lower, -1);
        let starting = cycle.tables.promises.of(row.queue, false).map(|promised| promised.starting.as_slice());
        share::add(&mut used, starting.unwrap_or_default(), 1);
        let room = &mut self.room;
        let mut free = |dim: DimId| {
            let room = *room.entry(dim).or_insert_with(|| cycle.tables.nodes.room_in_all(dim));
            room.saturating_add(share::at(&lower, dim)).saturating_sub(share::at(starting.unwrap_or_default(), dim))
        };
        let mut wanted = missing.total.iter().enumerate().filter(|(_, wanted)| **wanted > 0);
        wanted.all(|(dim, wanted)| *wanted <= free(DimId::from(dim)))
            && queue_limit::exceeded(cycle.tables, row.queue, &missing.total, &used).is_none()
    }
}

fn held(cycle: &Cycle<'_>) -> Held {
    let mut held = Held::default();
    for (_, row) in cycle.tables.groups.table.iter().filter(|(_, row)| row.counts.ready() > 0) {
        let of_priority = held.entry(row.queue).or_default().entry(row.priority).or_default();
        share::add(of_priority, &row.allocated, 1);
    }
    held
}
