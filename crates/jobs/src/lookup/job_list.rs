//! All jobs of a place, kept up to date by a watch.
//!
//! Invariant: what is kept of a job is its summary. [`JobList::next`] is cancellation safe. Called by `jobctl`'s live view.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream::BoxStream;

use crate::error::Error;
use crate::job::{JobRow, jobs_path};
use crate::platform::call::CallError;
use crate::platform::connection::Connection;
use crate::platform::watch::{Collection, Update, follow};

/// What a list has learned; the jobs themselves are in [`JobList::jobs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Jobs,
    /// The server does not answer; what is known is old.
    Lost,
    Back,
}

/// Jobs as they are now.
pub struct JobList {
    jobs: BTreeMap<String, JobRow>,
    update: BoxStream<'static, Result<Update<JobRow>, CallError>>,
}

impl JobList {
    /// Those of a namespace, or of all. Nothing is sent before the first [`JobList::next`].
    pub fn new(connection: Connection, namespace: Option<&str>) -> Self {
        let collection = Collection { path: jobs_path(namespace), labels: String::new(), fields: String::new() };
        JobList { jobs: BTreeMap::new(), update: follow(connection, collection) }
    }

    /// Waits for the next change; an error ends it.
    pub async fn next(&mut self) -> Result<Change, Error> {
        let Some(update) = self.update.next().await else {
            // The stream ends only after an error, which was returned before.
            return std::future::pending().await;
        };
        match update? {
            Update::Snapshot(jobs) => {
                self.jobs = jobs.into_iter().map(|job| (job.metadata.uid.clone(), job)).collect();
            }
            Update::Changed(job) => {
                self.jobs.insert(job.metadata.uid.clone(), job);
            }
            Update::Gone(job) => {
                self.jobs.remove(&job.metadata.uid);
            }
            Update::Lost(_) => return Ok(Change::Lost),
            Update::Back => return Ok(Change::Back),
        }
        Ok(Change::Jobs)
    }

    /// The jobs, newest first.
    pub fn jobs(&self) -> Vec<JobRow> {
        let mut jobs: Vec<JobRow> = self.jobs.values().cloned().collect();
        jobs.sort_by(|a, b| b.birth().cmp(&a.birth()));
        jobs
    }
}
