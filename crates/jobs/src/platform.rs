//! The platform that commands talk to: which one it is, the connection to it, requests and watches.
//!
//! Invariant: nothing is polled, and everything survives a restart of the API server. A fleet answers the same requests: see
//! [`crate::fleet`]. Called by every module that talks.

pub mod autostart;
pub mod call;
pub mod connection;
pub mod contexts;
pub mod expiry;
pub mod local_socket;
pub mod login;
pub mod target;
pub mod user;
pub mod watch;
pub mod whoami;

use crate::error::{Error, Remedy};
use target::Target;

/// What helps where no platform can be used: another one.
const NAME_ONE: &str = "jobctl --kubeconfig FILE list";

/// What helps next, a command where there is one. `target` is what the command talked to, if it got that far.
pub fn next_command(error: &Error, target: Option<&Target>) -> Option<String> {
    match error.remedy() {
        Remedy::Unknown => None,
        Remedy::Do(text) => Some(text),
        Remedy::Reach { answers } => target.map(|target| target.help_command(answers)),
        Remedy::OtherUser if matches!(target, Some(Target::Fleet(_))) => None,
        Remedy::OtherUser => Some("jobctl --kubeconfig FILE ... with a user that may do this".to_owned()),
    }
}
