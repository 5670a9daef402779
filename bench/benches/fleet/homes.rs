//! Databases, each empty at first, and what is measured of them from outside.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context as _;
use pumice_fleet_server::database::{Database, Location};
use pumice_testkit::Postgres;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection, SqliteConnection};
use tempfile::TempDir;

/// Where Debian has the server's programs, by version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The kinds of databases that there are.
pub struct Homes {
    /// The address of a server of Postgres.
    postgres: Option<String>,
    /// One that was started here.
    _server: Option<Postgres>,
    made: usize,
}

/// A database of its own.
pub struct Home {
    pub place: Location,
    _folder: Option<TempDir>,
    /// Where to remove it.
    of_server: Option<(String, String)>,
}

impl Homes {
    /// Starts a Postgres where none is given, it is installed, and `wants` says that it is needed.
    pub fn find(wants: impl Fn(&str) -> bool) -> Homes {
        let given = std::env::var("PUMICE_BENCH_POSTGRES").ok().filter(|url| !url.is_empty());
        let programs = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
        let installed = programs.map(|version| version.path()).any(|version| version.join("bin/initdb").exists());
        let server = (given.is_none() && installed && wants("postgres")).then(Postgres::start);
        let postgres = given.or_else(|| server.as_ref().map(Postgres::url));
        if postgres.is_none() && wants("postgres") {
            eprintln!("NOT MEASURED postgres: there is none; install postgresql, or set PUMICE_BENCH_POSTGRES");
        }
        Homes { postgres, _server: server, made: 0 }
    }

    /// Their names.
    pub fn names(&self) -> Vec<&'static str> {
        if self.postgres.is_some() { vec!["sqlite", "postgres"] } else { vec!["sqlite"] }
    }

    pub async fn make(&mut self, home: &str) -> anyhow::Result<Home> {
        if home == "sqlite" {
            let folder = tempfile::tempdir()?;
            let place = Location::File(folder.path().join("fleet.db"));
            return Ok(Home { place, _folder: Some(folder), of_server: None });
        }
        let server = self.postgres.clone().context("there is no postgres")?;
        self.made += 1;
        let name = format!("pumice_bench_{}_{}", std::process::id(), self.made);
        execute(&server, format!("CREATE DATABASE {name}")).await?;
        let (address, options) = server.split_once('?').unwrap_or((&server, ""));
        let (address, _) = address.rsplit_once('/').context("an address ends with a database's name")?;
        let place = Location::Postgres(format!("{address}/{name}?{options}"));
        Ok(Home { place, _folder: None, of_server: Some((server, name)) })
    }
}

impl Home {
    pub async fn open(&self) -> anyhow::Result<Arc<Database>> {
        Ok(Arc::new(Database::open(&self.place).await?))
    }

    /// The file of SQLite.
    fn file(&self) -> Option<&PathBuf> {
        match &self.place {
            Location::File(path) => Some(path),
            Location::Postgres(_) => None,
        }
    }

    /// Removes it from its server; a file goes by itself.
    pub async fn remove(self) -> anyhow::Result<()> {
        match self.of_server {
            Some((server, name)) => execute(&server, format!("DROP DATABASE {name} WITH (FORCE)")).await,
            None => Ok(()),
        }
    }

    /// A connection as the fleet's own to that file.
    pub async fn sqlite(&self) -> anyhow::Result<Option<SqliteConnection>> {
        let Some(path) = self.file() else { return Ok(None) };
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        Ok(Some(options.connect().await?))
    }

    /// A connection to that database of Postgres.
    pub async fn postgres(&self) -> anyhow::Result<Option<PgConnection>> {
        match &self.place {
            Location::Postgres(url) => Ok(Some(PgConnectOptions::from_str(url)?.connect().await?)),
            Location::File(_) => Ok(None),
        }
    }

    /// Bytes on the disk, once it is closed.
    pub async fn disk_bytes(&self) -> anyhow::Result<i64> {
        if let Some(path) = self.file() {
            return Ok(i64::try_from(std::fs::metadata(path)?.len())?);
        }
        let mut connection = self.postgres().await?.context("it is one of the two")?;
        Ok(sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(&mut connection).await?)
    }

    /// Mean bytes of the bodies in a table.
    pub async fn body_bytes(&self, table: &str) -> anyhow::Result<usize> {
        let sql = format!("SELECT CAST(COALESCE(AVG(LENGTH(body)), 0) AS BIGINT) FROM {table}");
        let mean: i64 = match (self.sqlite().await?, self.postgres().await?) {
            (Some(mut connection), _) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?,
            (None, Some(mut connection)) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?,
            (None, None) => 0,
        };
        Ok(usize::try_from(mean)?)
    }

    /// Bytes of all values in the tables that a submission writes to, without what the database adds to them.
    pub async fn content_bytes(&self) -> anyhow::Result<i64> {
        let (mut sqlite, mut postgres) = (self.sqlite().await?, self.postgres().await?);
        let mut bytes = 0;
        for table in ["log", "jobs", "specs", "shapes", "dedup"] {
            let sql = if sqlite.is_some() {
                format!("SELECT 'LENGTH(CAST(' || name || ' AS BLOB))' FROM pragma_table_info('{table}')")
            } else {
                format!(
                    "SELECT 'octet_length(' || column_name || CASE data_type WHEN 'bytea' THEN ')' ELSE '::text)' END
                     FROM information_schema.columns WHERE table_name = '{table}'"
                )
            };
            let lengths: Vec<String> = match (&mut sqlite, &mut postgres) {
                (Some(connection), _) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(connection).await?,
                (None, Some(connection)) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(connection).await?,
                (None, None) => Vec::new(),
            };
            let lengths: Vec<String> = lengths.iter().map(|length| format!("COALESCE({length}, 0)")).collect();
            let sql = format!("SELECT CAST(COALESCE(SUM({}), 0) AS BIGINT) FROM {table}", lengths.join(" + "));
            bytes += match (&mut sqlite, &mut postgres) {
                (Some(connection), _) => sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(connection).await?,
                (None, Some(connection)) => {
                    sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(connection).await?
                }
                (None, None) => 0,
            };
        }
        Ok(bytes)
    }
}

async fn execute(server: &str, sql: String) -> anyhow::Result<()> {
    let mut connection = PgConnectOptions::from_str(server)?.connect().await?;
    sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await?;
    Ok(())
}
