//! How many jobs a queue runs at a time (`maxRunningJobs`): further ones wait, whatever room there is.
//!
//! A job counts from its admission until it has ended, for its queue and for those above it. Pods that need no PodGroup don't.

use crate::ids::QueueId;
use crate::reasons::Reason;
use crate::world::tables::Tables;

/// The queue, or the nearest above it, that runs as many jobs as it may. O(queues) where one has such a limit.
pub(super) fn reached(tables: &Tables, queue: QueueId) -> Option<Reason> {
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
