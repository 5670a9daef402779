//! What a leader's decisions change in the tables.
//!
//! Invariant: a run's first end is its end, and a job that has ended has no run that has not. What a change does not name
//! stays as it is. A statement names only columns that its rows change: what has to be found by an index stays there untouched.

use std::collections::BTreeSet;

use pumice_ledger::{Entry, Growth, Job, JobId, Ledger, NodeRef, PendingRequests, SavedBulkOperation, TimeMs};

use super::append::write_shapes;
use super::cells::{Cell, Columns, Kind, Transaction};
use super::rows::RUN;
use super::run_changes::{JobEnd, RunChange, RunChanges};
use super::write_batches::ROWS;
use super::{Error, JobState, RunState, body};

/// What a leader writes: its decisions, and what is not said there of jobs that go on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changed {
    /// Decisions, in order.
    pub entries: Vec<Entry>,
    /// Jobs that changed and have not ended, each once.
    pub jobs: Vec<JobChange>,
    /// Requests that are not carried out to their end, where they changed.
    pub bulk_operations: Option<Vec<SavedBulkOperation>>,
}

/// A job that has not ended, as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct JobChange {
    pub job: JobId,
    pub state: JobState,
    /// Its place in the queue.
    pub priority: u32,
    pub attempts: u32,
    /// Returned runs that were tried.
    pub returned: u32,
    /// Failed runs that were tried again.
    pub failed: u32,
    /// What is asked of it.
    pub requests: Option<Box<PendingRequests>>,
    /// Nodes on which it was tried.
    pub avoid: Vec<NodeRef>,
    /// By how much memory it has grown, and the digest of its shape since.
    pub grown: Option<Box<Growth>>,
}

impl Changed {
    /// What is to be written of a ledger that has folded everything up to here: requests since the last time this was
    /// asked, and `decided`, which [`Ledger::decide`] gave.
    pub fn of(ledger: &mut Ledger, decided: Vec<Entry>) -> Changed {
        let touched: BTreeSet<JobId> = ledger.take_touched();
        let mut jobs = Vec::with_capacity(touched.len());
        for id in touched {
            // One that has ended is told by the decision that ended it.
            jobs.extend(ledger.job(id).map(|job| JobChange::of(ledger, id, job)));
        }
        Changed { entries: decided, jobs, bulk_operations: ledger.take_bulk_operations() }
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
];
const JOB_CHANGED: &str = "UPDATE jobs SET state = v.state, asked = v.asked, avoid = v.avoid, priority = v.priority,
    attempts = v.attempts, returned = v.returned, failed = v.failed,
    last_transition = COALESCE(v.last_transition, jobs.last_transition) FROM v WHERE jobs.id = v.id";

const JOB_GROWTH: &Columns = &[("id", Kind::Bytes), ("shape", Kind::Bytes), ("grown", Kind::Text)];
const JOB_GREW: &str = "UPDATE jobs SET shape = v.shape, grown = v.grown FROM v WHERE jobs.id = v.id";

const JOB_END: &Columns = &[
    ("id", Kind::Bytes),
    ("state", Kind::Text),
    ("attempts", Kind::Int),
    ("ended", Kind::Int),
    ("cancel_user", Kind::Text),
    ("cancel_reason", Kind::Text),
    ("error", Kind::Text),
];
const JOB_ENDED: &str = "UPDATE jobs SET state = v.state, asked = NULL, avoid = NULL,
    attempts = COALESCE(v.attempts, jobs.attempts), last_transition = v.ended, ended = v.ended,
    cancel_user = v.cancel_user, cancel_reason = v.cancel_reason, error = v.error FROM v WHERE jobs.id = v.id";

/// The runs of a job that ended end with it.
const RUN_END: &Columns = &[("job", Kind::Bytes), ("state", Kind::Text), ("at", Kind::Int)];
const RUN_ENDED: &str =
    "UPDATE runs SET state = v.state, finished = v.at FROM v WHERE runs.job = v.job AND runs.finished IS NULL";

/// A run of which nothing is told but its lease, to a node at home; those of [`LEASE_ALSO`] are the same for all.
const LEASE: &Columns = &[
    ("job", Kind::Bytes),
    ("attempt", Kind::Int),
    ("cluster", Kind::Text),
    ("node", Kind::Text),
    ("pool", Kind::Text),
    ("leased", Kind::Int),
];
const LEASE_ALSO: &[(&str, &str)] = &[("state", "'leased'"), ("holds", "1")];

const BULK_OPERATION: &Columns = &[("place", Kind::Int), ("body", Kind::Bytes)];

impl JobChange {
    fn of(ledger: &Ledger, id: JobId, job: &Job) -> JobChange {
        let growth = |memory| Growth { memory, shape: ledger.shape_digest(job) };
        JobChange {
            job: id,
            state: job.phase.into(),
            priority: job.priority,
            attempts: job.attempts,
            returned: job.returned,
            failed: job.failed,
            requests: job.requests.clone(),
            avoid: job.avoid.clone(),
            grown: job.grown.as_deref().map(|memory| Box::new(growth(*memory))),
        }
    }

