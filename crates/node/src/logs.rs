//! Logs of containers: what of one is asked for, reading and following it, and those of pods that are gone.
//!
//! Called by the node's kubelet API; the agent retains logs when a pod goes.

pub(crate) mod query;
pub(crate) mod reader;
pub(crate) mod retained;
