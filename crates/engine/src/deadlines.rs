//! Groups with a deadline: who of them will miss it, as far as can be told now.
//!
//! Invariant: a group is told of once, at the first look that finds it late, and again only if it was on time meanwhile.
//! Looked at when what runs is looked at anew; called by `cycle_end`. O(groups with a deadline and their pods).

use crate::facts::GroupPhase;
use crate::ids::{GroupId, TaskId, TimeMs};
use crate::plan::Late;
use crate::search::start_estimate::{Guess, Look};
use crate::session::Session;
use crate::world::end_times::Confidence;
use crate::world::groups::GroupRow;
use crate::world::minimum::missing;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Groups looked at: the nearest deadlines.
const LOOKED_AT_MAX: usize = 1_024;

/// Puts down who will be late, and was not told so.
pub(crate) fn look(session: &mut Session<'_>) {
    let nearest: Vec<GroupId> =
        session.tables.groups.deadlines.iter().take(LOOKED_AT_MAX).map(|(_, group)| *group).collect();
    for group in nearest {
        let row = session.tables.groups.row(group);
        let Some(deadline) = row.deadline else { continue };
        if row.ended || row.phase == GroupPhase::Completed {
            continue;
        }
        let guess = if waits(row) { session.start_estimates.guess(session.view(), group, Look::Sums) } else { None };
        let late = late_end(session.tables, group, guess, session.now);
        let row = session.tables.groups.row_mut(group);
        let told = std::mem::replace(&mut row.reported_late, late.is_some());
        if let Some(expected) = late
            && !told
        {
            let (namespace, name, uid) = (row.namespace.to_string(), row.name().to_owned(), (&*row.uid).into());
            session.plan.late.push(Late { namespace, name, uid, deadline, expected });
        }
    }
}

/// When all of the group's pods are expected to have ended, if that is after its deadline even where it starts as early and
/// runs as short as others did. Nothing where that is not so, or not known. O(its tasks).
pub(crate) fn late_end(tables: &Tables, group: GroupId, guess: Option<Guess>, now: TimeMs) -> Option<TimeMs> {
    let row = tables.groups.row(group);
    let deadline = row.deadline?;
    let running: Vec<TaskId> = row.tasks.iter().copied().filter(|task| is_running(tables, *task)).collect();
    let to_come = if waits(row) { missing(tables, group).parts } else { Vec::new() };
    let begins = |lead_ms: fn(Guess) -> i64| guess.map_or(now, |guess| now.plus_ms(lead_ms(guess)));
    let soonest = running.iter().filter_map(|task| tables.soonest_end_of(*task, now));
    let shortest = to_come.iter().filter_map(|part| tables.shortest_run(group, part.class, 0));
    let shortest = shortest.map(|run| begins(|guess| guess.earliest_ms).plus_ms(run));
    soonest.chain(shortest).max().filter(|end| *end > deadline)?;
    let ends = running.iter().filter_map(|task| tables.end_of(*task, Confidence::Expected, now));
    let runs = to_come.iter().filter_map(|part| tables.typical_run(group, part.class));
    ends.chain(runs.map(|run| begins(|guess| guess.lead_ms).plus_ms(run))).max().filter(|end| *end > deadline)
}

/// Pods of it are yet to be placed.
fn waits(row: &GroupRow) -> bool {
    row.pending() > 0 || row.counts.all() == 0
}

fn is_running(tables: &Tables, task: TaskId) -> bool {
    let state = tables.task(task).state;
    state.holds_node() && state != TaskState::Releasing
}
