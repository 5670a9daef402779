//! What a Job object says in short, as plain data: one shape for every surface that hands it on to programs.
//!
//! Invariant: it says no more than the Job object does, so a job of 300,000 pods costs the same as one of three. Pure.
//! Called by the Python extension.

use jiff::Timestamp;
use pumice_api::batch::Job;
use serde::Serialize;

use crate::job::{Counts, end_of, exit_of_end};

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobDocument {
    pub name: String,
    pub namespace: String,
    /// Its uid: another job of the same name has another.
    pub uid: String,
    pub queue: String,
    /// The phase as Volcano writes it; `New` before the controller has seen the job.
    pub phase: String,
    /// Why it is in that phase, in a word; may be empty.
    pub reason: String,
    /// The same in a sentence; may be empty.
    pub message: String,
    /// How it ended: `completed`, `failed`, `terminated` or `suspended`; nothing while it goes on.
    pub end: Option<&'static str>,
    /// The exit code that says how it ended.
    pub exit_code: Option<u8>,
    #[serde(flatten)]
    pub counts: Counts,
    /// How often it was started again as a whole.
    pub restarts: i32,
    /// When it was made.
    pub created: Option<Timestamp>,
}

impl JobDocument {
    /// What a Job object says.
    pub fn of(job: &Job) -> Self {
        let (metadata, state) = (&job.metadata, &job.status.state);
        let end = end_of(job);
        JobDocument {
            name: metadata.name.clone().unwrap_or_default(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            queue: job.spec.queue.clone(),
            phase: state.phase.as_ref().map_or_else(|| "New".to_owned(), ToString::to_string),
            reason: state.reason.clone(),
            message: state.message.clone(),
            end: end.map(|end| end.word()),
            exit_code: end.map(|end| exit_of_end(job, end).code()),
            counts: Counts::of(job),
            restarts: job.status.retry_count,
            created: metadata.creation_timestamp.as_ref().map(|at| at.0),
        }
    }
}
