//! The one task that writes: entries to transactions, and what is old away.
//!
//! Invariant: entries go to the database in their order; a batch that failed is tried again until it is written, and nothing
//! overtakes it. Owned by the component.

use std::collections::BTreeMap;
use std::time::Duration;

use pumice_clock as clock;
use pumice_units::{Backoff, with_causes};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::database::{Database, DatabaseError};
use crate::handle::Progress;
use crate::metrics::Numbers;
use crate::pending::{Cursor, Entry, Pending, Watched};
use crate::retention::{DAY_MS, RETIRE_EVERY, RETIRE_PAUSE, RETIRED_JOBS};
use crate::rows::{Cell, Kind};
use crate::statements::Statement;

/// Rows of a batch, about.
const BATCH_ROWS: usize = 1_000;
/// Longest time that a row waits for others: what a crash may take with it, of jobs that came, ended and went meanwhile.
const BATCH_TIME: Duration = Duration::from_millis(100);
/// Pauses after a failure.
const PAUSES: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(30) };

/// Gathers what the feed sends into batches, writes them and deletes what is old.
pub(crate) struct Writer {
    pub database: Database,
    pub entries: mpsc::Receiver<Entry>,
    pub cursors: BTreeMap<Watched, Cursor>,
    pub days: u32,
    pub numbers: Numbers,
    pub progress: Progress,
}

impl Writer {
    /// Runs until `shutdown`; what is in the channel by then is written if the database takes it at once.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let dialect = self.database.dialect();
        let mut pending = Pending::new(self.cursors.clone());
        let mut retire = tokio::time::interval(RETIRE_EVERY);
        let mut ending = false;
        loop {
            let first = tokio::select! {
                biased;
                () = shutdown.cancelled(), if !ending => {
                    ending = true;
                    self.entries.close();
                    continue;
                }
                // Before the entries, which may never cease; one portion, so that they do not wait for long.
                _ = retire.tick(), if !ending => {
                    let more = self.retire().await;
                    retire.reset_after(if more { RETIRE_PAUSE } else { RETIRE_EVERY });
                    continue;
                }
                entry = self.entries.recv() => match entry {
                    Some(entry) => entry,
                    None => return,
                },
            };
            let mut weight = first.weight();
            pending.add(dialect, first, clock::now().as_millisecond());
            let full = Instant::now() + BATCH_TIME;
            while weight < BATCH_ROWS {
                let Ok(Some(next)) = tokio::time::timeout_at(full, self.entries.recv()).await else { break };
                weight += next.weight();
                pending.add(dialect, next, clock::now().as_millisecond());
            }
            self.numbers.waiting(self.entries.len());
            if !self.commit(&pending.take(dialect), weight, &shutdown).await {
                return;
            }
            self.progress.written(pending.cursors());
        }
    }

    /// Writes; false if that failed and there is no time to try again.
    async fn commit(&self, statements: &[Statement], rows: usize, shutdown: &CancellationToken) -> bool {
        let mut failures = 0;
        loop {
            let pause = PAUSES.pause(failures);
            match self.database.commit(statements).await {
                Ok(_) => {
                    self.numbers.written(rows);
                    return true;
                }
                Err(error) => {
                    self.numbers.failed(with_causes(&error));
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        ?pause,
                        "the history could not be written, will be tried again"
                    );
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return false,
                () = tokio::time::sleep(pause) => failures += 1,
            }
        }
    }

    /// Forgets a portion of what was gone for long; tells whether there may be more. What fails here is tried again at the next
    /// time.
    async fn retire(&self) -> bool {
        let before = clock::now().as_millisecond() - i64::from(self.days) * DAY_MS;
        match retired(&self.database, before).await {
            Ok(rows) => rows > 0,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "old history could not be deleted");
                false
            }
        }
    }
}

/// Deletes some of the jobs that were gone before this moment, with all that belongs to them; tells how many rows that were.
///
/// # Errors
/// When the database fails.
pub async fn retired(database: &Database, before: i64) -> Result<u64, DatabaseError> {
    let which = "SELECT uid FROM job WHERE gone < $1 ORDER BY gone, uid LIMIT $2";
    let attempts = format!("SELECT uid FROM attempt WHERE job_uid IN ({which})");
    // Attempts whose job was never seen are old by themselves.
    let stray = "SELECT a.uid FROM attempt a LEFT JOIN job j ON j.uid = a.job_uid WHERE a.gone < $1 AND j.uid IS NULL ORDER BY a.gone LIMIT $2";
    let sql = [
        format!("DELETE FROM used WHERE uid IN ({attempts})"),
        format!("DELETE FROM attempt WHERE job_uid IN ({which})"),
        format!("DELETE FROM task WHERE job_uid IN ({which})"),
        format!("DELETE FROM waits WHERE job_uid IN ({which})"),
        format!("DELETE FROM job WHERE uid IN ({which})"),
        format!("DELETE FROM used WHERE uid IN ({stray})"),
        format!("DELETE FROM attempt WHERE uid IN ({stray})"),
    ];
    let arguments = vec![Cell::Int(Some(before)), Cell::Int(Some(RETIRED_JOBS))];
    let statements: Vec<Statement> = sql.into_iter().map(|sql| Statement::new(sql, arguments.clone())).collect();
    database.commit(&statements).await
}

/// The cursors that were written last.
///
/// # Errors
/// When the database fails.
pub async fn cursors(database: &Database) -> Result<BTreeMap<Watched, Cursor>, DatabaseError> {
    let asked = Statement::new("SELECT kind, version, seen, at FROM cursor_of", vec![]);
    let rows = database.ask(&asked, &[Kind::Text, Kind::Text, Kind::Int, Kind::Int]).await?;
    let cursor = |row: Vec<Cell>| {
        let [Cell::Text(Some(kind)), Cell::Text(Some(version)), Cell::Int(Some(seen)), Cell::Int(Some(at))] =
            <[Cell; 4]>::try_from(row).ok()?
        else {
            return None;
        };
        let watched = Watched::ALL.into_iter().find(|watched| watched.word() == kind)?;
        Some((watched, Cursor { version, seen, at }))
    };
    Ok(rows.into_iter().filter_map(cursor).collect())
}

/// Pods that ran when the history last looked.
///
/// # Errors
/// When the database fails.
pub(crate) async fn running(database: &Database) -> Result<crate::feed::Running, DatabaseError> {
    let asked =
        Statement::new("SELECT namespace, name, uid FROM attempt WHERE gone IS NULL AND phase = 'Running'", vec![]);
    let rows = database.ask(&asked, &[Kind::Text; 3]).await?;
    let pod = |row: Vec<Cell>| match <[Cell; 3]>::try_from(row) {
        Ok([Cell::Text(Some(namespace)), Cell::Text(Some(name)), Cell::Text(Some(uid))]) => {
            Some(((namespace, name), uid))
        }
        _ => None,
    };
    Ok(rows.into_iter().filter_map(pod).collect())
}
