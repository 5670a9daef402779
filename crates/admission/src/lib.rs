//! What Volcano's objects must look like: filled in on create, judged on every write.
//!
//! The rules are pure functions over one object and a [`View`] of the others; their words are Volcano's.
//! [`VolcanoAdmission`] puts them behind the API server's seam.

mod adapter;
pub mod cron_job;
mod findings;
pub mod hyper_node;
pub mod job;
pub mod job_flow;
mod live;
mod order;
pub mod pod;
pub mod pod_group;
pub mod queue;
mod rules;
pub mod user;
mod view;

pub use adapter::VolcanoAdmission;
pub use findings::Findings;
pub use live::LiveRules;
pub use rules::Rules;
pub use view::View;
