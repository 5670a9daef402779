//! What the actions ask before they decide: which groups come next (`pending`), which node is best (`finder`), when the group
//! that is next will fit (`reservation_forecast`), and when all others will start (`start_estimate`).
//!
//! Invariant: all of it is derived from the tables; losing it changes no decision. Called by `actions`, `eviction` and `explain`.

pub(crate) mod finder;
pub(crate) mod pending;
pub(crate) mod reservation_forecast;
pub(crate) mod start_estimate;

use crate::ids::TimeMs;
use crate::policy::Policy;
use crate::world::tables::Tables;
use pending::PendingIndex;

/// What an answer may read, and nothing that it may change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'w> {
    pub(crate) tables: &'w Tables,
    pub(crate) policy: &'w Policy,
    pub(crate) pending_index: &'w PendingIndex,
    pub(crate) now: TimeMs,
}
