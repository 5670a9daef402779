//! Job sets: which there are, and how far each is.

use pumice_ledger::{JobId, TimeMs};

use super::cells::{Cell, Cells, Columns, Kind};
use super::{Database, Error, JobState, JobsInState};

const SET: &Columns = &[("queue", Kind::Text), ("job_set", Kind::Text)];
const STANDING: &Columns = &[
    ("queue", Kind::Text),
    ("job_set", Kind::Text),
    ("state", Kind::Text),
    ("jobs", Kind::Int),
    ("first", Kind::Text),
    ("last_transition", Kind::Int),
];

pub(super) async fn recent(database: &Database, since: JobId, limit: u32) -> Result<Vec<(String, String)>, Error> {
    let mut sets = Vec::new();
    // Ids have the time in front. Both halves have an index.
    let sql = "SELECT queue, job_set FROM (
            SELECT queue, job_set, seq FROM jobs WHERE id >= $1
            UNION ALL SELECT queue, job_set, seq FROM jobs WHERE ended IS NULL AND id < $1
        ) AS recent GROUP BY queue, job_set ORDER BY MIN(seq) DESC LIMIT $2";
    let read = |mut cells: Cells| {
        sets.push((cells.text()?, cells.text()?));
        Ok(())
    };
    let arguments = vec![Cell::id(since.0), Cell::int(limit)];
    database.begin_read().await?.each(("jobs", SET), sql.to_owned(), arguments, read).await?;
    Ok(sets)
}

pub(super) async fn counts(database: &Database, sets: &[(String, String)]) -> Result<Vec<JobsInState>, Error> {
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
    let rows = sets.iter().map(|(queue, job_set)| vec![Cell::text(queue), Cell::text(job_set)]).collect();
    transaction.each_with(SET, rows, &sql, ("jobs", STANDING), read).await?;
    Ok(counts)
}
