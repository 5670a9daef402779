//! What is still on a window's nodes when it has begun: it leaves, with a receipt that says for what.
//!
//! Who leaves is `Tables::leaves_for`'s matter; what the cluster runs on, other schedulers' pods and DaemonSets' stay, and
//! where plugins keep budgets nobody leaves beyond them. What may not be evicted is waited for: the node is closed to all
//! others meanwhile. Called at the start of every cycle.

use rustc_hash::FxHashSet;

use super::{statement, whole_gangs};
use crate::ids::{NodeId, TaskId};
use crate::session::Cycle;
use crate::world::tasks::TaskState;

/// The reason that evictions give.
pub(crate) const NAME: &str = "reservation";

pub(crate) fn empty(cycle: &mut Cycle<'_>) {
    if let Some(edge) = cycle.tables.maintenance_windows.next_edge(cycle.now) {
        cycle.wake_at(edge);
    }
    let mut leaving: Vec<(TaskId, String)> = Vec::new();
    let mut seen: FxHashSet<TaskId> = FxHashSet::default();
    let tables = &*cycle.tables;
    for window in tables.maintenance_windows.all.iter().filter(|window| window.is_open(cycle.now)) {
        let message = if window.is_for_some() {
            format!("its node is kept by reservation {} for {}", window.name, window.for_whom())
        } else {
            format!("its node is closed by reservation {}", window.name)
        };
        for node in window.nodes.ones().map(NodeId::from) {
            let Some(row) = tables.nodes.table.get(node.index()) else { continue };
            let mut tasks: Vec<TaskId> = row.tasks.iter().copied().filter(|task| may_leave(cycle, *task)).collect();
            tasks.retain(|task| tables.leaves_for(*task, window) && seen.insert(*task));
            tasks.sort_unstable();
            leaving.extend(tasks.into_iter().map(|task| (task, message.clone())));
        }
    }
    for (task, message) in leaving {
        // Asked one by one: each that leaves counts against the budgets of those behind it.
        if !cycle.policy.may_leave(cycle.tables, task) {
            continue;
        }
        for task in whole_gangs::with_fellows(cycle, vec![task]) {
            let was = cycle.tables.task(task).state;
            // One that left as a fellow is asked no more.
            if matches!(was, TaskState::Bound | TaskState::Running) {
                cycle.evict(task);
                statement::evict_saying(cycle, NAME, (task, was), None, message.clone());
            }
        }
    }
}

/// Whether it has a place and was not let alone for now.
pub(super) fn may_leave(cycle: &Cycle<'_>, task: TaskId) -> bool {
    let row = cycle.tables.task(task);
    matches!(row.state, TaskState::Bound | TaskState::Running) && row.spared_until <= cycle.now
}
