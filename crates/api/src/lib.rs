//! Types of Volcano's API groups, their custom resource definitions and the names everyone agrees on.
//!
//! These are wire types: they accept and emit exactly what Volcano's Go types do. An empty string, list, map or zero is the
//! same as an absent field and is not written; `null` reads as absent; enum values nobody knows survive a round trip.
//! Meaning and limits live elsewhere: admission judges, `machines` and `engine` parse once at their edge.
//!
//! Every kind implements [`k8s_openapi::Resource`] and [`k8s_openapi::Metadata`], so `kube::Api<Job>` works as it does for
//! built-in kinds.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod wire;
#[macro_use]
mod resource;

pub mod batch;
pub mod bus;
pub mod colocation;
mod condition;
pub mod crds;
pub mod directory;
pub mod flow;
pub mod grouping;
pub mod history;
pub mod kubelet;
pub mod names;
pub mod network_topology;
pub mod nodeinfo;
pub mod profile;
pub mod reservation;
pub mod retention;
pub mod scheduling;
pub mod shard;
pub mod tenant;
pub mod topology;

pub use resource::CustomResource;
