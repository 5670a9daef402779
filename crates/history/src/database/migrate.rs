//! The format of the tables, and how an older one becomes the one of this release.
//!
//! Invariant: all steps that are missing are one transaction. A file of SQLite is copied beside itself before; a newer format
//! is refused.

use pumice_sql::migrations::{last_format, missing_statements};
use pumice_sql::sqlite::copy_before_upgrade;

use super::{Database, DatabaseError, Location};
use crate::rows::Kind;
use crate::statements::Statement;

/// Statements that lead from each format to the next; what was released is never changed.
pub(super) const STEPS: &[&str] = &[include_str!("../../migrations/1.sql")];

const META: &str = "CREATE TABLE IF NOT EXISTS meta (name TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL)";

pub(super) async fn run(database: &Database, location: &Location, steps: &[&str]) -> Result<(), DatabaseError> {
    database.commit(&[Statement::new(META, vec![])]).await?;
    let asked = Statement::new("SELECT value FROM meta WHERE name = 'format'", vec![]);
    let rows = database.ask(&asked, &[Kind::Int]).await?;
    let found = match rows.first().and_then(|row| row.first()) {
        Some(crate::rows::Cell::Int(Some(format))) => *format,
        _ => 0,
    };
    let known = last_format(steps);
    if found > known {
        return Err(DatabaseError::Newer { found, known });
    }
    if found == known {
        return Ok(());
    }
    let failed = |source| DatabaseError::Upgrade { to: known, source };
    if let (Database::Sqlite { writer, .. }, Location::File(path), true) = (database, location, found > 0) {
        copy_before_upgrade(writer, path, found).await.map_err(failed)?;
    }
    let missing = missing_statements(steps, found);
    let mut statements: Vec<Statement> = missing.map(|sql| Statement::new(sql, vec![])).collect();
    let format =
        "INSERT INTO meta (name, value) VALUES ('format', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    statements.push(Statement::new(format, vec![crate::rows::Cell::Int(Some(known))]));
    match database.commit(&statements).await {
        Err(DatabaseError::Failed(source)) => Err(failed(source)),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Cell, Table};

    async fn columns_of(database: &Database, table: Table) -> Vec<Vec<Cell>> {
        let sql = format!("SELECT name, type FROM pragma_table_info('{}') ORDER BY cid", table.name());
        database.ask(&Statement::new(sql, vec![]), &[Kind::Text, Kind::Text]).await.unwrap()
    }

    #[tokio::test]
    async fn the_steps_make_the_tables_that_rows_are_of() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&Location::File(directory.path().join("h.db"))).await.unwrap();
        for table in Table::ALL {
            let wanted: Vec<Vec<Cell>> = table
                .columns()
                .iter()
                .map(|column| {
                    let kind = if column.kind == Kind::Int { "BIGINT" } else { "TEXT" };
                    vec![Cell::text(column.name), Cell::text(kind)]
                })
                .collect();
            assert_eq!(columns_of(&database, table).await, wanted, "{}", table.name());
        }
        database.close().await;
    }

    #[tokio::test]
    async fn an_older_format_is_copied_and_upgraded_and_a_newer_one_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("h.db");
        let location = Location::File(path.clone());
        let database = Database::open(&location).await.unwrap();
        let job = "INSERT INTO job (uid, version, seen) VALUES ('u', 1, 1)";
        database.commit(&[Statement::new(job, vec![])]).await.unwrap();
        let steps = [STEPS[0], "ALTER TABLE job ADD COLUMN colour TEXT; UPDATE job SET colour = 'red'"];
        run(&database, &location, &steps).await.unwrap();
        let colours = Statement::new("SELECT colour FROM job", vec![]);
        assert_eq!(database.ask(&colours, &[Kind::Text]).await.unwrap(), [[Cell::text("red")]]);
        run(&database, &location, &steps).await.expect("a second time changes nothing");
        database.close().await;
        let copy = Database::open(&Location::File(directory.path().join("h.v1"))).await.unwrap();
        assert_eq!(columns_of(&copy, Table::Job).await.len(), Table::Job.columns().len());
        copy.close().await;
        let refused = Database::open(&location).await.unwrap_err();
        assert!(matches!(refused, DatabaseError::Newer { found: 2, known: 1 }), "{refused}");
    }

    #[tokio::test]
    async fn a_step_that_fails_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::File(directory.path().join("h.db"));
        let database = Database::open(&location).await.unwrap();
        let steps = [STEPS[0], "ALTER TABLE job ADD COLUMN colour TEXT; nonsense"];
        let failed = run(&database, &location, &steps).await.unwrap_err();
        assert!(matches!(failed, DatabaseError::Upgrade { to: 2, .. }), "{failed}");
        assert_eq!(columns_of(&database, Table::Job).await.len(), Table::Job.columns().len());
    }

    #[tokio::test]
    async fn a_password_is_not_taken_from_an_address() {
        for url in ["postgres://me:secret@host/db", "postgres://host/db?password=secret"] {
            let refused = Database::open(&Location::Postgres(url.to_owned())).await.unwrap_err();
            assert!(matches!(refused, DatabaseError::Password));
            assert!(!refused.to_string().contains("secret"));
        }
    }
}
