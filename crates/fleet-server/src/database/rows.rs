//! Rows of jobs and runs, and their columns.

use std::collections::BTreeMap;

use pumice_ledger::{
    Away, Digest, Failure, Gang, JobId, NodePods, NodeRef, PendingRequests, Phase, PodRef, Preemption, RunId, RunPhase,
    SavedJob, TimeMs,
};

use super::cells::{Cell, Cells, Columns, Kind};
use super::{Error, NewJob, Seq, Submission};

/// An enum that is stored by a word.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// The word by which it is stored.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            pub(super) fn of_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

words! {
    /// Where a job stands, or how it ended.
    JobState {
        /// It waits for a node.
        Queued = "queued",
        /// Its last run has to leave its node before it waits again.
        Leaving = "leaving",
        /// A node is found for it.
        Leased = "leased",
        /// Its pod is made.
        Pending = "pending",
        /// Its pod runs.
        Running = "running",
        /// It ended well.
        Succeeded = "succeeded",
        /// It ended badly.
        Failed = "failed",
        /// It can never run.
        Rejected = "rejected",
        /// It ended because somebody asked for it.
        Cancelled = "cancelled",
        /// It ended because its run had to make room.
        Preempted = "preempted",
    }
}

words! {
    /// How far a run is, or how it ended.
    RunState {
        /// Its cluster is to make the pod.
        Leased = "leased",
        /// The pod is made.
        Pending = "pending",
        /// The pod runs.
        Running = "running",
        /// It ended well.
        Succeeded = "succeeded",
        /// It failed, or its job did.
        Failed = "failed",
        /// Its job was cancelled.
        Cancelled = "cancelled",
        /// It had to make room.
        Preempted = "preempted",
        /// It could not be started there, or was given back.
        Returned = "returned",
        /// It was given up.
        Lost = "lost",
    }
}

impl From<Phase> for JobState {
    fn from(phase: Phase) -> JobState {
        match phase {
            Phase::Queued => JobState::Queued,
            Phase::Leaving => JobState::Leaving,
            Phase::Leased => JobState::Leased,
            Phase::Pending => JobState::Pending,
            Phase::Running => JobState::Running,
        }
    }
}

impl JobState {
    fn phase(self) -> Option<Phase> {
        match self {
            JobState::Queued => Some(Phase::Queued),
            JobState::Leaving => Some(Phase::Leaving),
            JobState::Leased => Some(Phase::Leased),
            JobState::Pending => Some(Phase::Pending),
            JobState::Running => Some(Phase::Running),
            _ => None,
        }
    }

    /// How a run ends whose job ends like this.
    pub(super) fn of_run(self) -> RunState {
        match self {
            JobState::Succeeded => RunState::Succeeded,
            JobState::Cancelled => RunState::Cancelled,
            JobState::Preempted => RunState::Preempted,
            _ => RunState::Failed,
        }
    }
}

/// A row of the table `jobs`: a job from its submission until its set is removed.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    pub job: JobId,
    /// The entry in which it was submitted.
    pub seq: Seq,
    pub queue: String,
    pub job_set: String,
    /// Where its pod is made.
    pub namespace: String,
    pub owner: String,
    /// Where the submitter has more about it.
    pub external_uri: Option<String>,
    /// The digest of its specification.
    pub spec: Digest,
    /// The digest of its shape.
    pub shape: Digest,
    /// The gang it is a member of.
    pub gang: Option<Gang>,
    /// A returned lease is not tried again.
    pub fail_fast: bool,
    /// When it was submitted.
    pub submitted: TimeMs,
    /// Where it stands, or how it ended.
    pub state: JobState,
    /// Its place in the queue: lower first.
    pub priority: u32,
    /// Runs there were, the present one among them; the last one's attempt.
    pub attempts: u32,
    /// Returned runs that were tried.
    pub returned: u32,
    /// Failed runs that were tried again.
    pub failed: u32,
    /// What is asked of it; none once it has ended.
    pub requests: Option<PendingRequests>,
    /// Nodes on which it was tried; none once it has ended.
    pub avoid: Vec<NodeRef>,
    /// When it came to its state.
    pub last_transition: TimeMs,
    pub ended: Option<TimeMs>,
    /// Who had it cancelled.
    pub cancel_user: Option<String>,
    pub cancel_reason: Option<String>,
    /// Why it failed, or can't run.
    pub error: Option<Failure>,
}

