//! The fleet's ledger: what happened to jobs, event by event, and what is to happen next.
//!
//! [`Ledger::fold`] takes in entries of the log, in their order, and nothing else changes it: folding the same entries
//! again gives the same ledger. [`Ledger::decide`] says which entries follow from what was asked and reported; they count
//! only once they are written and folded. An event that does not fit the state it meets is refused, so that an entry which
//! comes late, twice or from a leader that is none any more changes nothing.
//!
//! ```text
//!   event (the log) ──fold──> ledger (jobs, runs, queues) ──decide──> event
//!                     requests, carry_out        │  retries, heartbeat_timeout, memory
//!                                                └──restore── what a database saved
//! ```
//!
//! Pure: no I/O, no clock, no randomness. The fleet's server feeds it from its database, and obeys.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bulk_operations;
mod carry_out;
mod counters;
mod decide;
mod event;
mod failure;
mod fold;
mod heartbeat_timeout;
mod ids;
mod interned;
mod job;
mod ledger;
mod limits;
mod memory;
mod memory_bump;
mod price_band;
mod queue;
mod queue_order;
mod refusal;
mod requests;
mod restore;
mod retries;
mod shape;
mod slab;
mod volcano_job;

pub use bulk_operations::SavedBulkOperation;
pub use counters::{Ages, Counter, UsageKey};
pub use decide::{CouldHold, Inbox, Proposal, Report, ReportKind};
pub use event::{Entry, Event, ExecutorSettings, Filter, Gang, Scope, Submitted};
pub use failure::{Cause, ContainerEnd, Failure, Preemption};
pub use heartbeat_timeout::HeartbeatTimeout;
pub use ids::{Digest, IdError, JobId, NodeRef, PodRef, RunId, TimeMs};
pub use job::{Away, AwayToleration, Ended, Job, PendingRequests, Phase, Run, RunPhase};
pub use ledger::{Changes, GangView, Ledger, PriorityClass, PriorityClasses};
pub use memory::{Grown, Growth};
pub use memory_bump::{BumpError, MemoryBump};
pub use price_band::PriceBand;
pub use queue::{ClassLimit, PRIORITY_FACTOR_MIN, Permission, Queue, QueueView, Subject, SubjectKind, Verb};
pub use queue_order::Rank;
pub use refusal::Refusal;
pub use restore::{RestoreError, Saved, SavedJob, SavedRun};
pub use retries::{
    AffinityMutation, Mutation, OwnRetries, PolicyError, ResourceMutation, Retries, RetryAction, RetryPolicies,
    RetryPolicy, RetryRule,
};
pub use shape::Shape;
pub use volcano_job::{NodePods, VolcanoJob, VolcanoTask};

#[cfg(test)]
mod tests;
