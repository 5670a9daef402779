//! What the actions ask before they decide: which groups come next (`pending`), which node is best (`finder`), when the group
//! that is next will fit (`reservation_forecast`), and when all others will start (`start_estimate`).
//!
//! Invariant: all of it is derived from the tables; losing it changes no decision. Called by `actions`, `eviction` and `explain`.

pub(crate) mod finder;
pub(crate) mod pending;
pub(crate) mod reservation_forecast;
pub(crate) mod start_estimate;
