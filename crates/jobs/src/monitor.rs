//! Being there while a job runs: its states, its lines, why it waits, and its end.
//!
//! Invariant: states and lines come from watches, the end comes last, after the lines written before
//! it. [`RunMonitor::next`] is cancellation safe, so it can stand in a `select!` beside Ctrl-C.
//! Called by `jobctl`'s `run`, `wait` and `logs -f`.

mod memory_notices;
mod progress;

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use pumice_api::batch::{Job, JobPhase};
use tokio::time::Instant;

use crate::error::Error;
use crate::explain::why::{self, Why};
use crate::job::{Counts, JobEnd, JobRef, PodFailure, end_of, pod_failures};
use crate::logs::{JobLogs, LogOptions, LogPiece, PODS_FOLLOWED_MAX, Pieces};
use crate::lookup::pods;
use crate::platform::call::CallError;
use crate::platform::connection::Connection;
use crate::platform::watch::{JobUpdate, JobWatch};

pub use memory_notices::MemoryNotices;
pub use progress::*;

/// A job that waits longer than this is asked why.
pub const WHY_AFTER: Duration = Duration::from_secs(1);
/// How long an answer to that is good for.
const WHY_AGAIN: Duration = Duration::from_secs(5);
/// How long to wait for a next line after the job's end: pods that are being killed may still talk.
const DRAIN_IDLE: Duration = Duration::from_secs(2);

/// What became known of an attended job since the event before.
#[derive(Debug)]
pub enum RunEvent {
    /// The job's state now.
    State(Box<Job>),
    /// A pod wrote something.
    Log(LogPiece),
    /// The job waits, for a reason not told before.
    Waits(Why),
    /// The log of one pod can't be read on; the others and the job go on.
    LogsLost(Error),
    /// The server does not answer.
    Lost(String),
    Back,
    /// The job ended. Nothing comes after this.
    Ended(Box<RunEnd>),
}

/// How a job ended, and which of its pods failed.
#[derive(Debug)]
pub struct RunEnd {
    /// Its last state.
    pub job: Job,
    pub end: JobEnd,
    /// Its failed containers, first one first; empty after success.
    pub failures: Vec<PodFailure>,
}

type WhyRequest = BoxFuture<'static, Result<Why, Error>>;
type FailuresRequest = BoxFuture<'static, Result<Vec<PodFailure>, CallError>>;

/// Follows one job to its end: its state, its logs, and why it waits.
pub struct RunMonitor {
    connection: Connection,
    job: JobRef,
    follower: JobWatch,
    logs: Option<JobLogs>,
    last: Option<Box<Job>>,
    ended: Option<JobEnd>,
    failures_request: Option<FailuresRequest>,
    why_at: Option<Instant>,
    why_request: Option<WhyRequest>,
    last_why: String,
    /// Whether the logs are those of one pod.
    one_pod: bool,
    too_many: bool,
}

/// What [`RunMonitor::next`] was waiting for and got first.
enum Wakeup {
    Update(Result<JobUpdate, Error>),
    Log(Option<Result<LogPiece, Error>>),
    AskNow,
    Why(Result<Why, Error>),
}

impl RunMonitor {
    /// Attends a job, with its lines if `logs` says which. Nothing is sent before the first `next`.
    pub fn new(connection: Connection, job: JobRef, logs: Option<LogOptions>) -> Self {
        let one_pod = logs.as_ref().is_some_and(|options| options.pod.is_some());
        let logs = logs.map(|options| JobLogs::new(connection.clone(), job.clone(), options));
        RunMonitor {
            follower: JobWatch::new(connection.clone(), job.clone()),
            logs,
            last: None,
            ended: None,
            failures_request: None,
            why_at: None,
            why_request: None,
            last_why: String::new(),
            one_pod,
            too_many: false,
            connection,
            job,
        }
    }

    /// Whether the job has too many pods for its lines to be shown.
    pub fn logs_left_out(&self) -> bool {
        self.too_many
    }

    /// Containers whose logs wait for a place, at most so far.
    pub fn logs_held_back(&self) -> usize {
        self.logs.as_ref().map_or(0, |logs| logs.held_back_max)
    }

