//! The fleet's log and its tables, in SQLite or Postgres.
//!
//! Invariant: one global sequence without gaps. Whoever appends, on whatever server, holds the lock of its head until it has
//! committed, so the order of the sequence is the order of commits: who has read up to a number never finds a smaller one
//! later. What is answered is on disk. Of what only the leader writes nothing is written by a leader that was deposed.
//!
//! Tables beside the log hold what was submitted as soon as it is, and what became of it as of [`Loaded::position`]. The
//! fleet's services call [`Log`]; nothing above this module knows which database there is.

mod append;
mod body;
mod cells;
mod changes;
mod lead;
mod log;
mod migrate;
mod observed;
mod open;
mod partitions;
mod query;
mod retention;
mod rows;
mod sets;
mod standing;
#[cfg(test)]
pub(crate) mod tests;
mod told;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_ledger::{Digest, Entry, JobId, RunId, TimeMs};
use tokio::sync::watch;

pub use changes::{Changed, JobChange};
pub use log::{
    Answer, Committed, Decided, Epoch, Expect, HeldRun, JobsInState, LEASE, Loaded, Log, NewJob, Seq, Submission,
};
pub use observed::Writes;
pub use open::{Database, Place};
pub use retention::{Forgotten, Pruned, SetName, Stale};
pub use rows::{JobRow, JobState, RunRow, RunState};
pub use standing::DatabaseStanding;

pub(in crate::database) use open::Pools;

use crate::clock;
use observed::Kind;

