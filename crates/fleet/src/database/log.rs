//! What the fleet wants of its log: the seam at which tests and simulation put one of their own.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use pumice_ledger::{
    Digest, Entry, Event, ExecutorSettings, JobId, Ledger, PodRef, PriorityClasses, Queue, RestoreError, RetryPolicy,
    RunId, RunPhase, Saved, SavedBroad, SavedJob, SavedRun, Shape, Submitted, TimeMs,
};
use tokio::sync::watch;

use super::{Changed, DatabaseStanding, Error, Forgotten, JobRow, JobState, Pruned, RunRow, SetName, Stale};

/// How long a leader leads after it was last renewed, by the database's clock.
pub const LEASE: Duration = Duration::from_secs(2);

/// A place in the log; the first entry has 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub i64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One leader's time. Later ones have larger numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

/// A job that is to be submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// What the ledger gets to know of it.
    pub submitted: Submitted,
    /// Where its pod is made.
    pub namespace: String,
    /// The submitter's name for it, by which it is not submitted twice to its queue.
    pub client_id: Option<String>,
    /// Where the submitter has more about it.
    pub external_uri: Option<String>,
}

/// One request's jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// When.
    pub at: TimeMs,
    /// The queue.
    pub queue: String,
    /// The job set.
    pub job_set: String,
    /// Who asked; the jobs' owner.
    pub user: String,
    /// The specifications of the jobs in JSON, by their digest.
    pub specs: BTreeMap<Digest, Vec<u8>>,
    /// The shapes of the jobs.
    pub shapes: BTreeMap<Digest, Shape>,
    /// The jobs.
    pub jobs: Vec<NewJob>,
}

impl Submission {
    /// The entry for those jobs that are new.
    pub(super) fn entry(&self, mut is_new: impl FnMut(&NewJob) -> bool) -> Entry {
        let mut entry = Entry::new(self.at, &self.queue, &self.job_set);
        entry.user.clone_from(&self.user);
        entry.shapes.clone_from(&self.shapes);
        let new = self.jobs.iter().filter(|job| is_new(job));
        entry.events = new.map(|job| Event::Submitted(job.submitted.clone())).collect();
        entry
    }
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its entry; none where all jobs were there already.
    pub seq: Option<Seq>,
    /// The job of each that was given: its own id, or that of the first job with its client id.
    pub jobs: Vec<JobId>,
}

/// What must be so at the entry's place in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Expect {
    /// Nothing.
    #[default]
    Any,
    /// The entry's queue is not defined, and requests have set these retry policies.
    QueueAbsent {
        /// The policies.
        policies: Vec<String>,
    },
    /// The entry's queue is defined, and requests have set these retry policies.
    QueuePresent {
        /// The policies.
        policies: Vec<String>,
    },
    /// No request has set such a retry policy.
    PolicyAbsent(String),
    /// A request has set such a retry policy.
    PolicyPresent(String),
}

/// A run that holds room, with what its job tells.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldRun {
    /// The run.
    pub row: RunRow,
    /// Its job's queue.
    pub queue: String,
    /// Its job's job set.
    pub job_set: String,
    /// Its job's shape.
    pub shape: Digest,
}

/// Everything that has not ended, as of one place in the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loaded {
    /// The place: everything up to here is in the tables. What follows are requests, and are to be folded.
    pub position: Seq,
    /// The log's head when this was read.
    pub head: Seq,
    /// Jobs that have not ended, in no order.
    pub jobs: Vec<SavedJob>,
    /// Runs that hold room.
    pub runs: Vec<HeldRun>,
    /// Queues as of `head`, since requests define them.
    pub queues: BTreeMap<String, Queue>,
    /// Settings of executors as of `head`, since requests set them.
    pub executors: BTreeMap<String, ExecutorSettings>,
    /// Retry policies as of `head`, since requests set them.
    pub policies: BTreeMap<String, RetryPolicy>,
    /// Shapes of the jobs and runs.
    pub shapes: BTreeMap<Digest, Shape>,
    /// Requests that are not carried out to their end, in order.
    pub broads: Vec<SavedBroad>,
}

/// What was decided after a place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decided {
    /// Up to where the tables have what was decided.
    pub folded: Seq,
    /// Entries up to there: decisions, and the requests that they know of.
    pub entries: Vec<(Seq, Entry)>,
}

impl Loaded {
    /// The ledger as of [`Self::position`], but for what requests define.
    ///
    /// # Errors
    /// When the rows do not belong together.
    pub fn restore(self, classes: PriorityClasses) -> Result<Ledger, RestoreError> {
        let runs = self.runs.into_iter().map(HeldRun::saved).collect();
        let Self { queues, executors, policies, shapes, jobs, broads, .. } = self;
        Ledger::restore(classes, Saved { queues, executors, policies, shapes, jobs, runs, broads })
    }
}

