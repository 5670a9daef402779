//! Fences: room that is being freed, kept for those it is freed for.
//!
//! A pod that an action has promised room stays Pipelined past the cycle. Its room counts as taken for all others. It
//! is bound the moment the room is idle, or earlier where it fits elsewhere, with its whole group or not at all; and
//! when the fence falls it waits like others again. Called at the start of every cycle, before the actions.

use std::collections::BTreeSet;

use super::allocate;
use crate::ids::{GroupId, NodeId, TaskId, TimeMs};
use crate::queue_limit;
use crate::reasons::Failure;
use crate::reasons::{Reason, Stage};
use crate::search::finder::Search;
use crate::session::Cycle;
use crate::world::tasks::TaskState;

/// A pod whose fence has fallen makes no victims for this long: those it waited for may never leave.
const PAUSE_MS: i64 = 60_000;
/// Nodes that a reason names.
const NODES_NAMED_MAX: usize = 5;

pub(crate) fn settle(cycle: &mut Cycle<'_>) {
    let nominated_tasks: Vec<TaskId> = cycle.tables.nominated.iter().copied().collect();
    let mut groups: BTreeSet<GroupId> = BTreeSet::new();
    for task in nominated_tasks {
        groups.extend(cycle.tables.task(task).group);
    }
    let mut groups: Vec<GroupId> = groups.into_iter().filter(|group| still_stands(cycle, *group)).collect();
    groups.sort_by(|left, right| cycle.policy.job_order(cycle.tables, *left, *right));
    // What was promised within a share is kept, though shares have changed since: nobody else can use the room.
    cycle.policy.lending = true;
    for group in groups {
        start(cycle, group);
        tell(cycle, group);
    }
    cycle.policy.lending = false;
}

fn nominated(cycle: &Cycle<'_>, group: GroupId) -> Vec<TaskId> {
    let tables = &*cycle.tables;
    let is_nominated = |task: &TaskId| tables.task(*task).state == TaskState::Pipelined;
    let mut tasks: Vec<TaskId> = tables.groups.row(group).tasks.iter().copied().filter(is_nominated).collect();
    tasks.sort_by(|left, right| cycle.policy.task_order(tables, *left, *right));
    tasks
}

/// Lets fences fall whose time is over or whose node is no use any more; and all of a group that could not start with
/// those that are left. True if any stand.
fn still_stands(cycle: &mut Cycle<'_>, group: GroupId) -> bool {
    let mut expired_tasks = Vec::new();
    for task in nominated(cycle, group) {
        let row = cycle.tables.task(task);
        let expired = row.nominated_until <= cycle.now;
        let class = cycle.tables.classes.row(row.class);
        let useless = row.node.is_none_or(|node| {
            cycle.policy.check_facts(cycle.tables, class, node).is_some()
                || cycle.tables.barred_on(task, node).is_some()
        });
        if expired || useless || !cycle.tables.groups.row(group).exists() {
            expired_tasks.push((task, expired));
        }
    }
    for (task, expired) in &expired_tasks {
        expire(cycle, *task, *expired);
    }
    // Others of the group may have left, too.
    if !cycle.policy.job_pipelined(cycle.tables, group) {
        for task in nominated(cycle, group) {
            expire(cycle, task, false);
        }
    }
    let pods = u32::try_from(expired_tasks.len()).unwrap_or(u32::MAX);
    if expired_tasks.iter().any(|(_, expired)| *expired) {
        let failure = Failure::at(Stage::Allocate, vec![Reason::NominationExpired { pods }]);
        cycle.failures.entry(group).or_insert(failure);
    }
    !nominated(cycle, group).is_empty()
}

fn expire(cycle: &mut Cycle<'_>, task: TaskId, expired: bool) {
    let node = cycle.tables.task(task).node;
    cycle.unpipeline(task);
    if let Some(node) = node {
        cycle.tables.nodes.release(node);
    }
    if expired {
        let until = cycle.now.plus_ms(PAUSE_MS);
        cycle.tables.tasks.row_mut(task.index()).no_nomination_before = until;
        cycle.wake_at(until);
    }
}

/// Binds what can start, all that the group needs together or nothing.
fn start(cycle: &mut Cycle<'_>, group: GroupId) {
    let savepoint = cycle.tables.savepoint();
    let mut placed = Vec::new();
    for task in nominated(cycle, group) {
        let Some(promised) = cycle.tables.task(task).node else { continue };
        cycle.unpipeline(task);
        match node_for(cycle, group, task, promised) {
            Some(node) => {
                cycle.assign(task, node);
                placed.push(task);
            }
            None => cycle.pipeline(task, promised),
        }
    }
    if !placed.is_empty() && cycle.policy.job_ready(cycle.tables, group, allocate::counting(cycle)) {
        for task in placed {
            allocate::bind(cycle, group, task);
        }
    } else {
        cycle.rollback(savepoint);
    }
}

/// A node that can take the pod now: the promised one, else any.
fn node_for(cycle: &mut Cycle<'_>, group: GroupId, task: TaskId, promised: NodeId) -> Option<NodeId> {
    let tables = &*cycle.tables;
    let queue = tables.groups.row(group).queue;
    let class = tables.classes.row(tables.task(task).class);
    let held_back = tables.task(task).not_before > cycle.now || tables.task(task).gated;
    if held_back
        || !tables.queues.row(queue).may_place()
        || queue_limit::exceeded_by_pod(tables, cycle.policy, queue, &class.demand).is_some()
        || cycle.policy.allocatable(tables, queue, task).is_some()
    {
        return None;
    }
    let suits = class.demand.iter().all(|(dim, amount)| amount <= tables.nodes.idle(promised, dim))
        && cycle.policy.check_use(tables, class, promised).is_none()
        && (!cycle.policy.is_specific(tables, task) || cycle.policy.check_task(tables, task, promised).is_none());
    if suits {
        return Some(promised);
    }
    // Where pods have to lie together no other node was chosen with the rest of the group in mind.
    if tables.groups.row(group).wants_domains(&tables.hyper_nodes) {
        return None;
    }
    cycle.finder.best(cycle.tables, cycle.policy, Search::of_task(cycle.tables, task))
}

/// Why a group whose room is being freed still waits, and until when it is kept.
fn tell(cycle: &mut Cycle<'_>, group: GroupId) {
    let tasks = nominated(cycle, group);
    let until = tasks.iter().map(|task| cycle.tables.task(*task).nominated_until).min();
    let Some(until) = until else { return };
    cycle.wake_at(until);
    note(cycle, group, &tasks, until);
}

/// Puts down that the group waits for room on these nodes.
pub(crate) fn note(cycle: &mut Cycle<'_>, group: GroupId, tasks: &[TaskId], until: TimeMs) {
    let nodes: BTreeSet<NodeId> = tasks.iter().filter_map(|task| cycle.tables.task(*task).node).collect();
    let named = nodes.iter().take(NODES_NAMED_MAX).map(|node| cycle.tables.node_name(*node).to_string());
    let reason =
        Reason::RoomIsFreed { pods: u32::try_from(tasks.len()).unwrap_or(u32::MAX), nodes: named.collect(), until };
    cycle.failures.insert(group, Failure::at(Stage::Allocate, vec![reason]));
}
