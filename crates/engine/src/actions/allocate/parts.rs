//! A group's worksheet by its parts, in the order in which they are placed. Called by `domains` and by the
//! gang actions.

use crate::ids::{ClassId, GroupId, TaskId};
use crate::session::Session;
use crate::world::sub_jobs::REST;
use crate::world::tasks::Counting;
use crate::world::tasks::TaskState;

/// The pending pods of one part of a group, in order.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its row; `REST` for a group without parts.
    pub(crate) id: u32,
    /// The same, absent for a group without parts.
    pub(crate) sub_job: Option<u32>,
    /// Those that ask for nothing come last.
    pub(crate) tasks: Vec<TaskId>,
    /// How many of them it lacks to be ready, at least 1.
    pub(crate) needed: usize,
    /// The class of all of them, where it is one.
    pub(crate) uniform: Option<ClassId>,
}

/// Parts with pending pods: first those that `minSubGroups` needs, each kind by sub-job order.
pub(crate) fn parts<'t>(
    session: &Session<'_>,
    group: GroupId,
    wanted: impl IntoIterator<Item = &'t TaskId>,
) -> Vec<Part> {
    let tables = &*session.tables;
    let row = tables.groups.row(group);
    let pending = |task: &&TaskId| tables.task(**task).state == TaskState::Pending;
    let mut tasks: Vec<Vec<TaskId>> = vec![Vec::new(); row.sub_jobs.rows().len().max(1)];
    for task in wanted.into_iter().filter(pending) {
        tasks[tables.task(*task).sub_job as usize].push(*task);
    }
    let mut parts: Vec<Part> = (REST..)
        .zip(tasks)
        .filter(|(_, tasks)| !tasks.is_empty())
        .map(|(id, tasks)| {
            let sub_job = (!row.sub_jobs.is_empty()).then_some(id);
            let ready = sub_job.map_or(row.counts.ready(), |id| row.sub_jobs.row(id).counts.ready());
            let needed = row.min_of(id).saturating_sub(ready).max(1) as usize;
            let class = tables.task(tasks[0]).class;
            let uniform = tasks.iter().all(|task| tables.task(*task).class == class).then_some(class);
            Part { id, sub_job, tasks, needed, uniform }
        })
        .collect();
    if row.sub_jobs.is_empty() {
        return parts;
    }
    parts.sort_by(|left, right| session.policy.sub_job_order(tables, group, left.id, right.id));
    let ready = |id: u32| row.part_ready(id, Counting::WithBestEffort, false);
    let mut short: Vec<usize> =
        row.sub_groups.iter().map(|policy| policy.min_sub_groups.unwrap_or(0) as usize).collect();
    for (id, part) in (REST..).zip(row.sub_jobs.rows()) {
        if let Some(policy) = part.policy
            && ready(id)
        {
            short[policy] = short[policy].saturating_sub(1);
        }
    }
    parts.sort_by_cached_key(|part| {
        let Some(policy) = row.sub_jobs.row(part.id).policy else { return true };
        if ready(part.id) {
            return true;
        }
        let left = &mut short[policy];
        let needed = *left > 0;
        *left = left.saturating_sub(1);
        !needed
    });
    parts
}
