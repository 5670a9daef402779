//! The log in partitions by its sequence, on Postgres: what is written now is in a small table with small indexes, and what is
//! over goes with its whole table.
//!
//! Invariant: a partition has the entries from a multiple of [`ENTRIES`] to the next one; the first has all before its end. Who
//! writes the first entry of a partition makes it in the same transaction, so no entry is ever without one.

use super::cells::{Cell, Cells, Kind, Transaction};
use super::retention::leading;
use super::{Database, Epoch, Error, Seq, query};

/// Entries of a partition. It is written into databases and never changes; tests have small ones.
const ENTRIES: i64 = if cfg!(test) { 16 } else { 1 << 23 };
/// What begins the names of partitions; the number of the first entry in units of [`ENTRIES`] follows.
const NAME: &str = "log_";
/// How long others may keep their hands on the log before a removal is given up for this time.
const PATIENCE: &str = "SET LOCAL lock_timeout = '100ms'";

/// Puts a log that is one table into the first partition.
pub(super) async fn divide(transaction: &mut Transaction) -> Result<(), Error> {
    let Seq(head) = query::head(transaction).await?;
    let end = (head / ENTRIES + 1) * ENTRIES;
    for sql in [
        "ALTER TABLE log RENAME TO log_0",
        "ALTER INDEX log_pkey RENAME TO log_0_pkey",
        "ALTER INDEX log_of_set RENAME TO log_0_of_set",
        "CREATE TABLE log (LIKE log_0 INCLUDING DEFAULTS) PARTITION BY RANGE (seq)",
        "ALTER TABLE log ADD PRIMARY KEY (seq)",
        "CREATE INDEX log_of_set ON log (queue, job_set, seq)",
        &format!("ALTER TABLE log ATTACH PARTITION log_0 FOR VALUES FROM (MINVALUE) TO ({end})"),
    ] {
        transaction.execute(sql, vec![]).await?;
    }
    Ok(())
}

/// Makes the partitions that begin with one of the entries from `first` to `last`.
pub(super) async fn cover(transaction: &mut Transaction, first: Seq, last: Seq) -> Result<(), Error> {
    if !transaction.is_postgres() {
        return Ok(());
    }
    for number in (first.0 + ENTRIES - 1) / ENTRIES..=last.0 / ENTRIES {
        let (from, to) = (number * ENTRIES, (number + 1) * ENTRIES);
        // Those who read the log go on meanwhile, other than with CREATE TABLE ... PARTITION OF.
        transaction.execute(&format!("CREATE TABLE {NAME}{number} (LIKE log INCLUDING DEFAULTS)"), vec![]).await?;
        let attach = format!("ALTER TABLE log ATTACH PARTITION {NAME}{number} FOR VALUES FROM ({from}) TO ({to})");
        transaction.execute(&attach, vec![]).await?;
    }
    Ok(())
}

/// Removes the first partition of which all is over; whether there was one. One that is in use at the moment is left alone.
pub(super) async fn retire(database: &Database, epoch: Epoch) -> Result<bool, Error> {
    let (mut transaction, folded) = leading(database, epoch).await?;
    if !transaction.is_postgres() {
        return Ok(false);
    }
    let mut numbers = Vec::new();
    let sql = "SELECT relname::TEXT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
               WHERE inhparent = 'log'::regclass";
    let read = |mut cells: Cells| {
        numbers.push(cells.word(|name| name.strip_prefix(NAME)?.parse::<i64>().ok())?);
        Ok(())
    };
    transaction.each("log", &[("relname", Kind::Text)], sql.to_owned(), vec![], read).await?;
    numbers.sort_unstable();
    for pair in numbers.windows(2) {
        let [number, next] = pair else { continue };
        if next * ENTRIES > folded.0 {
            break;
        }
        let mut is_empty = true;
        let read = |_| {
            is_empty = false;
            Ok(())
        };
        transaction.each("log", &[], format!("SELECT 1 FROM {NAME}{number} LIMIT 1"), vec![], read).await?;
        if is_empty {
            transaction.execute(PATIENCE, vec![]).await?;
            transaction.execute(&format!("DROP TABLE {NAME}{number}"), vec![]).await?;
            transaction.commit().await?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where a row of the log says that it stands.
pub(super) fn seq_of_row(row: &[Cell]) -> Option<Seq> {
    match row.first() {
        Some(Cell::Int(Some(seq))) => Some(Seq(*seq)),
        _ => None,
    }
}
