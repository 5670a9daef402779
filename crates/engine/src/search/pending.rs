//! The pending index: groups that wait for nodes, so ordered that a cycle looks only at those whose turn may come.
//!
//! Groups that hold nothing and want pods of one kind, as many together, in one queue and namespace are alike: where
//! one finds no room, none of them does. They lie together, in their order, and only the first is tried. All
//! others are tried one by one. A cache over the tables: losing it changes no decision. Brought up to date by
//! `refresh` at the start of `allocate`, for the groups that changed; called by `allocate` and `cycle_end`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::{Action, Config};
use crate::facts::GroupPhase;
use crate::ids::{ClassId, GroupId, NamespaceId, QueueId, TaskId};
use crate::policy::Policy;
use crate::reasons::Failure;
use crate::share;
use crate::world::end_times::Confidence;
use crate::world::groups::GroupRow;
use crate::world::minimum;
use crate::world::tables::Tables;
use crate::world::tasks::{TaskRow, TaskState};

pub(crate) mod enqueue_candidates;
pub(crate) mod ordered;
pub(crate) mod queue_positions;
pub(crate) mod usage_by_priority;

use enqueue_candidates::EnqueueCandidates;
use ordered::Ordered;
use queue_positions::{Entry, QueuePositions};
use usage_by_priority::UsageByPriority;

/// Sizes are told in parts per million of the cluster.
pub(crate) const SIZE_WHOLE: i64 = 1_000_000;
/// Nothing is told to be larger than a thousand clusters.
pub(crate) const SIZE_MAX: i64 = SIZE_WHOLE * 1_000;

/// What groups of one task class have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskClassKey {
    pub(crate) queue: QueueId,
    pub(crate) namespace: NamespaceId,
    pub(crate) class: ClassId,
    /// Pods that start together.
    pub(crate) needed: u32,
    /// About how long they will run; see `length_of`.
    pub(crate) length: u8,
    /// They may be evicted: what windows bar depends on it.
    pub(crate) preemptable: bool,
}

/// Groups that are alike.
#[derive(Debug, Default)]
pub(crate) struct TaskClassGroups {
    /// In job order.
    pub(crate) groups: Ordered,
    /// Why none of them got what it waits for, since the cycle that last tried one.
    pub(crate) failure: Option<Arc<Failure>>,
    /// The class of the failure that all of them have been told.
    pub(crate) reported: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Slot {
    #[default]
    Absent,
    TaskClassGroups(TaskClassKey),
    OneByOne,
}

/// Where a group lies, and what stands for it.
#[derive(Debug, Clone, Copy, Default)]
struct GroupSlot {
    slot: Slot,
    representative: Option<TaskId>,
}

#[derive(Debug, Default)]
pub(crate) struct PendingIndex {
    /// In the order of their kinds.
    pub(crate) by_task_class: BTreeMap<TaskClassKey, TaskClassGroups>,
    /// Tried one by one.
    pub(crate) one_by_one: BTreeSet<GroupId>,
    slots: Vec<GroupSlot>,
    /// Those that were not admitted.
    pub(crate) enqueue_candidates: EnqueueCandidates,
    pub(crate) usage_by_priority: UsageByPriority,
    /// What waits, admitted or not.
    pub(crate) queue_positions: QueuePositions,
    /// What the cluster offered when the positions were made.
    positions_offered: Vec<i64>,
    /// The facts that all orders depend on, as they were when the pending index was made.
    orders: Option<u64>,
}

impl PendingIndex {
    /// Takes in what has changed. O(changed groups and their tasks).
    pub(crate) fn refresh(&mut self, tables: &mut Tables, policy: &Policy, config: &Config) {
        let mut changed = tables.groups.take_moved();
        if self.orders != Some(tables.orders_version) {
            let usage_by_priority = UsageByPriority::of(tables);
            *self = Self { orders: Some(tables.orders_version), usage_by_priority, ..Self::default() };
            changed.extend(tables.groups.waiting.iter());
        }
        changed.sort_unstable();
        changed.dedup();
        if !is_about(&self.positions_offered, &tables.nodes.total) {
            self.queue_positions = QueuePositions::default();
            self.positions_offered.clone_from(&tables.nodes.total);
            for group in tables.groups.waiting.iter().filter(|group| changed.binary_search(group).is_err()) {
                self.queue_positions.set(*group, entry_of(tables, policy, *group));
            }
        }
        self.reach(tables.groups.table.span());
        // All go out before any comes in: what is left is in order then, and its rows are there.
        for group in &changed {
            self.take_out(tables, policy, *group);
            self.enqueue_candidates.take_out(*group, |left, right| order(tables, policy, left, right));
        }
        for group in changed {
            let slot = slot_of(tables, policy, config, group);
            let representative = if slot == Slot::Absent { None } else { representative_of(tables, policy, group) };
            self.put_in(tables, policy, group, GroupSlot { slot, representative });
            if config.has(Action::Enqueue) {
                self.enqueue_candidates.put_in(tables, policy, group);
            }
            self.queue_positions.set(group, entry_of(tables, policy, group));
            self.usage_by_priority.set(group, tables.groups.table.get(group.index()));
        }
    }