    /// As [`JOB_CHANGE`]; when it came to its state where that is said.
    fn cells(&self, last_transition: Option<TimeMs>) -> Result<Vec<Cell>, Error> {
        let avoid = Some(&self.avoid).filter(|avoid| !avoid.is_empty());
        Ok(vec![
            Cell::id(self.job.0),
            Cell::text(self.state.word()),
            Cell::json_if(self.requests.as_ref())?,
            Cell::json_if(avoid)?,
            Cell::int(self.priority),
            Cell::int(self.attempts),
            Cell::int(self.returned),
            Cell::int(self.failed),
            time(last_transition),
        ])
    }
}

impl JobEnd<'_> {
    /// The cells of a row of [`JOB_END`].
    fn cells(&self) -> Result<Vec<Cell>, Error> {
        let (user, reason) = self.cancelled.unzip();
        Ok(vec![
            Cell::id(self.job.0),
            Cell::text(self.state.word()),
            Cell::Int(self.attempts.map(i64::from)),
            Cell::int(self.at.0),
            Cell::text_if(user),
            Cell::text_if(reason),
            Cell::json_if(self.error.as_deref())?,
        ])
    }

    /// The cells of a row of [`RUN_END`].
    fn run_cells(&self) -> Vec<Cell> {
        vec![Cell::id(self.job.0), Cell::text(self.state.of_run().word()), Cell::int(self.at.0)]
    }
}

impl RunChange<'_> {
    /// As [`LEASE`], where that is all that there is to say.
    fn lease_cells(&self) -> Option<Vec<Cell>> {
        if !self.is_lease() {
            return None;
        }
        let lease = self.lease?;
        Some(vec![
            Cell::id(self.run.job.0),
            Cell::int(self.run.attempt),
            Cell::text(&lease.node.cluster),
            Cell::text(&lease.node.node),
            Cell::text(lease.pool),
            Cell::int(lease.at.0),
        ])
    }

    /// As the columns of [`RUN`].
    fn cells(&self) -> Result<Vec<Cell>, Error> {
        let places = self.lease.map(|lease| lease.places).filter(|places| !places.is_empty());
        Ok(vec![
            Cell::id(self.run.job.0),
            Cell::int(self.run.attempt),
            Cell::text_if(self.state.map(RunState::word)),
            Cell::text_if(self.lease.map(|lease| lease.node.cluster.as_str())),
            Cell::text_if(self.lease.map(|lease| lease.node.node.as_str())),
            Cell::text_if(self.lease.map(|lease| lease.pool)),
            time(self.lease.map(|lease| lease.at)),
            time(self.pending),
            time(self.started),
            time(self.finished),
            Cell::Int(self.holds.map(i64::from)),
            Cell::json_if(self.pod)?,
            Cell::json_if(self.preempted)?,
            Cell::json_if(self.error.as_deref())?,
            Cell::json_if(self.ingress)?,
            Cell::json_if(self.lease.and_then(|lease| lease.away))?,
            Cell::json_if(places)?,
        ])
    }
}

