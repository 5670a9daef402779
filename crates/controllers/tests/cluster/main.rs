//! The controllers against the embedded API server, in one process; the tests play scheduler and node.

#![allow(clippy::unwrap_used, reason = "the harness of a test fails by panicking")]

mod crons;
mod economy;
mod flows;
mod harness;
mod hyper_nodes;
mod jobs;
mod killed;
mod late;
mod metrics;
mod pod_groups;
mod queues;
mod restarts;
mod retention;
mod shards;
mod tenants;
mod trouble;
mod workloads;
