//! `shuffle`: moves running pods that plugins say are better off elsewhere. Nobody in particular gets their room.

use super::statement;
use crate::job_plugins::conformance::is_protected;
use crate::session::Cycle;
use crate::world::tasks::TaskState;

pub(crate) fn run(cycle: &mut Cycle<'_>) {
    for task in cycle.policy.victim_tasks(cycle.tables) {
        let row = cycle.tables.task(task);
        let ours = row.group.is_some() && !row.of_daemon_set && !is_protected(cycle.tables, task);
        if row.state == TaskState::Running && row.preemptable && ours {
            cycle.evict(task);
            statement::evict(cycle, "shuffle", task, TaskState::Running, None);
        }
    }
}
