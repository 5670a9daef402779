//! What groups of lower priority hold, by queue: a group that preemption can make room for is admitted although its
//! queue is full; otherwise it would never have pods to preempt for.

use rustc_hash::FxHashMap;

use crate::config::Action;
use crate::ids::{DimId, GroupId};
use crate::queue_limit;
use crate::session::Session;
use crate::share;
use crate::world::minimum::Missing;

/// Nothing is placed while groups are admitted, so that what was worked out once stays true.
#[derive(Debug, Default)]
pub(super) struct Outranked {
    /// What pods can take now on all nodes together, by dimension.
    room: FxHashMap<DimId, i64>,
}

impl Outranked {
    /// Would the minimum fit, within the queue's limit, if those of lower priority in its queue left?
    pub(super) fn make_room(&mut self, session: &Session<'_>, group: GroupId, missing: &Missing) -> bool {
        if !session.config.has(Action::Preempt) && !session.config.has(Action::GangPreempt) {
            return false;
        }
        let row = session.tables.groups.row(group);
        let lower = session.pending_index.usage_by_priority.below(row.queue, row.priority);
        if lower.is_empty() {
            return false;
        }
        let mut used = session.tables.queues.row(row.queue).own.in_use();
        share::add(&mut used, &lower, -1);
        let starting = session.tables.inqueue_demand.of(row.queue, false).map(|promised| promised.starting.as_slice());
        share::add(&mut used, starting.unwrap_or_default(), 1);
        let room = &mut self.room;
        let mut free = |dim: DimId| {
            let room = *room.entry(dim).or_insert_with(|| session.tables.nodes.room_in_all(dim));
            room.saturating_add(share::at(&lower, dim)).saturating_sub(share::at(starting.unwrap_or_default(), dim))
        };
        let mut wanted = missing.total.iter().enumerate().filter(|(_, wanted)| **wanted > 0);
        wanted.all(|(dim, wanted)| *wanted <= free(DimId::from(dim)))
            && queue_limit::exceeded(session.tables, row.queue, &missing.total, &used).is_none()
    }
}
