//! The history component: what became of jobs, tasks and attempts, kept beyond the life of their objects.
//!
//! Invariant: rows are derived from what the API server tells and from nothing else, and a version taken in twice leaves what it left once.
//! It decides nothing and nobody waits for it: see `docs/decisions/0008-history.md`. Run by `pumice up` and on clusters.
//!
//! ```text
//!   watches ──> facts (pure) ──> rows ──bounded──> writer ──one transaction──> SQLite | Postgres
//!                                                                                    │
//!   history.pumice.sh · last runs <── answer ── query <── readers ───────────────────┘
//! ```

mod answer;
mod clock;
pub mod database;
pub mod facts;
mod feed;
mod numbers;
pub mod pending;
pub mod query;
pub mod rows;
pub mod statements;
#[cfg(test)]
mod tests;
pub mod writer;

use kube::Client;
use pumice_cluster::Vitals;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use answer::not_ready;
pub use database::{Database, DatabaseError, Place};
pub use query::{LastRuns, QueryError};

/// Entries between the watches and the writer.
const ENTRIES_MAX: usize = 4_096;
/// Days for which a job is kept after its object is gone, unless said otherwise.
pub const DAYS: u32 = 90;

/// What the history needs.
#[derive(Clone)]
pub struct Options {
    /// The API, with the rights of `system:pumice:history`.
    pub client: Client,
    /// Where it is kept.
    pub place: Place,
    /// Days for which a job is kept after its object is gone.
    pub days: u32,
}

/// The history, ready to run.
pub struct History {
    options: Options,
    database: Database,
    numbers: numbers::Numbers,
}

/// Why the history stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database could not be read.
    #[error("where the history stopped could not be read")]
    Cursors(#[source] DatabaseError),
    /// The watches ended, which they never do by themselves.
    #[error("the watches of the history ended")]
    WatchEnded,
}

impl Options {
    /// Opens the database; nothing runs yet.
    ///
    /// # Errors
    /// When it can't be opened, or a later release made it.
    pub async fn build(self) -> Result<History, DatabaseError> {
        let database = Database::open(&self.place).await?;
        Ok(History { options: self, database, numbers: numbers::Numbers::default() })
    }
}

impl History {
    /// Answers questions from now on, as long as the history runs.
    pub fn handle(&self) -> Handle {
        Handle { database: self.database.clone(), numbers: self.numbers.clone() }
    }

    /// Runs until `shutdown`, and closes the database.
    ///
    /// # Errors
    /// When the database can't be read at the start.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let History { options, database, numbers } = self;
        let cursors = writer::cursors(&database).await.map_err(Error::Cursors)?;
        let running = writer::running(&database).await.map_err(Error::Cursors)?;
        let (sender, entries) = mpsc::channel(ENTRIES_MAX);
        let watching = feed::watch(options.client, cursors.clone(), running, sender);
        let writer = writer::Writer { database: database.clone(), entries, cursors, days: options.days, numbers };
        tokio::select! {
            () = writer.run(shutdown.clone()) => {}
            // They end because nobody listens any more; the writer has still to write what it heard.
            () = async { watching.await; std::future::pending().await } => {}
        }
        database.close().await;
        if shutdown.is_cancelled() { Ok(()) } else { Err(Error::WatchEnded) }
    }
}

/// Asks the history; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    database: Database,
    numbers: numbers::Numbers,
}

impl Vitals for Handle {
    fn metrics(&self) -> String {
        self.numbers.render()
    }
}