/// Why the database can't be used, or does not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No database has such an address.
    #[error("the address of the fleet's database can't be read; give postgres://USER@HOST/NAME")]
    Address(#[source] Arc<sqlx::Error>),
    /// The address has a password in it.
    #[error(
        "the address of the fleet's database has a password, which others can read; put it into $PGPASSWORD or the file $PGPASSFILE"
    )]
    Password,
    /// It can't be opened.
    #[error("the fleet's database {place} can't be opened")]
    Open {
        /// Which one.
        place: String,
        /// The cause.
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// A later release made it.
    #[error(
        "the fleet's database is of format {found}, and this release knows up to {known}; run the release that made it, or give another place"
    )]
    Newer {
        /// Its format.
        found: i64,
        /// The last one that is known.
        known: i64,
    },
    /// It can't be brought to the format of this release.
    #[error("the fleet's database can't be upgraded to format {to}")]
    Upgrade {
        /// To which format.
        to: i64,
        /// The cause.
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// Statements failed. Where it was a commit, it may have been written nevertheless.
    #[error("the fleet's database failed")]
    Failed(#[source] Arc<sqlx::Error>),
    /// A row is not as this release writes it.
    #[error("a row of the table {table} of the fleet's database can't be read")]
    Unreadable {
        /// The table.
        table: &'static str,
    },
    /// A value is too large, or has no form in JSON.
    #[error("what is to be written is too large, or has no form")]
    Unwritable,
    /// The database is closed, or closing.
    #[error("the fleet's database is closed")]
    Closed,
    /// Another server leads, or nobody does: nothing was written.
    #[error("another server leads the fleet")]
    Deposed,
    /// The leader does not know what was decided before: nothing was written.
    #[error("the leader stands at {after}, and decisions up to {folded} were written")]
    Behind {
        /// What the leader has folded.
        after: Seq,
        /// Up to where decisions are written.
        folded: Seq,
    },
    /// The entry has events that are not asked for in this way.
    #[error("the entry has an event that is not asked for in this way")]
    NoRequest,
    /// A name is too long.
    #[error("the {what} has {bytes} bytes; {NAME_BYTES_MAX} are the most")]
    TooLong {
        /// Which one.
        what: &'static str,
        /// How many it has.
        bytes: usize,
    },
    /// The queue is there already.
    #[error("the queue {0} is there already")]
    QueueExists(String),
    /// There is no such queue.
    #[error("there is no queue {0}")]
    NoQueue(String),
    /// The queue can't be removed.
    #[error("the queue {0} has jobs that have not ended")]
    QueueInUse(String),
    /// The retry policy is there already.
    #[error("the retry policy {0} is there already")]
    PolicyExists(String),
    /// There is no such retry policy.
    #[error("there is no retry policy {0}")]
    NoPolicy(String),
    /// The retry policy can't be removed.
    #[error("the queue {queue} names the retry policy {policy}: take it out of the queue's retryPolicies before")]
    PolicyInUse {
        /// The policy.
        policy: String,
        /// The first queue that does.
        queue: String,
    },
}

impl Error {
    /// A request was refused because something is not as it wants; others are not touched by that.
    fn is_refusal(&self) -> bool {
        use Error::{NoPolicy, NoQueue, PolicyExists, PolicyInUse, QueueExists, QueueInUse};
        matches!(self, QueueExists(_) | NoQueue(_) | QueueInUse(_) | PolicyExists(_) | NoPolicy(_) | PolicyInUse { .. })
    }

    fn failed(source: sqlx::Error) -> Error {
        Error::Failed(Arc::new(source))
    }
}

/// Longest name, id or address that is looked up: an index of Postgres takes no more.
pub const NAME_BYTES_MAX: usize = 800;

impl Log for Database {
    async fn submit(&self, batch: Vec<Submission>) -> Result<Vec<Answer>, Error> {
        let began = clock::instant();
        let answer = self.writer().submit(batch).await;
        self.writes().observe(Kind::Submission, began, &answer);
        answer
    }

    async fn request(&self, entry: Entry, expect: Expect) -> Result<Seq, Error> {
        let began = clock::instant();
        let answer = self.writer().request(entry, expect).await;
        self.writes().observe(Kind::Request, began, &answer);
        answer
    }

    async fn lead(&self, holder: &str) -> Result<Option<Epoch>, Error> {
        lead::lead(self, holder).await
    }

    async fn renew(&self, epoch: Epoch) -> Result<(), Error> {
        lead::renew(self, epoch).await
    }

    async fn resign(&self, epoch: Epoch) -> Result<(), Error> {
        lead::resign(self, epoch).await
    }

    async fn commit<F>(&self, epoch: Epoch, after: Seq, decide: F) -> Result<Committed, Error>
    where
        F: FnOnce(Vec<(Seq, Entry)>) -> Changed + Send,
    {
        let began = clock::instant();
        let answer = lead::commit(self, epoch, after, decide).await;
        self.writes().observe(Kind::Commit, began, &answer);
        answer
    }

    async fn load(&self) -> Result<Loaded, Error> {
        query::load(self).await
    }

    async fn tail(&self, after: Seq, limit: u32) -> Result<Vec<(Seq, Entry)>, Error> {
        query::tail(&mut self.begin_read().await?, after, Some(limit)).await
    }

    async fn decided(&self, after: Seq, limit: u32) -> Result<Decided, Error> {
        query::decided(self, after, limit).await
    }

    async fn events(&self, queue: &str, job_set: &str, after: Seq, limit: u32) -> Result<Vec<(Seq, Entry)>, Error> {
        query::events(self, queue, job_set, after, limit).await
    }

    fn head(&self) -> watch::Receiver<Seq> {
        self.watch_head()
    }

    async fn jobs(&self, ids: &[JobId]) -> Result<Vec<JobRow>, Error> {
        query::jobs(self, ids).await
    }

    async fn jobs_by_uri(&self, queue: &str, job_set: &str, uri: &str) -> Result<Vec<JobRow>, Error> {
        query::jobs_by_uri(self, queue, job_set, uri).await
    }

    async fn runs(&self, ids: &[RunId]) -> Result<Vec<RunRow>, Error> {
        query::runs(self, ids).await
    }

    async fn runs_of(&self, jobs: &[JobId]) -> Result<Vec<RunRow>, Error> {
        query::runs_of(self, jobs).await
    }

    async fn recent_sets(&self, since: JobId, limit: u32) -> Result<Vec<(String, String)>, Error> {
        sets::recent(self, since, limit).await
    }

    async fn standing(&self, sets: &[(String, String)]) -> Result<Vec<JobsInState>, Error> {
        sets::standing(self, sets).await
    }

    async fn queues(&self) -> Result<BTreeMap<String, pumice_ledger::Queue>, Error> {
        query::queues(&mut self.begin_read().await?).await
    }

    async fn policies(&self) -> Result<BTreeMap<String, pumice_ledger::RetryPolicy>, Error> {
        query::policies(&mut self.begin_read().await?).await
    }

    async fn active_queues(&self) -> Result<BTreeMap<String, Vec<String>>, Error> {
        query::active_queues(self).await
    }

    async fn stale(&self, after: Seq, before: TimeMs, limit: u32) -> Result<Stale, Error> {
        retention::stale(self, after, before, limit).await
    }

    async fn prune(&self, epoch: Epoch, set: &SetName, before: TimeMs, limit: u32) -> Result<Pruned, Error> {
        retention::prune(self, epoch, set, before, limit).await
    }

    async fn forget<K>(
        &self,
        epoch: Epoch,
        after: &(String, String),
        before: TimeMs,
        limit: u32,
        keeps: K,
    ) -> Result<Forgotten, Error>
    where
        K: Fn(JobId) -> bool + Send + Sync,
    {
        retention::forget(self, epoch, after, before, limit, keeps).await
    }

    async fn sweep(&self, epoch: Epoch, before: TimeMs, limit: u32) -> Result<usize, Error> {
        retention::sweep(self, epoch, before, limit).await
    }

    async fn retire(&self, epoch: Epoch) -> Result<bool, Error> {
        partitions::retire(self, epoch).await
    }

    async fn probe(&self) -> Result<DatabaseStanding, Error> {
        standing::probe(self).await
    }

    async fn specs(&self, digests: &[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, Error> {
        query::specs(self, digests).await
    }
}
