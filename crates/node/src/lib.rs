//! Runs pods as processes on this machine.
//!
//! (Or pretends to: [`SimulatedNodes`].) Two halves that meet in a pod's directory only: the shim ([`pumice_shim`]), one small process per pod that
//! outlives the platform, and the agent, which follows the API server and starts, stops, adopts and
//! reports shims.
//!
//! ```text
//!   Pod ──agent/pods──> pod_spec (spec.json), images, networks ──launcher──> shim ──> containers
//!             │                                                       │
//!             └──> probes, usage, pod_status <── shim_watch <─────────┘ status.json, logs
//!   client ──kubelet_api──> logs, container_exec, streams
//! ```

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod capabilities;
mod confinement;
mod container_console;
mod container_exec;
mod disk_condition;
mod downward_api;
mod firewall;
mod found_pods;
mod grace;
mod image_pruning;
mod images;
mod kubelet_api;
mod launcher;
mod layout;
mod lease;
mod logs;
mod nat;
mod networks;
mod node_images;
mod pod_calls;
mod pod_events;
mod pod_images;
mod pod_index;
mod pod_journal;
mod pod_spec;
mod pod_status;
mod pods_folder;
mod probes;
mod project_quota;
mod shim_starter;
mod shim_watch;
mod simulated;
mod spec_numbers;
mod streams;
mod subordinate_ids;
mod survivors;
mod usage;

pub use agent::{
    AgentError, Handle, NodeAgent, Options, POD_PIDS_MAX, SetAside, SetAsideError, TornDown, Unended, finish_removals,
    host_ip, remove_set_aside, set_aside, tear_down,
};
pub use capabilities::{Capabilities, LayerLimit};
pub use confinement::accelerators::DeviceFolders;
pub use image_pruning::prune_images;
pub use images::{ImageContent, ImageEntry, ImageMap, ImageMapError};
pub use kubelet_api::NodeBody;
pub use launcher::ShimProgram;
pub use layout::images_dir;
pub use networks::bridge::BridgeError;
pub use simulated::{
    Counts, Faults, FaultsError, NODES_MAX, NodeShape, NodeShapeError, SimulatedError, SimulatedHandle, SimulatedNodes,
    SimulatedOptions,
};
