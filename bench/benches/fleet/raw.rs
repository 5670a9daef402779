//! What a database durably takes where nothing is done but to append rows: the baselines of submissions. `append` is one table
//! of as many bytes; `rows` are the fleet's own tables, with the rows, columns and indexes that a submission writes.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};

use crate::homes::Home;
use crate::work;

const TABLE: &str = "CREATE TABLE raw (seq BIGINT NOT NULL PRIMARY KEY, body BYTES NOT NULL)";
/// Rows of SQLite's statements, as the fleet's own.
const SQLITE_ROWS: [usize; 3] = [128, 16, 1];

/// Names of specifications follow time: about so many are of a second.
const JOBS_PER_SECOND: u128 = 10_000;

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
    let body = bytes(load.row_bytes);
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

fn bytes(length: usize) -> Vec<u8> {
    (0..length as u64).map(|byte| (byte.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// What a submission wrote for its jobs.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Jobs of a request, which is one row of the log.
    pub jobs: usize,
    /// Bytes of that row's body.
    pub entry_bytes: usize,
    /// Bytes of a specification.
    pub spec_bytes: usize,
    /// Whether each job has one of its own.
    pub distinct: bool,
}

enum Values {
    Int(Vec<i64>),
    Text(Vec<&'static str>),
    Bytes(Vec<Vec<u8>>),
}

/// A table, its columns, and more of them that follow from these.
struct Table {
    name: &'static str,
    columns: &'static [(&'static str, &'static str)],
    also: (&'static str, &'static str),
}

const LOG: Table = Table {
    name: "log",
    columns: &[("seq", "bigint"), ("at", "bigint"), ("queue", "text"), ("job_set", "text"), ("body", "bytea")],
    also: ("", ""),
};
const JOBS: Table = Table {
    name: "jobs",
    columns: &[
        ("id", "bytea"),
        ("seq", "bigint"),
        ("queue", "text"),
        ("job_set", "text"),
        ("namespace", "text"),
        ("owner", "text"),
        ("spec", "bytea"),
        ("shape", "bytea"),
        ("submitted", "bigint"),
    ],
    also: (
        ", fail_fast, priority, state, attempts, returned, failed, last_transition",
        ", 0, 0, 'queued', 0, 0, 0, submitted",
    ),
};
const SPECS: Table =
    Table { name: "specs", columns: &[("digest", "bytea"), ("body", "bytea"), ("used_at", "bigint")], also: ("", "") };

/// Appends what a submission of `load.rows` jobs writes, by one writer, until `limit` is over; jobs a second.
pub async fn rows(home: &Home, load: Load, written: Written, limit: Duration) -> anyhow::Result<f64> {
    home.open().await?.close().await;
    let (mut sqlite, mut postgres) = (home.sqlite().await?, home.postgres().await?);
    let (entry, spec) = (bytes(written.entry_bytes), bytes(written.spec_bytes));
    let began = Instant::now();
    let mut done = 0;
    while done < load.rows && began.elapsed() < limit {
        let jobs = load.rows_per_transaction.min(load.rows - done);
        let of = |job: usize| (done + job) as u128;
        let seq = |job: usize| 1 + (done + job) as i64 / written.jobs as i64;
        let numbers: Vec<i64> = (0..jobs).map(seq).collect();
        let mut entries = numbers.clone();
        entries.dedup();
        // What a transaction before has begun.
        entries.retain(|entry| (*entry - 1) * written.jobs as i64 >= done as i64);
        let (some, all) = (entries.len(), jobs);
        let log = vec![
            Values::Int(entries),
            Values::Int(vec![1; some]),
            Values::Text(vec!["team-1"; some]),
            Values::Text(vec!["set-1"; some]),
            Values::Bytes(vec![entry.clone(); some]),
        ];
        // As names of specifications: in the order of seconds, and of chance within each.
        let second = |job: u128| (job / JOBS_PER_SECOND) << 96;
        let chance = |job: u128| job.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 32;
        let digest = |job: u128| if written.distinct { second(job) | chance(job) } else { 0 };
        let digests: Vec<Vec<u8>> = (0..all).map(|job| digest(of(job)).to_be_bytes().to_vec()).collect();
        let ids = (0..all).map(|job| (work::BEGIN.0 as u128) << 80 | of(job)).map(|id| id.to_be_bytes().to_vec());
        let jobs = vec![
            Values::Bytes(ids.collect()),
            Values::Int(numbers),
            Values::Text(vec!["team-1"; all]),
            Values::Text(vec!["set-1"; all]),
            Values::Text(vec!["research"; all]),
            Values::Text(vec!["ada"; all]),
            Values::Bytes(digests.clone()),
            Values::Bytes(vec![vec![0; 16]; all]),
            Values::Int(vec![1; all]),
        ];
        let mut tables = vec![(&LOG, log, some), (&JOBS, jobs, all)];
        if written.distinct {
            let specs = vec![Values::Bytes(digests), Values::Bytes(vec![spec.clone(); all]), Values::Int(vec![1; all])];
            tables.push((&SPECS, specs, all));
        }
        match (&mut sqlite, &mut postgres) {
            (Some(connection), _) => {
                let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
                for (table, values, rows) in &tables {
                    table.to_sqlite(&mut transaction, values, *rows).await?;
                }
                transaction.commit().await?;
            }
            (None, Some(connection)) => {
                let mut transaction = connection.begin().await?;
                for (table, values, _) in tables {
                    table.to_postgres(&mut transaction, values).await?;
                }
                transaction.commit().await?;
            }
            (None, None) => return Err(anyhow::anyhow!("a home is one of the two")),
        }
        done += all;
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

impl Table {
    fn sql(&self, values: &str) -> String {
        let Table { name, columns, also: (also, is) } = self;
        let columns = columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        format!("WITH v ({columns}) AS ({values}) INSERT INTO {name} ({columns}{also}) SELECT {columns}{is} FROM v")
    }

    async fn to_sqlite(&self, connection: &mut SqliteConnection, values: &[Values], rows: usize) -> anyhow::Result<()> {
        let row = format!("({})", vec!["?"; self.columns.len()].join(","));
        let mut done = 0;
        while done < rows {
            let size = SQLITE_ROWS.into_iter().find(|size| *size <= rows - done).context("one row is a size")?;
            let sql = self.sql(&format!("VALUES {}", vec![row.as_str(); size].join(",")));
            let mut query = sqlx::query(AssertSqlSafe(sql));
            for row in done..done + size {
                for column in values {
                    query = match column {
                        Values::Int(values) => query.bind(values[row]),
                        Values::Text(values) => query.bind(values[row]),
                        Values::Bytes(values) => query.bind(values[row].as_slice()),
                    };
                }
            }
            query.execute(&mut *connection).await?;
            done += size;
        }
        Ok(())
    }

    async fn to_postgres(&self, connection: &mut PgConnection, values: Vec<Values>) -> anyhow::Result<()> {
        let kinds = self.columns.iter().enumerate().map(|(place, (_, kind))| format!("${}::{kind}[]", place + 1));
        let sql = self.sql(&format!("SELECT * FROM UNNEST({})", kinds.collect::<Vec<_>>().join(", ")));
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for column in values {
            query = match column {
                Values::Int(values) => query.bind(values),
                Values::Text(values) => query.bind(values),
                Values::Bytes(values) => query.bind(values),
            };
        }
        query.execute(connection).await?;
        Ok(())
    }
}
