//! The buckets that a group's pods are sorted into, and what they say about pods and nodes. Called by the plugin.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::spec::Spec;
use crate::ids::{ClassId, DimId, GroupId, NodeId, TaskId};
use crate::resource_dims::{CPU, Demand, MEMORY};
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Pods of a group that go together.
#[derive(Debug, Default)]
struct Bucket {
    /// Those that had no node at the start of the cycle.
    pending: Vec<TaskId>,
    /// All of them by their task.
    tasks: BTreeMap<u32, i64>,
    size: i64,
    /// milli-cores, mebibytes and units of all else that the pending ones ask for.
    request: i64,
}

#[derive(Debug)]
pub(super) struct Buckets {
    group: GroupId,
    spec: Spec,
    buckets: Vec<Bucket>,
    of: FxHashMap<TaskId, usize>,
}

/// What a pod's bucket and group look like at this moment.
#[derive(Debug)]
pub(super) struct View<'b> {
    buckets: &'b Buckets,
    task: TaskId,
    role: u32,
    class: ClassId,
    /// Pods of the bucket by node.
    placed: FxHashMap<NodeId, i64>,
    /// Pods that the pod must not be with, by node.
    repelling: FxHashMap<NodeId, i64>,
    /// Pods of the bucket without a node, and what they ask for.
    waiting: Vec<TaskId>,
    requested: Vec<i64>,
    /// Pods of the largest bucket, at least 1.
    pub(super) largest: i64,
}

impl Buckets {
    /// None where the group says nothing that can be followed.
    pub(super) fn of(tables: &Tables, group: GroupId) -> Option<Self> {
        let row = tables.groups.row(group);
        let spec = Spec::of(row)?;
        let counts = |task: &&TaskId| {
            let row = tables.task(**task);
            spec.names(row.role) && (row.state == TaskState::Pending || row.state.is_allocated())
        };
        let mut tasks: Vec<TaskId> = row.tasks.iter().filter(counts).copied().collect();
        tasks.sort_by_cached_key(|task| {
            let row = tables.task(*task);
            (row.node.is_none(), spec.key(row.role), row.created, row.uid.clone())
        });
        let mut made = Self { group, spec, buckets: Vec::new(), of: FxHashMap::default() };
        let mut by_node: FxHashMap<NodeId, usize> = FxHashMap::default();
        for task in tasks {
            let row = tables.task(task);
            let at = match row.node {
                Some(node) => *by_node.entry(node).or_insert_with(|| made.new_bucket()),
                None => made.best_for(row.role).unwrap_or_else(|| made.new_bucket()),
            };
            made.put(tables, task, at);
        }
        Some(made)
    }

    fn new_bucket(&mut self) -> usize {
        self.buckets.push(Bucket::default());
        self.buckets.len() - 1
    }

    /// The bucket that goes best with the task; among equals the one that asks for less. None where all repel it.
    fn best_for(&self, role: u32) -> Option<usize> {
        let fits = self.buckets.iter().map(|bucket| (self.spec.fit(role, &bucket.tasks), -bucket.request));
        let best = fits.enumerate().max_by_key(|(at, fit)| (*fit, std::cmp::Reverse(*at)));
        best.filter(|(_, (fit, _))| *fit >= 0).map(|(at, _)| at)
    }

    fn put(&mut self, tables: &Tables, task: TaskId, at: usize) {
        let row = tables.task(task);
        let bucket = &mut self.buckets[at];
        *bucket.tasks.entry(row.role).or_default() += 1;
        bucket.size += 1;
        if row.node.is_none() {
            bucket.pending.push(task);
            bucket.request = bucket.request.saturating_add(weight(&tables.classes.row(row.class).demand));
        }
        self.of.insert(task, at);
    }

    pub(super) fn order(&self, tables: &Tables, left: TaskId, right: TaskId) -> Ordering {
        let key = |task: TaskId| {
            let at = self.of.get(&task).copied();
            let size = at.map(|at| self.buckets[at].size);
            (at.is_none(), std::cmp::Reverse(size), at, self.spec.key(tables.task(task).role))
        };
        key(left).cmp(&key(right))
    }

    /// None for a pod that is in no bucket.
    pub(super) fn view(&self, tables: &Tables, task: TaskId) -> Option<View<'_>> {
        let bucket = self.of.get(&task).copied()?;
        let row = tables.task(task);
        let mut view = View {
            buckets: self,
            task,
            role: row.role,
            class: row.class,
            placed: FxHashMap::default(),
            repelling: FxHashMap::default(),
            waiting: Vec::new(),
            requested: Vec::new(),
            largest: self.buckets.iter().map(|bucket| bucket.size).max().unwrap_or(1).max(1),
        };
        for other in tables.groups.row(self.group).tasks.iter() {
            view.see(tables, *other, bucket);
        }
        Some(view)
    }
}

impl View<'_> {
    fn see(&mut self, tables: &Tables, other: TaskId, bucket: usize) {
        let row = tables.task(other);
        let of_bucket = self.buckets.of.get(&other) == Some(&bucket);
        match row.node {
            Some(node) if row.state.is_allocated() => {
                if of_bucket {
                    *self.placed.entry(node).or_default() += 1;
                }
                if self.buckets.spec.repels(self.role, row.role) {
                    *self.repelling.entry(node).or_default() += 1;
                }
            }
            _ if of_bucket => {
                self.waiting.push(other);
                tables.classes.row(row.class).demand.add_to(&mut self.requested, 1);
            }
            _ => {}
        }
    }

    pub(super) fn score(&self, tables: &Tables, node: NodeId) -> i64 {
        let room = |dim: DimId| tables.nodes.idle(node, dim).saturating_add(tables.nodes.releasing(node, dim));
        let demand = &tables.classes.row(self.class).demand;
        if demand.iter().any(|(dim, amount)| amount > room(dim)) {
            return 0;
        }
        let count = |of: &FxHashMap<NodeId, i64>| of.get(&node).copied().unwrap_or(0);
        let here = count(&self.placed) - count(&self.repelling);
        here.saturating_add(self.joining(tables, room))
    }

    /// Waiting pods of the bucket that have room there together, this one among them: others are left out one by one.
    fn joining(&self, tables: &Tables, room: impl Fn(DimId) -> i64) -> i64 {
        let mut requested = self.requested.clone();
        let fits = |requested: &[i64]| {
            requested.iter().enumerate().all(|(dim, amount)| *amount <= 0 || *amount <= room(DimId::from(dim)))
        };
        let mut joining = i64::try_from(self.waiting.len()).unwrap_or(i64::MAX);
        for other in self.waiting.iter().rev().filter(|other| **other != self.task) {
            if fits(&requested) {
                break;
            }
            tables.classes.row(tables.task(*other).class).demand.add_to(&mut requested, -1);
            joining -= 1;
        }
        joining
    }
}

/// What a pod weighs: milli-cores, mebibytes, units of all else.
fn weight(demand: &Demand) -> i64 {
    let part = |(dim, amount): (DimId, i64)| match dim {
        CPU => amount,
        MEMORY => amount >> 20,
        _ => amount,
    };
    demand.iter().filter(|(dim, _)| *dim != crate::resource_dims::PODS).map(part).fold(0, i64::saturating_add)
}
