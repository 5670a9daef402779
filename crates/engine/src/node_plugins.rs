//! Plugins about nodes, one per file: which nodes may take a pod, and which of them is best (`nodeorder` scores as
//! kube-scheduler does, images on the node included). Those about jobs and queues are in `job_plugins`; a new one gets its line
//! in `builtin_plugins`.

pub(crate) mod binpack;
mod decisions;
pub(crate) mod deviceshare;
pub(crate) mod network_topology_aware;
pub(crate) mod nodegroup;
pub(crate) mod nodeorder;
pub(crate) mod numa_aware;
mod per_node;
pub(crate) mod predicates;
pub(crate) mod resource_strategy_fit;
pub(crate) mod task_topology;
pub(crate) mod tdm;
pub(crate) mod usage;
