//! Opening and closing a database.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use pumice_sql::sqlite::{FileOptions, FilePools};
use pumice_sql::{AddressError, Location, postgres_options};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqlitePool, SqliteSynchronous};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cells::Transaction;
use super::writer::Writer;
use super::{Error, LEASE, Seq, Writes, migrate, query};

/// Questions at the same time.
const READERS_MAX: u32 = 8;
/// Connections that append, or listen.
const WRITERS_MAX: u32 = 4;
/// Longest wait for a connection, or for the lock of the head.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest time of a statement.
const STATEMENT_MAX: Duration = Duration::from_secs(120);
/// Statements kept prepared by a connection.
const PREPARED_MAX: usize = 128;
/// What the writer of SQLite keeps of the file in memory: a transaction that does not fit is written twice.
const CACHE_KIB: &str = "-65536";
/// Pages of SQLite's log that are written before they go to the file: a page that many transactions change goes once.
const LOG_PAGES: &str = "4096";
/// Pause before the listener tries again.
const LISTEN_AGAIN: Duration = Duration::from_millis(500);
/// Where Postgres tells other servers of a new head.
pub(super) const CHANNEL: &str = "pumice_fleet_head";

/// The connections to the database: what appends never waits for what only reads.
#[derive(Debug, Clone)]
pub(in crate::database) enum Pools {
    /// One connection writes, others only read.
    Sqlite { writer: SqlitePool, readers: SqlitePool },
    /// Questions don't keep those waiting that append.
    Postgres { writer: PgPool, readers: PgPool },
}

/// An open database; cheap to clone.
#[derive(Debug, Clone)]
pub struct Database {
    pools: Pools,
    head: Arc<watch::Sender<Seq>>,
    writer: Writer,
    writes: Arc<Writes>,
    tasks: TaskTracker,
    closing: CancellationToken,
    /// The last of the clones ends the tasks.
    _open: Arc<tokio_util::sync::DropGuard>,
}

impl Database {
    /// Opens a database, makes its tables or brings them to the format of this release.
    ///
    /// # Errors
    /// When it can't be opened or is of a later format.
    pub fn open(location: &Location) -> BoxFuture<'_, Result<Database, Error>> {
        Box::pin(async move {
            let pools = match location {
                Location::File(path) => open_file(location, path).await?,
                Location::Postgres(url) => open_postgres(location, url).await?,
            };
            let closing = CancellationToken::new();
            let (writer, work) = Writer::new();
            let database = Database {
                pools,
                head: Arc::new(watch::Sender::new(Seq(0))),
                writer,
                writes: Arc::default(),
                tasks: TaskTracker::new(),
                closing: closing.clone(),
                _open: Arc::new(closing.drop_guard()),
            };
            migrate::run(&database, location, migrate::STEPS).await?;
            let parts = database.parts();
            // Before the head is read: nothing that is written after that is missed.
            if let Pools::Postgres { writer, .. } = &parts.pools {
                let mut listener = PgListener::connect_with(writer).await.map_err(Error::failed)?;
                listener.listen(CHANNEL).await.map_err(Error::failed)?;
                database.tasks.spawn(listen(parts.clone(), listener));
            }
            parts.publish(query::head(&mut parts.begin_read().await?).await?);
            database.tasks.spawn(work.run(parts));
            Ok(database)
        })
    }

    /// Ends what is under way and closes all connections; what was answered is there.
    pub async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        match &self.pools {
            Pools::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Pools::Postgres { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
        }
    }

    pub(super) fn pools(&self) -> &Pools {
        &self.pools
    }

    pub(super) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// What its writes take.
    pub fn writes(&self) -> &Arc<Writes> {
        &self.writes
    }

    pub(super) fn watch_head(&self) -> watch::Receiver<Seq> {
        self.head.subscribe()
    }

    pub(super) fn publish(&self, head: Seq) {
        publish(&self.head, head);
    }

    pub(super) async fn begin_write(&self) -> Result<Transaction, Error> {
        begin_write(&self.pools).await
    }

    pub(super) async fn begin_read(&self) -> Result<Transaction, Error> {
        // Whoever asks may be gone at any moment. A transaction of which the beginning is given up half-way stays open on its
        // connection, which sqlx does not know; so it is begun to the end.
        let (give, begun) = oneshot::channel();
        let pools = self.pools.clone();
        self.tasks.spawn(async move {
            // What nobody waits for any more is rolled back as it is dropped.
            let _ = give.send(begin_read(&pools).await);
        });
        begun.await.map_err(|_| Error::Closed)?
    }

    /// What its tasks use, which does not keep it open.
    fn parts(&self) -> Parts {
        Parts { pools: self.pools.clone(), head: self.head.clone(), closing: self.closing.clone() }
    }
}

