//! The state of scheduling: tasks, groups and queues over what the cluster has, and the mutations that deltas and cycles make.
//!
//! Invariant: `tables::Tables` alone changes rows, so that every sum follows. The facade that programs use is `engine::World`.

mod apply;
mod dependents;
pub(crate) mod end_times;
pub(crate) mod eviction_records;
pub(crate) mod groups;
pub(crate) mod inqueue_demand;
pub(crate) mod journal;
pub(crate) mod maintenance_windows;
pub(crate) mod min_resources;
pub(crate) mod minimum;
pub(crate) mod namespace_shares;
pub(crate) mod queues;
pub(crate) mod reservations;
pub(crate) mod sub_jobs;
pub(crate) mod tables;
pub(crate) mod tasks;
