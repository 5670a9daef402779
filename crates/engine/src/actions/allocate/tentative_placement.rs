//! A group's turn for an answer: would it start now, what found room, and everything that stands against the rest.
//!
//! Invariant: places pods by the code of a real turn, and changes nothing but the tables' journal, which the caller takes
//! back. Called by `explain`.

use super::{Trial, Wanted, arrange, counting, domains, needed, packing, refusal, tell_of_shares};
use crate::ids::{ClassId, GroupId, NodeId, QueueId, TaskId};
use crate::queue_limit;
use crate::reasons::{NodesUnfit, Reason};
use crate::resource_dims::Demand;
use crate::search::finder::Search;
use crate::session::Session;
use crate::world::tasks::TaskState;

/// What came of it. What was placed stays so only where it starts.
#[derive(Debug, Default)]
pub(crate) struct TentativePlacement {
    /// It has what it needs.
    pub(crate) starts: bool,
    /// Pods that found room, each with its node.
    pub(crate) placed: Vec<(TaskId, NodeId)>,
    /// All that stands against the others.
    pub(crate) reasons: Vec<Reason>,
    /// What nodes say, with the class that they say it to; part of `reasons`.
    pub(crate) unfit: Vec<(ClassId, NodesUnfit)>,
}

impl TentativePlacement {
    fn barred(reason: Reason) -> Self {
        Self { reasons: vec![reason], ..Self::default() }
    }
}

/// Gives an admitted group its turn.
pub(crate) fn place_tentatively(session: &mut Session<'_>, group: GroupId) -> TentativePlacement {
    if let Some(reason) = session.policy.job_valid(session.tables, group) {
        return TentativePlacement::barred(reason);
    }
    let row = session.tables.groups.row(group);
    let queue = row.queue;
    if let Some(reason) = super::barred(session.tables, row) {
        return TentativePlacement::barred(reason);
    }
    let lends = session.policy.fairness.lending;
    let (tentative, by_shares) = match session.policy.overused(session.tables, queue) {
        Some(reason) => (TentativePlacement::barred(reason.clone()), reason.is_of_share()),
        None => attempt(session, group),
    };
    if tentative.starts || !by_shares || !lends {
        return tentative;
    }
    session.policy.lending = true;
    let lent = match session.policy.overused(session.tables, queue) {
        Some(reason) => TentativePlacement::barred(reason),
        None => attempt(session, group).0,
    };
    session.policy.lending = false;
    if lent.starts { lent } else { tentative }
}

/// Also says whether the queue's share was in the way.
fn attempt(session: &mut Session<'_>, group: GroupId) -> (TentativePlacement, bool) {
    let mut wanted = worksheet(session, group);
    let (counting, needed) = (counting(session), needed(session, group));
    let placed_at = |session: &Session<'_>, placed: &[TaskId]| {
        placed.iter().filter_map(|task| Some((*task, session.tables.task(*task).node?))).collect::<Vec<_>>()
    };
    if session.tables.groups.row(group).wants_domains(&session.tables.hyper_nodes) {
        return match domains::place_in_domains(session, group, &wanted, counting) {
            Ok(placed) => (
                TentativePlacement {
                    starts: true,
                    placed: placed_at(session, &placed),
                    ..TentativePlacement::default()
                },
                false,
            ),
            Err(reasons) => {
                let by_shares = tell_of_shares(&reasons);
                (TentativePlacement { reasons, ..TentativePlacement::default() }, by_shares)
            }
        };
    }
    let savepoint = session.tables.savepoint();
    let mut trial = Trial::new(needed);
    let ready = trial.place_all(session, group, &mut wanted, counting);
    let placed = placed_at(session, &trial.placed);
    if ready && !trial.placed.is_empty() {
        return (TentativePlacement { starts: true, placed, ..TentativePlacement::default() }, false);
    }
    let mut tentative = TentativePlacement { placed, ..TentativePlacement::default() };
    stands_against(session, group, &trial, &wanted, &mut tentative);
    let mut by_shares = tell_of_shares(&tentative.reasons) || tell_of_shares(&trial.reasons);
    session.rollback(savepoint);
    if needed > 1 && wanted.uniform.is_none() {
        wanted.next = 0;
        match packing::another_way(session, group, &mut wanted, counting, &mut 1) {
            Ok(other) => {
                let placed = placed_at(session, &other.placed);
                return (TentativePlacement { starts: true, placed, ..TentativePlacement::default() }, false);
            }
            Err(also) => by_shares |= also,
        }
    }
    (tentative, by_shares)
}

/// The pods that could be placed now; gates stay closed.
fn worksheet(session: &Session<'_>, group: GroupId) -> Wanted {
    let (mut tasks, mut reserve) = (Vec::new(), Vec::new());
    for task in session.tables.groups.row(group).tasks.iter().copied() {
        let row = session.tables.task(task);
        if row.state == TaskState::Pending && !row.gated && row.not_before <= session.now {
            if row.best_effort { reserve.push(task) } else { tasks.push(task) }
        }
    }
    arrange(session, group, tasks, reserve)
}

/// For each class that found no room: all that its queue has against it, and all that the nodes have, where none fits.
fn stands_against(
    session: &mut Session<'_>,
    group: GroupId,
    trial: &Trial,
    wanted: &Wanted,
    tentative: &mut TentativePlacement,
) {
    let queue = session.tables.groups.row(group).queue;
    let mut told: Vec<ClassId> = Vec::new();
    for task in wanted.tasks.iter().chain(&wanted.reserve).copied() {
        let row = session.tables.task(task);
        let class = row.class;
        if row.state != TaskState::Pending || !trial.failed.contains(&class) || told.contains(&class) {
            continue;
        }
        told.push(class);
        if told.len() > super::REASONS_MAX {
            break;
        }
        for reason in objections(session, queue, task) {
            if !tentative.reasons.contains(&reason) {
                tentative.reasons.push(reason);
            }
        }
        if session.finder.best(session.tables, session.policy, Search::of_task(session.tables, task)).is_some() {
            continue;
        }
        let of_class = |other: &&TaskId| session.tables.task(**other).class == class;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let found_room = count(trial.placed.iter().filter(of_class).count());
        let waiting = |other: &&TaskId| of_class(other) && session.tables.task(**other).state == TaskState::Pending;
        let all = found_room + count(wanted.tasks.iter().filter(waiting).count());
        let reason = refusal::unfit(session, group, task, trial.needed, found_room, all.max(1));
        if let Reason::NodesUnfit(unfit) = &reason {
            tentative.unfit.push((class, unfit.clone()));
        }
        tentative.reasons.push(reason);
    }
}

/// Everything that stands in the way of one more pod but the nodes, each resource by itself.
fn objections(session: &Session<'_>, queue: QueueId, task: TaskId) -> Vec<Reason> {
    let row = session.tables.task(task);
    let demand = &session.tables.classes.row(row.class).demand;
    let mut found: Vec<Reason> =
        queue_limit::all_exceeded_by_pod(session.tables, session.policy, queue, demand).collect();
    if !row.gate_passed {
        let single = |part| Demand(std::iter::once(part).collect());
        let of_plugins = demand.iter().flat_map(|part| session.policy.objections(session.tables, queue, &single(part)));
        let of_task = session.policy.allocatable_task(session.tables, queue, task);
        for reason in of_plugins.chain(of_task).collect::<Vec<_>>() {
            if !found.iter().any(|other| other.is_about_as(&reason)) {
                found.push(reason);
            }
        }
    }
    found
}
