//! `shuffle`: moves running pods that plugins say are better off elsewhere. Nobody in particular gets their room.

use super::statement;
use crate::job_plugins::conformance::is_protected;
use crate::session::Session;
use crate::world::tasks::TaskState;

pub(crate) fn run(session: &mut Session<'_>) {
    for task in session.policy.victim_tasks(session.tables) {
        let row = session.tables.task(task);
        let ours = row.group.is_some() && !row.of_daemon_set && !is_protected(session.tables, task);
        if row.state == TaskState::Running && row.preemptable && ours {
            session.evict(task);
            statement::evict(session, "shuffle", task, TaskState::Running, None);
        }
    }
}