    /// The next event. After [`RunEvent::Ended`] or an error it must not be called again.
    pub async fn next(&mut self) -> Result<RunEvent, Error> {
        loop {
            if let Some(end) = self.ended {
                return self.finish(end).await;
            }
            let wakeup = tokio::select! {
                biased;
                update = self.follower.next() => Wakeup::Update(update),
                // Not before it is known how many pods there are.
                piece = next_piece(self.logs.as_mut()), if self.last.is_some() => Wakeup::Log(piece),
                why = answer(self.why_request.as_mut()) => Wakeup::Why(why),
                () = until(self.why_at) => Wakeup::AskNow,
            };
            match wakeup {
                Wakeup::Update(update) => {
                    if let Some(event) = self.take_update(update?) {
                        return Ok(event);
                    }
                }
                Wakeup::Log(Some(Ok(piece))) => return Ok(RunEvent::Log(piece)),
                Wakeup::Log(Some(Err(error))) => return Ok(RunEvent::LogsLost(error)),
                Wakeup::Log(None) => self.logs = None,
                Wakeup::AskNow => {
                    let (connection, job) = (self.connection.clone(), self.job.clone());
                    self.why_at = None;
                    self.why_request = Some(async move { why::fetch(&connection, &job).await }.boxed());
                }
                Wakeup::Why(answer) => {
                    self.why_request = None;
                    if !self.waits() {
                        continue;
                    }
                    self.why_at = Some(Instant::now() + WHY_AGAIN);
                    // A failed question is no news: the job's own watch tells of outages.
                    if let Ok(why) = answer
                        && why.one_line() != self.last_why
                    {
                        self.last_why = why.one_line();
                        return Ok(RunEvent::Waits(why));
                    }
                }
            }
        }
    }

    /// Waits for the end and tells nothing of what happens before it.
    pub async fn end(mut self) -> Result<RunEnd, Error> {
        loop {
            if let RunEvent::Ended(ending) = self.next().await? {
                return Ok(*ending);
            }
        }
    }

    fn take_update(&mut self, update: JobUpdate) -> Option<RunEvent> {
        match update {
            JobUpdate::Lost(detail) => return Some(RunEvent::Lost(detail)),
            JobUpdate::Back => return Some(RunEvent::Back),
            JobUpdate::Gone => self.ended = Some(JobEnd::Deleted),
            JobUpdate::Now(job) => {
                // A job of any size may come; only now is known how many pods it has.
                let total = Counts::of(&job).total;
                if total > PODS_FOLLOWED_MAX && !self.one_pod {
                    self.too_many |= self.logs.take().is_some();
                }
                if let Some(logs) = &mut self.logs {
                    logs.give(if total > 1 && !self.one_pod { Pieces::Lines } else { Pieces::Bytes });
                }
                self.ended = end_of(&job);
                self.last = Some(job);
                match (self.waits(), self.why_at.is_some() || self.why_request.is_some()) {
                    (true, false) => self.why_at = Some(Instant::now() + WHY_AFTER),
                    (true, true) => {}
                    (false, _) => (self.why_at, self.why_request) = (None, None),
                }
            }
        }
        // The state is told before the rest of the lines, so that a progress line is right.
        if self.ended.is_some()
            && let Some(logs) = &mut self.logs
        {
            logs.job_ended();
        }
        if self.ended == Some(JobEnd::Deleted) { None } else { self.last.clone().map(RunEvent::State) }
    }

    /// The rest of the lines, then the verdict.
    async fn finish(&mut self, end: JobEnd) -> Result<RunEvent, Error> {
        while self.logs.is_some() {
            match tokio::time::timeout(DRAIN_IDLE, next_piece(self.logs.as_mut())).await {
                Ok(Some(Ok(piece))) => return Ok(RunEvent::Log(piece)),
                Ok(Some(Err(error))) => return Ok(RunEvent::LogsLost(error)),
                Ok(None) | Err(_) => self.logs = None,
            }
        }
        let failures = match end {
            JobEnd::Completed | JobEnd::Deleted => Vec::new(),
            JobEnd::Failed | JobEnd::Terminated | JobEnd::Aborted => {
                let (connection, job) = (self.connection.clone(), self.job.clone());
                let failures_request = self.failures_request.get_or_insert_with(|| {
                    async move { pods::failed_pods(&connection, &job).await.map(|pods| pod_failures(&pods)) }.boxed()
                });
                let failures = failures_request.await;
                self.failures_request = None;
                failures?
            }
        };
        let job = self.last.as_deref().cloned().unwrap_or_default();
        Ok(RunEvent::Ended(Box::new(RunEnd { job, end, failures })))
    }

    /// Whether nothing of the job runs yet.
    fn waits(&self) -> bool {
        self.last.as_deref().is_some_and(|job| {
            let phase = job.status.state.phase.as_ref();
            let early = phase.is_none_or(|phase| matches!(phase, JobPhase::Pending | JobPhase::Restarting));
            early && Counts::of(job).running == 0
        })
    }
}

async fn next_piece(logs: Option<&mut JobLogs>) -> Option<Result<LogPiece, Error>> {
    match logs {
        Some(logs) => logs.next().await,
        None => std::future::pending().await,
    }
}

async fn answer(why_request: Option<&mut WhyRequest>) -> Result<Why, Error> {
    match why_request {
        Some(why_request) => why_request.await,
        None => std::future::pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
