//! Removing a job: its object, and what it owns (its pods with their logs, its script or bundle, its group).
//!
//! Invariant: work that can still go on is removed only by force: a cancel keeps the job's state and its log, a removal keeps
//! nothing. What is removed is the job that was looked at, and no later one of its name. Called by `jobctl delete`.

use futures::StreamExt;
use futures::stream;
use pumice_api::batch::JobPhase;
use serde_json::json;

use crate::error::Error;
use crate::job::{JobError, JobRef};
use crate::lookup;
use crate::platform::call::{self, FailureClass};
use crate::platform::connection::Connection;
use crate::platform::watch::{JobUpdate, JobWatch};

/// Jobs removed at the same time.
const AT_ONCE: usize = 32;

/// What a removal may end, and how long it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removal {
    /// Also a job that has not ended: its pods are ended first.
    pub force: bool,
    /// Return when nothing of it is left.
    pub wait: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// Nothing of it is left.
    Gone,
    /// It was asked for; nobody waited.
    Requested,
}

/// Removes a job; [`JobError::NotEnded`] if it has not ended and is not to be forced. Dropping the future leaves the removal asked for.
pub async fn delete(connection: &Connection, job: &JobRef, removal: Removal) -> Result<Deleted, Error> {
    let object = lookup::get(connection, job).await?;
    let typed = lookup::typed(connection, &object)?;
    let ended = typed.status.state.phase.as_ref().is_some_and(JobPhase::is_finished);
    if !ended && !removal.force {
        return Err(JobError::NotEnded { name: job.name.clone(), flag: job.namespace_flag() }.into());
    }
    // In the foreground: the name is free when the job is gone, since its pods went before.
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground",
        "preconditions": {"uid": typed.metadata.uid},
    });
    match call::delete_as(connection, &job.path(), &options, &format!("delete job {}", job.name)).await {
        Ok(_) if !removal.wait => return Ok(Deleted::Requested),
        Ok(_) => {}
        // Somebody else removed it, and may have made another of its name.
        Err(error) if matches!(error.class(), FailureClass::NotFound | FailureClass::Conflict) => {
            return Ok(Deleted::Gone);
        }
        Err(error) => return Err(error.into()),
    }
    let mut follower = JobWatch::new(connection.clone(), job.clone());
    loop {
        match follower.next().await {
            Ok(JobUpdate::Gone) => return Ok(Deleted::Gone),
            Err(error) if JobError::is_no_job(&error) => return Ok(Deleted::Gone),
            Ok(JobUpdate::Now(now)) if now.metadata.uid != typed.metadata.uid => return Ok(Deleted::Gone),
            Ok(JobUpdate::Now(_) | JobUpdate::Lost(_) | JobUpdate::Back) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes many jobs, some at the same time, and tells of each when it is done. One job's failure stops no other.
pub async fn delete_all(
    connection: &Connection,
    jobs: &[JobRef],
    removal: Removal,
    mut tell: impl FnMut(&JobRef, Result<Deleted, Error>),
) {
    let mut deleted =
        stream::iter(jobs).map(|job| async move { (job, delete(connection, job, removal).await) }).buffered(AT_ONCE);
    while let Some((job, outcome)) = deleted.next().await {
        tell(job, outcome);
    }
}
