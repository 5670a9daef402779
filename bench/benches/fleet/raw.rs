//! What a database durably takes where nothing is done but to append rows to one table: the baseline of submissions.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};

use crate::homes::Home;

const TABLE: &str = "CREATE TABLE raw (seq BIGINT NOT NULL PRIMARY KEY, body BYTES NOT NULL)";
/// Rows of SQLite's statements, as the fleet's own.
const SQLITE_ROWS: [usize; 3] = [128, 16, 1];

/// How it is appended.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Rows.
    pub rows: usize,
    /// Bytes of each.
    pub row_bytes: usize,
    /// Rows of each transaction.
    pub rows_per_transaction: usize,
}

/// Appends by one writer to an empty database, until `limit` is over; rows a second.
pub async fn append(home: &Home, load: Load, limit: Duration) -> anyhow::Result<f64> {
    // What compresses is no measure.
    let body: Vec<u8> =
        (0..load.row_bytes as u64).map(|byte| (byte.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let mut sqlite = home.sqlite().await?;
    let mut postgres = home.postgres().await?;
    if let Some(connection) = &mut sqlite {
        sqlx::query(AssertSqlSafe(TABLE.replace("BYTES", "BLOB"))).execute(connection).await?;
    }
    if let Some(connection) = &mut postgres {
        sqlx::query(AssertSqlSafe(TABLE.replace("BYTES", "BYTEA"))).execute(connection).await?;
    }
    let began = Instant::now();
    let mut done = 0;
    while done < load.rows && began.elapsed() < limit {
        let rows = load.rows_per_transaction.min(load.rows - done);
        match (&mut sqlite, &mut postgres) {
            (Some(connection), _) => to_sqlite(connection, done, rows, &body).await?,
            (None, Some(connection)) => to_postgres(connection, done, rows, &body).await?,
            (None, None) => return Err(anyhow::anyhow!("a home is one of the two")),
        }
        done += rows;
    }
    let rate = done as f64 / began.elapsed().as_secs_f64();
    if let Some(connection) = sqlite {
        connection.close().await?;
    }
    if let Some(connection) = postgres {
        connection.close().await?;
    }
    Ok(rate)
}

async fn to_sqlite(connection: &mut SqliteConnection, first: usize, rows: usize, body: &[u8]) -> anyhow::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let mut done = 0;
    while done < rows {
        let size = SQLITE_ROWS.into_iter().find(|size| *size <= rows - done).context("one row is a size")?;
        let sql = format!("INSERT INTO raw (seq, body) VALUES {}", vec!["(?,?)"; size].join(","));
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for row in 0..size {
            query = query.bind(i64::try_from(first + done + row)?).bind(body);
        }
        query.execute(&mut *transaction).await?;
        done += size;
    }
    Ok(transaction.commit().await?)
}

async fn to_postgres(connection: &mut PgConnection, first: usize, rows: usize, body: &[u8]) -> anyhow::Result<()> {
    let mut transaction = connection.begin().await?;
    let numbers: Vec<i64> = (first..first + rows).map(i64::try_from).collect::<Result<_, _>>()?;
    let bodies: Vec<&[u8]> = vec![body; rows];
    let query = sqlx::query("INSERT INTO raw SELECT * FROM UNNEST($1::bigint[], $2::bytea[])");
    query.bind(numbers).bind(bodies).execute(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}
