//! Groups that ask to be admitted, in batches of those that are alike: all that admitting one of them reads is the same, so
//! that where one is refused all behind it are. Only the first is looked at; what is like no other is looked at by itself.
//!
//! Invariant: a group that asks lies in one batch, in job order, or alone; and what it lies by is as its facts are now.
//! While groups are admitted nothing gets better for those that were refused. Kept by the pending index; read by `enqueue` and
//! `cycle_end`.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::ordered::Ordered;
use crate::cluster::interned::Interned;
use crate::ids::{GroupId, NamespaceId, QueueId};
use crate::policy::Policy;
use crate::reasons::Failure;
use crate::reasons::Stage;
use crate::resource_dims::Demand;
use crate::world::groups::{GroupRow, ShapePart};
use crate::world::minimum::Missing;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// A batch of groups that are alike.
pub(crate) type BatchId = u32;

/// What groups of one batch have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BatchKey {
    pub(crate) queue: QueueId,
    pub(crate) namespace: NamespaceId,
    priority: i32,
    /// They have pods, which are to be told why they wait.
    pods: bool,
    needs: u32,
    /// What plugins tell them by.
    key: u64,
}

/// What a group that holds nothing needs to start: all that `missing` is worked out from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Needs {
    parts: Arc<Vec<ShapePart>>,
    minima: Vec<(Arc<str>, u32)>,
    min_member: u32,
    block: Option<Demand>,
    /// By which it is told how long it will run: what ends in time passes a reservation.
    profile: Arc<str>,
}

/// What the refusal of a batch's first group rests on.
#[derive(Debug)]
pub(crate) struct RefusalBasis {
    pub(crate) missing: Missing,
    /// Whether it would fit if nothing else ran.
    pub(crate) fits: bool,
    /// It can't be admitted as long as nodes and queues are what they are.
    pub(crate) impossible: bool,
    /// The versions of what nodes offer and of what queues may have then.
    pub(crate) seen: (u64, u64),
}

/// Groups that are alike.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// In job order.
    pub(crate) groups: Ordered,
    /// Why the first of them was refused.
    pub(crate) failure: Option<Arc<Failure>>,
    pub(crate) refusal_basis: Option<Box<RefusalBasis>>,
    /// The class of the failure that the pods of all of them have been told.
    reported: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct EnqueueCandidates {
    needs: Interned<Arc<Needs>, ()>,
    batches: Interned<BatchKey, Batch>,
    pub(crate) alone: BTreeSet<GroupId>,
    /// By group, one more than the number of its batch; 0 is none.
    batch_numbers: Vec<u32>,
    /// Groups that have come to ask since it was last told why groups wait.
    fresh: Vec<GroupId>,
}

/// A batch and the first of its groups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchHead<'a> {
    pub(crate) batch: BatchId,
    pub(crate) key: &'a BatchKey,
    pub(crate) group: GroupId,
}

