//! SQLite or Postgres, as the fleet's server and the history use them: where a database is, how it is opened, and what an
//! upgrade of its format shares.
//!
//! - [`location`]: a file or an address, and which addresses are refused
//! - [`sqlite`]: one connection that writes and others that only read; copies of a file
//! - [`migrations`]: the statements of steps from one format to the next
//!
//! *Invariant*: nothing here knows a table; statements, and the words of errors, are those of whoever uses it.
//! *Called by*: `database` of `fleet-server` and of `history`.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod location;
pub mod migrations;
pub mod sqlite;

pub use location::{AddressError, Location, postgres_options};
