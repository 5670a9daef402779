//! The logs of a job's pods, line by line or as bytes come, live or up to now.
//!
//! Invariant: each container run gives its text once, in order, across reconnects; at most
//! [`STREAMS_MAX`] logs are open at a time. What is followed comes as it is written, failed pods first;
//! else one log comes after the other, by task and index. [`JobLogs::next`] is cancellation safe.
//! Called by `jobctl logs` and `run`.

mod absence;
mod attempts;
mod pod;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, SelectAll};
use k8s_openapi::api::core::v1::Pod;
use pumice_api::names;

use crate::error::Error;
use crate::job::JobRef;
use crate::job::pod::place_in;
use crate::lookup::pods::{pods, pods_of};
use crate::platform::call::CallError;
use crate::platform::connection::Connection;
use crate::platform::watch::{Update, follow};

use pod::Reading;

pub use absence::{absence, may_have_written};
pub use attempts::{Attempt, Retained, RetainedPod, retained};
pub use pod::{ContainerRun, LINE_BYTES_MAX, LogPiece, LogSource, LogStream, Pieces};

/// Logs read at the same time.
pub const STREAMS_MAX: usize = 32;

/// A job with more pods than this is not followed as a whole: nobody reads that, and to know its pods
/// costs gigabytes. Its pods are read one by one.
pub const PODS_FOLLOWED_MAX: u64 = 2000;

/// How often it is asked again for logs of pods that are gone: a node sets them aside a moment after that.
const LOOKS_AGAIN: u32 = 3;
/// Between two such questions.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Which logs of a job are read, and how much of each.
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
    /// Only this stream.
    pub stream: Option<LogStream>,
    /// How it is given. Where that is left open, whoever attends a job of one pod gets bytes, and all others lines.
    pub pieces: Option<Pieces>,
    /// Which attempt of each pod, where nothing is followed.
    pub attempt: Attempt,
    /// How many pods the job has. Where fewer are there, or an earlier attempt is meant, logs of pods that are gone are asked for.
    pub pods_total: u64,
}

/// Logs of a job.
pub struct JobLogs {
    connection: Connection,
    job: JobRef,
    options: LogOptions,
    /// News of the job's pods; `None` once no new pod matters.
    pods: Option<BoxStream<'static, Result<Update<Pod>, CallError>>>,
    /// The last look at the pods, before draining.
    last_look: Option<BoxFuture<'static, Result<Look, CallError>>>,
    open: SelectAll<BoxStream<'static, Result<LogPiece, CallError>>>,
    waiting: VecDeque<ContainerRun>,
    known: HashSet<ContainerRun>,
    /// Pods that were there at the last look, started or not.
    pods_there: Vec<String>,
    /// What nodes retain, if that was asked for.
    retained: Option<Retained>,
    /// The most containers that had to wait for a place.
    pub held_back_max: usize,
}

/// The last look at a job's pods.
struct Look {
    pods: Vec<Pod>,
    retained: Option<Retained>,
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
            pods_there: Vec::new(),
            retained: None,
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

    /// Says that the job ended: what is written is still read, then the text ends.
    pub fn job_ended(&mut self) {
        self.pods = None;
        let (connection, job) = (self.connection.clone(), self.job.clone());
        let LogOptions { follow, attempt, pods_total, .. } = self.options;
        let look = async move {
            let pods = pods(&connection, &job).await?;
            let some_gone = (pods.len() as u64) < pods_total || attempt != Attempt::Latest;
            let mut found = if some_gone && !follow { retained(&connection, &job).await? } else { None };
            for _ in 0..LOOKS_AGAIN {
                let settled = found.as_ref().is_none_or(|found| !found.pods.is_empty()) || !pods.is_empty();
                if settled {
                    break;
                }
                tokio::time::sleep(LOOK_AGAIN_AFTER).await;
                found = retained(&connection, &job).await?;
            }
            Ok(Look { pods, retained: found })
        };
        self.last_look = Some(look.boxed());
    }

    /// How it is given, where that was left open.
    pub(crate) fn give(&mut self, pieces: Pieces) {
        self.options.pieces.get_or_insert(pieces);
    }

    /// Pods that were there when it was looked last, started or not.
    pub fn pods_there(&self) -> &[String] {
        &self.pods_there
    }

    /// What nodes retain of pods that are gone, where that was asked for and the platform has an answer.
    pub fn retained(&self) -> Option<&Retained> {
        self.retained.as_ref()
    }

    /// The pods that are gone whose logs were read.
    pub fn gone_seen(&self) -> Vec<&RetainedPod> {
        let read =
            |pod: &&RetainedPod| self.known.iter().any(|run| run.uid == pod.uid && run.source != LogSource::Current);
        self.retained.iter().flat_map(|retained| &retained.pods).filter(read).collect()
    }

