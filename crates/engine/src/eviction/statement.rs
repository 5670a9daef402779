//! Evictions and promises that stand or fall together, and what the plan says of them: each eviction with its
//! record. Used by all actions that make victims.

use super::candidates::Room;
use crate::actions::allocate::counting;
use crate::actions::nominated_capacity;
use crate::facts::{NodeName, ObjectName};
use crate::ids::{GroupId, NodeId, TaskId};
use crate::plan::{Eviction, Pipelined};
use crate::resource_dims::CPU;
use crate::search::finder::Search;
use crate::session::Session;
use crate::world::journal::Savepoint;
use crate::world::tasks::Counting;
use crate::world::tasks::{Evicting, TaskState};

/// Longest time that a pod is given to end.
const GRACE_MAX_MS: i64 = 3_600_000;

/// What an action has done for one group and not decided yet.
#[derive(Debug)]
pub(crate) struct Statement {
    action: &'static str,
    group: GroupId,
    savepoint: Savepoint,
    /// With what they were.
    victims: Vec<(TaskId, TaskState)>,
    promised: Vec<TaskId>,
}

impl Statement {
    pub(crate) fn new(session: &Session<'_>, action: &'static str, group: GroupId) -> Self {
        let savepoint = session.tables.savepoint();
        Self { action, group, savepoint, victims: Vec::new(), promised: Vec::new() }
    }

    /// Counts a pod as leaving.
    pub(crate) fn evict(&mut self, session: &mut Session<'_>, victim: TaskId) {
        self.victims.push((victim, session.tables.task(victim).state));
        session.evict(victim);
    }

    /// Promises a pod of the group room on `node`.
    pub(crate) fn promise(&mut self, session: &mut Session<'_>, task: TaskId, node: NodeId) {
        session.pipeline(task, node);
        self.promised.push(task);
    }

    /// Both, for a pod that has found room.
    pub(super) fn take(&mut self, session: &mut Session<'_>, task: TaskId, room: &Room) {
        for victim in &room.victims {
            self.evict(session, *victim);
        }
        self.promise(session, task, room.node);
    }

    pub(crate) fn promised(&self) -> usize {
        self.promised.len()
    }

    /// Decides it, or takes it back. True if it has been decided.
    pub(crate) fn end(self, session: &mut Session<'_>, decided: bool) -> bool {
        if decided {
            return self.commit(session);
        }
        self.discard(session);
        false
    }

    /// Takes all of it back.
    pub(crate) fn discard(self, session: &mut Session<'_>) {
        session.rollback(self.savepoint);
    }

    /// Decides it: the victims leave, and the room is kept for the group until the nomination expires. What nobody has to
    /// leave for, and fits this moment, is left to allocate: then it is taken back and the answer is false.
    pub(crate) fn commit(mut self, session: &mut Session<'_>) -> bool {
        if !self.complete(session) {
            self.discard(session);
            return false;
        }
        if self.promised.is_empty() || (self.victims.is_empty() && self.fits_now(session)) {
            self.discard(session);
            return false;
        }
        let leaving_ms = session.config.leaving_ms();
        let grace = self.victims.iter().map(|(victim, _)| session.tables.task(*victim).grace_ms.unwrap_or(leaving_ms));
        let grace_ms = grace.max().unwrap_or(leaving_ms).clamp(0, GRACE_MAX_MS);
        let until = session.now.plus_ms(grace_ms).plus_ms(session.config.nomination_ms());
        let beneficiary = session.tables.groups.row(self.group).key();
        for (victim, was) in self.victims {
            evict(session, self.action, victim, was, Some(&beneficiary));
        }
        nominated_capacity::note(session, self.group, &self.promised, until);
        for task in self.promised {
            let row = session.tables.tasks.row_mut(task.index());
            row.nominated_until = until;
            let row = session.tables.task(task);
            let node = row.node.expect("a promise names a node");
            session.plan.pipelined.push(Pipelined {
                uid: (&*row.uid).into(),
                namespace: row.namespace.to_string(),
                name: row.name.to_string(),
                node: session.tables.node_name(node).into(),
                group: beneficiary.clone(),
                fenced: true,
            });
        }
        session.wake_at(until);
        true
    }

