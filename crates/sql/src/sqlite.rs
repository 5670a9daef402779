//! Files of SQLite.

use std::path::Path;
use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

/// How a file is used.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// What a power cut may take with it.
    pub synchronous: SqliteSynchronous,
    /// Connections that read at the same time.
    pub readers_max: u32,
    /// Longest wait for a connection, or for a lock.
    pub wait_max: Duration,
    /// Statements kept prepared by a connection.
    pub prepared_max: usize,
    /// Settings of the connection that writes.
    pub writer_pragmas: &'static [(&'static str, &'static str)],
}

/// Connections to a file.
#[derive(Debug, Clone)]
pub struct FilePools {
    /// The one connection that writes.
    pub writer: SqlitePool,
    /// Those that only read; they are opened when they are wanted.
    pub readers: SqlitePool,
}

/// Opens a file, which is made if it is not there. Its log is written ahead, so readers and the writer don't wait for each other.
///
/// # Errors
/// When it can't be opened.
pub async fn open(path: &Path, options: &FileOptions) -> Result<FilePools, sqlx::Error> {
    let FileOptions { synchronous, readers_max, wait_max, prepared_max, writer_pragmas } = options;
    let connect = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(*synchronous)
        .statement_cache_capacity(*prepared_max)
        .busy_timeout(*wait_max);
    let mut writing = connect.clone();
    for (name, value) in *writer_pragmas {
        writing = writing.pragma(*name, *value);
    }
    let writer = SqlitePoolOptions::new().max_connections(1).acquire_timeout(*wait_max).connect_with(writing).await?;
    let readers = SqlitePoolOptions::new()
        .max_connections(*readers_max)
        .acquire_timeout(*wait_max)
        .connect_lazy_with(connect.create_if_missing(false).read_only(true));
    Ok(FilePools { writer, readers })
}

/// Writes a file as of one commit into `copy`, which is empty or not there.
///
/// # Errors
/// When it can't be read or written.
pub async fn copy(pool: &SqlitePool, copy: &Path) -> Result<(), sqlx::Error> {
    // A path can't be an argument.
    let sql = format!("VACUUM INTO '{}'", copy.display().to_string().replace('\'', "''"));
    sqlx::query(AssertSqlSafe(sql)).execute(pool).await.map(drop)
}

/// Copies a file of an earlier format beside itself, as `.v1` for format 1, unless it was copied before.
///
/// # Errors
/// When it can't be read or written.
pub async fn copy_before_upgrade(writer: &SqlitePool, path: &Path, format: i64) -> Result<(), sqlx::Error> {
    let beside = path.with_extension(format!("v{format}"));
    if beside.exists() { Ok(()) } else { copy(writer, &beside).await }
}
