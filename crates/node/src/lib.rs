//! Runs pods as processes on this machine.
//!
//! (Or pretends to: [`SimulatedNodes`].) Two halves that meet in a pod's directory only: the [`shim`], one small process per pod that
//! outlives the platform, and the agent, which follows the API server and starts, stops, adopts and
//! reports shims.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod cgroup;
mod cpu_turns;
mod detached_mount;
mod files;
pub mod huge_pages;
mod lease;
mod links;
mod nat;
mod netlink;
mod oom;
mod paths;
mod pidfd;
mod procfs;
pub mod shim;
mod simulated;
mod survivors;
mod tree;

pub use agent::{
    AgentError, BridgeError, Capabilities, Handle, ImageEntry, ImageMap, ImageMapError, NodeAgent, NodeBody, Options,
    POD_PIDS_MAX, SetAside, SetAsideError, ShimCommand, TornDown, Unended, finish_removals, host_ip, remove_set_aside,
    set_aside, tear_down,
};
pub use cgroup::{CgroupSpec, Hierarchy, Limits};
pub use oom::spare_this_process;
pub use shim::shim_main;
pub use simulated::{
    Counts, Faults, FaultsError, NODES_MAX, NodeShape, NodeShapeError, SimulatedError, SimulatedHandle, SimulatedNodes,
    SimulatedOptions,
};
