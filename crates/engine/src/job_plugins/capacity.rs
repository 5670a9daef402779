//! `capacity`: each queue says itself what it deserves, what is guaranteed to it and what it may ever hold; with
//! `enableHierarchy` the same counts for the queues above it.
//!
//! What a queue deserves is no limit: it may borrow, and gives back when its owner asks. Volcano stops the whole cluster
//! when one queue names a parent that is not there or has both jobs and queues below it; here that queue is unusable,
//! with a reason, and all others go on. Nothing is copied per attempt: sums are those of the tables.

use std::cmp::{Ordering, Reverse};
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use super::admission;
use crate::cluster::classes::ClassRow;
use crate::config::{PluginConfig, Switch};
use crate::ids::{DimId, GroupId, QueueId, TaskId, TimeMs};
use crate::plugin::{Alike, GangEviction, Plugin, Vote};
use crate::reasons::Reason;
use crate::resource_dims::{Demand, PODS};
use crate::share::{self, WHOLE, at};
use crate::world::minimum::Missing;
use crate::world::queues::{QueueRow, ROOT, Sums};
use crate::world::tables::Tables;

mod device_quota;
mod queue_limits;
mod reclaim;

use queue_limits::QueueLimits;
use reclaim::Reclaim;

pub(crate) const ARGUMENTS: &[&str] =
    &["ancestorReclaimLevel", "capacity.DynamicResourceAllocationEnable", "capacity.DRAConsumableCapacityEnable"];

/// Deeper trees are not looked at.
const LEVELS_MAX: i64 = 64;

#[derive(Debug)]
pub(crate) struct Capacity {
    hierarchical: bool,
    /// How many queues above a queue take part in reclaiming.
    levels: usize,
    /// Limits of device classes count.
    devices: bool,
    limits: FxHashMap<QueueId, QueueLimits>,
    /// What the standings were worked out from.
    seen: Option<(u64, Vec<i64>)>,
}

impl Capacity {
    pub(crate) fn new(config: &PluginConfig) -> Self {
        let hierarchical = config.switches.has(Switch::Hierarchy);
        let levels = config.int("ancestorReclaimLevel", 0).clamp(0, LEVELS_MAX);
        let levels = if hierarchical { usize::try_from(levels).unwrap_or(0) } else { 0 };
        let devices = config.bool("capacity.DynamicResourceAllocationEnable", true);
        Self { hierarchical, levels, devices, limits: FxHashMap::default(), seen: None }
    }

    /// What counts against the queue: with a hierarchy, all below it.
    fn sums<'a>(&self, row: &'a QueueRow) -> &'a Sums {
        if self.hierarchical { &row.tree } else { &row.own }
    }

    /// The queue and, with a hierarchy, all above it.
    fn line<'a>(&self, tables: &'a Tables, queue: QueueId) -> impl Iterator<Item = QueueId> + 'a {
        let above = if self.hierarchical { tables.queues.row(queue).ancestors.as_slice() } else { &[] };
        std::iter::once(queue).chain(above.iter().copied())
    }

    /// The queues above a queue that take part in reclaiming: the nearest, without the root.
    fn near<'a>(&self, tables: &'a Tables, queue: QueueId) -> &'a [QueueId] {
        let above = &tables.queues.row(queue).ancestors;
        let rooted = above.last().is_some_and(|top| &*tables.queues.row(*top).name == ROOT);
        &above[..self.levels.min(above.len() - usize::from(rooted))]
    }

    /// Why no group of the queue may start, whatever it asks for: its place in the tree is wrong.
    fn unusable(&self, tables: &Tables, queue: QueueId) -> Option<Reason> {
        let row = tables.queues.row(queue);
        if !self.hierarchical {
            return None;
        }
        queue_limits::fault(tables, row).map(|fault| Reason::QueueUnusable { queue: row.name.to_string(), fault })
    }

    /// The first dimension in which the queue itself may not hold that much more.
    fn beyond(&self, tables: &Tables, queue: QueueId, demand: &Demand) -> Option<Reason> {
        let (row, limits_of) = (tables.queues.row(queue), self.limits.get(&queue)?);
        demand.iter().filter(|(dim, _)| *dim != PODS).find_map(|(dim, requested)| {
            let (used, limit) = (self.sums(row).promised(dim), limits_of.real.get(dim));
            let over = limit != i64::MAX && used.saturating_add(requested) > limit;
            over.then(|| admission::limit(tables, row, dim, limit, used, requested))
        })
    }

    /// Whether the queue would stay within what it deserves in some dimension that is asked for.
    fn deserves(&self, tables: &Tables, queue: QueueId, demand: &Demand) -> bool {
        let Some(limits_of) = self.limits.get(&queue) else { return false };
        let sums = self.sums(tables.queues.row(queue));
        demand.iter().filter(|(dim, _)| *dim != PODS).any(|(dim, requested)| {
            sums.promised(dim).saturating_add(requested) <= limits_of.deserved_of(dim).unwrap_or(0)
        })
    }

    /// Without anything deserved a queue comes after all that hold less than they deserve.
    fn share(&self, tables: &Tables, queue: QueueId) -> i64 {
        let Some(limits_of) = self.limits.get(&queue).filter(|limits_of| limits_of.is_owner()) else { return WHOLE };
        let sums = self.sums(tables.queues.row(queue));
        let shares = limits_of.deserved.iter().filter(|(_, deserved)| *deserved > 0);
        shares.map(|(dim, deserved)| share::ratio(at(&sums.allocated, *dim), *deserved)).max().unwrap_or(0)
    }
}

