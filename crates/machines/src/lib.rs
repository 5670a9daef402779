//! The state machines behind the controllers: what exists + what happened + now, to the wanted changes.
//!
//! Pure: no I/O, no clock, no randomness. Invariant: every machine is level-triggered. It looks only at what exists, so a
//! controller that restarts, or looks twice, comes to the same result; applying a plan and stepping again ends in an empty
//! plan. Called by the shells in `controllers`.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod batch_job;
pub mod cron;
pub mod deployment;
pub mod directory;
pub mod hyper_nodes;
pub mod job;
pub mod job_flow;
mod job_object;
pub mod plugins;
pub mod pod_group;
pub mod profile;
pub mod queue;
mod range_encoding;
pub mod replica_set;
pub mod retention;
pub mod sharding;
pub mod stateful_set;
mod task_numbers;
pub mod tenant;
pub mod tenant_annotations;
mod usage;
pub mod workload;
