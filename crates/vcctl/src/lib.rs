//! What Volcano's command line does: its verbs, tables and texts, over `jobs`' connection.
//!
//! Invariant: data goes to the session's `out` and everything else to `notes`; every failure is an [`Error`], which has an
//! exit code other than 0. Lists are read page by page: what is kept of an object is its row, and objects that are printed
//! whole are printed as they come. The clock and the environment are arguments. Called by `bins/pumice`, which has the flags.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod cron;
pub mod documents;
pub mod error;
pub mod flow;
pub mod job;
pub mod kinds;
pub mod links;
pub mod list;
pub mod objects;
pub mod pod;
pub mod queue;
pub mod reservation;
pub mod session;
pub mod table;
pub mod tenant;
pub mod version;
mod words;

pub use error::Error;
pub use kinds::Kind;
pub use list::Form;
pub use session::{NamespacedName, Scope, Session};
