//! What decisions tell of runs, and of jobs that end with them. All of it took effect.
//!
//! Invariant: it borrows from the entries: one commit tells of tens of thousands of runs, most of which were only leased.

use std::borrow::Cow;
use std::collections::BTreeMap;

use pumice_ledger::{Away, Cause, Entry, Event, Failure, JobId, NodePods, NodeRef, PodRef, Preemption, RunId, TimeMs};

use super::{JobState, RunState};

/// How a run began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease<'a> {
    pub at: TimeMs,
    pub node: &'a NodeRef,
    pub pool: &'a str,
    /// How it is away from home, where it is.
    pub away: Option<&'a Away>,
    /// Where a Volcano job's pods have room.
    pub places: &'a [NodePods],
}

/// A change of a run, or a new one. None keeps what stands there.
#[derive(Debug)]
pub(super) struct RunChange<'a> {
    pub run: RunId,
    /// How far it is, or how it ended.
    pub state: Option<RunState>,
    /// How it began; of a new one.
    pub lease: Option<Lease<'a>>,
    /// When its pod was made.
    pub pending: Option<TimeMs>,
    /// When its pod began to run.
    pub started: Option<TimeMs>,
    /// When it ended, or was to end.
    pub finished: Option<TimeMs>,
    /// Whether it holds room.
    pub holds: Option<bool>,
    pub pod: Option<&'a PodRef>,
    /// Why it has to make room.
    pub preempted: Option<&'a Preemption>,
    /// Why it failed or was given back.
    pub error: Option<Box<Cow<'a, Failure>>>,
    /// Addresses by port.
    pub ingress: Option<&'a BTreeMap<u32, String>>,
}

/// A job that ended.
#[derive(Debug)]
pub(super) struct JobEnd<'a> {
    pub job: JobId,
    pub state: JobState,
    /// Runs there were, where one of them is new.
    pub attempts: Option<u32>,
    pub at: TimeMs,
    /// Who had it cancelled, and why.
    pub cancelled: Option<(&'a str, &'a str)>,
    /// Why it failed, or can't run.
    pub error: Option<Box<Cow<'a, Failure>>>,
}

/// What entries tell of runs and of the ends of jobs: one change for each run, however many entries tell of it.
#[derive(Default)]
pub(super) struct RunChanges<'a> {
    runs: Vec<RunChange<'a>>,
    /// Where each of them is in `runs`: rows are written in the order of their keys.
    places: BTreeMap<RunId, usize>,
    ends: BTreeMap<JobId, JobEnd<'a>>,
    transitions: BTreeMap<JobId, TimeMs>,
    attempts: BTreeMap<JobId, u32>,
}

impl<'a> RunChange<'a> {
    fn new(run: RunId) -> RunChange<'a> {
        RunChange {
            run,
            state: None,
            lease: None,
            pending: None,
            started: None,
            finished: None,
            holds: None,
            pod: None,
            preempted: None,
            error: None,
            ingress: None,
        }
    }

    /// It was leased to a node at home, and that is all.
    pub(super) fn is_lease(&self) -> bool {
        let at_home = |lease: Lease<'_>| lease.away.is_none() && lease.places.is_empty();
        // Whatever else is told of a run changes its state, or comes with what is asked for here.
        self.lease.is_some_and(at_home)
            && (self.state, self.holds) == (Some(RunState::Leased), Some(true))
            && self.finished.is_none()
            && self.ingress.is_none()
    }
}

impl<'a> RunChanges<'a> {
    pub(super) fn of(entries: &'a [Entry]) -> RunChanges<'a> {
        let most = entries.iter().map(|entry| entry.events.len()).sum();
        let mut told = RunChanges { runs: Vec::with_capacity(most), ..RunChanges::default() };
        for entry in entries {
            for event in &entry.events {
                told.event(entry.at, event);
            }
        }
        told
    }

    /// Runs that changed, each once, in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = &RunChange<'a>> + Send {
        self.places.values().map(|place| &self.runs[*place])
    }

