//! The history component: what became of jobs, tasks and attempts, kept beyond the life of their objects.
//!
//! Invariant: rows are derived from what the API server tells and from nothing else, and a version taken in twice leaves what it left once.
//! It decides nothing and nobody waits for it: a database that is not there is said, tried again, and ends nothing. See
//! `docs/decisions/0008-history.md`. Run by `pumice up` and on clusters.
//!
//! ```text
//!   watches ──> facts (pure) ──> rows ──bounded──> writer ──one transaction──> SQLite | Postgres
//!                                                                                    │
//!   history.pumice.sh · last runs <── answer ── query <── readers ───────────────────┘
//! ```

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod answer;
pub mod database;
pub mod facts;
mod feed;
mod handle;
mod metrics;
pub mod pending;
pub mod query;
mod retention;
pub mod rows;
pub mod statements;
#[cfg(test)]
mod tests;
pub mod writer;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use pumice_units::{Backoff, with_causes};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use answer::not_ready;
pub use database::{Database, DatabaseError, Location, copy_file, postgres_location};
pub use handle::Handle;
pub use pumice_api::history::{GROUP, VERSION};
pub use query::{LastRuns, QueryError};
pub use retention::DAYS;

/// Entries between the watches and the writer.
const ENTRIES_MAX: usize = 4_096;
/// Pauses before the database is opened again; each is twice the last.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

/// What the history needs.
#[derive(Clone)]
pub struct Options {
    /// The API, with the rights of `system:pumice:history`.
    pub client: Client,
    /// Where it is kept.
    pub location: Location,
    /// Days for which a job is kept after its object is gone.
    pub days: u32,
}

/// The history, ready to run.
pub struct History {
    options: Options,
    handle: Handle,
}

/// Why the history has to begin again.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("where the history stopped could not be read")]
    Cursors(#[source] DatabaseError),
    #[error("the watches of the history ended")]
    WatchEnded,
}

impl Options {
    /// Nothing is opened yet, and nothing runs.
    pub fn build(self) -> History {
        History { options: self, handle: Handle::default() }
    }
}

impl History {
    /// Answers questions from now on, as long as the history runs; before the database is open, that it isn't.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs until `shutdown`, and closes the database. Whatever goes wrong, a panic of its own included, is said in the
    /// log and by the handle, and all begins again after a pause: cursors say from where.
    pub fn run(self, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut failures = 0;
            let mut said = String::new();
            loop {
                let began = Instant::now();
                let ended = AssertUnwindSafe(self.once(&shutdown)).catch_unwind().await;
                if shutdown.is_cancelled() {
                    return;
                }
                let why = match ended {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => with_causes(&error),
                    Err(_) => "it panicked; see the message before this one".to_owned(),
                };
                if Instant::now() - began > PAUSES.longest {
                    failures = 0;
                }
                let pause = PAUSES.pause(failures);
                if why == said {
                    tracing::debug!(why, ?pause, "there still is no history");
                } else {
                    tracing::error!(why, "there is no history: jobs run on without one, and it will be tried again");
                    said.clone_from(&why);
                }
                self.handle.failed(why);
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(pause) => failures += 1,
                }
            }
        })
    }

    async fn once(&self, shutdown: &CancellationToken) -> Result<(), Error> {
        let Options { client, location, days } = self.options.clone();
        let database = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            opened = Database::open(&location) => opened?,
        };
        let cursors = writer::cursors(&database).await.map_err(Error::Cursors)?;
        let running = writer::running(&database).await.map_err(Error::Cursors)?;
        self.handle.progress().written(&cursors);
        self.handle.opened(database.clone());
        tracing::info!(place = %location, days, "the history is written");
        let (sender, entries) = mpsc::channel(ENTRIES_MAX);
        let watching = feed::watch(client, cursors.clone(), running, sender);
        let (numbers, progress) = (self.handle.numbers().clone(), self.handle.progress().clone());
        let writer = writer::Writer { database: database.clone(), entries, cursors, days, numbers, progress };
        tokio::select! {
            () = writer.run(shutdown.clone()) => {}
            // They end because nobody listens any more; the writer has still to write what it heard.
            () = async { watching.await; std::future::pending().await } => {}
        }
        database.close().await;
        if shutdown.is_cancelled() { Ok(()) } else { Err(Error::WatchEnded) }
    }
}
