//! Nominated capacity: room that is being freed, kept for those it is freed for.
//!
//! A pod that an action has promised room stays Pipelined past the cycle. Its room counts as taken for all others. It
//! is bound the moment the room is idle, or earlier where it fits elsewhere, with its whole group or not at all; and
//! when the nomination expires it waits like others again. Called at the start of every cycle, before the actions.

use std::collections::BTreeSet;

use super::allocate;
use crate::ids::{GroupId, NodeId, TaskId, TimeMs};
use crate::queue_limit;
use crate::reasons::Failure;
use crate::reasons::{Reason, Stage};
use crate::search::finder::Search;
use crate::session::Session;
use crate::world::tasks::TaskState;

/// A pod whose nomination has expired makes no victims for this long: those it waited for may never leave.
const PAUSE_MS: i64 = 60_000;
/// Nodes that a reason names.
const NODES_NAMED_MAX: usize = 5;

pub(crate) fn settle(session: &mut Session<'_>) {
    let nominated_tasks: Vec<TaskId> = session.tables.nominated.iter().copied().collect();
    let mut groups: BTreeSet<GroupId> = BTreeSet::new();
    for task in nominated_tasks {
        groups.extend(session.tables.task(task).group);
    }
    let mut groups: Vec<GroupId> = groups.into_iter().filter(|group| still_stands(session, *group)).collect();
    groups.sort_by(|left, right| session.policy.job_order(session.tables, *left, *right));
    // What was promised within a share is kept, though shares have changed since: nobody else can use the room.
    session.policy.lending = true;
    for group in groups {
        start(session, group);
        tell(session, group);
    }
    session.policy.lending = false;
}

fn nominated(session: &Session<'_>, group: GroupId) -> Vec<TaskId> {
    let tables = &*session.tables;
    let is_nominated = |task: &TaskId| tables.task(*task).state == TaskState::Pipelined;
    let mut tasks: Vec<TaskId> = tables.groups.row(group).tasks.iter().copied().filter(is_nominated).collect();
    tasks.sort_by(|left, right| session.policy.task_order(tables, *left, *right));
    tasks
}

/// Ends nominations whose time is over or whose node is no use any more; and all of a group that could not start with
/// those that are left. True if any stand.
fn still_stands(session: &mut Session<'_>, group: GroupId) -> bool {
    let mut expired_tasks = Vec::new();
    for task in nominated(session, group) {
        let row = session.tables.task(task);
        let expired = row.nominated_until <= session.now;
        let class = session.tables.classes.row(row.class);
        let useless = row.node.is_none_or(|node| {
            session.policy.check_facts(session.tables, class, node).is_some()
                || session.tables.barred_on(task, node).is_some()
        });
        if expired || useless || !session.tables.groups.row(group).exists() {
            expired_tasks.push((task, expired));
        }
    }
    for (task, expired) in &expired_tasks {
        expire(session, *task, *expired);
    }
    // Others of the group may have left, too.
    if !session.policy.job_pipelined(session.tables, group) {
        for task in nominated(session, group) {
            expire(session, task, false);
        }
    }
    let pods = u32::try_from(expired_tasks.len()).unwrap_or(u32::MAX);
    if expired_tasks.iter().any(|(_, expired)| *expired) {
        let failure = Failure::at(Stage::Allocate, vec![Reason::NominationExpired { pods }]);
        session.failures.entry(group).or_insert(failure);
    }
    !nominated(session, group).is_empty()
}

fn expire(session: &mut Session<'_>, task: TaskId, expired: bool) {
    let node = session.tables.task(task).node;
    session.unpipeline(task);
    if let Some(node) = node {
        session.tables.nodes.release(node);
    }
    if expired {
        let until = session.now.plus_ms(PAUSE_MS);
        session.tables.tasks.row_mut(task.index()).no_nomination_before = until;
        session.wake_at(until);
    }
}

/// Binds what can start, all that the group needs together or nothing.
fn start(session: &mut Session<'_>, group: GroupId) {
    let savepoint = session.tables.savepoint();
    let mut placed = Vec::new();
    for task in nominated(session, group) {
        let Some(promised) = session.tables.task(task).node else { continue };
        session.unpipeline(task);
        match node_for(session, group, task, promised) {
            Some(node) => {
                session.assign(task, node);
                placed.push(task);
            }
            None => session.pipeline(task, promised),
        }
    }
    if !placed.is_empty() && session.policy.job_ready(session.tables, group, allocate::counting(session)) {
        for task in placed {
            allocate::bind(session, group, task);
        }
    } else {
        session.rollback(savepoint);
    }
}

/// A node that can take the pod now: the promised one, else any.
fn node_for(session: &mut Session<'_>, group: GroupId, task: TaskId, promised: NodeId) -> Option<NodeId> {
    let tables = &*session.tables;
    let queue = tables.groups.row(group).queue;
    let class = tables.classes.row(tables.task(task).class);
    let held_back = tables.task(task).not_before > session.now || tables.task(task).gated;
    if held_back
        || !tables.queues.row(queue).may_place()
        || queue_limit::exceeded_by_pod(tables, session.policy, queue, &class.demand).is_some()
        || session.policy.allocatable(tables, queue, task).is_some()
    {
        return None;
    }
    let suits = class.demand.iter().all(|(dim, amount)| amount <= tables.nodes.idle(promised, dim))
        && session.policy.check_use(tables, class, promised).is_none()
        && (!session.policy.is_specific(tables, task) || session.policy.check_task(tables, task, promised).is_none());
    if suits {
        return Some(promised);
    }
    // Where pods have to lie together no other node was chosen with the rest of the group in mind.
    if tables.groups.row(group).wants_domains(&tables.hyper_nodes) {
        return None;
    }
    session.finder.best(session.tables, session.policy, Search::of_task(session.tables, task))
}

/// Why a group whose room is being freed still waits, and until when it is kept.
fn tell(session: &mut Session<'_>, group: GroupId) {
    let tasks = nominated(session, group);
    let until = tasks.iter().map(|task| session.tables.task(*task).nominated_until).min();
    let Some(until) = until else { return };
    session.wake_at(until);
    note(session, group, &tasks, until);
}

/// Puts down that the group waits for room on these nodes.
pub(crate) fn note(session: &mut Session<'_>, group: GroupId, tasks: &[TaskId], until: TimeMs) {
    let nodes: BTreeSet<NodeId> = tasks.iter().filter_map(|task| session.tables.task(*task).node).collect();
    let named = nodes.iter().take(NODES_NAMED_MAX).map(|node| session.tables.node_name(*node).into());
    let reason =
        Reason::RoomIsFreed { pods: u32::try_from(tasks.len()).unwrap_or(u32::MAX), nodes: named.collect(), until };
    session.failures.insert(group, Failure::at(Stage::Allocate, vec![reason]));
}
