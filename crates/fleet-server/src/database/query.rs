//! Reading the log and its tables.

use std::collections::BTreeMap;

use pumice_ledger::{Digest, Entry, JobId, Queue, RetryPolicy, RunId, Shape, TimeMs};
use serde::de::DeserializeOwned;

use super::cells::{Cell, Cells, Columns, Kind, Transaction, names};
use super::rows::{JOB, JOB_SAVED, RUN, read_saved};
use super::{Database, Decided, Error, HeldRun, JobRow, JobState, JobsInState, Loaded, RunRow, Seq, SetName, body};

const ID: &Columns = &[("id", Kind::Bytes)];
const RUN_ID: &Columns = &[("job", Kind::Bytes), ("attempt", Kind::Int)];
const ENTRY: &Columns = &[("seq", Kind::Int), ("body", Kind::Bytes)];
const NAMED: &Columns = &[("name", Kind::Text), ("body", Kind::Bytes)];
const DIGESTED: &Columns = &[("digest", Kind::Bytes), ("body", Kind::Bytes)];
const SET: &Columns = &[("queue", Kind::Text), ("job_set", Kind::Text)];
/// What [`JobsInState`] is read from.
const STANDING: &Columns = &[
    ("queue", Kind::Text),
    ("job_set", Kind::Text),
    ("state", Kind::Text),
    ("jobs", Kind::Int),
    ("first", Kind::Text),
    ("last_transition", Kind::Int),
];

pub(super) async fn head(transaction: &mut Transaction) -> Result<Seq, Error> {
    places(transaction).await.map(|(head, _)| head)
}

/// The head, and up to where the tables have what was decided.
pub(super) async fn places(transaction: &mut Transaction) -> Result<(Seq, Seq), Error> {
    let columns: &Columns = &[("seq", Kind::Int), ("folded", Kind::Int)];
    let mut places = None;
    let read = |mut cells: Cells| {
        places = Some((Seq(cells.int()?), Seq(cells.int()?)));
        Ok(())
    };
    transaction.each("head", columns, "SELECT seq, folded FROM head WHERE one = 1".to_owned(), vec![], read).await?;
    places.ok_or(Error::Unreadable { table: "head" })
}

/// Entries after a place; all where there is no limit.
pub(super) async fn tail(
    transaction: &mut Transaction,
    after: Seq,
    limit: Option<u32>,
) -> Result<Vec<(Seq, Entry)>, Error> {
    let limit = Cell::int(limit.map_or(i64::MAX, i64::from));
    let sql = "SELECT seq, body FROM log WHERE seq > $1 ORDER BY seq LIMIT $2".to_owned();
    entries(transaction, sql, vec![Cell::int(after.0), limit]).await
}

/// Entries after a place that the tables have, too.
pub(super) async fn decided(database: &Database, after: Seq, limit: u32) -> Result<Decided, Error> {
    let transaction = &mut database.begin_read().await?;
    let (_, folded) = places(transaction).await?;
    if folded <= after {
        return Ok(Decided { folded, entries: Vec::new() });
    }
    let sql = "SELECT seq, body FROM log WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3".to_owned();
    let arguments = vec![Cell::int(after.0), Cell::int(folded.0), Cell::int(limit)];
    Ok(Decided { folded, entries: entries(transaction, sql, arguments).await? })
}

pub(super) async fn events(
    database: &Database,
    queue: &str,
    job_set: &str,
    after: Seq,
    limit: u32,
) -> Result<Vec<(Seq, Entry)>, Error> {
    let sql = "SELECT seq, body FROM log WHERE queue = $1 AND job_set = $2 AND seq > $3 ORDER BY seq LIMIT $4";
    let arguments = vec![Cell::text(queue), Cell::text(job_set), Cell::int(after.0), Cell::int(limit)];
    entries(&mut database.begin_read().await?, sql.to_owned(), arguments).await
}

async fn entries(transaction: &mut Transaction, sql: String, arguments: Vec<Cell>) -> Result<Vec<(Seq, Entry)>, Error> {
    let mut entries = Vec::new();
    let read = |mut cells: Cells| {
        entries.push((Seq(cells.int()?), body::read(&cells.bytes()?, "log")?));
        Ok(())
    };
    transaction.each("log", ENTRY, sql, arguments, read).await?;
    Ok(entries)
}

