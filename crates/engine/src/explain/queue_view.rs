//! How a queue stands: what `World::queues` shows to metrics and to people.
//!
//! Invariant: read only, worked out when asked; amounts come by name, in milli-cores and whole units.

use crate::ids::{DimId, QueueId};
use crate::policy::Policy;
use crate::resource_dims::Resources;
use crate::share;
use crate::world::tables::Tables;

/// A queue as it stands, with all queues below it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueView {
    pub name: String,
    pub weight: i32,
    /// What its pods have.
    pub allocated: Resources,
    /// What its pods have or ask for.
    pub requested: Resources,
    /// What groups were admitted to that have not started.
    pub inqueue: Resources,
    /// Its limit, where one was set.
    pub capability: Resources,
    /// What it may hold at most, by its limit and by what others are guaranteed; empty where no plugin divides the cluster.
    pub real_capability: Resources,
    /// What it deserves, where a plugin divides the cluster.
    pub deserved: Option<Resources>,
    /// The largest part that it holds of what it deserves in one dimension, in billionths.
    pub share: i64,
    /// It gets nothing more for now.
    pub overused: bool,
}

impl QueueView {
    pub(crate) fn of(tables: &Tables, policy: &Policy, queue: QueueId) -> Self {
        let row = tables.queues.row(queue);
        let deserved = policy.deserved(tables, queue);
        let mut requested = row.tree.allocated.clone();
        share::add(&mut requested, &row.tree.pending, 1);
        let promised = tables.inqueue_demand.of(queue, true).map(|promised| promised.all.as_slice());
        let bounded = |bound: &(DimId, i64)| bound.1 != i64::MAX;
        let named = |amounts: &mut dyn Iterator<Item = (DimId, i64)>| {
            amounts.map(|(dim, amount)| (tables.dims.name(dim).to_string(), amount)).collect()
        };
        let real = policy.real_capability(tables, queue).unwrap_or_default();
        Self {
            name: row.name.to_string(),
            weight: row.weight,
            allocated: tables.dims.resources(&row.tree.allocated),
            requested: tables.dims.resources(&requested),
            inqueue: tables.dims.resources(promised.unwrap_or_default()),
            capability: named(&mut row.capability.iter().copied()),
            real_capability: named(&mut real.into_iter().filter(bounded)),
            share: share::dominant(&row.tree.allocated, deserved.as_deref().unwrap_or_default()),
            overused: policy.overused(tables, queue).is_some(),
            deserved: deserved.map(|amounts| tables.dims.resources(&amounts)),
        }
    }
}
