//! Finding jobs on a platform, their pods and their events.
//!
//! Invariant: what is asked for and not there is an error that says so; a job that has been removed is looked for in the history.
//! Called by every verb that takes jobs, and by Python.

use pumice_api::batch::Job;
use pumice_api::history::DELETED;
use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;
use crate::history;
use crate::job::{JobError, JobRef, JobRow};
use crate::platform::call::{self, CallError, FailureClass};
use crate::platform::connection::Connection;

pub mod completions;
pub mod events;
mod job_filter;
mod job_list;
pub mod pods;

pub use job_filter::*;
pub use job_list::*;

/// Reads a job; [`JobError::NoJob`] if there is none, [`JobError::Removed`] if the history knows that there was.
pub async fn get(connection: &Connection, job: &JobRef) -> Result<Value, Error> {
    let doing = format!("read job {}", job.name);
    match call::get(connection, &job.path(), &doing).await {
        Ok(object) => Ok(object),
        Err(error) if error.class() == FailureClass::NotFound => Err(removed(connection, job).await),
        Err(error) => Err(error.into()),
    }
}

/// What is to be said of a job that isn't there. Without a history, or without the right to read it, nothing more is known.
async fn removed(connection: &Connection, job: &JobRef) -> Error {
    let past = history::one(connection, &job.namespace, &job.name, None).await.ok();
    let Some(ended) = past.filter(|past| past.phase != DELETED).and_then(|past| past.ended) else {
        return job.missing().into();
    };
    JobError::Removed {
        name: job.name.clone(),
        namespace: job.namespace.clone(),
        ended: ended.strftime("on %Y-%m-%d at %H:%M UTC").to_string(),
        flag: job.namespace_flag(),
    }
    .into()
}

/// What a list needs of a job.
pub fn row(connection: &Connection, object: &Value) -> Result<JobRow, CallError> {
    JobRow::deserialize(object).map_err(|error| CallError::unreadable("read a job", connection.url(), error))
}

/// The typed view of a job.
pub fn typed(connection: &Connection, object: &Value) -> Result<Job, Error> {
    Job::deserialize(object).map_err(|error| CallError::unreadable("read a job", connection.url(), error).into())
}
