//! The groups that may make victims, in their order, and their pods that want room. Used by preempt, reclaim
//! and the gang actions.

use crate::actions::fair_share_order::FairShareOrder;
use crate::facts::GroupPhase;
use crate::ids::{GroupId, TaskId};
use crate::session::Session;
use crate::world::tasks::TaskState;

/// Over all that waits for nodes. Of groups that are alike only the first has to be looked at, if it gets nothing.
pub(super) fn order(session: &mut Session<'_>, may: fn(&Session<'_>, GroupId) -> bool) -> FairShareOrder {
    session.pending_index.refresh(session.tables, session.policy, session.config);
    let one_by_one: Vec<GroupId> =
        session.pending_index.one_by_one.iter().copied().filter(|group| may(session, *group)).collect();
    FairShareOrder::new(session.tables, session.policy, Some(session.pending_index), &one_by_one)
}

/// Whether the group may make victims pod by pod. Groups with a network topology are for the gang actions.
pub(super) fn may_preempt(session: &Session<'_>, group: GroupId) -> bool {
    let row = session.tables.groups.row(group);
    row.topology.is_none() && row.sub_groups.iter().all(|policy| policy.topology.is_none()) && starves(session, group)
}

/// Whether the group lacks pods that may make victims. In a queue that is not open nobody makes room for it.
pub(super) fn starves(session: &Session<'_>, group: GroupId) -> bool {
    let tables = &*session.tables;
    let row = tables.groups.row(group);
    row.exists()
        && row.pending() > 0
        && row.phase != GroupPhase::Pending
        && !row.awaits_nodes
        && tables.queues.row(row.queue).is_open()
        && session.policy.job_valid(tables, group).is_none()
        && session.policy.job_starving(tables, group)
}

/// The pods of a group that want room and may make others leave, in task order.
pub(super) fn pods(session: &Session<'_>, group: GroupId) -> Vec<TaskId> {
    let tables = &*session.tables;
    let wants = |task: &TaskId| {
        let row = tables.task(*task);
        row.state == TaskState::Pending
            && !row.gated
            && !row.never_preempts
            && row.not_before <= session.now
            && row.no_nomination_before <= session.now
    };
    let mut tasks: Vec<TaskId> = tables.groups.row(group).tasks.iter().copied().filter(wants).collect();
    tasks.sort_by(|left, right| session.policy.task_order(tables, *left, *right));
    tasks
}
