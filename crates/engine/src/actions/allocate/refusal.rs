//! What refuses a group's first pod, where that says the same of all its pods: then the group gets nothing, and no
//! trial has to show it. Nearly all groups of a long queue end here in each cycle.
//!
//! Invariant: the reason is the one that a trial would give. Called by `allocate`.

use super::{needed, objection};
use crate::ids::{GroupId, TaskId};
use crate::reasons::Reason;
use crate::search::finder::{PodsWanted, Search};
use crate::session::Session;
use crate::world::tasks::TaskState;

/// Why none of the group's pods gets a node now. Nothing where that takes a trial.
pub(super) fn at_once(session: &mut Session<'_>, group: GroupId) -> Option<Reason> {
    let (tables, policy) = (&*session.tables, &*session.policy);
    let row = tables.groups.row(group);
    let first =
        session.pending_index.representative(group).filter(|first| tables.task(*first).state == TaskState::Pending)?;
    if row.wants_domains(&tables.hyper_nodes) || policy.is_specific(tables, first) {
        return None;
    }
    let (queue, class, pods) = (row.queue, tables.task(first).class, row.pending());
    if let Some(objection) = objection(session, queue, first) {
        return Some(objection);
    }
    if session.finder.best(session.tables, session.policy, Search::of_class(class)).is_some() {
        return None;
    }
    let needed = needed(session, group);
    Some(unfit(session, group, first, needed, 0, pods))
}

/// What the nodes say to a pod of the group, where `needed` of its kind start together, `found_room` of them have, and
/// `wanted` of them would like to.
pub(super) fn unfit(
    session: &mut Session<'_>,
    group: GroupId,
    task: TaskId,
    needed: u32,
    found_room: u32,
    wanted: u32,
) -> Reason {
    let row = session.tables.groups.row(group);
    let started = row.counts.ready() >= row.min_member.saturating_add(found_room);
    let needed = if started { wanted } else { needed.clamp(found_room + 1, wanted) };
    let pods = PodsWanted { needed, found_room };
    let mut unfit =
        session.finder.diagnose(session.tables, session.policy, Search::of_task(session.tables, task), pods);
    let role = session.tables.task(task).role;
    unfit.role = session.tables.groups.row(group).roles[role as usize].name.to_string();
    Reason::NodesUnfit(unfit)
}
