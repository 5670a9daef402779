//! What is still on a window's nodes when it has begun: it leaves, with a record that says for what.
//!
//! Who leaves is `Tables::leaves_for`'s matter; what the cluster runs on, other schedulers' pods and DaemonSets' stay, and
//! where plugins keep budgets nobody leaves beyond them. What may not be evicted is waited for: the node is closed to all
//! others meanwhile. Called at the start of every cycle.

use rustc_hash::FxHashSet;

use super::statement::Victim;
use super::{statement, whole_gangs};
use crate::ids::{NodeId, TaskId};
use crate::session::Session;
use crate::world::tasks::TaskState;

/// The reason that evictions give.
pub(crate) const NAME: &str = "reservation";

pub(crate) fn empty(session: &mut Session<'_>) {
    if let Some(edge) = session.tables.maintenance_windows.next_edge(session.now) {
        session.wake_at(edge);
    }
    let mut leaving: Vec<(TaskId, String)> = Vec::new();
    let mut seen: FxHashSet<TaskId> = FxHashSet::default();
    let tables = &*session.tables;
    for window in tables.maintenance_windows.all.iter().filter(|window| window.is_open(session.now)) {
        let message = if window.is_for_some() {
            format!("its node is kept by reservation {} for {}", window.name, window.for_whom())
        } else {
            format!("its node is closed by reservation {}", window.name)
        };
        for node in window.nodes.ones().map(NodeId::from) {
            let Some(row) = tables.nodes.table.get(node.index()) else { continue };
            let mut tasks: Vec<TaskId> = row.tasks.iter().copied().filter(|task| may_leave(session, *task)).collect();
            tasks.retain(|task| tables.leaves_for(*task, window) && seen.insert(*task));
            tasks.sort_unstable();
            leaving.extend(tasks.into_iter().map(|task| (task, message.clone())));
        }
    }
    for (task, message) in leaving {
        // Asked one by one: each that leaves counts against the budgets of those behind it.
        if !session.policy.may_leave(session.tables, task) {
            continue;
        }
        for task in whole_gangs::with_fellows(session, vec![task]) {
            let was = session.tables.task(task).state;
            // One that left as a fellow is asked no more.
            if matches!(was, TaskState::Bound | TaskState::Running) {
                session.evict(task);
                statement::evict_saying(session, NAME, Victim { task, was }, None, message.clone());
            }
        }
    }
}

/// Whether it has a place and was not let alone for now.
pub(super) fn may_leave(session: &Session<'_>, task: TaskId) -> bool {
    let row = session.tables.task(task);
    matches!(row.state, TaskState::Bound | TaskState::Running) && row.spared_until <= session.now
}
