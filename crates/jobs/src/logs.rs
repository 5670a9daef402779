//! The logs of a job's pods, as lines, live or up to now.
//!
//! Invariant: each container run gives its lines once, in order, across reconnects; at most
//! [`STREAMS_MAX`] logs are open at a time. Lines of logs that are followed come as they are written, failed pods first;
//! else one log comes after the other, by task and index. [`JobLogs::next`] is cancellation safe.
//! Called by `jobctl logs` and `run`.

mod pod;

use std::collections::{HashSet, VecDeque};

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, SelectAll};
use k8s_openapi::api::core::v1::Pod;
use pumice_api::names;

use crate::call::{self, CallError};
use crate::connection::Connection;
use crate::error::Error;
use crate::select::JobRef;
use crate::watch::{Collection, News, follow};

pub use pod::{ContainerRun, LINE_BYTES_MAX, LogLine};

/// Logs read at the same time.
pub const STREAMS_MAX: usize = 32;

/// A job with more pods than this is not followed as a whole: nobody reads that, and to know its pods
/// costs gigabytes. Its pods are read one by one.
pub const PODS_FOLLOWED_MAX: u64 = 2000;

/// What to read.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Keep reading until the job ends.
    pub follow: bool,
    /// Only the last lines of each container.
    pub tail_lines: Option<u32>,
    /// Only this pod.
    pub pod: Option<String>,
    /// Only this container.
    pub container: Option<String>,
}

/// Log lines of a job.
pub struct JobLogs {
    connection: Connection,
    job: JobRef,
    options: LogOptions,
    /// News of the job's pods; `None` once no new pod matters.
    pods: Option<BoxStream<'static, Result<News<Pod>, CallError>>>,
    /// The last look at the pods, before draining.
    last_look: Option<BoxFuture<'static, Result<Vec<Pod>, CallError>>>,
    open: SelectAll<BoxStream<'static, Result<LogLine, CallError>>>,
    waiting: VecDeque<ContainerRun>,
    known: HashSet<ContainerRun>,
    /// The most containers that had to wait for a place.
    pub held_back_max: usize,
}

impl JobLogs {
    /// Reads the logs of a job. Nothing is sent before the first [`JobLogs::next`].
    pub fn new(connection: Connection, job: JobRef, options: LogOptions) -> Self {
        let mut logs = JobLogs {
            pods: None,
            last_look: None,
            open: SelectAll::new(),
            waiting: VecDeque::new(),
            known: HashSet::new(),
            held_back_max: 0,
            connection,
            job,
            options,
        };
        if logs.options.follow {
            logs.pods = Some(follow(logs.connection.clone(), pods_of(&logs.job)));
        } else {
            logs.job_ended();
        }
        logs
    }

    /// Says that the job ended: what is written is still read, then the lines end.
    pub fn job_ended(&mut self) {
        self.pods = None;
        let (connection, job) = (self.connection.clone(), self.job.clone());
        self.last_look = Some(async move { pods(&connection, &job).await }.boxed());
    }

    /// Which pods were seen.
    pub fn pods_seen(&self) -> usize {
        self.known.iter().map(|run| &run.pod).collect::<HashSet<_>>().len()
    }

    /// The next line; `None` when all is read. After an error the other pods' lines still come.
    pub async fn next(&mut self) -> Option<Result<LogLine, Error>> {
        loop {
            self.open_waiting();
            if let Some(look) = &mut self.last_look {
                let found = look.await;
                self.last_look = None;
                match found {
                    Ok(pods) if self.options.follow => pods.iter().for_each(|pod| self.note(pod)),
                    Ok(mut pods) => {
                        pods.sort_by_cached_key(place);
                        pods.iter().for_each(|pod| self.note(pod));
                        self.open_in_order();
                    }
                    Err(error) => return Some(Err(error.into())),
                }
                continue;
            }
            let nothing_open = self.open.is_empty();
            let news = match &mut self.pods {
                None if nothing_open => return None,
                None => None,
                Some(pods) => Some(pods),
            };
            tokio::select! {
                biased;
                line = self.open.next(), if !nothing_open => match line {
                    Some(Ok(line)) => return Some(Ok(line)),
                    Some(Err(error)) => return Some(Err(error.into())),
                    None => {}
                },
                news = next_news(news) => match news {
                    Some(Ok(News::Snapshot(pods))) => pods.iter().for_each(|pod| self.note(pod)),
                    Some(Ok(News::Changed(pod))) => self.note(&pod),
                    Some(Ok(News::Gone(_) | News::Lost(_) | News::Back)) => {}
                    Some(Err(error)) => {
                        self.pods = None;
                        return Some(Err(error.into()));
                    }
                    None => self.pods = None,
                },
            }
        }
    }

