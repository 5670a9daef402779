//! What decisions mean for counters: from which state to which, in which pool, and why.
//!
//! Invariant: what is handed out counts only once it is written. Kept by the leader for runs that count; a leader that begins
//! knows them from its ledger.

use std::sync::Arc;

use pumice_ledger::{Cause, Entry, Event, Failure, JobId, Ledger, Preemption, RunId, RunPhase};
use rustc_hash::FxHashMap;

const QUEUED: &str = "queued";
const NONE: &str = "none";

/// A change of a job or run that metrics count, with the queue and pool that are its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LifecycleEvent {
    pub queue: String,
    /// Empty where it never had one.
    pub pool: String,
    pub kind: Kind,
}

/// What is counted, with the labels that only this has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A job came from one state to another.
    State {
        state: &'static str,
        prior: &'static str,
    },
    /// A job got a node.
    Scheduled {
        class: String,
    },
    /// A run has to make room.
    Preempted {
        class: String,
        by: &'static str,
    },
    Error {
        category: String,
        subcategory: String,
    },
}

/// The run of a job that counts.
#[derive(Debug, Clone)]
struct Story {
    pool: Arc<str>,
    state: &'static str,
}

/// The runs that count.
#[derive(Debug, Default)]
pub(crate) struct Lifecycles {
    runs: FxHashMap<JobId, Story>,
    /// The pool of a run whose failure may be that of its job.
    failed: FxHashMap<JobId, Story>,
    pools: FxHashMap<String, Arc<str>>,
}

impl Lifecycles {
    /// Those of a ledger.
    pub(crate) fn of(ledger: &Ledger) -> Self {
        let mut lifecycles = Self::default();
        for (run, row) in ledger.runs() {
            let state = match row.phase {
                RunPhase::Leased => "leased",
                RunPhase::Pending => "pending",
                RunPhase::Running => "running",
                RunPhase::Stopping => continue,
            };
            let pool = lifecycles.pool(&row.pool);
            lifecycles.runs.insert(run.job, Story { pool, state });
        }
        lifecycles
    }

    /// What an entry says, which `ledger` has folded.
    pub(crate) fn tell(&mut self, ledger: &Ledger, entry: &Entry, told: &mut Vec<LifecycleEvent>) {
        for event in &entry.events {
            let mut say = |pool: &str, kind| {
                told.push(LifecycleEvent { queue: entry.queue.clone(), pool: pool.to_owned(), kind })
            };
            match event {
                Event::Submitted(_) => say("", Kind::State { state: QUEUED, prior: NONE }),
                Event::Leased { run, pool, .. } => {
                    let story = Story { pool: self.pool(pool), state: "leased" };
                    self.runs.insert(run.job, story);
                    say(pool, Kind::State { state: "leased", prior: QUEUED });
                    say(pool, Kind::Scheduled { class: class(ledger, *run) });
                }
                Event::Pending { run, .. } => self.advance(*run, "pending", say),
                Event::Running { run, .. } => self.advance(*run, "running", say),
                Event::Returned { run, .. } | Event::RunLost { run } => self.ends(run.job, QUEUED, say),
                Event::RunFailed { run, retried: true, .. } => self.ends(run.job, QUEUED, say),
                Event::RunFailed { run, retried: false, .. } => {
                    if let Some(story) = self.runs.remove(&run.job) {
                        self.failed.insert(run.job, story);
                    }
                }
                Event::RunPreempted { run, preemption, requeued } => {
                    let pool = self.runs.get(&run.job).map(|story| story.pool.clone()).unwrap_or_default();
                    let by = by(ledger, &entry.queue, preemption);
                    say(&pool, Kind::Preempted { class: class(ledger, *run), by });
                    self.ends(run.job, if *requeued { QUEUED } else { "preempted" }, say);
                }
                Event::Succeeded { run } => self.ends(run.job, "succeeded", say),
                Event::Cancelled { job, .. } => self.ends(*job, "cancelled", say),
                Event::Rejected { job, .. } => self.ends(*job, "rejected", say),
                Event::Failed { job, failure } => {
                    let story = self.failed.remove(job).or_else(|| self.runs.remove(job));
                    let (pool, prior) = story.map_or((Arc::default(), QUEUED), |story| (story.pool, story.state));
                    say(&pool, Kind::State { state: "failed", prior });
                    let (category, subcategory) = classified(failure);
                    say(&pool, Kind::Error { category, subcategory });
                }
                Event::QueueSet(_)
                | Event::QueueRemoved
                | Event::CancelAsked { .. }
                | Event::Reprioritised { .. }
                | Event::SetReprioritised { .. }
                | Event::CarriedOut { .. }
                | Event::PreemptAsked { .. }
                | Event::ScopeCancelAsked { .. }
                | Event::ScopePreemptAsked { .. }
                | Event::ExecutorSet { .. }
                | Event::RetryPolicySet(_)
                | Event::RetryPolicyRemoved { .. }
                | Event::ExecutorUnset { .. }
                | Event::ExecutorForgotten { .. }
                | Event::Ingress { .. }
                | Event::RunGone { .. } => {}
            }
        }
        // A failure stands in one entry with that of its run.
        self.failed.clear();
    }

    fn advance(&mut self, run: RunId, state: &'static str, mut say: impl FnMut(&str, Kind)) {
        if let Some(story) = self.runs.get_mut(&run.job) {
            let prior = std::mem::replace(&mut story.state, state);
            say(&story.pool, Kind::State { state, prior });
        }
    }

    fn ends(&mut self, job: JobId, state: &'static str, mut say: impl FnMut(&str, Kind)) {
        let (pool, prior) = self.runs.remove(&job).map_or((Arc::default(), QUEUED), |story| (story.pool, story.state));
        // One that was lost while it left its node waited already.
        if prior != state {
            say(&pool, Kind::State { state, prior });
        }
    }

    fn pool(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.pools.get(name) {
            return known.clone();
        }
        let pool: Arc<str> = name.into();
        self.pools.insert(name.to_owned(), pool.clone());
        pool
    }
}

/// The class of a run's job; empty where both are over already.
fn class(ledger: &Ledger, run: RunId) -> String {
    let shape = ledger.run(run).map(|run| ledger.shape_of_run(run));
    let shape = shape.or_else(|| ledger.job(run.job).map(|job| ledger.shape(job)));
    shape.map(|shape| shape.priority_class.clone()).unwrap_or_default()
}

/// What made a run make room, in Armada's words.
fn by(ledger: &Ledger, queue: &str, preemption: &Preemption) -> &'static str {
    if !preemption.requestor.is_empty() {
        return "api";
    }
    let winner = preemption.beneficiary.and_then(|job| ledger.job(job)).map(|job| ledger.owner(job).0);
    match winner {
        None => "unknown",
        Some(winner) if winner == queue => "urgency",
        Some(_) => "fairshare",
    }
}

/// Category and subcategory of a failure.
fn classified(failure: &Failure) -> (String, String) {
    if !failure.category.is_empty() {
        return (failure.category.clone(), failure.subcategory.clone());
    }
    let word = match failure.cause {
        Cause::Error => "error",
        Cause::Evicted => "evicted",
        Cause::Oom => "oom",
        Cause::DeadlineExceeded => "deadline-exceeded",
        Cause::Rejected => "rejected",
    };
    ("uncategorised".to_owned(), word.to_owned())
}
