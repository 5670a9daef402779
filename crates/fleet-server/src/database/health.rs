//! How the database does: whether it takes writes, how far its clock is off, who leads, and what is not folded yet.

use std::time::Duration;

use pumice_clock as clock;
use pumice_ledger::TimeMs;
use serde::{Deserialize, Serialize};

use super::append::lock;
use super::cells::{Cell, Cells, Columns, Kind};
use super::{Database, Error, leadership};

/// How a database does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DatabaseHealth {
    /// What it is: `SQLite` or `Postgres`.
    pub kind: String,
    /// How long a write took that changed nothing, milliseconds.
    pub write_ms: u64,
    /// How far its clock is ahead of the server's, milliseconds.
    pub ahead_ms: i64,
    /// The last entry of the log.
    pub position: i64,
    /// How many entries nobody has folded yet.
    pub unfolded: i64,
    /// How old the oldest of them is, milliseconds.
    pub lag_ms: i64,
    /// Who leads, or led last.
    pub holder: String,
    /// For how long the leader may still lead without another word; negative where nobody leads.
    pub leads_for_ms: i64,
}

const HEAD: &Columns = &[("holder", Kind::Text), ("until", Kind::Int), ("now", Kind::Int)];

/// Writes what is there already, durably, and looks.
pub(super) async fn probe(database: &Database) -> Result<DatabaseHealth, Error> {
    let began = clock::monotonic();
    let mut transaction = database.begin_write().await?;
    let head = lock(&mut transaction).await?;
    transaction.execute("UPDATE head SET seq = seq WHERE one = 1", vec![]).await?;
    let mut found = DatabaseHealth {
        kind: if transaction.is_postgres() { "Postgres" } else { "SQLite" }.to_owned(),
        position: head.seq.0,
        unfolded: head.seq.0 - head.folded.0,
        ..DatabaseHealth::default()
    };
    let now = leadership::clock(&transaction);
    let sql = format!("SELECT holder, until, {now} FROM head WHERE one = 1");
    let mut database_now = 0;
    let read = |mut cells: Cells| {
        found.holder = cells.text()?;
        let until = cells.int()?;
        database_now = cells.int()?;
        found.leads_for_ms = until - database_now;
        Ok(())
    };
    transaction.each("head", HEAD, sql, vec![], read).await?;
    found.ahead_ms = database_now - TimeMs(clock::now_ms()).0;
    let sql = "SELECT at FROM log WHERE seq > $1 ORDER BY seq LIMIT 1".to_owned();
    let read = |mut cells: Cells| {
        found.lag_ms = (database_now - cells.int()?).max(0);
        Ok(())
    };
    transaction.each("log", &[("at", Kind::Int)], sql, vec![Cell::int(head.folded.0)], read).await?;
    transaction.commit().await?;
    let took: Duration = began.elapsed();
    found.write_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    Ok(found)
}
