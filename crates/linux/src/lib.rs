//! What Linux offers to run pods with, each as a module of its own.
//!
//! - processes: [`procfs`], [`pidfd`], [`freezer`], [`oom`], [`cpu_turns`], [`huge_pages`], [`last_argument`]
//! - control groups of both versions: [`cgroup`]
//! - files: [`files`] (written whole), [`paths`] (in a root that is not ours), [`tree`] (removed and measured), [`detached_mount`],
//!   [`mount_table`], [`disk_device`]
//! - networks: [`netlink`], [`links`], [`network_namespace`]
//!
//! *Invariant*: no runtime, no threads, nothing of pods or of their API: the shim is a small program.
//! *Called by*: the node agent and its shims.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod cgroup;
pub mod cpu_turns;
pub mod detached_mount;
pub mod disk_device;
pub mod files;
pub mod freezer;
pub mod huge_pages;
pub mod last_argument;
pub mod links;
pub mod mount_table;
pub mod netlink;
pub mod network_namespace;
pub mod oom;
pub mod paths;
pub mod pidfd;
pub mod procfs;
pub mod tree;