    /// Which pods were seen.
    pub fn pods_seen(&self) -> usize {
        self.known.iter().map(|run| &run.pod).collect::<HashSet<_>>().len()
    }

    /// The next piece; `None` when all is read. After an error the other pods' still come.
    pub async fn next(&mut self) -> Option<Result<LogPiece, Error>> {
        loop {
            self.open_waiting();
            if let Some(look) = &mut self.last_look {
                let found = look.await;
                self.last_look = None;
                match found {
                    Ok(look) if self.options.follow => look.pods.iter().for_each(|pod| self.note(pod)),
                    Ok(look) => self.look_back(look),
                    Err(error) => return Some(Err(error.into())),
                }
                continue;
            }
            let nothing_open = self.open.is_empty();
            let update = match &mut self.pods {
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
                update = next_update(update) => match update {
                    Some(Ok(Update::Snapshot(pods))) => pods.iter().for_each(|pod| self.note(pod)),
                    Some(Ok(Update::Changed(pod))) => self.note(&pod),
                    Some(Ok(Update::Gone(_) | Update::Lost(_) | Update::Back)) => {}
                    Some(Err(error)) => {
                        self.pods = None;
                        return Some(Err(error.into()));
                    }
                    None => self.pods = None,
                },
            }
        }
    }

    /// Puts the runs that are meant in line, by task and index, and opens them one after the other.
    fn look_back(&mut self, Look { pods, retained }: Look) {
        self.pods_there = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        let none = Retained::default();
        let runs = attempts::choose(&self.job, &pods, retained.as_ref().unwrap_or(&none), self.options.attempt);
        let mut runs: Vec<ContainerRun> = runs.into_iter().filter(|run| self.is_wanted(run)).collect();
        let places: HashMap<&str, Order> =
            pods.iter().filter_map(|pod| Some((pod.metadata.name.as_deref()?, order(pod)))).collect();
        // Stable: containers of a pod stay as they are.
        runs.sort_by_cached_key(|run| {
            let of_name = || order_in(&self.job.name, &run.pod);
            places.get(run.pod.as_str()).cloned().unwrap_or_else(of_name)
        });
        self.retained = retained;
        self.known.extend(runs.iter().cloned());
        self.waiting.extend(runs);
        self.open_in_order();
    }

    fn is_wanted(&self, run: &ContainerRun) -> bool {
        let LogOptions { pod, container, .. } = &self.options;
        pod.as_ref().is_none_or(|wanted| run.pod == *wanted)
            && container.as_ref().is_none_or(|wanted| run.container == *wanted)
    }

    /// Puts the container runs of a pod that have something to read in line.
    fn note(&mut self, pod: &Pod) {
        for run in pod::started_runs(pod, &self.job.namespace) {
            if !self.is_wanted(&run) || !self.known.insert(run.clone()) {
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
            self.open.push(pod::read(self.connection.clone(), run, self.reading()));
        }
        self.held_back_max = self.held_back_max.max(self.waiting.len());
    }

    fn reading(&self) -> Reading {
        let LogOptions { follow, tail_lines, stream, pieces, .. } = self.options;
        Reading { follow, tail_lines, stream, pieces: pieces.unwrap_or_default() }
    }

    /// Opens all logs as one, each after the one before. The first piece of some is fetched ahead.
    fn open_in_order(&mut self) {
        let (connection, reading) = (self.connection.clone(), self.reading());
        let runs = stream::iter(std::mem::take(&mut self.waiting));
        let begun = runs.map(move |run| {
            let mut pieces = Box::pin(pod::read(connection.clone(), run, reading).peekable());
            async move {
                pieces.as_mut().peek().await;
                pieces
            }
        });
        self.open.push(begun.buffered(STREAMS_MAX).flatten().boxed());
    }
}

/// Where a pod stands among those of its job: by its task, then by its index there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    task: String,
    index: Option<u32>,
    name: String,
}

fn order(pod: &Pod) -> Order {
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    Order {
        task: label(names::TASK_SPEC).unwrap_or_default(),
        index: label(names::TASK_INDEX).and_then(|index| index.parse().ok()),
        name: pod.metadata.name.clone().unwrap_or_default(),
    }
}

/// The same of one that is gone, by its name.
fn order_in(job: &str, pod: &str) -> Order {
    let name = pod.to_owned();
    match place_in(job, pod) {
        Some((task, index)) => Order { task: task.to_owned(), index: Some(index), name },
        None => Order { task: String::new(), index: None, name },
    }
}

/// Waits forever where there is nothing to follow, so that `select!` has one shape.
async fn next_update(
    pods: Option<&mut BoxStream<'static, Result<Update<Pod>, CallError>>>,
) -> Option<Result<Update<Pod>, CallError>> {
    match pods {
        Some(pods) => pods.next().await,
        None => std::future::pending().await,
    }
}
