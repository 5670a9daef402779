//! Gangs that hold nodes and can't start: a bind of one of them failed, or the scheduler ended between two binds.
//!
//! Allocate finishes them before all others. One that is still partly placed when the gang commit window is over is taken
//! back: its pods that don't run yet leave, so that others can use what they hold. A gang of which anything has run is
//! never taken back. Called at the start of every cycle.

use super::statement;
use crate::ids::{GroupId, TaskId};
use crate::session::Session;
use crate::world::tasks::TaskState;

/// The reason that evictions give.
const NAME: &str = "gangtakeback";

pub(crate) fn take_back(session: &mut Session<'_>) {
    let window_ms = session.config.gang_commit_window_ms();
    for group in session.tables.groups.partial_gangs.iter().copied().collect::<Vec<_>>() {
        let now = session.now;
        let row = session.tables.groups.row_mut(group);
        let deadline = row.partial_since.get_or_insert(now).plus_ms(window_ms);
        if now < deadline {
            session.wake_at(deadline);
        } else if row.counts.get(TaskState::Binding) == 0 {
            evict_bound(session, group);
        }
    }
}

fn evict_bound(session: &mut Session<'_>, group: GroupId) {
    let tables = &*session.tables;
    let bound = |task: &TaskId| tables.task(*task).state == TaskState::Bound;
    let tasks: Vec<TaskId> = tables.groups.row(group).tasks.iter().copied().filter(bound).collect();
    for task in tasks {
        session.evict(task);
        statement::evict(session, NAME, task, TaskState::Bound, None);
    }
}
