//! The agent of one cluster: takes leases from the fleet's server, makes pods of them, and reports how they end.
//!
//! [`Executor`] is the component. [`core`] decides, from plain facts and without a clock; [`pod`] makes objects of a lease; [`facts`] reads pods. Invariant:
//! there is never more than one pod of a run, and every run that was leased comes to an end that is reported until the
//! server has it. The pods are the only store: what an executor knows after a restart stands in their labels.

mod calls;
pub mod categories;
pub mod core;
mod errands;
pub mod facts;
pub mod labels;
mod link;
mod names;
mod nodes;
pub mod pod;
mod run;
mod servers;
pub mod settings;
pub mod stuck;
mod usage;
mod watched;

pub use core::{Core, Input, Output, SettingsError};
pub use facts::{PodFacts, PodPhase};
pub use run::{BuildError, Executor, Options, build};
pub use settings::Settings;
pub use watched::{Handle, RunCounts};