    /// Makes room for groups of all numbers below `span`, at once.
    fn reach(&mut self, span: usize) {
        if self.slots.len() < span {
            self.slots.resize(span, GroupSlot::default());
        }
        self.queue_positions.reach(span);
    }

    fn take_out(&mut self, tables: &Tables, policy: &Policy, group: GroupId) {
        match std::mem::take(&mut self.slots[group.index()]).slot {
            Slot::Absent => {}
            Slot::OneByOne => {
                self.one_by_one.remove(&group);
            }
            Slot::TaskClassGroups(kind) => {
                if let Some(task_class) = self.by_task_class.get_mut(&kind) {
                    task_class.groups.remove(group, |left, right| order(tables, policy, left, right));
                    if task_class.groups.is_empty() {
                        self.by_task_class.remove(&kind);
                    }
                }
            }
        }
    }

    fn put_in(&mut self, tables: &Tables, policy: &Policy, group: GroupId, slot: GroupSlot) {
        self.slots[group.index()] = slot;
        match slot.slot {
            Slot::Absent => {}
            Slot::OneByOne => {
                self.one_by_one.insert(group);
            }
            Slot::TaskClassGroups(kind) => {
                let order = |left: GroupId, right: GroupId| policy.job_order(tables, left, right);
                self.by_task_class.entry(kind).or_default().groups.insert(group, order);
            }
        }
    }

    /// The task class that the group lies in.
    pub(crate) fn task_class_of(&self, group: GroupId) -> Option<&TaskClassGroups> {
        match self.slots.get(group.index())?.slot {
            Slot::TaskClassGroups(kind) => self.by_task_class.get(&kind),
            _ => None,
        }
    }

