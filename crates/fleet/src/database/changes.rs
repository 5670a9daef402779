//! What a leader's decisions change in the tables.
//!
//! Invariant: a run's first end is its end, and a job that has ended has no run that has not. What a change does not name
//! stays as it is.

use std::collections::{BTreeMap, BTreeSet};

use pumice_ledger::{
    Asked, Away, Cause, Entry, Event, Failure, Growth, JobId, Ledger, NodeRef, PodPlace, PodRef, Preemption, RunId,
    SavedBroad, SavedJob, TimeMs,
};

use super::append::write_shapes;
use super::cells::{Cell, Columns, Kind, Transaction, names};
use super::rows::RUN;
use super::{Error, JobState, RunState, body};

/// What a leader writes: its decisions, and the rows they change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changed {
    /// Decisions, in order.
    pub entries: Vec<Entry>,
    /// Jobs that changed, each once.
    pub jobs: Vec<JobChange>,
    /// Runs that changed, each once.
    pub runs: Vec<RunChange>,
    /// Requests that are not carried out to their end, where they changed.
    pub broads: Option<Vec<SavedBroad>>,
}

/// A change of a job. None keeps what stands there, but for `asked` and `avoid`.
#[derive(Debug, Clone, PartialEq)]
pub struct JobChange {
    /// The job.
    pub job: JobId,
    /// Where it stands, or how it ended.
    pub state: JobState,
    /// Its place in the queue.
    pub priority: Option<u32>,
    /// Runs there were.
    pub attempts: Option<u32>,
    /// Returned runs that were tried.
    pub returned: Option<u32>,
    /// Failed runs that were tried again.
    pub failed: Option<u32>,
    /// What is asked of it.
    pub asked: Option<Asked>,
    /// Nodes on which it was tried.
    pub avoid: Vec<NodeRef>,
    /// By how much memory it has grown, and the digest of its shape since.
    pub grown: Option<Growth>,
    /// When it came to its state.
    pub last_transition: Option<TimeMs>,
    /// When it ended.
    pub ended: Option<TimeMs>,
    /// Who had it cancelled.
    pub cancel_user: Option<String>,
    /// Why.
    pub cancel_reason: Option<String>,
    /// Why it failed, or can't run.
    pub error: Option<Failure>,
}

/// A change of a run, or a new one. None keeps what stands there.
#[derive(Debug, Clone, PartialEq)]
pub struct RunChange {
    /// The run.
    pub run: RunId,
    /// How far it is, or how it ended.
    pub state: Option<RunState>,
    /// Where; of a new one.
    pub at: Option<NodeRef>,
    /// The pool; of a new one.
    pub pool: Option<String>,
    /// When it was leased; of a new one.
    pub leased: Option<TimeMs>,
    /// When its pod was made.
    pub pending: Option<TimeMs>,
    /// When its pod began to run.
    pub started: Option<TimeMs>,
    /// When it ended, or was to end.
    pub finished: Option<TimeMs>,
    /// Whether it holds room.
    pub holds: Option<bool>,
    /// Its pod.
    pub pod: Option<PodRef>,
    /// Why it has to make room.
    pub preempted: Option<Preemption>,
    /// Why it failed or was given back.
    pub error: Option<Failure>,
    /// Addresses by port.
    pub ingress: Option<BTreeMap<u32, String>>,
    /// How it is away from home, of a new one that is.
    pub away: Option<Away>,
    /// Where a whole job's pods have room; of a new one.
    pub places: Option<Vec<PodPlace>>,
}

impl Changed {
    /// What is to be written of a ledger that has folded everything up to here: requests since the last time this was
    /// asked, and `decided`, which [`Ledger::decide`] gave.
    pub fn of(ledger: &mut Ledger, decided: Vec<Entry>) -> Changed {
        let mut told = Told::default();
        for entry in &decided {
            for event in &entry.events {
                told.event(entry.at, event);
            }
        }
        let touched: BTreeSet<JobId> = ledger.take_touched();
        let mut jobs: Vec<JobChange> = Vec::with_capacity(touched.len());
        for id in touched {
            match (told.ends.remove(&id), ledger.saved(id)) {
                (Some(end), _) => jobs.push(end),
                (None, Some(saved)) => jobs.push(active(saved, told.transitions.get(&id).copied())),
                (None, None) => {}
            }
        }
        let runs = told.runs.into_values().collect();
        Changed { entries: decided, jobs, runs, broads: ledger.take_broads() }
    }
}

fn active(saved: SavedJob, last_transition: Option<TimeMs>) -> JobChange {
    JobChange {
        job: saved.job,
        state: saved.phase.into(),
        priority: Some(saved.priority),
        attempts: Some(saved.attempts),
        returned: Some(saved.returned),
        failed: Some(saved.failed),
        asked: saved.asked,
        avoid: saved.avoid,
        grown: saved.grown.map(|memory| Growth { memory, shape: saved.shape }),
        last_transition,
        ended: None,
        cancel_user: None,
        cancel_reason: None,
        error: None,
    }
}

