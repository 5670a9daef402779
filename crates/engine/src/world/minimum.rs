//! What a group still needs before it may start: counts of classes, from its Job's tasks, else from its pods, and what its
//! `minResources` say beyond these as one divisible block. Tasks whose pods are made later (`dependsOn`) are part of it, as
//! all of a Job is admitted as one. Called by `enqueue`.

use std::sync::Arc;

use crate::ids::{ClassId, GroupId, TaskId, TimeMs};
use crate::resource_dims::Demand;
use crate::world::groups::{GroupRow, minima_apply};
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// The missing part of a group's minimum.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    pub(crate) parts: Vec<Part>,
    /// What is declared beyond the parts, for pods that are not there yet.
    pub(crate) block: Option<Demand>,
    /// All of it, by dimension.
    pub(crate) total: Vec<i64>,
    pub(crate) past: Past,
}

/// Which promises to others count against a group that asks to be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Past {
    #[default]
    Nobody,
    /// Only those to groups that are on their way: it could start past those that wait for nodes.
    Waiting,
    /// Of these only those that need their room before this time: all of it would be over by then.
    Ending(TimeMs),
}

impl Missing {
    /// Whether pods are there, and a sum is declared beyond them.
    pub(crate) fn declares_more(&self) -> bool {
        self.block.is_some() && !self.parts.is_empty()
    }
}

/// Pods of one class that are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) class: ClassId,
    pub(crate) role: Arc<str>,
    pub(crate) count: u32,
}

struct Candidate {
    part: Part,
    available: u32,
    /// The first of its pods, so that the order in which they were seen does not matter.
    first: Option<(TimeMs, Arc<str>)>,
}

/// What `group` still needs. O(its tasks).
pub(crate) fn missing(tables: &Tables, group: GroupId) -> Missing {
    let row = tables.groups.row(group);
    let candidates = candidates(tables, row);
    let least = row.declared_min.saturating_sub(row.counts.ready());
    let mut missing = of_parts(tables, choose(row, candidates, least));
    let rest = tables.rest_of_sum(row, &missing.total);
    if !rest.0.is_empty() {
        rest.add_to(&mut missing.total, 1);
        missing.block = Some(rest);
    }
    missing
}

/// The class of the pod that is all a group needs, where it wants one and has just that one: most groups do.
pub(crate) fn only(tables: &Tables, row: &GroupRow) -> Option<ClassId> {
    if row.min_member != 1 || row.tasks.len() != 1 || row.owner.is_some() {
        return None;
    }
    let task = tables.task(*row.tasks.first()?);
    (task.state == TaskState::Pending).then_some(task.class)
}

/// Like `missing`, for just these pods, whatever their groups lack.
pub(crate) fn of_pods(tables: &Tables, tasks: &[TaskId]) -> Missing {
    let mut parts: Vec<Part> = Vec::new();
    for task in tasks.iter().map(|task| tables.task(*task)) {
        let role = task.group.map(|group| tables.groups.row(group).roles[task.role as usize].name.clone());
        let part = Part { class: task.class, role: role.unwrap_or_default(), count: 1 };
        match parts.iter_mut().find(|other| (other.class, &other.role) == (part.class, &part.role)) {
            Some(part) => part.count += 1,
            None => parts.push(part),
        }
    }
    of_parts(tables, parts)
}

/// What room is reserved for: what the group lacks to start; or, where it has begun and waits for what it was promised, the
/// smallest of its pods, so that each of them has its room as soon as can be.
pub(crate) fn awaited(tables: &Tables, group: GroupId) -> Missing {
    if tables.waits_for_its_sum(tables.groups.row(group)) {
        return easiest(tables, group, |_| true).unwrap_or_default();
    }
    missing(tables, group)
}

fn of_parts(tables: &Tables, parts: Vec<Part>) -> Missing {
    let mut total = Vec::new();
    for part in &parts {
        tables.classes.row(part.class).demand.add_to(&mut total, i64::from(part.count));
    }
    Missing { parts, block: None, total, past: Past::Nobody }
}

/// What it still needs, at least one pod, of its smallest pods that are `possible` at all; nothing if they are too few.
pub(crate) fn easiest(tables: &Tables, group: GroupId, mut possible: impl FnMut(&Part) -> bool) -> Option<Missing> {
    let row = tables.groups.row(group);
    let mut candidates = candidates(tables, row);
    candidates.retain(|candidate| possible(&Part { count: 1, ..candidate.part.clone() }));
    candidates.sort_by_key(|candidate| tables.size(candidate.part.class));
    let least = row.declared_min.saturating_sub(row.counts.ready()).max(1);
    let parts = choose(row, candidates, least);
    let found: u32 = parts.iter().map(|part| part.count).sum();
    (found >= least).then(|| of_parts(tables, parts))
}

/// All the pods the group could still place, highest priority first.
fn candidates(tables: &Tables, row: &GroupRow) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = Vec::new();
    if let Some(parts) = tables.parts_of(row) {
        for part in parts.iter() {
            let ready = row.roles.iter().find(|role| role.name == part.role).map_or(0, |role| role.counts.ready());
            let available = part.count.saturating_sub(ready);
            let part = Part { class: part.class, role: part.role.clone(), count: 0 };
            candidates.push(Candidate { part, available, first: None });
        }
    } else {
        for task in row.tasks.iter().map(|task| tables.task(*task)).filter(|task| task.state == TaskState::Pending) {
            let part = Part { class: task.class, role: row.roles[task.role as usize].name.clone(), count: 0 };
            let first = Some((task.created, task.uid.clone()));
            match candidates.iter_mut().find(|candidate| candidate.part == part) {
                Some(candidate) => {
                    candidate.available += 1;
                    candidate.first = candidate.first.take().min(first);
                }
                None => candidates.push(Candidate { part, available: 1, first }),
            }
        }
    }
    let priority = |candidate: &Candidate| tables.classes.row(candidate.part.class).template.priority;
    candidates.sort_by(|left, right| priority(right).cmp(&priority(left)).then_with(|| left.first.cmp(&right.first)));
    candidates
}

/// First what the roles' minima need, then whatever reaches the group's minimum.
fn choose(row: &GroupRow, mut candidates: Vec<Candidate>, least: u32) -> Vec<Part> {
    let mut left = least;
    if minima_apply(row.declared_min, row.roles.iter().map(|role| role.declared_min)) {
        for role in &row.roles {
            let mut wanted = role.declared_min.saturating_sub(role.counts.ready());
            for candidate in candidates.iter_mut().filter(|candidate| candidate.part.role == role.name) {
                take(candidate, &mut wanted, &mut left);
            }
        }
    }
    for candidate in &mut candidates {
        let mut wanted = left;
        take(candidate, &mut wanted, &mut left);
    }
    candidates.into_iter().map(|candidate| candidate.part).filter(|part| part.count > 0).collect()
}

fn take(candidate: &mut Candidate, wanted: &mut u32, left: &mut u32) {
    let taken = candidate.available.min(*wanted);
    candidate.part.count += taken;
    candidate.available -= taken;
    *wanted -= taken;
    *left = left.saturating_sub(taken);
}