pub(super) async fn load(database: &Database) -> Result<Loaded, Error> {
    let transaction = &mut database.begin_read().await?;
    let (head, position) = places(transaction).await?;
    let mut loaded = Loaded { position, head, ..Loaded::default() };
    // What was submitted after the position is in the entries that are yet to be folded.
    let active = "ended IS NULL AND seq <= $1";
    let sql = format!("SELECT {} FROM jobs WHERE {active}", names(JOB_SAVED, ""));
    let read = |mut cells: Cells| {
        loaded.jobs.push(read_saved(&mut cells)?);
        Ok(())
    };
    transaction.each("jobs", JOB_SAVED, sql, vec![Cell::int(position.0)], read).await?;

    let of_job: &Columns = &[("queue", Kind::Text), ("job_set", Kind::Text), ("shape", Kind::Bytes)];
    let sql = format!(
        "SELECT {}, {} FROM runs JOIN jobs ON jobs.id = runs.job WHERE holds = 1 ORDER BY runs.job, runs.attempt",
        names(RUN, "runs."),
        names(of_job, "jobs.")
    );
    let read = |mut cells: Cells| {
        let row = RunRow::read(&mut cells)?;
        loaded.runs.push(HeldRun { row, queue: cells.text()?, job_set: cells.text()?, shape: Digest(cells.id()?) });
        Ok(())
    };
    transaction.each("runs", &[RUN, of_job].concat(), sql, vec![], read).await?;

    let sql = format!(
        "SELECT digest, body FROM shapes WHERE digest IN (SELECT shape FROM jobs WHERE {active})
         OR digest IN (SELECT shape FROM runs JOIN jobs ON jobs.id = runs.job WHERE holds = 1)"
    );
    let read = |mut cells: Cells| {
        let shape: (Digest, Shape) = (Digest(cells.id()?), body::read(&cells.bytes()?, "shapes")?);
        loaded.shapes.extend([shape]);
        Ok(())
    };
    transaction.each("shapes", DIGESTED, sql, vec![Cell::int(position.0)], read).await?;
    loaded.queues = queues(transaction).await?;
    loaded.executors = defined(transaction, "executors").await?;
    let read = |mut cells: Cells| {
        loaded.bulk_operations.push(body::read(&cells.bytes()?, "broads")?);
        Ok(())
    };
    let sql = "SELECT body FROM broads ORDER BY place".to_owned();
    transaction.each("broads", &[("body", Kind::Bytes)], sql, vec![], read).await?;
    loaded.policies = policies(transaction).await?;
    Ok(loaded)
}

pub(super) async fn queues(transaction: &mut Transaction) -> Result<BTreeMap<String, Queue>, Error> {
    defined(transaction, "queues").await
}

pub(super) async fn policies(transaction: &mut Transaction) -> Result<BTreeMap<String, RetryPolicy>, Error> {
    defined(transaction, "retry_policies").await
}

/// What requests have defined, by name.
async fn defined<T: DeserializeOwned>(
    transaction: &mut Transaction,
    table: &'static str,
) -> Result<BTreeMap<String, T>, Error> {
    let mut defined = BTreeMap::new();
    let read = |mut cells: Cells| {
        defined.insert(cells.text()?, body::read(&cells.bytes()?, table)?);
        Ok(())
    };
    transaction.each(table, NAMED, format!("SELECT name, body FROM {table}"), vec![], read).await?;
    Ok(defined)
}

/// Queues with runs that have not ended, by pool. O(those runs).
pub(super) async fn active_queues(database: &Database) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let columns: &Columns = &[("pool", Kind::Text), ("queue", Kind::Text)];
    let sql = "SELECT DISTINCT runs.pool, jobs.queue FROM runs JOIN jobs ON jobs.id = runs.job
         WHERE holds = 1 AND finished IS NULL ORDER BY runs.pool, jobs.queue";
    let mut active: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let read = |mut cells: Cells| {
        active.entry(cells.text()?).or_default().push(cells.text()?);
        Ok(())
    };
    database.begin_read().await?.each("runs", columns, sql.to_owned(), vec![], read).await?;
    Ok(active)
}

pub(super) async fn has_runs(database: &Database, cluster: &str) -> Result<bool, Error> {
    let sql = "SELECT attempt FROM runs WHERE cluster = $1 LIMIT 1";
    is_there(database, "runs", &[("attempt", Kind::Int)], sql, vec![Cell::text(cluster)]).await
}

pub(super) async fn has_jobs(database: &Database, queue: &str, job_set: &str) -> Result<bool, Error> {
    let sql = "SELECT seq FROM jobs WHERE queue = $1 AND job_set = $2 LIMIT 1";
    is_there(database, "jobs", &[("seq", Kind::Int)], sql, vec![Cell::text(queue), Cell::text(job_set)]).await
}

/// Whether a query gives any row.
async fn is_there(
    database: &Database,
    table: &'static str,
    columns: &Columns,
    sql: &str,
    arguments: Vec<Cell>,
) -> Result<bool, Error> {
    let mut found = false;
    let read = |_: Cells| {
        found = true;
        Ok(())
    };
    database.begin_read().await?.each(table, columns, sql.to_owned(), arguments, read).await?;
    Ok(found)
}

pub(super) async fn jobs(database: &Database, ids: &[JobId]) -> Result<Vec<JobRow>, Error> {
    let mut jobs = Vec::with_capacity(ids.len());
    let sql = format!("SELECT {} FROM v JOIN jobs ON jobs.id = v.id", names(JOB, "jobs."));
    let read = |mut cells: Cells| {
        jobs.push(JobRow::read(&mut cells)?);
        Ok(())
    };
    let rows = distinct(ids).into_iter().map(|id| vec![Cell::id(id.0)]).collect();
    database.begin_read().await?.each_with(ID, rows, &sql, "jobs", JOB, read).await?;
    Ok(jobs)
}