    /// The first of the group's pending pods, in task order, where it stands for all of them: they are of one class and
    /// one role, ask for something, and are held back by nothing.
    pub(crate) fn representative(&self, group: GroupId) -> Option<TaskId> {
        self.slots.get(group.index())?.representative
    }
}

/// Whether sizes that were told as parts of the one are good as parts of the other.
fn is_about(before: &[i64], now: &[i64]) -> bool {
    let is_near = |(before, now): (&i64, &i64)| before.abs_diff(*now) <= before.unsigned_abs() / 8;
    before.len() == now.len() && before.iter().zip(now).all(is_near)
}

/// The group's part of what waits; nothing of one that has its minimum. O(its tasks).
fn entry_of(tables: &Tables, policy: &Policy, group: GroupId) -> Option<Entry> {
    if !tables.groups.is_waiting(group) {
        return None;
    }
    let row = tables.groups.row(group);
    if !row.exists() || row.is_coming() || row.awaits_nodes {
        return None;
    }
    let (size, run_ms) = match minimum::only(tables, row) {
        Some(class) => {
            let demand = &tables.classes.row(class).demand;
            (share::dominant_of(demand, &tables.nodes.total), tables.typical_run(group, class))
        }
        None => {
            let missing = minimum::missing(tables, group);
            let run_ms = tables.typical_run_of_all(group, &missing.parts);
            (share::dominant(&missing.total, &tables.nodes.total), run_ms)
        }
    };
    let size = (size / (share::WHOLE / SIZE_WHOLE)).min(SIZE_MAX);
    let shares = policy.shares_among_namespaces(tables, row.queue);
    let namespace = if shares { row.namespace_id } else { NamespaceId::from(0) };
    Some(Entry::new((row.queue, namespace), row.priority, row.created, size, run_ms))
}

/// Job order where both rows are there: a group that is gone is found by its id.
fn order(tables: &Tables, policy: &Policy, left: GroupId, right: GroupId) -> Ordering {
    let there = |group: GroupId| tables.groups.table.get(group.index()).is_some();
    if there(left) && there(right) { policy.job_order(tables, left, right) } else { left.cmp(&right) }
}

fn slot_of(tables: &Tables, policy: &Policy, config: &Config, group: GroupId) -> Slot {
    if !tables.groups.is_waiting(group) {
        return Slot::Absent;
    }
    let row = tables.groups.row(group);
    let unadmitted = row.phase == GroupPhase::Pending && config.has(Action::Enqueue);
    if !row.exists() || unadmitted {
        return Slot::Absent;
    }
    task_class_key_of(tables, policy, group, row).map_or(Slot::OneByOne, Slot::TaskClassGroups)
}

/// See `PendingIndex::representative`. O(its tasks).
fn representative_of(tables: &Tables, policy: &Policy, group: GroupId) -> Option<TaskId> {
    let row = tables.groups.row(group);
    if row.roles.len() != 1 || row.pending_best_effort > 0 {
        return None;
    }
    let mut representative: Option<TaskId> = None;
    for task in row.tasks.iter().copied() {
        let facts = tables.task(task);
        if facts.state != TaskState::Pending {
            continue;
        }
        if !is_free(facts)
            || representative.is_some_and(|representative| tables.task(representative).class != facts.class)
        {
            return None;
        }
        let first =
            representative.is_some_and(|representative| policy.task_order(tables, representative, task).is_le());
        representative = if first { representative } else { Some(task) };
    }
    representative
}

/// Nothing holds the pending pod back.
fn is_free(task: &TaskRow) -> bool {
    !task.gated && !task.gate_passed && task.attempts == 0
}

/// The kind of a group that holds nothing and wants pods of one kind. O(its tasks).
fn task_class_key_of(tables: &Tables, policy: &Policy, group: GroupId, row: &GroupRow) -> Option<TaskClassKey> {
    let pending = row.pending();
    let holds = row.counts.ready() > 0 || row.counts.pipelined() > 0 || row.counts.valid() != row.counts.all();
    let plain = row.phase == GroupPhase::Inqueue && row.roles.len() == 1 && row.pending_best_effort == 0;
    if holds || pending == 0 || !plain || row.topology.is_some() || !row.sub_groups.is_empty() {
        return None;
    }
    let queue = tables.queues.row(row.queue);
    if !queue.may_place() || (row.of_one && !queue.is_open()) || policy.job_valid(tables, group).is_some() {
        return None;
    }
    let first = *row.tasks.first()?;
    let class = tables.task(first).class;
    let tasks = || row.tasks.iter().map(|task| tables.task(*task));
    let preemptable = tables.task(first).preemptable;
    let alike = |task: &TaskRow| task.class == class && task.preemptable == preemptable;
    let simple = tasks().all(|task| alike(task) && task.state == TaskState::Pending && is_free(task));
    if !simple || policy.stands_alone(tables, first) {
        return None;
    }
    let needed = row.min_member.clamp(1, pending);
    let length = length_of(tables.backfills_for(group, class, Confidence::Expected));
    Some(TaskClassKey { queue: row.queue, namespace: row.namespace_id, class, needed, length, preemptable })
}

/// A run's length to a quarter, so that those of about one length are alike: the first of them stands for all where they
/// want to pass a reservation. 0 is endless.
fn length_of(run_ms: Option<i64>) -> u8 {
    let Some(run) = run_ms.and_then(|run| u64::try_from(run).ok()).filter(|run| *run > 0) else { return 0 };
    let bits = 64 - run.leading_zeros();
    let quarter = if bits > 3 { run >> (bits - 3) & 3 } else { 0 };
    u8::try_from(u64::from(bits) * 4 - 3 + quarter).unwrap_or(u8::MAX)
}
