//! Armada's test specifications, run against a server of a fleet as Armada's own test suite runs them.
//!
//! A specification says what is submitted, what is done then, and which events every job has to see. [`Spec`], [`Matcher`]
//! and [`junit()`] are pure; [`run`] talks to the server, within the specification's timeout. Invariant: nothing that a
//! specification says is passed over: what the server does not have makes the case fail, with the server's words. One thing
//! of Armada's own is not done: it also fetches a page from every ingress that an event tells of.

mod action;
mod case_run;
mod event_stream;
mod events;
mod expected;
mod failure;
mod junit;
mod matcher;
mod queues;
mod server;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub use case_run::run;
pub use events::Kind;
pub use expected::{Difference, Expected};
pub use failure::Failure;
pub use junit::junit;
pub use matcher::{Matcher, Mismatch, Waiting};
pub use server::{ConnectError, Server};
pub use spec::{Action, Assertion, PlannedAction, QueueCase, Spec, SpecError, Submission};

/// A specification under its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What it is called in the report; job sets have it in their ids.
    pub name: String,
    pub spec: Spec,
}

/// How cases are run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Annotations that every submitted job gets besides its own, and instead of those of the same key.
    pub annotations: BTreeMap<String, String>,
    /// Namespaces in which jobs of other ones are run, by those that they name.
    pub namespaces: BTreeMap<String, String>,
}

/// How a case went.
#[derive(Debug)]
pub struct Report {
    pub name: String,
    /// How long it took, with what was cleared away after it.
    pub took: Duration,
    /// Why it failed; nothing where it passed.
    pub failure: Option<Failure>,
    /// What is worth knowing besides.
    pub notes: Vec<String>,
}
