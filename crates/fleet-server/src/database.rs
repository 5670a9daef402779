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
mod health;
mod leadership;
mod log;
mod migrate;
mod open;
mod partitions;
mod query;
mod retention;
mod rows;
mod run_changes;
#[cfg(test)]
pub(crate) mod tests;
mod write_batches;
mod write_metrics;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_ledger::{Digest, Entry, JobId, RunId, TimeMs};
use tokio::sync::watch;

pub use changes::{Changed, JobChange};
pub use health::DatabaseHealth;
pub use log::{
    Answer, Committed, Decided, Epoch, Expect, HeldRun, JobsInState, LEASE, Loaded, NewJob, Seq, Submission,
};
pub use open::Database;
pub use pumice_sql::Location;
pub use retention::{ClientIdKey, Forgotten, Pruned, SetName, Stale};
pub use rows::{JobRow, JobState, RunRow, RunState};
pub use write_metrics::Writes;

pub(in crate::database) use open::Pools;

use pumice_clock as clock;
use write_metrics::Kind;

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
    #[error("the fleet's database {location} can't be opened")]
    Open {
        location: String,
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// A later release made it.
    #[error(
        "the fleet's database is of format {found}, and this release knows up to {known}; run the release that made it, or give another place"
    )]
    Newer {
        found: i64,
        /// The last one that is known.
        known: i64,
    },
    /// It can't be brought to the format of this release.
    #[error("the fleet's database can't be upgraded to format {to}")]
    Upgrade {
        to: i64,
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// Statements failed. Where it was a commit, it may have been written nevertheless.
    #[error("the fleet's database failed")]
    Failed(#[source] Arc<sqlx::Error>),
    /// A row is not as this release writes it.
    #[error("a row of the table {table} of the fleet's database can't be read")]
    Unreadable { table: &'static str },
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
    #[error("the {what} has {bytes} bytes; {max} are the most")]
    TooLong {
        what: &'static str,
        /// How many it has, as it is stored.
        bytes: usize,
        /// How many it may have.
        max: usize,
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

/// Longest name, id or address that is looked up. A row of an index of Postgres has at most 2,704 bytes: enough for a queue with
/// the longest of what is looked up in it, and the entry's number.
pub const NAME_BYTES_MAX: usize = 800;
/// Longest name of a job set, which is Armada's, and counted in bytes as there.
pub const JOB_SET_BYTES_MAX: usize = 1_023;

/// The log and its tables.
///
/// All futures may be dropped. What was to be written then may be written or not, as when a commit fails.
impl Database {
    /// Writes submissions, all or none, each as one entry. Submissions that wait at the same time share a transaction.
    ///
    /// # Errors
    /// When nothing, or where the connection was lost perhaps something, was written.
    pub async fn submit(&self, batch: Vec<Submission>) -> Result<Vec<Answer>, Error> {
        let began = clock::monotonic();
        let answer = self.writer().submit(batch).await;
        self.writes().observe(Kind::Submission, began, &answer);
        answer
    }

    /// Writes a request other than a submission. What it defines of queues and executors takes effect with it.
    ///
    /// # Errors
    /// When the entry has other events, the queue is not as expected or has jobs but is to be removed, or nothing was written.
    pub async fn request(&self, entry: Entry, expect: Expect) -> Result<Seq, Error> {
        let began = clock::monotonic();
        let answer = self.writer().request(entry, expect).await;
        self.writes().observe(Kind::Request, began, &answer);
        answer
    }

    /// Takes the lead for [`LEASE`] where nobody has it. Nothing of an earlier leader is under way after that; what it
    /// wrote is to be loaded now.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn lead(&self, holder: &str) -> Result<Option<Epoch>, Error> {
        leadership::lead(self, holder).await
    }

    /// Leads on for [`LEASE`] from now.
    ///
    /// # Errors
    /// [`Error::Deposed`] where another leads.
    pub async fn renew(&self, epoch: Epoch) -> Result<(), Error> {
        leadership::renew(self, epoch).await
    }

    /// Leads no more, so that another need not wait. Nothing happens where another leads.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn resign(&self, epoch: Epoch) -> Result<(), Error> {
        leadership::resign(self, epoch).await
    }

    /// Gives what was written after `after` to `decide`, and writes what it decides, as one transaction; renews too.
    ///
    /// Others can't append while `decide` runs: it is to take much less than [`LEASE`], after which Postgres gives up.
    /// So whoever leads folds [`Self::tail`] before, as far as there is something. `decide` may have been called where this fails: then what it folded
    /// is not what is written, and is to be loaded anew.
    ///
    /// # Errors
    /// [`Error::Deposed`] where another leads, [`Error::Behind`] where `after` is before what was decided; nothing was
    /// written. Otherwise when the database fails.
    pub async fn commit<F>(&self, epoch: Epoch, after: Seq, decide: F) -> Result<Committed, Error>
    where
        F: FnOnce(Vec<(Seq, Entry)>) -> Changed + Send,
    {
        let began = clock::monotonic();
        let answer = leadership::commit(self, epoch, after, decide).await;
        self.writes().observe(Kind::Commit, began, &answer);
        answer
    }

    /// Everything that has not ended, in one consistent read. O(jobs that have not ended).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn load(&self) -> Result<Loaded, Error> {
        query::load(self).await
    }

    /// The log's entries after a place, at most `limit`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn tail(&self, after: Seq, limit: u32) -> Result<Vec<(Seq, Entry)>, Error> {
        query::tail(&mut self.begin_read().await?, after, Some(limit)).await
    }

    /// What was decided after a place, and is in the tables: at most `limit` entries.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn decided(&self, after: Seq, limit: u32) -> Result<Decided, Error> {
        query::decided(self, after, limit).await
    }

    /// The entries of a job set after a place, at most `limit`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn events(&self, queue: &str, job_set: &str, after: Seq, limit: u32) -> Result<Vec<(Seq, Entry)>, Error> {
        query::events(self, queue, job_set, after, limit).await
    }

    /// The log's head, as far as it is known here: at once for what is written here, soon for what other servers write.
    pub fn head(&self) -> watch::Receiver<Seq> {
        self.watch_head()
    }

    /// Jobs, in no order; those that are not there are left out.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn jobs(&self, ids: &[JobId]) -> Result<Vec<JobRow>, Error> {
        query::jobs(self, ids).await
    }

    /// The jobs of a set with such an external address.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn jobs_by_uri(&self, queue: &str, job_set: &str, uri: &str) -> Result<Vec<JobRow>, Error> {
        query::jobs_by_uri(self, queue, job_set, uri).await
    }

    /// Runs, in no order; those that are not there are left out.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn runs(&self, ids: &[RunId]) -> Result<Vec<RunRow>, Error> {
        query::runs(self, ids).await
    }

    /// The runs of jobs, by job and attempt.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn runs_of(&self, jobs: &[JobId]) -> Result<Vec<RunRow>, Error> {
        query::runs_of(self, jobs).await
    }

    /// Job sets whose first job is at or after `since` or that have jobs that have not ended; newest
    /// first, at most `limit`. O(jobs since then + jobs that have not ended).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn recent_sets(&self, since: JobId, limit: u32) -> Result<Vec<SetName>, Error> {
        query::recent_sets(self, since, limit).await
    }

    /// How many jobs of these sets are in which state, in no order; sets that are not there are left out. O(their jobs).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn job_counts(&self, sets: &[SetName]) -> Result<Vec<JobsInState>, Error> {
        query::job_counts(self, sets).await
    }

    /// Definitions of queues, by name.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn queues(&self) -> Result<BTreeMap<String, pumice_ledger::Queue>, Error> {
        query::queues(&mut self.begin_read().await?).await
    }

    /// Retry policies that requests have set, by name.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn policies(&self) -> Result<BTreeMap<String, pumice_ledger::RetryPolicy>, Error> {
        query::policies(&mut self.begin_read().await?).await
    }

    /// Queues with jobs that have a node, by pool and in order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn active_queues(&self) -> Result<BTreeMap<String, Vec<String>>, Error> {
        query::active_queues(self).await
    }

    /// Whether a run is known that is, or was, on this executor's cluster. O(runs) where none is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_runs(&self, cluster: &str) -> Result<bool, Error> {
        query::has_runs(self, cluster).await
    }

    /// Whether a job of this set is known.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_jobs(&self, queue: &str, job_set: &str) -> Result<bool, Error> {
        query::has_jobs(self, queue, job_set).await
    }

    /// Job sets with folded entries from before `before`, of the `limit` entries after a place.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn stale(&self, after: Seq, before: TimeMs, limit: u32) -> Result<Stale, Error> {
        retention::stale(self, after, before, limit).await
    }

    /// Removes some of a job set that was not written to since `before`: at most `limit` jobs with their runs, or entries
    /// once there are no jobs. The caller knows, up to where it has decided, of no job in it that has not ended and of no run
    /// that holds room.
    ///
    /// # Errors
    /// [`Error::Deposed`] where another leads; else when the database fails. Nothing was removed then.
    pub async fn prune(&self, epoch: Epoch, set: &SetName, before: TimeMs, limit: u32) -> Result<Pruned, Error> {
        retention::prune(self, epoch, set, before, limit).await
    }

    /// Removes client ids of jobs that were submitted before `before`, of the `limit` after one; but for those of jobs that
    /// `keeps` names.
    ///
    /// # Errors
    /// As [`Self::prune`].
    pub async fn forget<K>(
        &self,
        epoch: Epoch,
        after: &ClientIdKey,
        before: TimeMs,
        limit: u32,
        keeps: K,
    ) -> Result<Forgotten, Error>
    where
        K: Fn(JobId) -> bool + Send + Sync,
    {
        retention::forget(self, epoch, after, before, limit, keeps).await
    }

    /// Removes specifications that were not used since `before`, a day before now or earlier, and that no job has; at most
    /// `limit`. Tells how many.
    ///
    /// # Errors
    /// As [`Self::prune`].
    pub async fn sweep(&self, epoch: Epoch, before: TimeMs, limit: u32) -> Result<usize, Error> {
        retention::sweep(self, epoch, before, limit).await
    }

    /// Gives back the room of the oldest entries that were all removed, where the database keeps it; whether there was some.
    ///
    /// # Errors
    /// As [`Self::prune`]; also where somebody uses it at the moment.
    pub async fn retire(&self, epoch: Epoch) -> Result<bool, Error> {
        partitions::retire(self, epoch).await
    }

    /// How the database does. Writes something that changes nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn probe(&self) -> Result<DatabaseHealth, Error> {
        health::probe(self).await
    }

    /// Specifications in JSON, in no order; those that are not there are left out.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn specs(&self, digests: &[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, Error> {
        query::specs(self, digests).await
    }
}