    /// Promises room to as many pods that ask for nothing as the minimum counts on. False if there is none for them.
    fn complete(&mut self, session: &mut Session<'_>) -> bool {
        let counting = counting(session);
        let row = session.tables.groups.row(self.group);
        let held = row.counts.ready() + row.counts.pipelined();
        let short = row.min_member.saturating_sub(held).min(row.pending_best_effort) as usize;
        if short == 0 || counting == Counting::WithBestEffort {
            return true;
        }
        // Where no plugin cares about minima the group is ready as it is.
        if session.policy.job_ready(session.tables, self.group, counting) {
            return true;
        }
        let idle = |task: &TaskId| {
            let row = session.tables.task(*task);
            row.state == TaskState::Pending && row.best_effort && !row.gated
        };
        let mut tasks: Vec<TaskId> = row.tasks.iter().copied().filter(idle).collect();
        tasks.sort_by(|left, right| session.policy.task_order(session.tables, *left, *right));
        let mut found = 0;
        for task in tasks {
            let search = Search::of_task(session.tables, task);
            let Some(node) = session.finder.best(session.tables, session.policy, search) else { continue };
            self.promise(session, task, node);
            found += 1;
            if found == short {
                return true;
            }
        }
        false
    }

    fn fits_now(&self, session: &Session<'_>) -> bool {
        let nodes = &session.tables.nodes;
        self.promised.iter().all(|task| {
            let row = session.tables.task(*task);
            let demand = &session.tables.classes.row(row.class).demand;
            let Some(node) = row.node else { return false };
            demand.iter().all(|(dim, _)| nodes.future_idle(node, dim) >= nodes.releasing(node, dim))
        })
    }
}

/// A pod that is to leave, and the state that it was in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Victim {
    pub(crate) task: TaskId,
    pub(crate) was: TaskState,
}

/// Puts one eviction into the plan. The pod counts as leaving already.
pub(crate) fn evict(
    session: &mut Session<'_>,
    action: &'static str,
    victim: TaskId,
    was: TaskState,
    beneficiary: Option<&ObjectName>,
) {
    let message = match beneficiary {
        Some(_) if action.ends_with("reclaim") => "its queue holds more than its share",
        Some(_) => "it comes after that in its queue",
        None => "it is to run elsewhere",
    };
    evict_saying(session, action, Victim { task: victim, was }, beneficiary, message.to_owned());
}

/// The same, with what people are told.
pub(crate) fn evict_saying(
    session: &mut Session<'_>,
    action: &'static str,
    Victim { task: victim, was }: Victim,
    beneficiary: Option<&ObjectName>,
    message: String,
) {
    if let Some(beneficiary) = beneficiary {
        session.tables.note_eviction(action, victim, beneficiary, session.now);
    }
    let row = session.tables.tasks.row_mut(victim.index());
    row.evicting =
        Some(Box::new(Evicting { was, beneficiary: beneficiary.map(|group| group.as_str().into()), confirmed: false }));
    session.tables.evicting.insert(victim);
    let row = session.tables.task(victim);
    let running = was == TaskState::Running;
    let ran_ms = match row.started {
        Some(since) if running => session.now.0.saturating_sub(since.0).max(0),
        _ => 0,
    };
    let cpu_milli = session.tables.classes.row(row.class).demand.get(CPU);
    let lost = i128::from(ran_ms) * i128::from(cpu_milli) / 1_000;
    let eviction = Eviction {
        uid: (&*row.uid).into(),
        namespace: row.namespace.to_string(),
        name: row.name.to_string(),
        node: row.node.map_or_else(NodeName::default, |node| session.tables.node_name(node).into()),
        group: row.group.map_or_else(ObjectName::default, |group| session.tables.groups.row(group).key()),
        action: action.to_owned(),
        beneficiary: beneficiary.cloned(),
        running,
        lost_core_ms: i64::try_from(lost).unwrap_or(i64::MAX),
        message,
    };
    session.plan.evictions.push(eviction);
}
