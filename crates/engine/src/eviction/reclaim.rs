//! `reclaim`: starving groups take room from queues that hold more than their share.
//!
//! Follows Volcano's action, but prefers nodes by score, takes pods that don't run yet before those that do, and never
//! lets queues take the same room from each other in turns (`potential`).

use super::candidates::PreemptionCandidates;
use super::cheapest::Choice;
use super::preemptors;
use super::statement::Statement;
use super::victim_search::{From, VictimSearch};
use crate::actions::fair_share_order::Outcome;
use crate::actions::reserve;
use crate::ids::GroupId;
use crate::session::Session;

/// Its name, as evictions give it.
const NAME: &str = "reclaim";

pub(crate) fn run(session: &mut Session<'_>) {
    let choice = Choice::for_reclaim(session.config);
    let mut candidates = PreemptionCandidates::default();
    let mut order = preemptors::order(session, preemptors::may_preempt);
    while let Some(turn) = order.pop() {
        if session.policy.overused(session.tables, turn.queue).is_some() {
            order.drop_queue(turn);
            continue;
        }
        let starving = preemptors::may_preempt(session, turn.group);
        let outcome = match starving {
            true => reserve::with_its_own(session, turn.group, |session| {
                reclaim(session, &mut candidates, choice, turn.group)
            }),
            false => Outcome::Stuck,
        };
        order.put_back(session.tables, session.policy, session.pending_index, turn, outcome);
    }
}

fn reclaim(
    session: &mut Session<'_>,
    candidates: &mut PreemptionCandidates,
    choice: Choice,
    group: GroupId,
) -> Outcome {
    let tasks = preemptors::pods(session, group);
    if tasks.is_empty() {
        return Outcome::Done;
    }
    let mut statement = Statement::new(session, NAME, group);
    let mut failed = rustc_hash::FxHashSet::default();
    for task in tasks {
        // Victims leave for its minimum, not for all the pods that happen to be there.
        if !session.policy.job_starving(session.tables, group) {
            break;
        }
        let search = VictimSearch::new(session, From::OtherQueues, group, task);
        let demand = &session.tables.classes.row(search.class).demand;
        if failed.contains(&search.class) || !session.policy.preemptive(session.tables, search.queue, demand) {
            continue;
        }
        match choice.find(session, candidates, &search) {
            Some(room) => statement.take(session, task, &room),
            None if search.specific => {}
            None => {
                failed.insert(search.class);
            }
        }
    }
    let pipelined = statement.promised() > 0 && session.policy.job_pipelined(session.tables, group);
    if statement.end(session, pipelined) {
        candidates.committed();
        Outcome::Done
    } else {
        candidates.discarded();
        Outcome::Stuck
    }
}
