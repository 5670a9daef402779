//! `preempt`: starving groups take room from others of their queue, then pods from others of their own group.
//!
//! A group's minimum is decided as one: all its victims are found before any of them leaves. Follows Volcano's action;
//! but whoever can have room that is being freed anyway makes no victims, and nobody leaves in vain.

use rustc_hash::FxHashSet;

use super::candidates::PreemptionCandidates;
use super::cheapest::Choice;
use super::preemptors;
use super::statement::Statement;
use super::victim_search::{From, VictimSearch};
use crate::actions::fair_share_order::Outcome;
use crate::actions::reserve;
use crate::config::Switch;
use crate::ids::{ClassId, GroupId, QueueId, TaskId};
use crate::session::Session;

/// Its name, as evictions give it.
pub(super) const NAME: &str = "preempt";

/// Groups of one kind of pod that are equal in this fail alike until something is committed.
type FailedMemo = FxHashSet<FailureKey>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FailureKey {
    queue: QueueId,
    class: ClassId,
    /// What plugins read of the preemptor.
    victim_key: u64,
    min_member: u32,
    pods: usize,
}

pub(crate) fn run(session: &mut Session<'_>) {
    let choice = Choice::for_preempt(session.config);
    let mut candidates = PreemptionCandidates::default();
    let mut failed_memo = FailedMemo::default();
    let mut started = Vec::new();
    let mut order = preemptors::order(session, preemptors::may_preempt);
    while let Some(turn) = order.pop() {
        let outcome = if preemptors::may_preempt(session, turn.group) {
            if session.tables.groups.row(turn.group).has_placed() {
                started.push(turn.group);
            }
            reserve::with_its_own(session, turn.group, |session| {
                from_others(session, &mut candidates, choice, turn.group, &mut failed_memo)
            })
        } else {
            Outcome::Stuck
        };
        order.put_back(session.tables, session.policy, session.pending_index, turn, outcome);
    }
    for group in started {
        if preemptors::may_preempt(session, group) {
            from_own(session, &mut candidates, choice, group);
        }
    }
}

/// All that the group's minimum needs from other groups of the queue, or nothing.
fn from_others(
    session: &mut Session<'_>,
    candidates: &mut PreemptionCandidates,
    choice: Choice,
    group: GroupId,
    failed_memo: &mut FailedMemo,
) -> Outcome {
    let tasks = preemptors::pods(session, group);
    if tasks.is_empty() {
        return Outcome::Done;
    }
    let key = failure_key(session, group, &tasks);
    if key.is_some_and(|key| failed_memo.contains(&key)) {
        return Outcome::Stuck;
    }
    let mut statement = Statement::new(session, NAME, group);
    let mut failed: FxHashSet<(ClassId, bool)> = FxHashSet::default();
    for task in tasks {
        if !session.policy.job_starving(session.tables, group) {
            break;
        }
        let search = VictimSearch::new(session, From::Queue, group, task);
        if failed.contains(&(search.class, search.specific)) {
            continue;
        }
        match choice.find(session, candidates, &search) {
            Some(room) => statement.take(session, task, &room),
            None if search.specific => {}
            None => {
                failed.insert((search.class, search.specific));
            }
        }
    }
    let pipelined = statement.promised() > 0 && session.policy.job_pipelined(session.tables, group);
    if statement.end(session, pipelined) {
        candidates.committed();
        failed_memo.clear();
        Outcome::Done
    } else {
        candidates.discarded();
        failed_memo.extend(key);
        Outcome::Stuck
    }
}

/// Pods of the group make less important ones of it leave.
fn from_own(session: &mut Session<'_>, candidates: &mut PreemptionCandidates, choice: Choice, group: GroupId) {
    for task in preemptors::pods(session, group) {
        let search = VictimSearch::new(session, From::Group, group, task);
        if !candidates.may_find(session, &search) {
            // Room without victims is not what is looked for.
            candidates.discarded();
            return;
        }
        let mut statement = Statement::new(session, NAME, group);
        let Some(room) = choice.find(session, candidates, &search).filter(|room| !room.victims.is_empty()) else {
            candidates.discarded();
            return;
        };
        statement.take(session, task, &room);
        let pipelined = session.policy.job_pipelined(session.tables, group);
        if statement.end(session, pipelined) {
            candidates.committed();
        } else {
            candidates.discarded();
            return;
        }
    }
}

/// Under what the group's failure tells of others; nothing where it wants pods of several kinds.
fn failure_key(session: &Session<'_>, group: GroupId, tasks: &[TaskId]) -> Option<FailureKey> {
    let (tables, row) = (&*session.tables, session.tables.groups.row(group));
    let first = *tasks.first()?;
    let class = tables.task(first).class;
    let alike = !row.has_placed() && tasks.iter().all(|task| tables.task(*task).class == class);
    let victim_key = session.policy.victim_key(tables, Switch::Preemptable, first)?;
    if !alike || session.policy.is_specific(tables, first) {
        return None;
    }
    Some(FailureKey { queue: row.queue, class, victim_key, min_member: row.min_member, pods: tasks.len() })
}
