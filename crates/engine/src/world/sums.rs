//! Declared sums: what a group's `minResources` say beyond its pods, which come later.
//!
//! A driver declares what its executors will need. From its admission on the sum is promised to the group, until its pods
//! have held all of it once, or none was made for a while and none waits. Then it is spent. The sum of a Job that we know the tasks of
//! is that of its tasks. Read by `minimum` and the promises; kept by `close` and by what is told of groups.
//!
//! Invariant: `sums` holds the groups with a `sum_until`, by that time. What a status says of it outlives the scheduler.

use crate::dims::{Demand, PODS, amount_text};
use crate::facts::{GroupPhase, GroupStatus};
use crate::ids::{DimId, GroupId, TimeMs};
use crate::share::at;
use crate::world::groups::{GroupRow, Groups};
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
        let Some(sum) = row.min_resources.as_deref().filter(|_| asks && self.declares_sum(row)) else {
            return Demand::default();
        };
        let mut ended = Vec::new();
        for task in row.tasks.iter().map(|task| self.task(*task)).filter(|task| task.state == TaskState::Succeeded) {
            self.classes.row(task.class).demand.add_to(&mut ended, 1);
        }
        let has = |dim: DimId| at(&row.allocated, dim).saturating_add(at(&ended, dim)).saturating_add(at(more, dim));
        let rest = sum.iter().map(|(dim, amount)| (dim, amount.saturating_sub(has(dim))));
        Demand(rest.filter(|(dim, amount)| *dim != PODS && *amount > 0).collect())
    }

    /// What is promised to the group, as its status says it.
    pub(crate) fn say_promise(&self, row: &GroupRow) -> String {
        let rest = self.rest_of_sum(row, &[]);
        let one = |(dim, amount)| {
            let name = self.dims.name(dim);
            format!("{} {name}", amount_text(name, amount))
        };
        let amounts: Vec<String> = rest.iter().map(one).collect();
        format!("of minResources {} are kept for pods that are not there yet", amounts.join(", "))
    }

    /// Whether the group names a sum, and no Job says which tasks make it.
    pub(crate) fn declares_sum(&self, row: &GroupRow) -> bool {
        let shape = || row.owner.as_ref().and_then(|owner| self.shapes.get(owner.uid.as_str()));
        row.min_resources.is_some() && shape().is_none_or(|shape| shape.parts.is_empty())
    }

    /// When a group's newest pod was made; now, as long as one waits.
    pub(crate) fn newest_pod(&self, row: &GroupRow, now: TimeMs) -> Option<TimeMs> {
        let made = || row.tasks.iter().map(|task| self.task(*task).created).max();
        if row.pending() > 0 { Some(now) } else { made() }
    }
}
