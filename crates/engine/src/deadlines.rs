//! Groups with a deadline: who of them will miss it, as far as can be told now.
//!
//! Invariant: a group is told of once, at the first look that finds it late, and again only if it was on time meanwhile.
//! Looked at when what runs is looked at anew; called by `close`. O(groups with a deadline and their pods).

use crate::cycle::Cycle;
use crate::facts::GroupPhase;
use crate::ids::{GroupId, TimeMs};
use crate::minimum::missing;
use crate::outlook::Look;
use crate::plan::Late;
use crate::world::ends::Surety;
use crate::world::tasks::TaskState;

/// Groups looked at: the nearest deadlines.
const LOOKED_AT_MAX: usize = 1_024;

/// Puts down who will be late, and was not told so.
pub(crate) fn look(cycle: &mut Cycle<'_>) {
    let nearest: Vec<GroupId> =
        cycle.tables.groups.deadlines.iter().take(LOOKED_AT_MAX).map(|(_, group)| *group).collect();
    for group in nearest {
        let row = cycle.tables.groups.row(group);
        let Some(deadline) = row.deadline.filter(|_| !row.ended && row.phase != GroupPhase::Completed) else {
            continue;
        };
        let end = expected_end(cycle, group);
        let late = end.is_some_and(|end| end > deadline);
        let row = cycle.tables.groups.row_mut(group);
        let told = std::mem::replace(&mut row.told_late, late);
        if let Some(expected) = end.filter(|_| late && !told) {
            let (namespace, name, uid) = (row.namespace.to_string(), row.name().to_owned(), row.uid.to_string());
            cycle.plan.late.push(Late { namespace, name, uid, deadline, expected });
        }
    }
}

/// When all of the group's pods are expected to have ended. Nothing where that is not known, or they have.
fn expected_end(cycle: &Cycle<'_>, group: GroupId) -> Option<TimeMs> {
    let (tables, now) = (&*cycle.tables, cycle.now);
    let row = tables.groups.row(group);
    let begins = if row.pending() > 0 || row.counts.all() == 0 {
        let guess = cycle.outlook.guess((tables, cycle.policy, cycle.backlog), group, now, Look::Sums);
        guess.map_or(now, |guess| now.plus_ms(guess.lead_ms))
    } else {
        now
    };
    let missing = missing(tables, group);
    let waiting = missing.parts.iter().filter_map(|part| tables.typical_run(group, part.class)).max();
    let running = row.tasks.iter().filter(|task| {
        let state = tables.task(**task).state;
        state.holds_node() && state != TaskState::Releasing
    });
    let ends = running.filter_map(|task| tables.end_of(*task, Surety::Expected, now));
    ends.chain(waiting.filter(|_| row.pending() > 0 || row.counts.all() == 0).map(|run| begins.plus_ms(run))).max()
}