/// The columns of the table `jobs`, in the order in which a [`JobRow`] is read.
pub(super) const JOB: &Columns = &[
    ("id", Kind::Bytes),
    ("seq", Kind::Int),
    ("queue", Kind::Text),
    ("job_set", Kind::Text),
    ("namespace", Kind::Text),
    ("owner", Kind::Text),
    ("external_uri", Kind::Text),
    ("spec", Kind::Bytes),
    ("shape", Kind::Bytes),
    ("gang", Kind::Text),
    ("fail_fast", Kind::Int),
    ("submitted", Kind::Int),
    ("state", Kind::Text),
    ("priority", Kind::Int),
    ("attempts", Kind::Int),
    ("returned", Kind::Int),
    ("failed", Kind::Int),
    ("asked", Kind::Text),
    ("avoid", Kind::Text),
    ("last_transition", Kind::Int),
    ("ended", Kind::Int),
    ("cancel_user", Kind::Text),
    ("cancel_reason", Kind::Text),
    ("error", Kind::Text),
];

/// The columns of a job that was just submitted; those of [`JOB_NEW_ALSO`] are the same for all.
pub(super) const JOB_NEW: &Columns = &[
    ("id", Kind::Bytes),
    ("seq", Kind::Int),
    ("queue", Kind::Text),
    ("job_set", Kind::Text),
    ("namespace", Kind::Text),
    ("owner", Kind::Text),
    ("external_uri", Kind::Text),
    ("spec", Kind::Bytes),
    ("shape", Kind::Bytes),
    ("gang", Kind::Text),
    ("fail_fast", Kind::Int),
    ("submitted", Kind::Int),
    ("priority", Kind::Int),
];
/// What else a new job has, and what that is, of the rows of [`JOB_NEW`].
pub(super) const JOB_NEW_ALSO: (&str, &str) =
    ("state, attempts, returned, failed, last_transition", "'queued', 0, 0, 0, submitted");

impl JobRow {
    /// The cells of a job that was just submitted, as [`JOB_NEW`] has them.
    pub(super) fn new_cells(seq: Seq, request: &Submission, job: &NewJob) -> Result<Vec<Cell>, Error> {
        let NewJob { submitted, namespace, external_uri, .. } = job;
        Ok(vec![
            Cell::id(submitted.job.0),
            Cell::int(seq.0),
            Cell::text(&request.queue),
            Cell::text(&request.job_set),
            Cell::text(namespace),
            Cell::text(&request.user),
            Cell::text_if(external_uri.as_deref()),
            Cell::id(submitted.spec.0),
            Cell::id(submitted.shape.0),
            Cell::json_if(submitted.gang.as_ref())?,
            Cell::int(submitted.fail_fast),
            Cell::int(request.at.0),
            Cell::int(submitted.priority),
        ])
    }

    pub(super) fn read(cells: &mut Cells) -> Result<JobRow, Error> {
        Ok(JobRow {
            job: JobId(cells.id()?),
            seq: Seq(cells.int()?),
            queue: cells.text()?,
            job_set: cells.text()?,
            namespace: cells.text()?,
            owner: cells.text()?,
            external_uri: cells.text_if()?,
            spec: Digest(cells.id()?),
            shape: Digest(cells.id()?),
            gang: cells.json_if()?,
            fail_fast: cells.int()? != 0,
            submitted: TimeMs(cells.int()?),
            state: cells.word(JobState::of_word)?,
            priority: cells.count()?,
            attempts: cells.count()?,
            returned: cells.count()?,
            failed: cells.count()?,
            requests: cells.json_if()?,
            avoid: cells.json_if()?.unwrap_or_default(),
            last_transition: TimeMs(cells.int()?),
            ended: cells.int_if()?.map(TimeMs),
            cancel_user: cells.text_if()?,
            cancel_reason: cells.text_if()?,
            error: cells.json_if()?,
        })
    }
}

