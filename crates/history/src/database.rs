//! SQLite or Postgres: statements go in, cells come out.
//!
//! Invariant: [`Database::commit`] writes all of its statements or none. A question is ended when its time is over, and can't
//! change anything. Only this file knows the library; nothing above it knows which database it is.

mod migrate;

use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use pumice_sql::sqlite::{FileOptions, FilePools};
use pumice_sql::{AddressError, postgres_options};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::Instant;

pub use pumice_sql::Location;

use crate::rows::{Cell, Kind};
use crate::statements::{Dialect, Statement};

/// Questions at the same time.
const READERS_MAX: u32 = 4;
/// Longest time of a question.
pub const QUESTION_MAX: Duration = Duration::from_secs(20);
/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// SQLite's steps between two looks at the clock.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;
/// Statements kept prepared by a connection.
const PREPARED_MAX: usize = 64;

/// A database of Postgres. Others can read the arguments of a process: an address with a password is refused.
///
/// # Errors
/// When it is no address, or has a password in it; the message does not repeat it.
pub fn postgres_location(url: &str) -> Result<Location, DatabaseError> {
    address(url).map(|_| Location::Postgres(url.to_owned()))
}

/// Why the database can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// No database has such an address.
    #[error("the address of the history's database can't be read; give postgres://USER@HOST/NAME")]
    Address(#[source] sqlx::Error),
    /// The address has a password in it.
    #[error(
        "the address of the history's database has a password, which others can read; put it into $PGPASSWORD or the file $PGPASSFILE"
    )]
    Password,
    /// It can't be opened.
    #[error("the history's database {location} can't be opened")]
    Open {
        location: String,
        #[source]
        source: sqlx::Error,
    },
    /// A later release made it.
    #[error(
        "the history's database is of format {found}, and this release knows up to {known}; run the release that made it, or give another place"
    )]
    Newer {
        found: i64,
        /// The last one that is known.
        known: i64,
    },
    /// It can't be brought to the format of this release.
    #[error("the history's database can't be upgraded to format {to}")]
    Upgrade {
        to: i64,
        #[source]
        source: sqlx::Error,
    },
    #[error("the history's database failed")]
    Failed(#[source] sqlx::Error),
    /// A question took too long.
    #[error("the question took longer than {} s; ask for a shorter time or a single namespace", QUESTION_MAX.as_secs())]
    TooLong,
}

/// An open database; cheap to clone.
#[derive(Debug, Clone)]
pub enum Database {
    /// One connection writes, others only read.
    Sqlite {
        /// The one that writes.
        writer: SqlitePool,
        readers: SqlitePool,
    },
    /// A pool of connections.
    Postgres(PgPool),
}

/// Binds cells to a query of either database.
macro_rules! bound {
    ($statement:expr) => {{
        let statement: &Statement = $statement;
        let mut query = sqlx::query(AssertSqlSafe(statement.sql.clone()));
        for cell in &statement.arguments {
            query = match cell {
                Cell::Int(value) => query.bind(*value),
                Cell::Text(value) => query.bind(value.clone()),
            };
        }
        query
    }};
}

/// Runs statements in a transaction of either pool.
macro_rules! commit {
    ($pool:expr, $statements:expr) => {{
        let mut transaction = $pool.begin().await?;
        let mut changed = 0;
        for statement in $statements {
            changed += bound!(statement).execute(&mut *transaction).await?.rows_affected();
        }
        transaction.commit().await?;
        Ok(changed)
    }};
}

/// The cells of rows of either database.
macro_rules! cells {
    ($rows:expr, $kinds:expr) => {{
        let mut all = Vec::with_capacity($rows.len());
        for row in &$rows {
            let mut cells = Vec::with_capacity($kinds.len());
            for (column, kind) in $kinds.iter().enumerate() {
                cells.push(match kind {
                    Kind::Int => Cell::Int(row.try_get(column)?),
                    Kind::Text => Cell::Text(row.try_get(column)?),
                });
            }
            all.push(cells);
        }
        all
    }};
}

