//! The fleet's server: many clusters as one behind an API that Armada's clients speak.
//!
//! ```text
//!   clients ──> gateway ──> api ──────────────> database (one log) <── leader ──> sessions <──> executor_streams
//!                  │                                                     │
//!                  ├──> reports, binoculars, health, metrics <───────────┤
//!                  └──> executor_commands                      fleet-scheduling (pools), bidding
//! ```
//!
//! - [`gateway`]: what the listener answers, and to whom; [`gateway`]'s `rest` is the JSON of HTTP clients
//! - [`api`]: Armada's calls over the database
//! - [`database`]: the log and its tables, in SQLite or Postgres; `database/write_batches.rs` has the sizes of its writes
//! - [`leader`]: the one server that folds, schedules and decides; `leader/retention.rs` removes what is over
//! - [`sessions`]: conversations with executors; `sessions/lease_expiry.rs` has the times after which silence counts
//! - [`doctor`]: what is wrong with a fleet, and what to do
//!
//! [`pumice_wire`] is what goes over the network; everything else speaks in types of its own.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod bidding;
pub mod binoculars;
pub mod config;
pub mod database;
pub mod doctor;
pub mod executor_commands;
pub mod executor_streams;
pub mod gateway;
pub mod health;
pub mod leader;
pub mod metrics;
pub mod reports;
pub mod sessions;