    /// Puts the container runs of a pod that have something to read in line.
    fn note(&mut self, pod: &Pod) {
        let wanted_pod = self.options.pod.as_deref();
        if wanted_pod.is_some_and(|wanted| pod.metadata.name.as_deref() != Some(wanted)) {
            return;
        }
        for run in pod::started_runs(pod, &self.job.namespace) {
            let other = self.options.container.as_deref().is_some_and(|wanted| run.container != wanted);
            if other || !self.known.insert(run.clone()) {
                continue;
            }
            let failed = pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Failed");
            if failed && self.options.follow {
                self.waiting.push_front(run);
            } else {
                self.waiting.push_back(run);
            }
        }
    }

    fn open_waiting(&mut self) {
        while self.open.len() < STREAMS_MAX
            && let Some(run) = self.waiting.pop_front()
        {
            self.open.push(pod::lines(self.connection.clone(), run, self.options.follow, self.options.tail_lines));
        }
        self.held_back_max = self.held_back_max.max(self.waiting.len());
    }

    /// Opens all logs as one, each after the one before. The first line of some is fetched ahead.
    fn open_in_order(&mut self) {
        let (connection, tail) = (self.connection.clone(), self.options.tail_lines);
        let runs = stream::iter(std::mem::take(&mut self.waiting));
        let begun = runs.map(move |run| {
            let mut lines = Box::pin(pod::lines(connection.clone(), run, false, tail).peekable());
            async move {
                lines.as_mut().peek().await;
                lines
            }
        });
        self.open.push(begun.buffered(STREAMS_MAX).flatten().boxed());
    }
}

/// Where a pod stands among those of its job.
fn place(pod: &Pod) -> (String, Option<u32>, Option<String>) {
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    let index = label(names::TASK_INDEX).and_then(|index| index.parse().ok());
    (label(names::TASK_SPEC).unwrap_or_default(), index, pod.metadata.name.clone())
}

/// Waits forever where there is nothing to follow, so that `select!` has one shape.
async fn next_news(
    pods: Option<&mut BoxStream<'static, Result<News<Pod>, CallError>>>,
) -> Option<Result<News<Pod>, CallError>> {
    match pods {
        Some(pods) => pods.next().await,
        None => std::future::pending().await,
    }
}

/// A job's pods as a collection.
pub fn pods_of(job: &JobRef) -> Collection {
    Collection {
        path: format!("/api/v1/namespaces/{}/pods", job.namespace),
        labels: format!("{}={}", names::JOB_NAME, job.name),
        fields: String::new(),
    }
}

/// A job's pods now.
pub async fn pods(connection: &Connection, job: &JobRef) -> Result<Vec<Pod>, CallError> {
    look(connection, job, &pods_of(job)).await
}

/// Those of a job's pods that failed; the server picks them, because a job may have 300,000 that didn't.
pub async fn failed_pods(connection: &Connection, job: &JobRef) -> Result<Vec<Pod>, CallError> {
    let failed = Collection { fields: "status.phase=Failed".to_owned(), ..pods_of(job) };
    look(connection, job, &failed).await
}

async fn look(connection: &Connection, job: &JobRef, pods: &Collection) -> Result<Vec<Pod>, CallError> {
    let doing = format!("list the pods of job {}", job.name);
    let (items, _) = call::list(connection, &pods.path, &pods.query(), &doing).await?;
    items
        .into_iter()
        .map(|item| {
            serde_json::from_value(item).map_err(|error| CallError::unreadable("read a pod", connection.url(), error))
        })
        .collect()
}