impl HeldRun {
    fn saved(self) -> SavedRun {
        let HeldRun { row, queue, job_set, shape } = self;
        let phase = row.phase().unwrap_or(RunPhase::Stopping);
        SavedRun {
            run: row.run,
            queue,
            job_set,
            shape,
            at: row.at,
            places: row.places,
            pool: row.pool,
            away: row.away,
            phase,
            leased: row.leased,
            running: row.started,
            pod: row.pod.unwrap_or_else(PodRef::default),
            preempted: row.preempted,
        }
    }
}

/// The jobs of a job set that are in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsInState {
    /// The queue.
    pub queue: String,
    /// The job set.
    pub job_set: String,
    /// The state.
    pub state: JobState,
    /// How many there are.
    pub jobs: u64,
    /// The first of them, by id.
    pub first: JobId,
    /// When the last one came to its state.
    pub last_transition: TimeMs,
}

/// What a leader's commit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Where the leader stands now: the log's head.
    pub head: Seq,
}

/// The log and its tables.
///
/// All futures may be dropped. What was to be written then may be written or not, as when a commit fails.
pub trait Log: Send + Sync + 'static {
    /// Writes submissions, all or none, each as one entry. Submissions that wait at the same time share a transaction.
    ///
    /// # Errors
    /// When nothing, or where the connection was lost perhaps something, was written.
    fn submit(&self, batch: Vec<Submission>) -> impl Future<Output = Result<Vec<Answer>, Error>> + Send;

    /// Writes a request other than a submission. What it defines of queues and executors takes effect with it.
    ///
    /// # Errors
    /// When the entry has other events, the queue is not as expected or has jobs but is to be removed, or nothing was written.
    fn request(&self, entry: Entry, expect: Expect) -> impl Future<Output = Result<Seq, Error>> + Send;

    /// Takes the lead for [`LEASE`] where nobody has it. Nothing of an earlier leader is under way after that; what it
    /// wrote is to be loaded now.
    ///
    /// # Errors
    /// When the database fails.
    fn lead(&self, holder: &str) -> impl Future<Output = Result<Option<Epoch>, Error>> + Send;

    /// Leads on for [`LEASE`] from now.
    ///
    /// # Errors
    /// [`Error::Deposed`] where another leads.
    fn renew(&self, epoch: Epoch) -> impl Future<Output = Result<(), Error>> + Send;

    /// Leads no more, so that another need not wait. Nothing happens where another leads.
    ///
    /// # Errors
    /// When the database fails.
    fn resign(&self, epoch: Epoch) -> impl Future<Output = Result<(), Error>> + Send;

    /// Gives what was written after `after` to `decide`, and writes what it decides, as one transaction; renews too.
    ///
    /// Others can't append while `decide` runs: it is to take much less than [`LEASE`], after which Postgres gives up.
    /// So whoever leads folds [`Self::tail`] before, as far as there is something. `decide` may have been called where this fails: then what it folded
    /// is not what is written, and is to be loaded anew.
    ///
    /// # Errors
    /// [`Error::Deposed`] where another leads, [`Error::Behind`] where `after` is before what was decided; nothing was
    /// written. Otherwise when the database fails.
    fn commit<F>(&self, epoch: Epoch, after: Seq, decide: F) -> impl Future<Output = Result<Committed, Error>> + Send
    where
        F: FnOnce(Vec<(Seq, Entry)>) -> Changed + Send;

    /// Everything that has not ended, in one consistent read. O(jobs that have not ended).
    ///
    /// # Errors
    /// When the database fails.
    fn load(&self) -> impl Future<Output = Result<Loaded, Error>> + Send;

    /// The log's entries after a place, at most `limit`.
    ///
    /// # Errors
    /// When the database fails.
    fn tail(&self, after: Seq, limit: u32) -> impl Future<Output = Result<Vec<(Seq, Entry)>, Error>> + Send;

    /// What was decided after a place, and is in the tables: at most `limit` entries.
    ///
    /// # Errors
    /// When the database fails.
    fn decided(&self, after: Seq, limit: u32) -> impl Future<Output = Result<Decided, Error>> + Send;

    /// The entries of a job set after a place, at most `limit`.
    ///
    /// # Errors
    /// When the database fails.
    fn events(
        &self,
        queue: &str,
        job_set: &str,
        after: Seq,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<(Seq, Entry)>, Error>> + Send;

    /// The log's head, as far as it is known here: at once for what is written here, soon for what other servers write.
    fn head(&self) -> watch::Receiver<Seq>;

    /// Jobs, in no order; those that are not there are left out.
    ///
    /// # Errors
    /// When the database fails.
    fn jobs(&self, ids: &[JobId]) -> impl Future<Output = Result<Vec<JobRow>, Error>> + Send;

    /// The jobs of a set with such an external address.
    ///
    /// # Errors
    /// When the database fails.
    fn jobs_by_uri(
        &self,
        queue: &str,
        job_set: &str,
        uri: &str,
    ) -> impl Future<Output = Result<Vec<JobRow>, Error>> + Send;

    /// Runs, in no order; those that are not there are left out.
    ///
    /// # Errors
    /// When the database fails.
    fn runs(&self, ids: &[RunId]) -> impl Future<Output = Result<Vec<RunRow>, Error>> + Send;

    /// The runs of jobs, by job and attempt.
    ///
    /// # Errors
    /// When the database fails.
    fn runs_of(&self, jobs: &[JobId]) -> impl Future<Output = Result<Vec<RunRow>, Error>> + Send;

    /// Job sets, by queue and name, whose first job is at or after `since` or that have jobs that have not ended; newest
    /// first, at most `limit`. O(jobs since then + jobs that have not ended).
    ///
    /// # Errors
    /// When the database fails.
    fn recent_sets(
        &self,
        since: JobId,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<(String, String)>, Error>> + Send;

    /// How many jobs of these sets are in which state, in no order; sets that are not there are left out. O(their jobs).
    ///
    /// # Errors
    /// When the database fails.
    fn standing(&self, sets: &[(String, String)]) -> impl Future<Output = Result<Vec<JobsInState>, Error>> + Send;

    /// Definitions of queues, by name.
    ///
    /// # Errors
    /// When the database fails.
    fn queues(&self) -> impl Future<Output = Result<BTreeMap<String, Queue>, Error>> + Send;

    /// Retry policies that requests have set, by name.
    ///
    /// # Errors
    /// When the database fails.
    fn policies(&self) -> impl Future<Output = Result<BTreeMap<String, RetryPolicy>, Error>> + Send;

    /// Queues with jobs that have a node, by pool and in order.
    ///
    /// # Errors
    /// When the database fails.
    fn active_queues(&self) -> impl Future<Output = Result<BTreeMap<String, Vec<String>>, Error>> + Send;

    /// Job sets with folded entries from before `before`, of the `limit` entries after a place.
    ///
    /// # Errors
    /// When the database fails.
    fn stale(&self, after: Seq, before: TimeMs, limit: u32) -> impl Future<Output = Result<Stale, Error>> + Send;

    /// Removes some of a job set that was not written to since `before`: at most `limit` jobs with their runs, or entries
    /// once there are no jobs. The caller knows, up to where it has decided, of no job in it that has not ended and of no run
    /// that holds room.
    ///
    /// # Errors
    /// [`Error::Deposed`] where another leads; else when the database fails. Nothing was removed then.
    fn prune(
        &self,
        epoch: Epoch,
        set: &SetName,
        before: TimeMs,
        limit: u32,
    ) -> impl Future<Output = Result<Pruned, Error>> + Send;

    /// Removes client ids of jobs that were submitted before `before`, of the `limit` after one; but for those of jobs that
    /// `keeps` names.
    ///
    /// # Errors
    /// As [`Self::prune`].
    fn forget<K>(
        &self,
        epoch: Epoch,
        after: &(String, String),
        before: TimeMs,
        limit: u32,
        keeps: K,
    ) -> impl Future<Output = Result<Forgotten, Error>> + Send
    where
        K: Fn(JobId) -> bool + Send + Sync;

    /// Removes specifications that were not used since `before`, a day before now or earlier, and that no job has; at most
    /// `limit`. Tells how many.
    ///
    /// # Errors
    /// As [`Self::prune`].
    fn sweep(&self, epoch: Epoch, before: TimeMs, limit: u32) -> impl Future<Output = Result<usize, Error>> + Send;

    /// Gives back the room of the oldest entries that were all removed, where the database keeps it; whether there was some.
    ///
    /// # Errors
    /// As [`Self::prune`]; also where somebody uses it at the moment.
    fn retire(&self, epoch: Epoch) -> impl Future<Output = Result<bool, Error>> + Send;

    /// How the database does. Writes something that changes nothing.
    ///
    /// # Errors
    /// When the database fails.
    fn probe(&self) -> impl Future<Output = Result<DatabaseStanding, Error>> + Send;

    /// Specifications in JSON, in no order; those that are not there are left out.
    ///
    /// # Errors
    /// When the database fails.
    fn specs(&self, digests: &[Digest]) -> impl Future<Output = Result<Vec<(Digest, Vec<u8>)>, Error>> + Send;
}
