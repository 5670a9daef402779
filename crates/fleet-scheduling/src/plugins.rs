//! What the fleet adds to the engine's policy, each as a plugin of the engine.

pub(crate) mod class_shares;
pub(crate) mod home_filter;
pub(crate) mod job_order;
pub(crate) mod limits;
pub(crate) mod short_job_penalty;