impl Plugin for Capacity {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        let seen = (tables.queues.version, tables.nodes.total.clone());
        if self.seen.as_ref() != Some(&seen) {
            self.limits = queue_limits::all(tables, self.hierarchical);
            self.seen = Some(seen);
        }
    }

    fn follows_queue_tree(&self) -> bool {
        self.hierarchical
    }

    fn queue_order(&self, tables: &Tables, left: QueueId, right: QueueId) -> Ordering {
        let key = |queue| {
            let owner = self.limits.get(&queue).is_some_and(QueueLimits::is_owner);
            (Reverse(tables.queues.row(queue).priority), self.share(tables, queue), !owner)
        };
        key(left).cmp(&key(right))
    }

    fn shares(&self, _tables: &Tables, queue: QueueId) -> Option<Vec<(DimId, i64)>> {
        self.limits.get(&queue).map(|limits_of| limits_of.deserved.clone())
    }

    fn reads_deserved(&self) -> bool {
        true
    }

    fn deserved(&self, _tables: &Tables, queue: QueueId) -> Option<Vec<i64>> {
        self.limits.get(&queue).map(QueueLimits::deserved)
    }

    fn real_capability(&self, _tables: &Tables, queue: QueueId) -> Option<Vec<(DimId, i64)>> {
        self.limits.get(&queue).map(|limits_of| limits_of.real.iter().collect())
    }

    /// The nearest relatives of the preemptor's queue give first.
    fn victim_queue_order(&self, tables: &Tables, left: QueueId, right: QueueId, preemptor: QueueId) -> Ordering {
        if !self.hierarchical || left == right {
            return Ordering::Equal;
        }
        let mine = |above: &QueueId| self.line(tables, preemptor).any(|mine| mine == *above);
        let common = |queue: QueueId| self.line(tables, queue).filter(mine).count();
        common(right).cmp(&common(left))
    }

    fn allocatable(&self, tables: &Tables, queue: QueueId, demand: &Demand) -> Option<Reason> {
        let beyond = || self.line(tables, queue).find_map(|queue| self.beyond(tables, queue, demand));
        self.unusable(tables, queue).or_else(beyond)
    }

    fn allocatable_task(&self, tables: &Tables, queue: QueueId, task: TaskId) -> Option<Reason> {
        if !self.devices {
            return None;
        }
        device_quota::beyond(tables, self.line(tables, queue), self.hierarchical, task)
    }

    /// Pods of one class may claim different devices.
    fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        let queue = tables.task(task).group.map(|group| tables.groups.row(group).queue);
        self.devices && queue.is_some_and(|queue| device_quota::concerns(tables, task, self.line(tables, queue)))
    }

    /// The limits of queues above are not asked: victims below them make room there, too.
    fn preemptive(&self, tables: &Tables, queue: QueueId, demand: &Demand) -> bool {
        tables.queues.row(queue).is_open()
            && self.unusable(tables, queue).or_else(|| self.beyond(tables, queue, demand)).is_none()
            && (self.deserves(tables, queue, demand)
                || self.near(tables, queue).iter().any(|above| self.deserves(tables, *above, demand)))
    }

    fn preemptive_in_part(&self) -> bool {
        true
    }

    fn reclaimable(&self, tables: &Tables, preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        let row = tables.task(preemptor);
        let queue = tables.groups.row(row.group?).queue;
        let demand = &tables.classes.row(row.class).demand;
        let mut reclaim = Reclaim::new(self, tables, queue, demand);
        let mut ordered = candidates.to_vec();
        let of = |task: &TaskId| tables.task(*task).group.map(|group| tables.groups.row(group).queue);
        ordered.sort_by(|left, right| match (of(left), of(right)) {
            (Some(left), Some(right)) => self.victim_queue_order(tables, left, right, queue),
            _ => Ordering::Equal,
        });
        Some(ordered.into_iter().filter(|task| reclaim.takes(*task)).collect())
    }

    fn keeps(&self, tables: &Tables, victim: TaskId) -> bool {
        tables.task(victim).group.is_none_or(|group| {
            let (queue, demand) = (tables.groups.row(group).queue, Demand::default());
            !Reclaim::new(self, tables, queue, &demand).may_take(victim)
        })
    }

    /// It holds no more than it deserves, and nobody in it can live on loan.
    fn keeps_all_of(&self, tables: &Tables, queue: QueueId) -> bool {
        let Some(limits_of) = self.limits.get(&queue) else { return false };
        let held = &self.sums(tables.queues.row(queue)).allocated;
        let owns = |class: &ClassRow| class.demand.iter().any(|(dim, _)| limits_of.deserved_of(dim).unwrap_or(0) > 0);
        limits_of.deserved.iter().all(|(dim, deserved)| at(held, *dim) <= *deserved) && tables.classes.rows().all(owns)
    }

    fn unified_evictable(&self, tables: &Tables, want: &GangEviction, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        if !want.reclaim {
            return None;
        }
        let queue = tables.groups.row(want.preemptor).queue;
        let demand = Demand::default();
        let mut reclaim = Reclaim::new(self, tables, queue, &demand);
        Some(candidates.iter().copied().filter(|task| reclaim.takes_for_gang(*task)).collect())
    }

    /// What its answers read of the preemptor: its queue and what it asks for.
    fn victim_key(&self, tables: &Tables, preemptor: TaskId) -> Option<u64> {
        let row = tables.task(preemptor);
        let mut hasher = FxHasher::default();
        (row.group.map(|group| tables.groups.row(group).queue), row.class).hash(&mut hasher);
        Some(hasher.finish())
    }

    fn job_enqueueable(&self, tables: &Tables, group: GroupId, missing: &Missing) -> Result<Vote, Reason> {
        let queue = tables.groups.row(group).queue;
        let closed = admission::closed(tables.queues.row(queue));
        if let Some(reason) = closed.or_else(|| self.unusable(tables, queue)) {
            return Err(reason);
        }
        let over = self.line(tables, queue).find_map(|queue| {
            let limits_of = self.limits.get(&queue)?;
            admission::beyond_limit(tables, queue, missing, &limits_of.real, self.hierarchical)
        });
        if let Some(reason) = over {
            return Err(reason);
        }
        let line = self.line(tables, queue);
        if self.devices
            && let Some(reason) = device_quota::beyond_for_group(tables, line, self.hierarchical, group, missing.past)
        {
            return Err(reason);
        }
        Ok(Vote::Permit)
    }

    /// Pods of one class may claim different devices.
    fn admits_alike(&self, tables: &Tables, group: GroupId) -> Alike {
        let claims =
            |task: &TaskId| tables.task(*task).claims.as_ref().is_some_and(|claims| !claims.devices.is_empty());
        let alone = self.devices && tables.groups.row(group).tasks.iter().any(claims);
        if alone { Alike::Alone } else { Alike::Key(0) }
    }
}

#[cfg(test)]
mod tests;
