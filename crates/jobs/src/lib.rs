//! What `jobctl` and the Python library share: from flags or a manifest to a Volcano Job, to its
//! end, its logs and its exit code.
//!
//! Every module that renders, counts or judges is pure; the ones that talk go through
//! [`connection::Connection`] and [`call`], never poll, and survive a restart of the API server.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod account;
pub mod act;
pub mod age;
pub mod attend;
pub mod autostart;
pub mod brief;
pub mod bundle;
pub mod bundled;
pub mod call;
pub mod command;
pub mod connection;
pub mod context;
pub mod debug;
pub mod delete;
pub mod error;
pub mod events;
pub mod fleet;
pub mod glob;
pub mod history;
pub mod idempotency;
pub mod interactive;
pub mod links;
pub mod list;
pub mod live;
pub mod load;
pub mod logs;
pub mod manifest;
pub mod marked;
pub mod memory_news;
pub mod names;
pub mod node;
pub mod outcome;
pub mod pick;
pub mod pods;
pub mod progress;
pub mod queue;
pub mod records;
pub mod render;
pub mod report;
pub mod results;
pub mod retry;
pub mod script;
pub mod select;
pub mod shards;
pub mod state;
pub mod submit;
pub mod suggest;
pub mod summary;
pub mod table;
pub mod target;
pub mod user;
pub mod watch;
pub mod why;

pub use connection::Connection;
pub use error::Error;
pub use outcome::Exit;
