//! `proportion`: each queue deserves a share of the cluster by its weight, and gives back what it holds above it.
//!
//! What a queue deserves is worked out when a cycle starts, from what its groups hold and ask for (see `deserved`).
//! Queues without groups deserve their guarantee and take no part. Parents mean nothing here: see `capacity`. With
//! `protectedFraction` above 1 a queue keeps so many times what it deserves, and gives back only what is beyond.

use std::cmp::{Ordering, Reverse};

use rustc_hash::FxHashMap;

use crate::cluster::classes::ClassRow;
use crate::config::PluginConfig;
use crate::ids::{DimId, GroupId, QueueId, TaskId, TimeMs};
use crate::job_plugins::admission;
use crate::plugin::{Plugin, Vote};
use crate::reasons::Reason;
use crate::resource_dims::{Demand, PODS};
use crate::share::{self, Limits, at};
use crate::world::minimum::Missing;
use crate::world::queues::QueueRow;
use crate::world::tables::Tables;

mod deserved;

use deserved::{Claim, split};

/// What a queue may have in this cycle.
#[derive(Debug, Clone, Default)]
struct QueueShare {
    deserved: Vec<i64>,
    /// What it may ever hold: its limit, and what others' guarantees leave.
    real: Limits,
}

pub(crate) const ARGUMENTS: &[&str] = &["protectedFraction"];

#[derive(Debug)]
pub(crate) struct Proportion {
    shares: FxHashMap<QueueId, QueueShare>,
    /// How many times what it deserves a queue keeps.
    protected: f64,
}

impl Default for Proportion {
    fn default() -> Self {
        Self { shares: FxHashMap::default(), protected: 1.0 }
    }
}

impl Proportion {
    /// What a queue deserves it keeps in any case: a fraction below 1 is one of 1.
    pub(crate) fn new(config: &PluginConfig) -> Self {
        let protected = config.float("protectedFraction", 1.0);
        Self { protected: if protected.is_finite() { protected.max(1.0) } else { 1.0 }, ..Self::default() }
    }

    /// What the queue deserves; nothing is known of queues without groups.
    fn due(&self, queue: QueueId) -> &[i64] {
        self.shares.get(&queue).map_or(&[], |share_of| &share_of.deserved)
    }

    /// Whether that is more than what the queue keeps, in any dimension.
    fn is_above(&self, held: &[i64], queue: QueueId) -> bool {
        let deserved = self.due(queue);
        let exact = self.protected <= 1.0;
        let kept = |dim: DimId| match at(deserved, dim) {
            due if exact => due,
            due => (due as f64 * self.protected) as i64,
        };
        (0..held.len()).map(DimId::from).any(|dim| at(held, dim) > kept(dim))
    }

    /// The share of what it deserves that the queue holds, in parts per billion.
    fn share(&self, tables: &Tables, queue: QueueId) -> i64 {
        share::dominant(&tables.queues.row(queue).own.allocated, self.due(queue))
    }
}