/// What decisions tell, whose events all took effect.
#[derive(Default)]
struct Told {
    runs: BTreeMap<RunId, RunChange>,
    ends: BTreeMap<JobId, JobChange>,
    transitions: BTreeMap<JobId, TimeMs>,
    attempts: BTreeMap<JobId, u32>,
}

impl Told {
    fn run(&mut self, run: RunId) -> &mut RunChange {
        self.runs.entry(run).or_insert_with(|| RunChange {
            run,
            state: None,
            at: None,
            pool: None,
            leased: None,
            pending: None,
            started: None,
            finished: None,
            holds: None,
            pod: None,
            preempted: None,
            error: None,
            ingress: None,
            away: None,
            places: None,
        })
    }

    fn run_ends(&mut self, run: RunId, at: TimeMs, state: RunState, holds: bool) -> &mut RunChange {
        // It ended with its job already, if that is over.
        let (state, at) = match self.ends.get(&run.job) {
            Some(JobChange { state, ended: Some(ended), .. }) => (state.of_run(), *ended),
            _ => (state, at),
        };
        let row = self.run(run);
        row.holds = Some(holds);
        if row.finished.is_none() {
            row.state = Some(state);
            row.finished = Some(at);
        }
        row
    }

    fn job_ends(&mut self, job: JobId, at: TimeMs, state: JobState) -> &mut JobChange {
        let attempts = self.attempts.get(&job).copied();
        self.ends.entry(job).or_insert_with(|| JobChange {
            job,
            state,
            priority: None,
            attempts,
            returned: None,
            failed: None,
            asked: None,
            avoid: Vec::new(),
            grown: None,
            last_transition: Some(at),
            ended: Some(at),
            cancel_user: None,
            cancel_reason: None,
            error: None,
        })
    }