impl EnqueueCandidates {
    pub(crate) fn heads(&self) -> impl Iterator<Item = BatchHead<'_>> {
        self.batches.iter().filter_map(|(id, key, batch)| {
            Some(BatchHead { batch: id, key, group: batch.groups.at(Default::default())? })
        })
    }

    pub(crate) fn batch(&self, batch: BatchId) -> &Batch {
        self.batches.row(batch)
    }

    pub(crate) fn key_of(&self, batch: BatchId) -> &BatchKey {
        self.batches.key(batch)
    }

    /// The first of the batch was refused.
    pub(crate) fn fail(&mut self, batch: BatchId, failure: Arc<Failure>, refusal_basis: Option<Box<RefusalBasis>>) {
        let batch = self.batches.row_mut(batch);
        (batch.failure, batch.refusal_basis) = (Some(failure), refusal_basis);
    }

    pub(crate) fn batch_mut(&mut self, batch: BatchId) -> &mut Batch {
        self.batches.row_mut(batch)
    }

    /// The batch that the group lies in.
    pub(crate) fn batch_of(&self, group: GroupId) -> Option<&Batch> {
        let number = self.batch_numbers.get(group.index())?.checked_sub(1)?;
        Some(self.batches.row(number))
    }

    /// Groups that are to be told why they wait, since they have come or it is something else now.
    pub(crate) fn take_unreported(&mut self) -> (Vec<GroupId>, Vec<BatchId>) {
        let mut groups = std::mem::take(&mut self.fresh);
        let is_news = |batch: &Batch| {
            let reported =
                |failure: &Failure| batch.reported.as_ref().is_some_and(|reported| failure.is_class(reported));
            batch.failure.as_deref().is_some_and(|failure| !reported(failure))
        };
        let with_pods = self.batches.iter().filter(|(_, key_of, _)| key_of.pods);
        let batches: Vec<BatchId> = with_pods.filter(|(_, _, batch)| is_news(batch)).map(|(id, ..)| id).collect();
        groups.extend(batches.iter().flat_map(|batch| self.batch(*batch).groups.iter()));
        (groups, batches)
    }

    /// The pods of all groups of the batch have been told.
    pub(crate) fn reported(&mut self, batch: BatchId) {
        let batch = self.batches.row_mut(batch);
        batch.reported = batch.failure.as_deref().map(Failure::class);
    }

    pub(super) fn take_out(&mut self, group: GroupId, order: impl Fn(GroupId, GroupId) -> Ordering) {
        self.alone.remove(&group);
        let Some(number) = self.batch_numbers.get_mut(group.index()) else { return };
        let Some(id) = std::mem::take(number).checked_sub(1) else { return };
        self.batches.row_mut(id).groups.remove(group, order);
        if let Some((key_of, _)) = self.batches.release(id) {
            self.needs.release(key_of.needs);
        }
    }

    /// Finds its place for a group that asks, and is not in one.
    pub(super) fn put_in(&mut self, tables: &Tables, policy: &Policy, group: GroupId) {
        if !tables.groups.unadmitted.contains(&group) {
            return;
        }
        let row = tables.groups.row(group);
        if row.reasons.as_ref().is_none_or(|stored| stored.failure.stage != Stage::Enqueue) {
            self.fresh.push(group);
        }
        let Some((needs, key)) =
            policy.admits_alike(tables, group).zip(needs(tables, policy, row)).map(|(k, n)| (n, k))
        else {
            self.alone.insert(group);
            return;
        };
        let needs = Arc::new(needs);
        let known = self.needs.find(&needs);
        let needs = known.unwrap_or_else(|| self.needs.acquire(needs, || ()).0);
        let key_of = BatchKey {
            queue: row.queue,
            namespace: row.namespace_id,
            priority: row.priority,
            pods: !row.tasks.is_empty(),
            needs,
            key,
        };
        let (id, new) = self.batches.acquire(key_of, Batch::default);
        if new && known.is_some() {
            // Each batch holds what its groups need.
            self.needs.hold(needs);
        }
        if self.batch_numbers.len() <= group.index() {
            self.batch_numbers.resize(group.index() + 1, 0);
        }
        self.batch_numbers[group.index()] = id + 1;
        self.batches.row_mut(id).groups.insert(group, |left, right| policy.job_order(tables, left, right));
    }
}

/// Nothing if the group is to be looked at by itself: it holds something, or has pods of several kinds. O(its tasks).
fn needs(tables: &Tables, policy: &Policy, row: &GroupRow) -> Option<Needs> {
    let holds = row.counts.all() != row.pending() || row.allocated.iter().any(|amount| *amount != 0);
    if holds || !policy.ranks_representative() {
        return None;
    }
    let shape = row.owner.as_ref().and_then(|owner| tables.shapes.get(owner.uid.as_str()));
    let mut parts = shape.map_or_else(Default::default, |shape| shape.parts.clone());
    if let Some(first) = row.tasks.first().map(|task| tables.task(*task)) {
        let mut tasks = row.tasks.iter().map(|task| tables.task(*task));
        let alike =
            tasks.all(|task| (task.class, task.role) == (first.class, first.role) && task.state == TaskState::Pending);
        if !alike {
            return None;
        }
        if parts.is_empty() {
            let role = row.roles[first.role as usize].name.clone();
            parts = Arc::new(vec![ShapePart { role, class: first.class, count: row.pending(), depends_on: None }]);
        }
    }
    let minima = row.roles.iter().filter(|role| role.declared_min > 0);
    let minima = minima.map(|role| (role.name.clone(), role.declared_min)).collect();
    let block = if shape.is_none() || parts.is_empty() { row.min_resources.as_deref().cloned() } else { None };
    Some(Needs { parts, minima, min_member: row.declared_min, block, profile: row.run_profile.clone() })
}
