//! What happened in a simulation, told by the log's events.
//!
//! Invariant: a job ends at most once; a hold lies on one node and ends no earlier than it begins.

use std::collections::BTreeMap;
use std::time::Duration;

use pumice_ledger::{Entry, Event, JobId, RunId};

use super::run::{EPOCH_MS, job_of};

/// What became of all jobs. Times are in milliseconds from the beginning.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// By job.
    pub jobs: Vec<JobHistory>,
    /// Who held room where, in the order in which it was given back; what still holds some comes last.
    pub holds: Vec<Hold>,
    pub ended_ms: i64,
    pub rounds: usize,
    /// What each of them took on the clock.
    pub took: Vec<Duration>,
    /// It was cut off, since nothing would have come of it in time.
    pub cut_off: bool,
    /// Why some jobs never started.
    pub why_never: BTreeMap<String, usize>,
    pub(super) open: BTreeMap<RunId, (usize, i64)>,
}

/// What became of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobHistory {
    /// When it was submitted; nothing where what it waits for did not end well.
    pub submitted_ms: Option<i64>,
    /// When its pod first ran.
    pub started_ms: Option<i64>,
    /// When and how it ended.
    pub ended: Option<(i64, End)>,
    /// How often it had to make room.
    pub preempted: u32,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Succeeded,
    Failed,
    /// It could never run.
    Rejected,
}

/// Room that was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub job: usize,
    /// On which node, of those of the clusters.
    pub node: usize,
    pub from_ms: i64,
    /// Until when.
    pub to_ms: i64,
    /// What ran there begins anew elsewhere.
    pub lost: bool,
}

impl History {
    pub(super) fn new(jobs: usize) -> Self {
        Self { jobs: vec![JobHistory::default(); jobs], ..Self::default() }
    }

    fn job(&mut self, job: JobId) -> Option<&mut JobHistory> {
        self.jobs.get_mut(job_of(job))
    }

    /// Takes in an entry of the log. `node` says which node a run is on.
    pub(super) fn take(&mut self, entry: &Entry, node: impl Fn(RunId) -> Option<usize>) {
        let at = entry.at.0 - EPOCH_MS;
        for event in &entry.events {
            match event {
                Event::Submitted(submitted) => {
                    if let Some(job) = self.job(submitted.job) {
                        job.submitted_ms = Some(at);
                    }
                }
                Event::Leased { run, .. } => {
                    if let Some(node) = node(*run) {
                        self.open.insert(*run, (node, at));
                    }
                }
                Event::Running { run, .. } => {
                    if let Some(job) = self.job(run.job) {
                        job.started_ms.get_or_insert(at);
                    }
                }
                Event::RunPreempted { run, .. } => {
                    if let Some(job) = self.job(run.job) {
                        job.preempted += 1;
                    }
                }
                Event::RunGone { run } | Event::Returned { run, .. } | Event::RunLost { run } => {
                    self.close(*run, at, true);
                }
                Event::RunFailed { run, .. } => self.close(*run, at, true),
                Event::Succeeded { run } => {
                    self.close(*run, at, false);
                    self.end(run.job, at, End::Succeeded);
                }
                Event::Failed { job, .. } => self.end(*job, at, End::Failed),
                Event::Rejected { job, .. } => self.end(*job, at, End::Rejected),
                _ => {}
            }
        }
    }

    fn end(&mut self, job: JobId, at: i64, end: End) {
        if let Some(job) = self.job(job) {
            job.ended.get_or_insert((at, end));
        }
    }

    fn close(&mut self, run: RunId, at: i64, lost: bool) {
        if let Some((node, from_ms)) = self.open.remove(&run) {
            self.holds.push(Hold { job: job_of(run.job), node, from_ms, to_ms: at, lost });
        }
    }

    /// Ends the history at `at`: what still runs was held until then.
    pub(super) fn finish(&mut self, at: i64) {
        self.ended_ms = at;
        for run in self.open.keys().copied().collect::<Vec<_>>() {
            self.close(run, at, false);
        }
    }
}
