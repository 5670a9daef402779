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
use crate::session::Cycle;

/// Its name, as evictions give it.
const NAME: &str = "reclaim";

pub(crate) fn run(cycle: &mut Cycle<'_>) {
    let choice = Choice::for_reclaim(cycle.config);
    let mut candidates = PreemptionCandidates::default();
    let mut walk = preemptors::walk(cycle, preemptors::may_preempt);
    while let Some(turn) = walk.pop() {
        if cycle.policy.overused(cycle.tables, turn.queue).is_some() {
            walk.drop_queue(turn);
            continue;
        }
        let starving = preemptors::may_preempt(cycle, turn.group);
        let outcome = match starving {
            true => {
                reserve::with_its_own(cycle, turn.group, |cycle| reclaim(cycle, &mut candidates, choice, turn.group))
            }
            false => Outcome::Stuck,
        };
        walk.put_back(cycle.tables, cycle.policy, cycle.pending_index, turn, outcome);
    }
}

fn reclaim(cycle: &mut Cycle<'_>, candidates: &mut PreemptionCandidates, choice: Choice, group: GroupId) -> Outcome {
    let tasks = preemptors::pods(cycle, group);
    if tasks.is_empty() {
        return Outcome::Done;
    }
    let mut statement = Statement::new(cycle, NAME, group);
    let mut failed = rustc_hash::FxHashSet::default();
    for task in tasks {
        // Victims leave for its minimum, not for all the pods that happen to be there.
        if !cycle.policy.job_starving(cycle.tables, group) {
            break;
        }
        let search = VictimSearch::new(cycle, From::OtherQueues, group, task);
        let demand = &cycle.tables.classes.row(search.class).demand;
        if failed.contains(&search.class) || !cycle.policy.preemptive(cycle.tables, search.queue, demand) {
            continue;
        }
        match choice.find(cycle, candidates, &search) {
            Some(room) => statement.take(cycle, task, &room),
            None if search.specific => {}
            None => {
                failed.insert(search.class);
            }
        }
    }
    let pipelined = statement.promised() > 0 && cycle.policy.job_pipelined(cycle.tables, group);
    if statement.end(cycle, pipelined) {
        candidates.committed();
        Outcome::Done
    } else {
        candidates.discarded();
        Outcome::Stuck
    }
}
