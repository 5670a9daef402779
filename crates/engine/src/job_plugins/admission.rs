//! What the plugins that admit groups share: is the queue open, and does a limit leave room beside what is held and
//! promised? Called by `proportion`, `capacity` and `overcommit`.

use crate::ids::{DimId, QueueId};
use crate::reasons::Reason;
use crate::resource_dims::PODS;
use crate::share::{Limits, at};
use crate::world::minimum::Missing;
use crate::world::queues::QueueRow;
use crate::world::tables::Tables;

/// The objection of a queue that takes no work.
pub(super) fn closed(row: &QueueRow) -> Option<Reason> {
    let queue = row.name.to_string();
    match (row.known, row.is_open()) {
        (false, _) => Some(Reason::QueueNotFound { queue }),
        (true, false) => Some(Reason::QueueClosed { queue, state: format!("{:?}", row.state) }),
        (true, true) => None,
    }
}

/// A limit that leaves too little.
pub(super) fn limit(tables: &Tables, row: &QueueRow, dim: DimId, limit: i64, used: i64, requested: i64) -> Reason {
    let total = at(&tables.nodes.total, dim);
    Reason::QueueLimit {
        queue: row.name.to_string(),
        resource: tables.dims.name(dim).to_string(),
        limit,
        used,
        requested,
        short: used.saturating_add(requested).saturating_sub(limit),
        never: requested > limit,
        of_cluster: total > 0 && limit >= total,
    }
}

/// The first dimension of `missing` that `limits` leave no room for, beside what the queue (`tree`: and all below it)
/// holds and what is promised; what groups hold beyond their minimum is not counted.
pub(super) fn beyond_limit(
    tables: &Tables,
    queue: QueueId,
    missing: &Missing,
    limits: &Limits,
    tree: bool,
) -> Option<Reason> {
    let row = tables.queues.row(queue);
    let promised = tables.inqueue_demand.of(queue, tree);
    let ahead = tables.inqueue_demand.ahead(queue, tree, missing.past);
    let sums = if tree { &row.tree } else { &row.own };
    let wanted = (0..missing.total.len()).map(DimId::from).filter(|dim| *dim != PODS && at(&missing.total, *dim) > 0);
    wanted.into_iter().find_map(|dim| {
        let elastic = promised.map_or(0, |promised| at(&promised.elastic, dim));
        let used = sums.promised(dim).saturating_add(at(&ahead, dim)).saturating_sub(elastic).max(0);
        let (requested, bound) = (at(&missing.total, dim), limits.get(dim));
        let over = bound != i64::MAX && requested.saturating_add(used) > bound;
        over.then(|| limit(tables, row, dim, bound, used, requested))
    })
}
