//! What `jobctl` and the Python library share: from flags or a manifest to a Volcano Job, to its
//! end, its logs and its exit code.
//!
//! Every module that renders, counts or judges is pure; the ones that talk go through
//! [`connection::Connection`] and [`call`], never poll, and survive a restart of the API server.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bundle;
pub mod cluster;
pub mod error;
pub mod exit_code;
pub mod explain;
pub mod fleet;
pub mod history;
pub mod interactive;
pub mod job;
pub mod json;
pub mod lifecycle;
pub mod logs;
pub mod lookup;
pub mod manifest;
pub mod monitor;
pub mod names;
pub mod output;
pub mod platform;
pub mod render;
pub mod results;
pub mod script;
pub mod shards;
pub mod submit;

pub use error::Error;
pub use exit_code::Exit;
pub use platform::connection::Connection;
