//! Devices in a queue's `capability`: `deviceclass/<class>` is how many devices of that class the claims of its pods
//! may ask for, with those of all queues below it where there is a hierarchy.
//!
//! A claim that several pods share counts once. What has no number counts for nothing: all devices that match, and the
//! first available of several requests. A class that is not named has no limit, nor has one with a limit of 0.
//! O(claims that count against the queue), and only for pods with claims in queues with such a limit.

use std::collections::BTreeSet;

use crate::cluster::table::key_of;
use crate::ids::{DimId, GroupId, QueueId, TaskId};
use crate::job_plugins::admission;
use crate::reasons::Reason;
use crate::resource_dims::Dims;
use crate::world::minimum::Past;
use crate::world::queues::QueueRow;
use crate::world::tables::Tables;
use crate::world::tasks::{TaskRow, TaskState};

/// What the keys of classes begin with.
const CLASS: &str = "deviceclass/";

type Claims = BTreeSet<String>;

/// Whether what the pod claims may be limited.
pub(super) fn concerns(tables: &Tables, task: TaskId, mut line: impl Iterator<Item = QueueId>) -> bool {
    let claims = tables.task(task).claims.as_ref().is_some_and(|claims| !claims.devices.is_empty());
    claims && line.any(|queue| limits(&tables.dims, tables.queues.row(queue)).next().is_some())
}

/// The objection of the first queue of `line` that may not hold what the pod claims.
pub(super) fn beyond(tables: &Tables, line: impl Iterator<Item = QueueId>, tree: bool, task: TaskId) -> Option<Reason> {
    let wanted = || claims_of(tables.task(task)).collect();
    exceeded(tables, line, wanted, |queue| charged(tables, queue, tree))
}

/// The same for the minimum of a group that asks to be admitted, beside what groups that were admitted will claim.
pub(super) fn beyond_for_group(
    tables: &Tables,
    line: impl Iterator<Item = QueueId>,
    tree: bool,
    group: GroupId,
    past: Past,
) -> Option<Reason> {
    let wanted = || minimum(tables, group);
    exceeded(tables, line, wanted, |queue| {
        let mut claims = charged(tables, queue, tree);
        claims.extend(promised(tables, queue, tree, past));
        claims
    })
}

fn exceeded(
    tables: &Tables,
    mut line: impl Iterator<Item = QueueId>,
    wanted: impl Fn() -> Claims,
    held: impl Fn(QueueId) -> Claims,
) -> Option<Reason> {
    line.find_map(|queue| {
        let row = tables.queues.row(queue);
        let mut limits = limits(&tables.dims, row).peekable();
        limits.peek()?;
        let wanted = Some(wanted()).filter(|wanted| !wanted.is_empty())?;
        let held = held(queue);
        limits.find_map(|ClassLimit { dim, class, limit }| {
            let requested = devices(tables, wanted.difference(&held), class);
            let used = devices(tables, held.iter(), class);
            let over = requested > 0 && used.saturating_add(requested) > limit;
            over.then(|| admission::limit(tables, row, dim, limit, used, requested))
        })
    })
}

/// How many devices of a class a queue may hold.
struct ClassLimit<'a> {
    dim: DimId,
    class: &'a str,
    limit: i64,
}

/// The classes that a queue limits.
fn limits<'a>(dims: &'a Dims, row: &'a QueueRow) -> impl Iterator<Item = ClassLimit<'a>> {
    let positive = row.capability.iter().filter(|(_, limit)| *limit > 0);
    positive.filter_map(|(dim, limit)| {
        let class = dims.name(*dim).strip_prefix(CLASS)?;
        Some(ClassLimit { dim: *dim, class, limit: *limit })
    })
}

/// How many devices of a class the claims ask for.
fn devices<'a>(tables: &Tables, claims: impl Iterator<Item = &'a String>, class: &str) -> i64 {
    let known = claims.filter_map(|key| tables.devices.claims.all.get(key));
    let requests = known.flat_map(|claim| &claim.requests).filter(|request| request.class == class);
    // A count of 0 stands for all that match.
    requests.map(|request| i64::from(request.count)).fold(0, i64::saturating_add)
}

fn claims_of(row: &TaskRow) -> impl Iterator<Item = String> {
    let claims = row.claims.iter().flat_map(|claims| &claims.devices);
    claims.map(|name| key_of(&row.namespace, name))
}

fn is_at(tables: &Tables, queue: QueueId, other: QueueId, tree: bool) -> bool {
    other == queue || tree && tables.queues.row(other).ancestors.contains(&queue)
}

/// What counts against a queue already.
fn charged(tables: &Tables, queue: QueueId, tree: bool) -> Claims {
    let queues = tables.devices.charges.by_queue().filter(|(other, _)| is_at(tables, queue, *other, tree));
    queues.flat_map(|(_, claims)| claims).map(str::to_owned).collect()
}

/// What the groups of a queue that were admitted will claim.
fn promised(tables: &Tables, queue: QueueId, tree: bool, past: Past) -> Claims {
    let queues = tables.queues.table.iter().map(|(id, _)| id).filter(|other| is_at(tables, queue, *other, tree));
    let groups =
        queues.filter_map(|queue| tables.inqueue_demand.of(queue, false)).flat_map(|promised| &promised.groups);
    let counts = |group: &&GroupId| tables.inqueue_demand.counts(**group, past);
    groups.filter(counts).flat_map(|group| minimum(tables, *group)).collect()
}

/// What the pods that a group lacks to start will claim: those that the minima of its tasks need, or else the first
/// ones by name.
fn minimum(tables: &Tables, group: GroupId) -> Claims {
    let row = tables.groups.row(group);
    let pending = row.tasks.iter().map(|task| tables.task(*task)).filter(|task| task.state == TaskState::Pending);
    let mut pods: Vec<&TaskRow> = pending.collect();
    pods.sort_by_key(|pod| (&pod.name, &pod.uid));
    let missing = |min: u32, ready: u32| min.saturating_sub(ready) as usize;
    if !row.role_minima_apply() {
        let needed = missing(row.min_member, row.counts.ready());
        return pods.into_iter().take(needed).flat_map(claims_of).collect();
    }
    let roles = row.roles.iter().zip(0_u32..);
    let needed = roles.flat_map(|(role, index)| {
        let of_role = pods.iter().copied().filter(move |pod| pod.role == index);
        of_role.take(missing(role.min, role.counts.ready()))
    });
    needed.flat_map(claims_of).collect()
}

#[cfg(test)]
mod tests;