/// What of the table `jobs` a ledger is restored from.
pub(super) const JOB_SAVED: &Columns = &[
    ("id", Kind::Bytes),
    ("queue", Kind::Text),
    ("job_set", Kind::Text),
    ("spec", Kind::Bytes),
    ("shape", Kind::Bytes),
    ("gang", Kind::Text),
    ("priority", Kind::Int),
    ("submitted", Kind::Int),
    ("state", Kind::Text),
    ("fail_fast", Kind::Int),
    ("attempts", Kind::Int),
    ("returned", Kind::Int),
    ("failed", Kind::Int),
    ("asked", Kind::Text),
    ("avoid", Kind::Text),
    ("grown", Kind::Text),
];

/// A job that has not ended, as [`JOB_SAVED`] has it.
pub(super) fn read_saved(cells: &mut Cells) -> Result<SavedJob, Error> {
    Ok(SavedJob {
        job: JobId(cells.id()?),
        queue: cells.text()?,
        job_set: cells.text()?,
        spec: Digest(cells.id()?),
        shape: Digest(cells.id()?),
        gang: cells.json_if()?,
        priority: cells.count()?,
        submitted: TimeMs(cells.int()?),
        phase: cells.word(|word| JobState::of_word(word)?.phase())?,
        fail_fast: cells.int()? != 0,
        attempts: cells.count()?,
        returned: cells.count()?,
        failed: cells.count()?,
        requests: cells.json_if()?,
        avoid: cells.json_if()?.unwrap_or_default(),
        grown: cells.json_if()?,
    })
}

/// A row of the table `runs`: a run from its lease until the set of its job is removed.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    pub run: RunId,
    /// How far it is, or how it ended.
    pub state: RunState,
    pub at: NodeRef,
    /// The pool that the node is counted in.
    pub pool: String,
    /// When it was leased.
    pub leased: TimeMs,
    /// When its pod was made.
    pub pending: Option<TimeMs>,
    /// When its pod began to run.
    pub started: Option<TimeMs>,
    /// When it ended, or was to end.
    pub finished: Option<TimeMs>,
    /// It holds room on its node.
    pub holds: bool,
    pub pod: Option<PodRef>,
    /// Why it had to make room.
    pub preempted: Option<Preemption>,
    /// Why it failed or was given back.
    pub error: Option<Failure>,
    /// Addresses by port.
    pub ingress: BTreeMap<u32, String>,
    /// How it is away from home, where it is.
    pub away: Option<Away>,
    /// Where a Volcano job's pods have room.
    pub places: Vec<NodePods>,
}

/// The columns of the table `runs`, in the order in which a [`RunRow`] is read.
pub(super) const RUN: &Columns = &[
    ("job", Kind::Bytes),
    ("attempt", Kind::Int),
    ("state", Kind::Text),
    ("cluster", Kind::Text),
    ("node", Kind::Text),
    ("pool", Kind::Text),
    ("leased", Kind::Int),
    ("pending", Kind::Int),
    ("started", Kind::Int),
    ("finished", Kind::Int),
    ("holds", Kind::Int),
    ("pod", Kind::Text),
    ("preempted", Kind::Text),
    ("error", Kind::Text),
    ("ingress", Kind::Text),
    ("away", Kind::Text),
    ("places", Kind::Text),
];

impl RunRow {
    pub(super) fn read(cells: &mut Cells) -> Result<RunRow, Error> {
        Ok(RunRow {
            run: RunId { job: JobId(cells.id()?), attempt: cells.count()? },
            state: cells.word(RunState::of_word)?,
            at: NodeRef { cluster: cells.text()?, node: cells.text()? },
            pool: cells.text()?,
            leased: TimeMs(cells.int()?),
            pending: cells.int_if()?.map(TimeMs),
            started: cells.int_if()?.map(TimeMs),
            finished: cells.int_if()?.map(TimeMs),
            holds: cells.int_if()? == Some(1),
            pod: cells.json_if()?,
            preempted: cells.json_if()?,
            error: cells.json_if()?,
            ingress: cells.json_if()?.unwrap_or_default(),
            away: cells.json_if()?,
            places: cells.json_if()?.unwrap_or_default(),
        })
    }

    /// How far it is for the ledger; none if it holds no room.
    pub fn phase(&self) -> Option<RunPhase> {
        self.holds.then_some(match self.state {
            RunState::Leased => RunPhase::Leased,
            RunState::Pending => RunPhase::Pending,
            RunState::Running => RunPhase::Running,
            _ => RunPhase::Stopping,
        })
    }
}
