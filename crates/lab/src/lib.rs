//! The lab: what tries the scheduler out without a cluster. Nothing here runs in a component.
//!
//! - [`check`]: `pumice scheduler check`, cases with what must come out of one cycle
//! - [`simulate`]: `pumice scheduler simulate` and `what-if`, workloads in virtual time: trace formats, models, baselines,
//!   figures and pictures
//!
//! Called by `pumice`, benchmarks and tests.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod check;
pub mod simulate;
