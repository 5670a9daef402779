//! The agent of one cluster: takes leases from the fleet's server, makes pods of them, and reports how they end.
//!
//! [`Executor`] is the component. [`core`] decides, from plain facts and without a clock; [`pod`] makes objects of a lease; [`facts`] reads pods. Invariant:
//! there is never more than one pod of a run, and every run that was leased comes to an end that is reported until the
//! server has it. The pods are the only store: what an executor knows after a restart stands in their labels.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod calls;
mod commands;
mod component;
pub mod core;
pub mod error_categories;
pub mod facts;
pub mod labels;
mod metrics;
mod nodes;
pub mod pending_checks;
pub mod pod;
mod pod_index;
mod server_stream;
mod servers;
pub mod settings;
mod usage;

pub use component::{BuildError, Executor, Options, build};
pub use core::{Core, Input, Output, SettingsError};
pub use facts::{PodFacts, PodPhase};
pub use metrics::{Handle, RunCounts};
pub use settings::Settings;
