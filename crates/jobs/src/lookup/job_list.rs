//! All jobs of a place, kept up to date by a watch.
//!
//! Invariant: what is kept of a job is its summary. [`Live::next`] is cancellation safe. Called by `jobctl`'s live view.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream::BoxStream;

use crate::error::Error;
use crate::job::{Summary, jobs_path};
use crate::platform::call::CallError;
use crate::platform::connection::Connection;
use crate::platform::watch::{Collection, News, follow};

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The jobs.
    Jobs,
    /// The server does not answer; what is known is old.
    Lost,
    /// It answers again.
    Back,
}

/// Jobs as they are now.
pub struct Live {
    jobs: BTreeMap<String, Summary>,
    news: BoxStream<'static, Result<News<Summary>, CallError>>,
}

impl Live {
    /// Those of a namespace, or of all. Nothing is sent before the first [`Live::next`].
    pub fn new(connection: Connection, namespace: Option<&str>) -> Self {
        let collection = Collection { path: jobs_path(namespace), labels: String::new(), fields: String::new() };
        Live { jobs: BTreeMap::new(), news: follow(connection, collection) }
    }

    /// Waits for the next change; an error ends it.
    pub async fn next(&mut self) -> Result<Change, Error> {
        let Some(news) = self.news.next().await else {
            // The stream ends only after an error, which was returned before.
            return std::future::pending().await;
        };
        match news? {
            News::Snapshot(jobs) => {
                self.jobs = jobs.into_iter().map(|job| (job.metadata.uid.clone(), job)).collect();
            }
            News::Changed(job) => {
                self.jobs.insert(job.metadata.uid.clone(), job);
            }
            News::Gone(job) => {
                self.jobs.remove(&job.metadata.uid);
            }
            News::Lost(_) => return Ok(Change::Lost),
            News::Back => return Ok(Change::Back),
        }
        Ok(Change::Jobs)
    }

    /// The jobs, newest first.
    pub fn jobs(&self) -> Vec<Summary> {
        let mut jobs: Vec<Summary> = self.jobs.values().cloned().collect();
        jobs.sort_by(|a, b| b.birth().cmp(&a.birth()));
        jobs
    }
}
