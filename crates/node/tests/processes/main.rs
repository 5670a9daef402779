//! Pods with real processes: the shim alone, its network, and the agent against the embedded API server.
//!
//! This binary is also the shim that they start; see [`shim_entry`].

#![allow(clippy::unwrap_used, reason = "the harness of a test fails by panicking")]

mod accelerators;
mod added;
mod agent;
mod attach;
mod attend;
mod devices;
mod disk;
mod disk_limits;
mod ends;
mod ephemeral;
mod exec;
mod firewall;
mod firewall_ground;
mod grace;
mod harness;
mod images;
mod networks;
mod node;
mod own_users;
mod port_forward;
mod rootless;
mod security_fields;
mod shim;
mod side_doors;
mod starter;
mod tokens;
mod trouble;

#[test]
fn shim_entry() {
    harness::shim_entry();
}
