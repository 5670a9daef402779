//! A queue's `capability` as a hard limit, whichever plugins are configured, and how many jobs it runs at a time.
//! Terminating pods count until they are gone, so a queue is never over by a decision of ours.

use crate::ids::{DimId, QueueId};
use crate::policy::Policy;
use crate::reasons::Reason;
use crate::resource_dims::Demand;
use crate::world::queues::Sums;
use crate::world::tables::Tables;

/// The first dimension in which `wanted` on top of `used` would exceed the queue's limit. Only dimensions that are
/// asked for are compared.
pub(crate) fn exceeded(tables: &Tables, queue: QueueId, wanted: &[i64], used: &[i64]) -> Option<Reason> {
    all_exceeded(tables, queue, wanted, used).next()
}

/// Like `exceeded`, for each dimension in which the limit would be exceeded.
pub(crate) fn all_exceeded(
    tables: &Tables,
    queue: QueueId,
    wanted: &[i64],
    used: &[i64],
) -> impl Iterator<Item = Reason> {
    let row = tables.queues.row(queue);
    let amount = |amounts: &[i64], dim: DimId| amounts.get(dim.index()).copied().unwrap_or(0);
    row.capability.iter().filter_map(move |(dim, limit)| {
        let (requested, used) = (amount(wanted, *dim), amount(used, *dim));
        let short = requested.saturating_add(used).saturating_sub(*limit);
        if requested <= 0 || short <= 0 {
            return None;
        }
        Some(Reason::QueueLimit {
            queue: row.name.to_string(),
            resource: tables.dims.name(*dim).to_string(),
            limit: *limit,
            used,
            requested,
            short,
            never: requested > *limit,
            of_cluster: false,
        })
    })
}

/// Whether one more pod of `demand` would exceed the limit of the queue now, less what is kept of it for others, or that
/// of a queue above it where queues are asked along their tree.
pub(crate) fn exceeded_by_pod(tables: &Tables, policy: &Policy, queue: QueueId, demand: &Demand) -> Option<Reason> {
    all_exceeded_by_pod(tables, policy, queue, demand).next()
}

/// All such limits, and dimensions.
pub(crate) fn all_exceeded_by_pod(
    tables: &Tables,
    policy: &Policy,
    queue: QueueId,
    demand: &Demand,
) -> impl Iterator<Item = Reason> {
    let row = tables.queues.row(queue);
    let above = row.ancestors.iter().map(|queue| (*queue, &tables.queues.row(*queue).tree));
    let limited = |(queue, _): &(QueueId, &Sums)| !tables.queues.row(*queue).capability.is_empty();
    let above = above.filter(move |_| policy.follows_queue_tree());
    std::iter::once((queue, &row.own)).chain(above).filter(limited).flat_map(move |(queue, sums)| {
        let mut wanted = Vec::new();
        demand.add_to(&mut wanted, 1);
        let mut used = sums.in_use();
        for (dim, _) in demand.iter() {
            let kept = tables.reservations.reserved_of_limit(queue, dim);
            if kept > 0 {
                used.resize(used.len().max(dim.index() + 1), 0);
                used[dim.index()] = used[dim.index()].saturating_add(kept);
            }
        }
        all_exceeded(tables, queue, &wanted, &used).collect::<Vec<_>>()
    })
}

/// Whether one more pod of `demand` would exceed the queue's limit once all that leaves is gone and all nominations are
/// taken.
pub(crate) fn exceeded_in_future(tables: &Tables, queue: QueueId, demand: &Demand) -> Option<Reason> {
    let row = tables.queues.row(queue);
    if row.capability.is_empty() {
        return None;
    }
    let mut wanted = Vec::new();
    demand.add_to(&mut wanted, 1);
    let used: Vec<i64> = (0..tables.dims.len()).map(|dim| row.own.promised(DimId::from(dim))).collect();
    exceeded(tables, queue, &wanted, &used)
}

/// The queue, or the nearest above it, that runs as many jobs as it may at a time (`maxRunningJobs`): further ones wait,
/// whatever room there is. A job counts from its admission until it has ended, for its queue and for those above it; pods
/// that need no PodGroup don't count. O(queues) where one has such a limit.
pub(crate) fn jobs_reached(tables: &Tables, queue: QueueId) -> Option<Reason> {
    let row = tables.queues.row(queue);
    let limited = std::iter::once(queue).chain(row.ancestors.iter().copied());
    let mut limited = limited.filter_map(|queue| Some((queue, tables.queues.row(queue).max_running_jobs?)));
    limited.find_map(|(queue, limit)| {
        let running = running_in(tables, queue);
        let name = tables.queues.row(queue).name.to_string();
        (running >= limit).then_some(Reason::QueueJobs { queue: name, limit, running })
    })
}

fn running_in(tables: &Tables, queue: QueueId) -> u32 {
    let all = tables.queues.table.iter();
    let below = all.filter(|(id, row)| *id == queue || row.ancestors.contains(&queue));
    below.map(|(id, _)| tables.groups.admitted_to(id)).sum()
}
