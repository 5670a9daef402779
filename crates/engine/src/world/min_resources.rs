//! Declared sums: what a group's `minResources` say beyond its pods, which come later.
//!
//! A driver declares what its executors will need. From its admission on the sum is promised to the group, until its pods
//! have held all of it once, or none was made for a while and none waits. Then it is spent. The sum of a Job that we know the
//! tasks of is that of its tasks, and promised like this where some of them depend on others. Read by `minimum` and the
//! promises; kept by `cycle_end` and by what is told of groups.
//!
//! Invariant: `sums` holds the groups with a `sum_until`, by that time. What a status says of it outlives the scheduler.

use crate::facts::{GroupPhase, GroupStatus};
use crate::ids::{DimId, GroupId, TimeMs};
use crate::reasons::Reason;
use crate::resource_dims::{Demand, PODS, amount_text};
use crate::share::{self, at};
use crate::world::groups::{GroupRow, Groups};
use crate::world::minimum::missing;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// The condition of a group that is promised more than its pods ask for.
pub(crate) const PROMISED: &str = "ResourcesPromised";
/// When the sum of a group that was just read of is spent is worked out when it is looked at.
pub(crate) const SOME_TIME: TimeMs = TimeMs(i64::MAX);

impl GroupRow {
    /// Whether a group that was admitted before had not held its sum, by what is told of it.
    pub(crate) fn restored_sum(&self, status: &GroupStatus) -> Option<TimeMs> {
        let is_promised = || status.conditions.iter().any(|condition| condition.kind == PROMISED && condition.status);
        let open = match status.phase {
            GroupPhase::Inqueue => true,
            GroupPhase::Running | GroupPhase::Unknown => is_promised(),
            GroupPhase::Pending | GroupPhase::Completed => false,
        };
        (open && self.min_resources.is_some()).then_some(SOME_TIME)
    }
}

impl Groups {
    /// Until when the group's sum is promised, from now on.
    pub(crate) fn set_sum(&mut self, group: GroupId, until: Option<TimeMs>) {
        let old = std::mem::replace(&mut self.row_mut(group).sum_until, until);
        if old != until {
            old.map(|old| self.sums.remove(&(old, group)));
            until.map(|until| self.sums.insert((until, group)));
            self.refresh(group);
        }
    }

    /// Groups whose time may be over.
    pub(crate) fn due_sums(&self, now: TimeMs) -> Vec<GroupId> {
        self.sums.iter().take_while(|(until, _)| *until <= now).map(|(_, group)| *group).collect()
    }
}

impl Tables {
    /// What the group's sum has beyond what its pods hold or held to their end, and beyond `more`. Nothing where it is spent.
    /// O(its tasks).
    pub(crate) fn rest_of_sum(&self, row: &GroupRow, more: &[i64]) -> Demand {
        let asks = row.phase == GroupPhase::Pending || row.sum_until.is_some();
        let Some(sum) = row.min_resources.as_deref() else { return Demand::default() };
        if !asks || !self.declares_sum(row) {
            return Demand::default();
        }
        let mut ended = Vec::new();
        for task in row.tasks.iter().map(|task| self.task(*task)).filter(|task| task.state == TaskState::Succeeded) {
            self.classes.row(task.class).demand.add_to(&mut ended, 1);
        }
        let has = |dim: DimId| at(&row.allocated, dim).saturating_add(at(&ended, dim)).saturating_add(at(more, dim));
        let rest = sum.iter().map(|(dim, amount)| (dim, amount.saturating_sub(has(dim))));
        Demand(rest.filter(|(dim, amount)| *dim != PODS && *amount > 0).collect())
    }

    /// What is promised to a group that has begun: the rest of its sum, or its tasks that depend on others. O(its tasks).
    pub(crate) fn still_promised(&self, group: GroupId) -> Vec<i64> {
        let row = self.groups.row(group);
        match (row.sum_until, row.planned) {
            (None, _) => Vec::new(),
            (_, 0) => share::vector(&self.rest_of_sum(row, &[])),
            _ => missing(self, group).total,
        }
    }

    /// The same, as its status says it.
    pub(crate) fn say_promise(&self, group: GroupId) -> String {
        let amounts = self.promised_amounts(group).join(", ");
        format!("of minResources {amounts} are kept for pods that are not there yet")
    }

    /// The same as a reason, of a group that has begun.
    pub(crate) fn inqueue_demand_reason(&self, group: GroupId, now: TimeMs) -> Option<Reason> {
        let row = self.groups.row(group);
        let begun = matches!(row.phase, GroupPhase::Running | GroupPhase::Unknown);
        let until = row.sum_until.filter(|until| begun && *until != SOME_TIME)?;
        let amounts = self.promised_amounts(group);
        let left_ms = until.0.saturating_sub(now.0).max(0);
        (!amounts.is_empty()).then_some(Reason::ResourcesPromised { amounts, left_ms })
    }

    fn promised_amounts(&self, group: GroupId) -> Vec<String> {
        let one = |(dim, amount): (usize, &i64)| {
            let name = self.dims.name(DimId::from(dim));
            format!("{} {name}", amount_text(name, *amount))
        };
        let promised = self.still_promised(group);
        let amounts = promised.iter().enumerate().filter(|(dim, amount)| DimId::from(*dim) != PODS && **amount > 0);
        amounts.map(one).collect()
    }

    /// Whether a part of what the group needs is for pods that are made when others run.
    pub(crate) fn needs_more_later(&self, row: &GroupRow) -> bool {
        row.planned > 0 || self.declares_sum(row)
    }

    /// Whether the group names a sum, and no Job says which tasks make it.
    pub(crate) fn declares_sum(&self, row: &GroupRow) -> bool {
        row.min_resources.is_some() && self.parts_of(row).is_none()
    }

    /// Whether the group has begun, and has pods that wait for what it was promised.
    pub(crate) fn waits_for_its_sum(&self, row: &GroupRow) -> bool {
        row.sum_until.is_some() && row.planned == 0 && row.pending() > 0 && row.counts.ready() >= row.min_member.max(1)
    }

    /// When a group's newest pod was made.
    pub(crate) fn newest_pod(&self, row: &GroupRow) -> Option<TimeMs> {
        row.tasks.iter().map(|task| self.task(*task).created).max()
    }
}