impl Plugin for Proportion {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        self.shares = shares(tables);
    }

    fn queue_order(&self, tables: &Tables, left: QueueId, right: QueueId) -> Ordering {
        let key = |queue| (Reverse(tables.queues.row(queue).priority), self.share(tables, queue));
        key(left).cmp(&key(right))
    }

    /// All dimensions are used up to what it deserves.
    fn overused(&self, tables: &Tables, queue: QueueId) -> Option<Reason> {
        let share_of = self.shares.get(&queue)?;
        let row = tables.queues.row(queue);
        let dims = (0..share_of.deserved.len()).map(DimId::from);
        let full = dims.clone().all(|dim| at(&share_of.deserved, dim) <= row.own.promised(dim));
        // Where it deserves all there is, the nodes say more about what is full.
        let shared = |dim: &DimId| at(&share_of.deserved, *dim) < at(&tables.nodes.total, *dim);
        let wants = |dim: DimId| at(&row.own.pending, dim) > 0;
        let held = |dim: DimId| share::ratio(row.own.promised(dim), at(&share_of.deserved, dim));
        let of_use = |dim: &DimId| *dim != PODS && shared(dim) && (wants(*dim) || held(*dim) > 0);
        let shown = dims.filter(of_use).max_by_key(|dim| (wants(*dim), held(*dim)))?;
        full.then(|| over(tables, row, shown, &share_of.deserved, 0))
    }

    fn allocatable(&self, tables: &Tables, queue: QueueId, demand: &Demand) -> Option<Reason> {
        let row = tables.queues.row(queue);
        let deserved = self.due(queue);
        let wanted = || demand.iter().filter(|(dim, _)| *dim != PODS);
        let beyond = |dim: DimId, amount: i64, bound: i64| row.own.promised(dim).saturating_add(amount) > bound;
        // Where the queue may have all there is, it is the cluster that is full: the nodes say more about that.
        let scarce = |dim: DimId, bound: i64| bound < at(&tables.nodes.total, dim);
        let real = |dim: DimId| self.shares.get(&queue).map_or(i64::MAX, |share_of| share_of.real.get(dim));
        let limited = wanted().find(|(dim, amount)| scarce(*dim, real(*dim)) && beyond(*dim, *amount, real(*dim)));
        if let Some((dim, requested)) = limited {
            return Some(admission::limit(tables, row, dim, real(dim), row.own.promised(dim), requested));
        }
        let mine = |dim: DimId| at(deserved, dim);
        let first = wanted().find(|(dim, amount)| scarce(*dim, mine(*dim)) && beyond(*dim, *amount, mine(*dim)));
        first.map(|(dim, amount)| over(tables, row, dim, deserved, amount))
    }

    fn deserved(&self, _tables: &Tables, queue: QueueId) -> Option<Vec<i64>> {
        self.shares.get(&queue).map(|share_of| share_of.deserved.clone())
    }

    fn real_capability(&self, _tables: &Tables, queue: QueueId) -> Option<Vec<(DimId, i64)>> {
        self.shares.get(&queue).map(|share_of| share_of.real.iter().collect())
    }

    /// A queue reclaims only up to what it deserves.
    fn preemptive(&self, tables: &Tables, queue: QueueId, demand: &Demand) -> bool {
        let (row, due) = (tables.queues.row(queue), self.due(queue));
        let within = |(dim, amount): (DimId, i64)| row.own.promised(dim).saturating_add(amount) <= at(due, dim);
        row.is_open() && demand.iter().filter(|(dim, _)| *dim != PODS).all(within)
    }

    /// In the order of the candidates, while their queue holds more than it deserves in any dimension.
    fn reclaimable(&self, tables: &Tables, _preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        let mut left: FxHashMap<QueueId, Vec<i64>> = FxHashMap::default();
        let may_leave = |task: &TaskId| {
            let row = tables.task(*task);
            let Some(group) = row.group else { return false };
            let queue = tables.groups.row(group).queue;
            let held = left.entry(queue).or_insert_with(|| tables.queues.row(queue).own.allocated.clone());
            let above = self.is_above(held, queue);
            if above {
                tables.classes.row(row.class).demand.add_to(held, -1);
            }
            above
        };
        Some(candidates.iter().copied().filter(may_leave).collect())
    }

    fn keeps(&self, tables: &Tables, victim: TaskId) -> bool {
        let queue = tables.task(victim).group.map(|group| tables.groups.row(group).queue);
        queue.is_none_or(|queue| self.keeps_all_of(tables, queue))
    }

    fn keeps_all_of(&self, tables: &Tables, queue: QueueId) -> bool {
        !self.is_above(&tables.queues.row(queue).own.allocated, queue)
    }

    /// What its answers read of the preemptor: nothing.
    fn victim_key(&self, _tables: &Tables, _preemptor: TaskId) -> Option<u64> {
        Some(0)
    }

    fn job_enqueueable(&self, tables: &Tables, group: GroupId, missing: &Missing) -> Result<Vote, Reason> {
        let queue = tables.groups.row(group).queue;
        if let Some(reason) = admission::closed(tables.queues.row(queue)) {
            return Err(reason);
        }
        let unlimited = Limits::default();
        let real = self.shares.get(&queue).map_or(&unlimited, |share_of| &share_of.real);
        match admission::beyond_limit(tables, queue, missing, real, false) {
            Some(reason) => Err(reason),
            None => Ok(Vote::Permit),
        }
    }
}

fn over(tables: &Tables, row: &QueueRow, dim: DimId, deserved: &[i64], requested: i64) -> Reason {
    let (deserved, used) = (at(deserved, dim), row.own.promised(dim));
    let resource = tables.dims.name(dim).to_string();
    Reason::QueueShare { queue: row.name.to_string(), resource, deserved, used, requested }
}

/// Volcano's weight starts at 1.
fn weight(row: &QueueRow) -> u32 {
    u32::try_from(row.weight).unwrap_or(0).max(1)
}

fn shares(tables: &Tables) -> FxHashMap<QueueId, QueueShare> {
    let total = &tables.nodes.total;
    let mut guaranteed = Vec::new();
    let mut queues: Vec<(QueueId, &QueueRow)> = Vec::new();
    for (id, row) in tables.queues.table.iter().filter(|(_, row)| row.known) {
        row.guarantee.add_to(&mut guaranteed, 1);
        if row.groups > 0 {
            queues.push((id, row));
        }
    }
    // What can't be split goes to the important ones first.
    queues.sort_by(|(_, left), (_, right)| {
        (Reverse(left.priority), &left.name).cmp(&(Reverse(right.priority), &right.name))
    });
    let unguaranteed = share::beyond(total, &guaranteed);
    let mut shares: FxHashMap<QueueId, QueueShare> = FxHashMap::default();
    let reals: Vec<Limits> = queues.iter().map(|(_, row)| real_capability(&unguaranteed, row)).collect();
    for dim in (0..total.len()).map(DimId::from) {
        let claims = queues.iter().zip(&reals).map(|((_, row), real)| {
            let wanted = row.own.promised(dim).saturating_add(at(&row.own.pending, dim));
            Claim { weight: weight(row), floor: row.guarantee.get(dim), want: wanted.min(real.get(dim)) }
        });
        let claims: Vec<Claim> = claims.collect();
        for ((queue, _), deserved) in queues.iter().zip(split(at(total, dim), &claims)) {
            shares.entry(*queue).or_default().deserved.push(deserved);
        }
    }
    for ((queue, _), real) in queues.iter().zip(reals) {
        shares.entry(*queue).or_default().real = real;
    }
    shares
}

/// What others' guarantees leave, and no more than its limit.
fn real_capability(unguaranteed: &[i64], row: &QueueRow) -> Limits {
    let mut room = unguaranteed.to_vec();
    share::add(&mut room, &share::vector(&row.guarantee), 1);
    Limits::all(room).tighter(&Limits::of(row.capability.iter().copied()))
}

#[cfg(test)]
mod tests;
