//! Scheduling of the fleet: what waits in the ledger meets the nodes of all clusters, in the engine that clusters use.
//!
//! Pure: no I/O, no clock, no randomness. The server gives the time and carries everything to and fro.
//!
//! ```text
//!   ledger ──> pool_view ──updates──> pool (a World with plugins) ──> proposals ──> ledger
//!                 ▲                     ▲
//!   constraints, rate_limits, bids     away, market, gang_uniformity, volcano_jobs, plugins
//! ```

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod away;
mod bids;
mod constraints;
mod feasibility;
mod gang_uniformity;
mod market;
mod names;
mod placement;
mod plugins;
mod pool;
mod pool_view;
mod rate_limits;
mod volcano_jobs;

pub use away::{AwayRules, Compare, Condition, NodeKind, PoolRules, Way};
pub use bids::{Bid, Bids, PoolBids, Price};
pub use constraints::{Allowance, Constraints, PoolUsage, Protected};
pub use feasibility::could_hold;
pub use market::MarketRules;
pub use names::node_name;
pub use placement::{Placement, Placements};
pub use plugins::short_job_penalty::Penalties;
pub use pool::{Pool, node_delta, queue_delta};
pub use pool_view::{PoolUpdate, PoolView, RunUpdate, ViewLimits, group_of};
pub use rate_limits::{Grant, Rate, RateLimits, Rates};

#[cfg(test)]
mod tests;