    fn event(&mut self, at: TimeMs, event: &Event) {
        match event {
            Event::Leased { run, at: node, pool, away, places } => {
                self.transitions.insert(run.job, at);
                self.attempts.insert(run.job, run.attempt);
                let row = self.run(*run);
                (row.state, row.holds, row.leased) = (Some(RunState::Leased), Some(true), Some(at));
                (row.at, row.pool, row.away) = (Some(node.clone()), Some(pool.clone()), away.clone());
                row.places = Some(places.clone()).filter(|places| !places.is_empty());
            }
            Event::Pending { run, pod } => {
                self.transitions.insert(run.job, at);
                let row = self.run(*run);
                (row.state, row.pending, row.pod) = (Some(RunState::Pending), Some(at), Some(pod.clone()));
            }
            Event::Running { run, pod, .. } => {
                self.transitions.insert(run.job, at);
                let row = self.run(*run);
                (row.state, row.started, row.pod) = (Some(RunState::Running), Some(at), Some(pod.clone()));
            }
            Event::Ingress { run, addresses } => self.run(*run).ingress = Some(addresses.clone()),
            Event::Returned { run, reason, .. } => {
                self.transitions.insert(run.job, at);
                let failure = Failure { message: reason.clone(), ..Failure::default() };
                self.run_ends(*run, at, RunState::Returned, false).error = Some(failure);
            }
            Event::RunFailed { run, failure, .. } => {
                self.transitions.insert(run.job, at);
                self.run_ends(*run, at, RunState::Failed, false).error = Some(failure.clone());
            }
            Event::RunPreempted { run, preemption, requeued } => {
                self.transitions.insert(run.job, at);
                self.run_ends(*run, at, RunState::Preempted, true).preempted = Some(preemption.clone());
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
                self.job_ends(*job, at, JobState::Failed).error = Some(failure.clone());
            }
            Event::Rejected { job, reason } => {
                let failure = Failure { message: reason.clone(), cause: Cause::Rejected, ..Failure::default() };
                self.job_ends(*job, at, JobState::Rejected).error = Some(failure);
            }
            Event::Cancelled { job, requestor, reason } => {
                let row = self.job_ends(*job, at, JobState::Cancelled);
                (row.cancel_user, row.cancel_reason) = (Some(requestor.clone()), Some(reason.clone()));
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

const JOB_CHANGE: &Columns = &[
    ("id", Kind::Bytes),
    ("state", Kind::Text),
    ("asked", Kind::Text),
    ("avoid", Kind::Text),
    ("priority", Kind::Int),
    ("attempts", Kind::Int),
    ("returned", Kind::Int),
    ("failed", Kind::Int),
    ("last_transition", Kind::Int),
    ("ended", Kind::Int),
    ("cancel_user", Kind::Text),
    ("cancel_reason", Kind::Text),
    ("error", Kind::Text),
    ("shape", Kind::Bytes),
    ("grown", Kind::Text),
];
/// The first of them that are kept where the change has none.
const JOB_KEPT_FROM: usize = 4;

const BROAD: &Columns = &[("place", Kind::Int), ("body", Kind::Bytes)];
const RUN_END: &Columns = &[("job", Kind::Bytes), ("state", Kind::Text), ("at", Kind::Int)];

impl JobChange {
    fn cells(&self) -> Result<Vec<Cell>, Error> {
        let count = |value: Option<u32>| Cell::Int(value.map(i64::from));
        let time = |value: Option<TimeMs>| Cell::Int(value.map(|time| time.0));
        let avoid = Some(&self.avoid).filter(|avoid| !avoid.is_empty());
        Ok(vec![
            Cell::id(self.job.0),
            Cell::text(self.state.word()),
            Cell::json_if(self.asked.as_ref())?,
            Cell::json_if(avoid)?,
            count(self.priority),
            count(self.attempts),
            count(self.returned),
            count(self.failed),
            time(self.last_transition),
            time(self.ended),
            Cell::text_if(self.cancel_user.as_deref()),
            Cell::text_if(self.cancel_reason.as_deref()),
            Cell::json_if(self.error.as_ref())?,
            self.grown.map_or(Cell::Bytes(None), |grown| Cell::id(grown.shape.0)),
            Cell::json_if(self.grown.as_ref().map(|grown| &grown.memory))?,
        ])
    }
}

impl RunChange {
    /// As the columns of [`RUN`].
    fn cells(&self) -> Result<Vec<Cell>, Error> {
        let time = |value: Option<TimeMs>| Cell::Int(value.map(|time| time.0));
        Ok(vec![
            Cell::id(self.run.job.0),
            Cell::int(self.run.attempt),
            Cell::text_if(self.state.map(RunState::word)),
            Cell::text_if(self.at.as_ref().map(|at| at.cluster.as_str())),
            Cell::text_if(self.at.as_ref().map(|at| at.node.as_str())),
            Cell::text_if(self.pool.as_deref()),
            time(self.leased),
            time(self.pending),
            time(self.started),
            time(self.finished),
            Cell::Int(self.holds.map(i64::from)),
            Cell::json_if(self.pod.as_ref())?,
            Cell::json_if(self.preempted.as_ref())?,
            Cell::json_if(self.error.as_ref())?,
            Cell::json_if(self.ingress.as_ref())?,
            Cell::json_if(self.away.as_ref())?,
            Cell::json_if(self.places.as_ref())?,
        ])
    }
}

/// Writes changes of rows.
pub(super) async fn write(transaction: &mut Transaction, changed: &Changed) -> Result<(), Error> {
    let shapes = changed.entries.iter().flat_map(|entry| &entry.shapes);
    write_shapes(transaction, shapes).await?;
    let rows = changed.runs.iter().map(RunChange::cells).collect::<Result<_, _>>()?;
    let kept = RUN[2..].iter().map(|(name, _)| match *name {
        "state" => {
            "state = CASE WHEN runs.finished IS NULL THEN COALESCE(excluded.state, runs.state) ELSE runs.state END"
                .to_owned()
        }
        "finished" => "finished = COALESCE(runs.finished, excluded.finished)".to_owned(),
        name => format!("{name} = COALESCE(excluded.{name}, runs.{name})"),
    });
    let sql = format!(
        "INSERT INTO runs ({}) SELECT * FROM v WHERE true ON CONFLICT (job, attempt) DO UPDATE SET {}",
        names(RUN, ""),
        kept.collect::<Vec<_>>().join(", ")
    );
    transaction.with(RUN, rows, &sql).await?;

    let rows = changed.jobs.iter().map(JobChange::cells).collect::<Result<_, _>>()?;
    let set = JOB_CHANGE.iter().enumerate().skip(1).map(|(place, (name, _))| {
        if place < JOB_KEPT_FROM {
            format!("{name} = v.{name}")
        } else {
            format!("{name} = COALESCE(v.{name}, jobs.{name})")
        }
    });
    let sql = format!("UPDATE jobs SET {} FROM v WHERE jobs.id = v.id", set.collect::<Vec<_>>().join(", "));
    transaction.with(JOB_CHANGE, rows, &sql).await?;

    let ended = changed.jobs.iter().filter_map(|job| {
        let state = Cell::text(job.state.of_run().word());
        Some(vec![Cell::id(job.job.0), state, Cell::int(job.ended?.0)])
    });
    let sql =
        "UPDATE runs SET state = v.state, finished = v.at FROM v WHERE runs.job = v.job AND runs.finished IS NULL";
    transaction.with(RUN_END, ended.collect(), sql).await?;

    let Some(broads) = &changed.broads else { return Ok(()) };
    transaction.execute("DELETE FROM broads", vec![]).await?;
    let row = |(place, broad): (i64, &SavedBroad)| Ok(vec![Cell::int(place), Cell::Bytes(Some(body::write(broad)?))]);
    let rows = (0..).zip(broads).map(row).collect::<Result<_, Error>>()?;
    transaction.with(BROAD, rows, "INSERT INTO broads (place, body) SELECT * FROM v WHERE true").await.map(drop)
}
