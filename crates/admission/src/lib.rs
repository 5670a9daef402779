//! What Volcano's objects must look like: filled in on create, judged on every write.
//!
//! The rules are pure functions over one object and a [`View`] of the others; their words are Volcano's.
//! [`VolcanoAdmission`] puts them behind the API server's seam, in process; [`server`] behind a real API server's webhooks.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod adapter;
pub mod cron_job;
mod findings;
pub mod hyper_node;
pub mod job;
pub mod job_flow;
mod order;
pub mod pod;
pub mod pod_group;
pub mod policies;
pub mod queue;
mod resource_groups;
pub mod review;
mod routes;
mod rules;
pub mod server;
pub mod tenant;
mod tenant_objects;
pub mod tenant_pods;
mod tenants;
pub mod user;
mod view;

pub use adapter::VolcanoAdmission;
pub use findings::Findings;
pub use rules::{LiveRules, QUEUE_DEPTH_MAX, Rules};
pub use tenants::TenantAdmission;
pub use view::View;
