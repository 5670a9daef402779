//! What is written to the fleet's log, and what is read of it and of its tables.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use pumice_ledger::{
    Digest, Entry, Event, ExecutorSettings, JobId, Ledger, PodRef, PriorityClasses, Queue, RestoreError, RetryPolicy,
    RunPhase, Saved, SavedBulkOperation, SavedJob, SavedRun, Shape, Submitted, TimeMs,
};

use super::{JobState, RunRow};

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

/// The jobs of one request: all are written in one entry, or none is.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    pub at: TimeMs,
    pub queue: String,
    pub job_set: String,
    /// Who asked; the jobs' owner.
    pub user: String,
    /// The specifications of the jobs in JSON, by their digest.
    pub specs: BTreeMap<Digest, Vec<u8>>,
    /// The shapes of the jobs.
    pub shapes: BTreeMap<Digest, Shape>,
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
    #[default]
    Any,
    /// The entry's queue is not defined, and requests have set these retry policies.
    QueueAbsent { policies: Vec<String> },
    /// The entry's queue is defined, and requests have set these retry policies.
    QueuePresent { policies: Vec<String> },
    /// No request has set such a retry policy.
    PolicyAbsent(String),
    /// A request has set such a retry policy.
    PolicyPresent(String),
}

/// A run that holds room, with what its job tells.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldRun {
    pub row: RunRow,
    pub queue: String,
    /// Its job's job set.
    pub job_set: String,
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
    pub bulk_operations: Vec<SavedBulkOperation>,
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
        let Self { queues, executors, policies, shapes, jobs, bulk_operations, .. } = self;
        Ledger::restore(classes, Saved { queues, executors, policies, shapes, jobs, runs, bulk_operations })
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
    pub queue: String,
    pub job_set: String,
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