pub(super) async fn jobs_by_uri(
    database: &Database,
    queue: &str,
    job_set: &str,
    uri: &str,
) -> Result<Vec<JobRow>, Error> {
    let mut jobs = Vec::new();
    let sql = format!("SELECT {} FROM jobs WHERE external_uri = $1 AND queue = $2 AND job_set = $3", names(JOB, ""));
    let read = |mut cells: Cells| {
        jobs.push(JobRow::read(&mut cells)?);
        Ok(())
    };
    let arguments = vec![Cell::text(uri), Cell::text(queue), Cell::text(job_set)];
    database.begin_read().await?.each("jobs", JOB, sql, arguments, read).await?;
    Ok(jobs)
}

pub(super) async fn runs(database: &Database, ids: &[RunId]) -> Result<Vec<RunRow>, Error> {
    let rows = distinct(ids).into_iter().map(|id| vec![Cell::id(id.job.0), Cell::int(id.attempt)]).collect();
    let sql = "FROM v JOIN runs ON runs.job = v.job AND runs.attempt = v.attempt";
    read_runs(database, RUN_ID, rows, sql).await
}

pub(super) async fn runs_of(database: &Database, jobs: &[JobId]) -> Result<Vec<RunRow>, Error> {
    let rows = distinct(jobs).into_iter().map(|id| vec![Cell::id(id.0)]).collect();
    let mut runs = read_runs(database, ID, rows, "FROM v JOIN runs ON runs.job = v.id").await?;
    runs.sort_unstable_by_key(|row| row.run);
    Ok(runs)
}

async fn read_runs(
    database: &Database,
    columns: &Columns,
    rows: Vec<Vec<Cell>>,
    from: &str,
) -> Result<Vec<RunRow>, Error> {
    let mut runs = Vec::with_capacity(rows.len());
    let sql = format!("SELECT {} {from}", names(RUN, "runs."));
    let read = |mut cells: Cells| {
        runs.push(RunRow::read(&mut cells)?);
        Ok(())
    };
    database.begin_read().await?.each_with(columns, rows, &sql, "runs", RUN, read).await?;
    Ok(runs)
}

pub(super) async fn specs(database: &Database, digests: &[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, Error> {
    let mut specs = Vec::with_capacity(digests.len());
    let sql = "SELECT digest, body FROM v JOIN specs ON specs.digest = v.id";
    let read = |mut cells: Cells| {
        specs.push((Digest(cells.id()?), body::unpack(&cells.bytes()?, "specs")?));
        Ok(())
    };
    let rows = distinct(digests).into_iter().map(|digest| vec![Cell::id(digest.0)]).collect();
    database.begin_read().await?.each_with(ID, rows, sql, "specs", DIGESTED, read).await?;
    Ok(specs)
}

pub(super) async fn recent_sets(database: &Database, since: JobId, limit: u32) -> Result<Vec<SetName>, Error> {
    let mut sets = Vec::new();
    // Ids have the time in front. Both halves have an index.
    let sql = "SELECT queue, job_set FROM (
            SELECT queue, job_set, seq FROM jobs WHERE id >= $1
            UNION ALL SELECT queue, job_set, seq FROM jobs WHERE ended IS NULL AND id < $1
        ) AS recent GROUP BY queue, job_set ORDER BY MIN(seq) DESC LIMIT $2";
    let read = |mut cells: Cells| {
        sets.push(SetName { queue: cells.text()?, job_set: cells.text()? });
        Ok(())
    };
    let arguments = vec![Cell::id(since.0), Cell::int(limit)];
    database.begin_read().await?.each("jobs", SET, sql.to_owned(), arguments, read).await?;
    Ok(sets)
}

pub(super) async fn job_counts(database: &Database, sets: &[SetName]) -> Result<Vec<JobsInState>, Error> {
    let mut counts = Vec::new();
    let mut transaction = database.begin_read().await?;
    // Not every Postgres has a least one of bytes.
    let id = if transaction.is_postgres() { "encode(jobs.id, 'hex')" } else { "hex(jobs.id)" };
    let sql = format!(
        "SELECT jobs.queue, jobs.job_set, jobs.state, COUNT(*), MIN({id}), MAX(jobs.last_transition)
         FROM v JOIN jobs ON jobs.queue = v.queue AND jobs.job_set = v.job_set
         GROUP BY jobs.queue, jobs.job_set, jobs.state"
    );
    let read = |mut cells: Cells| {
        counts.push(JobsInState {
            queue: cells.text()?,
            job_set: cells.text()?,
            state: cells.word(JobState::of_word)?,
            jobs: u64::try_from(cells.int()?).unwrap_or(0),
            first: JobId(cells.word(|hex| u128::from_str_radix(hex, 16).ok())?),
            last_transition: TimeMs(cells.int()?),
        });
        Ok(())
    };
    let rows = sets.iter().map(|set| vec![Cell::text(&set.queue), Cell::text(&set.job_set)]).collect();
    transaction.each_with(SET, rows, &sql, "jobs", STANDING, read).await?;
    Ok(counts)
}

fn distinct<T: Ord + Copy>(ids: &[T]) -> Vec<T> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}
