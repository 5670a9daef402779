//! The lab: what tries the scheduler and the fleet out without a cluster. Nothing here runs in a component.
//!
//! - [`check`]: `pumice scheduler check`, cases with what must come out of one cycle
//! - [`simulate`]: `pumice scheduler simulate` and `what-if`, workloads in virtual time: trace formats, models, baselines,
//!   figures and pictures
//! - [`fleet_simulate`]: `pumice fleet simulate`, the fleet's scheduling in virtual time
//! - [`fleet_testsuite`]: `pumice fleet testsuite`, Armada's test specifications against a server
//! - `fleet_faults`: a test of server and executors together, under faults
//!
//! Called by `pumice`, benchmarks and tests.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod check;
#[cfg(test)]
mod fleet_faults;
pub mod fleet_simulate;
pub mod fleet_testsuite;
pub mod simulate;
