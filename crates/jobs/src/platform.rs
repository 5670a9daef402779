//! The platform that commands talk to: which one it is, the connection to it, requests and watches.
//!
//! Invariant: nothing is polled, and everything survives a restart of the API server. A fleet answers the same requests: see
//! [`crate::fleet`]. Called by every module that talks.

mod advice;
pub mod autostart;
pub mod call;
pub mod connection;
pub mod contexts;
pub mod target;
pub mod user;
pub mod watch;

pub use advice::next_command;

/// What helps where no platform can be used: another one.
const NAME_ONE: &str = "jobctl --kubeconfig FILE list";
