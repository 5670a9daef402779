//! What `jobctl`, `vcctl` and the Python library share: from flags or a manifest to a Volcano Job, to its end, its logs and its
//! exit code.
//!
//! ```text
//!  flags ──► script ──► render ──► submit ─────────► platform ──► API server
//!             shards ─────┘   └──► bundle ──┘         (or fleet: the same requests as Armada's)
//!  job ◄── lookup · history · explain · logs · monitor ◄──┘
//! ```
//!
//! Modules stand in layers; each uses those above it only.
//!
//! - [`exit_code`], [`error`]: what a command ends with, and what helps after a failure
//! - [`names`], [`json`], [`output`]: names of objects; tables, spans of time and amounts in a terminal
//! - [`job`]: what a job is, read off its objects; [`manifest`], [`shards`], [`script`]: what work is made of (`#SBATCH`, arrays,
//!   days, rows of parameters)
//! - [`fleet`]: a fleet, which answers as a Kubernetes API would
//! - [`platform`]: which API to talk to, the connection, requests and watches
//! - [`bundle`]: parameters and results as content-addressed objects; [`render`]: from flags to a Job
//! - [`history`], [`lookup`], [`cluster`]: jobs of before, jobs of now, and queues, nodes and usage
//! - [`explain`], [`logs`], [`results`]: why a job waits or ended, what its pods wrote, what came of its records
//! - [`submit`], [`lifecycle`], [`monitor`], [`interactive`]: the verbs: create and retry; cancel, suspend, resume and delete; be
//!   there while a job runs; terminals and notebooks in pods
//!
//! *Invariant*: what renders, counts or judges is pure; what talks goes through [`Connection`] and [`platform::call`], never polls,
//! and survives a restart of the API server.
//! *Called by*: `bins/jobctl`, `crates/vcctl`, `python`.

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
