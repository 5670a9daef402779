//! From a Kubernetes Pod to what its shim is told (`spec.json`): environment, volumes, tokens, security, and the objects that it
//! refers to.
//!
//! ```text
//!   Pod + sources (ConfigMaps, Secrets, claims, tokens) ──resolve──> ShimSpec + planned volumes
//! ```
//! Called by the agent when it starts a pod.

pub(crate) mod claims;
mod disk_limits;
mod environment;
pub(crate) mod ephemeral;
pub(crate) mod names;
pub(crate) mod resolve;
pub(crate) mod security;
pub(crate) mod sources;
pub(crate) mod tokens;
mod users;
pub(crate) mod volumes;
