//! Work with a person in it: a program in a running pod of a job, and a way to a port of one.
//!
//! What a person meets is an [`InteractiveError`]; which pod is meant is in [`container_choice`]. Nothing here knows of a terminal.
//! Called by `jobctl shell` and `jobctl notebook`.

pub mod container_choice;
pub mod exec;
pub mod notebook;
pub mod port_forward;
pub mod program;

mod error;

pub use error::InteractiveError;