/// A database without the means to submit to it.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    pools: Pools,
    head: Arc<watch::Sender<Seq>>,
    pub(super) closing: CancellationToken,
}

impl Parts {
    pub(super) async fn begin_write(&self) -> Result<Transaction, Error> {
        begin_write(&self.pools).await
    }

    async fn begin_read(&self) -> Result<Transaction, Error> {
        begin_read(&self.pools).await
    }

    pub(super) fn publish(&self, head: Seq) {
        publish(&self.head, head);
    }
}

fn publish(sender: &watch::Sender<Seq>, head: Seq) {
    sender.send_if_modified(|known| {
        let newer = head > *known;
        *known = head.max(*known);
        newer
    });
}

/// A transaction that may write; SQLite's has the lock at once, Postgres' waits for the row of the head.
async fn begin_write(pools: &Pools) -> Result<Transaction, Error> {
    match pools {
        Pools::Sqlite { writer, .. } => writer.begin_with("BEGIN IMMEDIATE").await.map(Transaction::Sqlite),
        Pools::Postgres { writer, .. } => writer.begin().await.map(Transaction::Postgres),
    }
    .map_err(Error::failed)
}

/// A transaction that sees one moment.
async fn begin_read(pools: &Pools) -> Result<Transaction, Error> {
    match pools {
        Pools::Sqlite { readers, .. } => readers.begin().await.map(Transaction::Sqlite),
        Pools::Postgres { readers, .. } => {
            let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
            readers.begin_with(sql).await.map(Transaction::Postgres)
        }
    }
    .map_err(Error::failed)
}

/// Takes in what other servers append.
async fn listen(database: Parts, mut listener: PgListener) {
    loop {
        let heard = tokio::select! {
            () = database.closing.cancelled() => return,
            heard = listener.try_recv() => heard,
        };
        let lost = match heard {
            Ok(Some(told)) => {
                if let Ok(seq) = told.payload().parse() {
                    database.publish(Seq(seq));
                }
                false
            }
            Ok(None) | Err(_) => true,
        };
        if lost {
            // The connection was lost; it is made again by the next turn. Nobody told what came meanwhile.
            tokio::select! {
                () = database.closing.cancelled() => return,
                () = tokio::time::sleep(LISTEN_AGAIN) => {}
            }
            if let Ok(mut transaction) = database.begin_read().await
                && let Ok(head) = query::head(&mut transaction).await
            {
                database.publish(head);
            }
        }
    }
}

async fn open_file(location: &Location, path: &Path) -> Result<Pools, Error> {
    let options = FileOptions {
        // What was answered survives a power cut.
        synchronous: SqliteSynchronous::Full,
        readers_max: READERS_MAX,
        wait_max: CONNECT_MAX,
        prepared_max: PREPARED_MAX,
        writer_pragmas: &[("cache_size", CACHE_KIB), ("wal_autocheckpoint", LOG_PAGES)],
    };
    let opened = pumice_sql::sqlite::open(path, &options).await;
    let failed = |source: sqlx::Error| Error::Open { location: location.to_string(), source: source.into() };
    let FilePools { writer, readers } = opened.map_err(failed)?;
    Ok(Pools::Sqlite { writer, readers })
}

fn address(url: &str) -> Result<PgConnectOptions, Error> {
    postgres_options(url).map_err(|error| match error {
        AddressError::Unreadable(source) => Error::Address(source.into()),
        AddressError::Password => Error::Password,
    })
}

async fn open_postgres(location: &Location, url: &str) -> Result<Pools, Error> {
    let ms = |time: Duration| time.as_millis().to_string();
    let options = address(url)?.application_name("pumice-fleet").statement_cache_capacity(PREPARED_MAX).options([
        ("statement_timeout", ms(STATEMENT_MAX)),
        ("lock_timeout", ms(CONNECT_MAX)),
        // Whoever holds the head's lock and is heard no more gives it up.
        ("idle_in_transaction_session_timeout", ms(LEASE)),
        // What was answered survives a power cut.
        ("synchronous_commit", "on".to_owned()),
    ]);
    let pool = |connections| PgPoolOptions::new().max_connections(connections).acquire_timeout(CONNECT_MAX);
    let readers = pool(READERS_MAX).connect_lazy_with(options.clone());
    let writer = pool(WRITERS_MAX)
        .connect_with(options)
        .await
        .map_err(|source| Error::Open { location: location.to_string(), source: source.into() })?;
    Ok(Pools::Postgres { writer, readers })
}
