//! What refuses a group's first pod, where that says the same of all its pods: then the group gets nothing, and no
//! trial has to show it. Nearly all groups of a large backlog end here in each cycle.
//!
//! Invariant: the reason is the one that a trial would give. Called by `allocate`.

use super::{needed, objection};
use crate::ids::{GroupId, TaskId};
use crate::reasons::Reason;
use crate::search::finder::Search;
use crate::session::Cycle;
use crate::world::tasks::TaskState;

/// Why none of the group's pods gets a node now. Nothing where that takes a trial.
pub(super) fn at_once(cycle: &mut Cycle<'_>, group: GroupId) -> Option<Reason> {
    let (tables, policy) = (&*cycle.tables, &*cycle.policy);
    let row = tables.groups.row(group);
    let first =
        cycle.pending_index.representative(group).filter(|first| tables.task(*first).state == TaskState::Pending)?;
    if row.wants_domains(&tables.hyper_nodes) || policy.is_specific(tables, first) {
        return None;
    }
    let (queue, class, pods) = (row.queue, tables.task(first).class, row.pending());
    if let Some(objection) = objection(cycle, queue, first) {
        return Some(objection);
    }
    if cycle.finder.best(cycle.tables, cycle.policy, Search::of_class(class)).is_some() {
        return None;
    }
    let needed = needed(cycle, group);
    Some(unfit(cycle, group, first, (needed, 0, pods)))
}

/// What the nodes say to a pod of the group, where `needed` of its kind start together, `found_room` of them have, and
/// `wanted` of them would like to.
pub(super) fn unfit(
    cycle: &mut Cycle<'_>,
    group: GroupId,
    task: TaskId,
    (needed, found_room, wanted): (u32, u32, u32),
) -> Reason {
    let row = cycle.tables.groups.row(group);
    let started = row.counts.ready() >= row.min_member.saturating_add(found_room);
    let numbers = (if started { wanted } else { needed.clamp(found_room + 1, wanted) }, found_room);
    let mut unfit = cycle.finder.diagnose(cycle.tables, cycle.policy, Search::of_task(cycle.tables, task), numbers);
    let role = cycle.tables.task(task).role;
    unfit.role = cycle.tables.groups.row(group).roles[role as usize].name.to_string();
    Reason::NodesUnfit(unfit)
}
