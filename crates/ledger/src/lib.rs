//! The fleet's ledger: what happened to jobs, event by event, and what is to happen next.
//!
//! [`Ledger::fold`] takes in entries of the log, in their order, and nothing else changes it: folding the same entries
//! again gives the same ledger. [`Ledger::decide`] says which entries follow from what was asked and reported; they count
//! only once they are written and folded. An event that does not fit the state it meets is refused, so that an entry which
//! comes late, twice or from a leader that is none any more changes nothing.
//!
//! Pure: no I/O, no clock, no randomness. The fleet's server feeds it from its database, and obeys.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod asked;
mod away;
mod broad;
mod decide;
mod event;
mod executor;
mod fold;
mod gang;
mod ids;
mod job;
mod ledger;
mod lines;
mod memory;
mod pages;
mod price;
mod queue;
mod restore;
mod retries;
mod silence;
mod tally;
mod whole;

pub use away::{Away, AwayToleration};
pub use broad::SavedBroad;
pub use decide::{CouldHold, Inbox, Proposal, Report, ReportKind};
pub use event::{
    Cause, ContainerEnd, Entry, Event, Failure, Filter, Gang, NodeRef, PodRef, Preemption, Scope, Shape, Submitted,
};
pub use executor::ExecutorSettings;
pub use fold::Refusal;
pub use ids::{Digest, IdError, JobId, RunId, TimeMs};
pub use job::{Asked, Ended, Job, Phase, Run, RunPhase};
pub use ledger::{Changes, Ledger, PriorityClass, PriorityClasses};
pub use lines::Place;
pub use memory::{BumpError, Grown, Growth, MemoryBump};
pub use price::PriceBand;
pub use queue::{ClassLimit, Permission, Queue, QueueView, Subject, SubjectKind, Verb};
pub use restore::{RestoreError, Saved, SavedJob, SavedRun};
pub use retries::{
    AffinityMutation, Mutation, OwnRetries, PolicyError, ResourceMutation, Retries, RetryAction, RetryPolicies,
    RetryPolicy, RetryRule,
};
pub use silence::Silence;
pub use tally::{Ages, Held, Tally};
pub use whole::{Part, Place as PodPlace, Whole};

#[cfg(test)]
mod tests;
