//! Gangs of several kinds of pods that taking them in order found no room for: which of its pods a gang starts with,
//! and where, is tried out, all ways of it where nodes and pods are few.
//!
//! Bounds: so many pods, nodes for each kind and steps for one gang; what is beyond them waits. Called by `allocate`,
//! and by `enqueue` for groups whose pods exist.

use std::cmp::Reverse;

use super::{Trial, Wanted, needed, objection, tell_of_shares};
use crate::ids::{ClassId, GroupId, NodeId, TaskId};
use crate::reasons::Reason;
use crate::session::Session;
use crate::world::tables::Tables;
use crate::world::tasks::Counting;
use crate::world::tasks::TaskState;

/// Gangs in one action: the first in order.
pub(crate) const GANGS_MAX: u32 = 64;
/// Larger gangs leave little room unused that one more try would find.
const PODS_MAX: usize = 32;
/// Nodes tried for one kind of pod, those with the least room to spare.
const NODES_MAX: usize = 8;
const STEPS_MAX: u32 = 1_024;

struct Packing {
    group: GroupId,
    counting: Counting,
    /// The largest first, those that are alike one after the other.
    tasks: Vec<TaskId>,
    /// Where each could go at the start.
    nodes: Vec<Vec<NodeId>>,
    steps: u32,
    placed: Vec<TaskId>,
    /// The queue's share has been in the way.
    by_shares: bool,
}

/// For a gang of several kinds of pods: small pods may have taken the room that only a large one needs. Where there is
/// no other way: whether its queue's share was in the way of one.
pub(super) fn another_way(
    session: &mut Session<'_>,
    group: GroupId,
    wanted: &mut Wanted,
    counting: Counting,
    packings_left: &mut u32,
) -> Result<Trial, bool> {
    let (savepoint, needed) = (session.tables.savepoint(), needed(session, group));
    largest_first(session, wanted, needed);
    let mut trial = Trial::new(needed);
    if trial.place_all(session, group, wanted, counting) {
        return Ok(trial);
    }
    session.rollback(savepoint);
    let by_shares = tell_of_shares(&trial.reasons);
    let Some(left) = packings_left.checked_sub(1) else { return Err(by_shares) };
    *packings_left = left;
    let tasks: Vec<TaskId> = wanted.tasks.iter().chain(&wanted.reserve).copied().collect();
    let placed = place_largest_first(session, group, &tasks, counting).map_err(|also| by_shares || also)?;
    // It starts: no turn after this one needs those that ask for nothing.
    wanted.tasks.retain(|task| session.tables.task(*task).state == TaskState::Pending);
    wanted.reserve.clear();
    wanted.next = 0;
    Ok(Trial { placed, ..Trial::new(needed) })
}

/// Orders the pods of the minimum by size, the largest first. They stand first in the worksheet.
fn largest_first(session: &Session<'_>, wanted: &mut Wanted, needed: u32) {
    let minimum = wanted.tasks.len().min(needed as usize);
    wanted.tasks[..minimum].sort_by_key(|task| Reverse(session.tables.size(session.tables.task(*task).class)));
    wanted.next = 0;
}

/// Gives nodes to as many of `tasks`, in their order, as the group needs to start, or changes nothing and says whether
/// its queue's share was in the way.
pub(crate) fn place_largest_first(
    session: &mut Session<'_>,
    group: GroupId,
    tasks: &[TaskId],
    counting: Counting,
) -> Result<Vec<TaskId>, bool> {
    let row = session.tables.groups.row(group);
    let alone = |task: &TaskId| session.tables.is_tied(*task) || session.policy.is_specific(session.tables, *task);
    let bounded = tasks.len() <= PODS_MAX && !row.wants_domains(&session.tables.hyper_nodes);
    if !bounded || tasks.iter().any(alone) {
        return Err(false);
    }
    let tasks = by_size(session.tables, tasks);
    let mut nodes: Vec<Vec<NodeId>> = Vec::with_capacity(tasks.len());
    for (at, task) in tasks.iter().enumerate() {
        let class = session.tables.task(*task).class;
        let known = at > 0 && session.tables.task(tasks[at - 1]).class == class;
        nodes.push(if known { nodes[at - 1].clone() } else { candidates(session, class) });
    }
    let mut packing = Packing { group, counting, tasks, nodes, steps: STEPS_MAX, placed: Vec::new(), by_shares: false };
    if packing.search(session, 0, 0) { Ok(packing.placed) } else { Err(packing.by_shares) }
}

/// The largest first, and those that are alike after the first of them.
fn by_size(tables: &Tables, tasks: &[TaskId]) -> Vec<TaskId> {
    let mut kinds: Vec<(ClassId, u32)> = Vec::new();
    for kind in tasks.iter().map(|task| kind(tables, *task)) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut tasks = tasks.to_vec();
    tasks.sort_by_key(|task| {
        let kind = kind(tables, *task);
        (Reverse(tables.size(kind.0)), kinds.iter().position(|other| *other == kind))
    });
    tasks
}

/// Pods equal in this are alike.
fn kind(tables: &Tables, task: TaskId) -> (ClassId, u32) {
    let row = tables.task(task);
    (row.class, row.role)
}

/// The nodes that fit now, those with the least room to spare first.
fn candidates(session: &mut Session<'_>, class: ClassId) -> Vec<NodeId> {
    let mut nodes = session.finder.fitting(session.tables, session.policy, class);
    let tables = &*session.tables;
    let demand = &tables.classes.row(class).demand;
    let spare = |node: &NodeId| {
        let parts = demand.iter().map(|(dim, amount)| tables.nodes.idle(*node, dim).saturating_sub(amount) / amount);
        (parts.min().unwrap_or(0), *node)
    };
    nodes.sort_by_cached_key(spare);
    nodes.truncate(NODES_MAX);
    nodes
}

impl Packing {
    /// Places the pods from `at` on, one that is like the one before it on no earlier node than that.
    fn search(&mut self, session: &mut Session<'_>, at: usize, from: usize) -> bool {
        if !self.placed.is_empty() && session.policy.job_ready(session.tables, self.group, self.counting) {
            return true;
        }
        let left = self.tasks.len() - at + session.tables.groups.row(self.group).pending_best_effort as usize;
        if at == self.tasks.len() || self.steps == 0 || left < needed(session, self.group) as usize {
            return false;
        }
        self.steps -= 1;
        let task = self.tasks[at];
        let like = |other: &&TaskId| kind(session.tables, **other) == kind(session.tables, task);
        let alike = self.tasks[at..].iter().take_while(like).count();
        if self.allowed(session, task) {
            for choice in from..self.nodes[at].len() {
                let node = self.nodes[at][choice];
                if !fits(session, task, node) {
                    continue;
                }
                let savepoint = session.tables.savepoint();
                session.assign(task, node);
                self.placed.push(task);
                if self.search(session, at + 1, if alike > 1 { choice } else { 0 }) {
                    return true;
                }
                self.placed.pop();
                session.rollback(savepoint);
            }
        }
        // Without this one, and those like it.
        self.search(session, at + alike, 0)
    }

    fn allowed(&mut self, session: &Session<'_>, task: TaskId) -> bool {
        let queue = session.tables.groups.row(self.group).queue;
        let objection = objection(session, queue, task);
        self.by_shares |= objection.as_ref().is_some_and(Reason::is_of_share);
        objection.is_none()
    }
}

fn fits(session: &Session<'_>, task: TaskId, node: NodeId) -> bool {
    let class = session.tables.classes.row(session.tables.task(task).class);
    session.tables.nodes.fits(node, &class.demand) && session.policy.check_use(session.tables, class, node).is_none()
}
