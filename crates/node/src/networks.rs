//! Networks of pods: the node's bridge and its addresses, hosts files, and sockets made in a pod's own network.
//!
//! Called by the agent, by probes and by port-forwards.

pub(crate) mod addresses;
pub(crate) mod ahead;
pub(crate) mod bridge;
pub(crate) mod hosts_file;
pub(crate) mod names;
pub(crate) mod pod_network;
pub(crate) mod resolver;