fn time(at: Option<TimeMs>) -> Cell {
    Cell::Int(at.map(|at| at.0))
}

/// The statement that writes runs of `columns`, and for all of them `also`; what is none, or was not named, is kept.
fn run_statement(columns: &Columns, also: &[(&str, &str)]) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).chain(also.iter().map(|(name, _)| *name)).collect();
    let values: Vec<&str> = columns.iter().map(|(name, _)| *name).chain(also.iter().map(|(_, value)| *value)).collect();
    let kept = names[2..].iter().map(|name| match *name {
        "state" => {
            "state = CASE WHEN runs.finished IS NULL THEN COALESCE(excluded.state, runs.state) ELSE runs.state END"
                .to_owned()
        }
        "finished" => "finished = COALESCE(runs.finished, excluded.finished)".to_owned(),
        name => format!("{name} = COALESCE(excluded.{name}, runs.{name})"),
    });
    format!(
        "INSERT INTO runs ({}) SELECT {} FROM v WHERE true ON CONFLICT (job, attempt) DO UPDATE SET {}",
        names.join(", "),
        values.join(", "),
        kept.collect::<Vec<_>>().join(", ")
    )
}

/// Runs a statement for rows, whose cells are made when their turn comes.
async fn write_rows(
    transaction: &mut Transaction,
    columns: &Columns,
    sql: &str,
    mut rows: impl Iterator<Item = Result<Vec<Cell>, Error>> + Send,
) -> Result<(), Error> {
    loop {
        let some: Vec<Vec<Cell>> = rows.by_ref().take(ROWS).collect::<Result<_, _>>()?;
        if some.is_empty() {
            return Ok(());
        }
        transaction.with(columns, some, sql).await?;
    }
}

/// Writes changes of rows.
pub(super) async fn write(transaction: &mut Transaction, changed: &Changed) -> Result<(), Error> {
    let shapes = changed.entries.iter().flat_map(|entry| &entry.shapes);
    write_shapes(transaction, shapes).await?;
    let told = RunChanges::of(&changed.entries);

    let leases = told.runs().filter_map(|run| run.lease_cells().map(Ok));
    write_rows(transaction, LEASE, &run_statement(LEASE, LEASE_ALSO), leases).await?;
    let others = told.runs().filter(|run| !run.is_lease()).map(RunChange::cells);
    write_rows(transaction, RUN, &run_statement(RUN, &[]), others).await?;

    let jobs = changed.jobs.iter().map(|job| job.cells(told.transition(job.job)));
    write_rows(transaction, JOB_CHANGE, JOB_CHANGED, jobs).await?;
    let grown = changed.jobs.iter().filter_map(|job| Some((job.job, job.grown.as_deref()?)));
    let grown = grown
        .map(|(job, grown)| Ok(vec![Cell::id(job.0), Cell::id(grown.shape.0), Cell::json_if(Some(&grown.memory))?]));
    write_rows(transaction, JOB_GROWTH, JOB_GREW, grown).await?;

    write_rows(transaction, JOB_END, JOB_ENDED, told.ends().map(JobEnd::cells)).await?;
    write_rows(transaction, RUN_END, RUN_ENDED, told.ends().map(|end| Ok(end.run_cells()))).await?;

    let Some(operations) = &changed.bulk_operations else { return Ok(()) };
    transaction.execute("DELETE FROM broads", vec![]).await?;
    let row = |(place, operation): (i64, &SavedBulkOperation)| {
        Ok(vec![Cell::int(place), Cell::Bytes(Some(body::write(operation)?))])
    };
    let rows = (0..).zip(operations).map(row).collect::<Result<_, Error>>()?;
    transaction
        .with(BULK_OPERATION, rows, "INSERT INTO broads (place, body) SELECT * FROM v WHERE true")
        .await
        .map(drop)
}
