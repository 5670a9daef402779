//! Gangs that leave whole, where the configuration says so: who makes one pod of a group leave makes all of them leave.
//!
//! What is left of a gang holds room and computes nothing. So a gang is a victim like one large pod that lies on several
//! nodes: it leaves only if all of it may, plugins are asked of its first pod, and all of it counts as lost. While pods of it
//! are on their way to a node it stays: it would be broken before it begins. Called by `victim_search`, and by whatever else makes
//! pods leave.

use rustc_hash::FxHashSet;

use crate::ids::{GroupId, TaskId};
use crate::session::Session;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// All pods of the groups of `victims` that hold room and don't leave yet, each once, group by group. Just the victims where
/// gangs don't leave whole.
pub(super) fn with_fellows(session: &Session<'_>, victims: Vec<TaskId>) -> Vec<TaskId> {
    if !session.config.gangs_leave_whole {
        return victims;
    }
    let tables = &*session.tables;
    let mut seen = FxHashSet::default();
    let mut all = Vec::with_capacity(victims.len());
    for victim in victims {
        match tables.task(victim).group {
            Some(group) if seen.insert(group) => all.extend(holding(tables, group)),
            Some(_) => {}
            None => all.push(victim),
        }
    }
    all
}

/// Of candidates, those whose whole group may leave, with all pods of it.
pub(super) fn whole(tables: &Tables, candidates: &[TaskId], may_leave: impl Fn(TaskId) -> bool) -> Vec<TaskId> {
    let mut all = Vec::with_capacity(candidates.len());
    for group in groups(tables, candidates) {
        let on_its_way = tables.groups.row(group).counts.get(TaskState::Binding) > 0;
        if !on_its_way && holding(tables, group).all(&may_leave) {
            all.extend(holding(tables, group));
        }
    }
    all
}

/// Of candidates, in which groups stand together, all pods of those groups of whose first pod `allowed` was said.
pub(super) fn by_first(tables: &Tables, candidates: &[TaskId], allowed: &[TaskId]) -> Vec<TaskId> {
    let allowed: FxHashSet<TaskId> = allowed.iter().copied().collect();
    let units = candidates.chunk_by(|left, right| are_one(tables, *left, *right));
    units.filter(|unit| allowed.contains(&unit[0])).flatten().copied().collect()
}

/// Whether both are pods of one group.
pub(super) fn are_one(tables: &Tables, left: TaskId, right: TaskId) -> bool {
    tables.task(left).group.is_some_and(|group| tables.task(right).group == Some(group))
}

/// Pods of a group that hold room and don't leave yet.
fn holding(tables: &Tables, group: GroupId) -> impl Iterator<Item = TaskId> {
    let holds = |task: &TaskId| matches!(tables.task(*task).state, TaskState::Bound | TaskState::Running);
    tables.groups.row(group).tasks.iter().copied().filter(holds)
}

fn groups(tables: &Tables, tasks: &[TaskId]) -> Vec<GroupId> {
    let mut groups: Vec<GroupId> = tasks.iter().filter_map(|task| tables.task(*task).group).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}