    /// Jobs that ended, each once, in order.
    pub(super) fn ends(&self) -> impl Iterator<Item = &JobEnd<'a>> + Send {
        self.ends.values()
    }

    /// When a job came to its state, where that is said.
    pub(super) fn transition(&self, job: JobId) -> Option<TimeMs> {
        self.transitions.get(&job).copied()
    }

    fn run(&mut self, run: RunId) -> &mut RunChange<'a> {
        let next = self.runs.len();
        let place = *self.places.entry(run).or_insert(next);
        if place == next {
            self.runs.push(RunChange::new(run));
        }
        &mut self.runs[place]
    }

    fn run_ends(&mut self, run: RunId, at: TimeMs, state: RunState, holds: bool) -> &mut RunChange<'a> {
        // It ended with its job already, if that is over.
        let (state, at) = self.ends.get(&run.job).map_or((state, at), |end| (end.state.of_run(), end.at));
        let row = self.run(run);
        row.holds = Some(holds);
        if row.finished.is_none() {
            row.state = Some(state);
            row.finished = Some(at);
        }
        row
    }

    fn job_ends(&mut self, job: JobId, at: TimeMs, state: JobState) -> &mut JobEnd<'a> {
        let attempts = self.attempts.get(&job).copied();
        let end = JobEnd { job, state, attempts, at, cancelled: None, error: None };
        self.ends.entry(job).or_insert(end)
    }

    fn event(&mut self, at: TimeMs, event: &'a Event) {
        match event {
            Event::Leased { run, at: node, pool, away, places } => {
                self.transitions.insert(run.job, at);
                self.attempts.insert(run.job, run.attempt);
                let row = self.run(*run);
                (row.state, row.holds) = (Some(RunState::Leased), Some(true));
                row.lease = Some(Lease { at, node, pool, away: away.as_ref(), places });
            }
            Event::Pending { run, pod } => {
                self.transitions.insert(run.job, at);
                let row = self.run(*run);
                (row.state, row.pending, row.pod) = (Some(RunState::Pending), Some(at), Some(pod));
            }
            Event::Running { run, pod, .. } => {
                self.transitions.insert(run.job, at);
                let row = self.run(*run);
                (row.state, row.started, row.pod) = (Some(RunState::Running), Some(at), Some(pod));
            }
            Event::Ingress { run, addresses } => self.run(*run).ingress = Some(addresses),
            Event::Returned { run, reason, .. } => {
                self.transitions.insert(run.job, at);
                let failure = Failure { message: reason.clone(), ..Failure::default() };
                self.run_ends(*run, at, RunState::Returned, false).error = owned(failure);
            }
            Event::RunFailed { run, failure, .. } => {
                self.transitions.insert(run.job, at);
                let state = if failure.is_of_silence() { RunState::Lost } else { RunState::Failed };
                self.run_ends(*run, at, state, false).error = Some(Box::new(Cow::Borrowed(failure)));
            }
            Event::RunPreempted { run, preemption, requeued } => {
                self.transitions.insert(run.job, at);
                self.run_ends(*run, at, RunState::Preempted, true).preempted = Some(preemption);
                if !requeued {
                    self.job_ends(run.job, at, JobState::Preempted);
                }
            }
            Event::RunLost { run } => {
                self.transitions.insert(run.job, at);
                self.run_ends(*run, at, RunState::Lost, false);
            }
            Event::RunGone { run } => {
                self.transitions.insert(run.job, at);
                self.run(*run).holds = Some(false);
            }
            Event::Succeeded { run } => {
                self.run_ends(*run, at, RunState::Succeeded, false);
                self.job_ends(run.job, at, JobState::Succeeded);
            }
            Event::Failed { job, failure } => {
                self.job_ends(*job, at, JobState::Failed).error = Some(Box::new(Cow::Borrowed(failure)));
            }
            Event::Rejected { job, reason } => {
                let failure = Failure { message: reason.clone(), cause: Cause::Rejected, ..Failure::default() };
                self.job_ends(*job, at, JobState::Rejected).error = owned(failure);
            }
            Event::Cancelled { job, requestor, reason } => {
                let row = self.job_ends(*job, at, JobState::Cancelled);
                row.cancelled = Some((requestor, reason));
            }
            Event::QueueSet(_)
            | Event::QueueRemoved
            | Event::Submitted(_)
            | Event::CancelAsked { .. }
            | Event::Reprioritised { .. }
            | Event::SetReprioritised { .. }
            | Event::CarriedOut { .. }
            | Event::ScopeCancelAsked { .. }
            | Event::ScopePreemptAsked { .. }
            | Event::RetryPolicySet(_)
            | Event::RetryPolicyRemoved { .. }
            | Event::ExecutorSet { .. }
            | Event::ExecutorUnset { .. }
            | Event::ExecutorForgotten { .. }
            | Event::PreemptAsked { .. } => {}
        }
    }
}

fn owned(failure: Failure) -> Option<Box<Cow<'static, Failure>>> {
    Some(Box::new(Cow::Owned(failure)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_only_leased_where_nothing_else_is_told() {
        let run = RunId { job: JobId(1), attempt: 1 };
        let lease = |places: Vec<NodePods>, away| {
            let at = NodeRef { cluster: "one".to_owned(), node: "n".to_owned() };
            Event::Leased { run, at, pool: "default".to_owned(), away, places }
        };
        let home = || lease(Vec::new(), None);
        let place = NodePods { node: "n".to_owned(), pods: vec![0] };
        let cases = [
            (vec![home()], true),
            (vec![lease(vec![place], None)], false),
            (vec![home(), Event::Pending { run, pod: PodRef::default() }], false),
            (vec![home(), Event::Ingress { run, addresses: BTreeMap::new() }], false),
            (vec![home(), Event::RunLost { run }], false),
            (vec![home(), Event::Cancelled { job: run.job, requestor: "ann".to_owned(), reason: String::new() }], true),
            (vec![Event::RunGone { run }], false),
        ];
        for (events, expected) in cases {
            let entry = Entry { events, ..Entry::new(TimeMs(1), "q", "s") };
            let told = RunChanges::of(std::slice::from_ref(&entry));
            let leases: Vec<bool> = told.runs().map(RunChange::is_lease).collect();
            assert_eq!(leases, [expected], "{:?}", entry.events);
        }
    }
}
