//! The format of the tables, and how an older one becomes the one of this release.
//!
//! Invariant: all steps that are missing are one transaction, and servers that start together do not both take them. A file
//! of SQLite is copied beside itself before; a newer format is refused.

use pumice_sql::migrations::{last_format, missing_statements};
use pumice_sql::sqlite::copy_before_upgrade;

use super::cells::{Cell, Kind, Transaction};
use super::{Database, Error, Location, Pools, partitions};

/// Statements that lead from each format to the next, in words that [`take`] puts into each database's; what was released is
/// never changed.
pub(super) const STEPS: &[&str] = &[
    include_str!("../../migrations/1.sql"),
    include_str!("../../migrations/2.sql"),
    include_str!("../../migrations/3.sql"),
    include_str!("../../migrations/4.sql"),
    include_str!("../../migrations/5.sql"),
    include_str!("../../migrations/6.sql"),
];

/// The log becomes one of many parts, where the database has such.
const PARTITION: &str = "PARTITION log";
const META: &str = "CREATE TABLE IF NOT EXISTS meta (key TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL)";
/// Postgres' lock for whoever takes the steps: any number that no other program has.
const LOCK: &str = "SELECT pg_advisory_xact_lock(6022140857)";

pub(super) async fn run(database: &Database, location: &Location, steps: &[&'static str]) -> Result<(), Error> {
    let mut transaction = database.begin_write().await?;
    if transaction.is_postgres() {
        transaction.execute(LOCK, vec![]).await?;
    }
    transaction.execute(META, vec![]).await?;
    let mut found = 0;
    let asked = "SELECT value FROM meta WHERE key = 'format'".to_owned();
    let read = |mut cells: super::cells::Cells| {
        found = cells.int()?;
        Ok(())
    };
    transaction.each("meta", &[("value", Kind::Int)], asked, vec![], read).await?;
    let known = last_format(steps);
    if found > known {
        return Err(Error::Newer { found, known });
    }
    if found == known {
        return Ok(());
    }
    if found > 0 && !transaction.is_postgres() {
        drop(transaction);
        copy(database, location, found, known).await?;
        transaction = database.begin_write().await?;
    }
    take(transaction, missing_statements(steps, found), known).await.map_err(|error| match error {
        Error::Failed(source) => Error::Upgrade { to: known, source },
        other => other,
    })
}

/// Only one process writes a file.
async fn copy(database: &Database, location: &Location, found: i64, known: i64) -> Result<(), Error> {
    let (Pools::Sqlite { writer, .. }, Location::File(path)) = (database.pools(), location) else { return Ok(()) };
    let copied = copy_before_upgrade(writer, path, found).await;
    copied.map_err(|source| Error::Upgrade { to: known, source: source.into() })
}

async fn take(
    mut transaction: Transaction,
    missing: impl Iterator<Item = &'static str>,
    known: i64,
) -> Result<(), Error> {
    // SQLite keeps rows in a tree of their own unless their key is its number, or they are told to stand in the key's.
    let words = if transaction.is_postgres() {
        [("BYTES", "BYTEA"), (" WITHOUT ROWID", "")]
    } else {
        [("BYTES", "BLOB"), ("BIGINT NOT NULL PRIMARY KEY", "INTEGER NOT NULL PRIMARY KEY")]
    };
    for statement in missing {
        if statement.trim() == PARTITION {
            if transaction.is_postgres() {
                partitions::divide(&mut transaction).await?;
            }
            continue;
        }
        let statement = words.iter().fold(statement.to_owned(), |sql, (word, theirs)| sql.replace(word, theirs));
        transaction.execute(&statement, vec![]).await?;
    }
    let format =
        "INSERT INTO meta (key, value) VALUES ('format', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    transaction.execute(format, vec![Cell::int(known)]).await?;
    transaction.commit().await
}
