//! Messages and services as they go over the network, and the paths under which HTTP clients call them.
//!
//! Invariant: names, numbers and JSON of [`api`], [`schedulerobjects`] and [`binoculars`] are Armada's; a test holds them
//! against a list of its facts. Servers and clients turn these types into ones that can only be valid at once.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[rustfmt::skip]
#[allow(rustdoc::all, clippy::all, clippy::redundant_clone, clippy::large_futures, clippy::unwrap_used)]
mod generated;

pub use crate::generated::api;
pub use crate::generated::binoculars;
pub use crate::generated::pumice::fleet::v1 as executor;
pub use crate::generated::pumice::job_sets::v1 as job_sets;
pub use crate::generated::schedulerobjects;

#[cfg(feature = "client")]
pub mod client;
pub mod kubernetes;
pub mod rest;
pub mod wellknown;

/// Beside an answer of [`binoculars`]: the number of the pod whose log it is. Beside a request: that one is meant and no other.
/// Who goes on asking says so, since the number 0 of a request means the last pod.
pub const LOG_POD: &str = "pumice-log-pod";
/// Beside an answer of [`binoculars`]: there is more, from the time of the last line on.
pub const LOG_MORE: &str = "pumice-log-more";
/// Beside an answer of [`binoculars`]: the container has ended, so that nothing more will be written.
pub const LOG_ENDED: &str = "pumice-log-ended";
