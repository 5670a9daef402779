//! Plugins about jobs and queues, one per file: who goes first, how much a queue may have, when a gang may start, and who may be
//! evicted. Those about nodes are in `node_plugins`; a new one gets its line in `builtin_plugins`.

mod admission;
pub(crate) mod capacity;
pub(crate) mod cdp;
pub(crate) mod conformance;
pub(crate) mod deadline;
pub(crate) mod drf;
pub(crate) mod gang;
pub(crate) mod overcommit;
pub(crate) mod pdb;
pub(crate) mod priority;
pub(crate) mod proportion;
pub(crate) mod rescheduling;
pub(crate) mod resourcequota;
pub(crate) mod sla;