impl Database {
    /// Opens a database, makes its tables or brings them to the format of this release.
    ///
    /// # Errors
    /// When it can't be opened or is of a later format.
    pub fn open(location: &Location) -> BoxFuture<'_, Result<Database, DatabaseError>> {
        Box::pin(async move {
            let database = match location {
                Location::File(path) => open_file(path).await?,
                Location::Postgres(url) => open_postgres(location, url).await?,
            };
            migrate::run(&database, location, migrate::STEPS).await?;
            Ok(database)
        })
    }

    /// Which words it wants.
    pub fn dialect(&self) -> Dialect {
        match self {
            Database::Sqlite { .. } => Dialect::Sqlite,
            Database::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Runs statements as one transaction, and tells how many rows changed.
    ///
    /// # Errors
    /// When one of them fails; then nothing is written.
    pub async fn commit(&self, statements: &[Statement]) -> Result<u64, DatabaseError> {
        let run = async {
            match self {
                Database::Sqlite { writer, .. } => commit!(writer, statements),
                Database::Postgres(pool) => commit!(pool, statements),
            }
        };
        run.await.map_err(DatabaseError::Failed)
    }

    /// Asks; each row has a cell for each of `kinds`. Everything is read into memory: statements have a limit.
    ///
    /// # Errors
    /// When the statement fails or takes longer than [`QUESTION_MAX`].
    pub async fn ask(&self, statement: &Statement, kinds: &[Kind]) -> Result<Vec<Vec<Cell>>, DatabaseError> {
        let deadline = Instant::now() + QUESTION_MAX;
        let asked = async {
            match self {
                Database::Sqlite { readers, .. } => {
                    let mut connection = readers.acquire().await?;
                    // Whoever asked may be gone; the connection's thread would go on.
                    let in_time = move || Instant::now() < deadline;
                    connection.lock_handle().await?.set_progress_handler(STEPS_BETWEEN_LOOKS, in_time);
                    let rows = bound!(statement).fetch_all(&mut *connection).await?;
                    connection.lock_handle().await?.remove_progress_handler();
                    Ok(cells!(rows, kinds))
                }
                Database::Postgres(pool) => {
                    let rows = bound!(statement).fetch_all(pool).await?;
                    Ok(cells!(rows, kinds))
                }
            }
        };
        match tokio::time::timeout_at(deadline, asked).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(_)) if Instant::now() >= deadline => Err(DatabaseError::TooLong),
            Ok(Err(error)) => Err(DatabaseError::Failed(error)),
            Err(_) => Err(DatabaseError::TooLong),
        }
    }

    /// Closes all connections; what was committed is there.
    pub async fn close(&self) {
        match self {
            Database::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Database::Postgres(pool) => pool.close().await,
        }
    }
}

/// Writes a history's file as of one commit into `copy`, which is empty or not there. Whoever writes the history goes on.
///
/// # Errors
/// When the file can't be read, or `copy` can't be written.
pub async fn copy_file(path: &Path, copy: &Path) -> Result<(), DatabaseError> {
    let failed = |source| DatabaseError::Open { location: path.display().to_string(), source };
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(false).busy_timeout(CONNECT_MAX);
    let one = SqlitePoolOptions::new().max_connections(1).acquire_timeout(CONNECT_MAX);
    let pool = one.connect_with(options).await.map_err(failed)?;
    let copied = pumice_sql::sqlite::copy(&pool, copy).await;
    pool.close().await;
    copied.map_err(DatabaseError::Failed)
}

async fn open_file(path: &Path) -> Result<Database, DatabaseError> {
    let options = FileOptions {
        // A commit survives the end of the process; a power cut may take the last ones, with their cursors.
        synchronous: SqliteSynchronous::Normal,
        readers_max: READERS_MAX,
        wait_max: CONNECT_MAX,
        prepared_max: PREPARED_MAX,
        writer_pragmas: &[],
    };
    let opened = pumice_sql::sqlite::open(path, &options).await;
    let failed = |source| DatabaseError::Open { location: path.display().to_string(), source };
    let FilePools { writer, readers } = opened.map_err(failed)?;
    Ok(Database::Sqlite { writer, readers })
}

fn address(url: &str) -> Result<PgConnectOptions, DatabaseError> {
    postgres_options(url).map_err(|error| match error {
        AddressError::Unreadable(source) => DatabaseError::Address(source),
        AddressError::Password => DatabaseError::Password,
    })
}

async fn open_postgres(location: &Location, url: &str) -> Result<Database, DatabaseError> {
    let options = address(url)?
        .application_name("pumice-history")
        .statement_cache_capacity(PREPARED_MAX)
        .options([("statement_timeout", QUESTION_MAX.as_millis().to_string())]);
    let pool = PgPoolOptions::new()
        .max_connections(READERS_MAX + 1)
        .acquire_timeout(CONNECT_MAX)
        .connect_with(options)
        .await
        .map_err(|source| DatabaseError::Open { location: location.to_string(), source })?;
    Ok(Database::Postgres(pool))
}
