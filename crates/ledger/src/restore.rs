//! What is saved of a ledger so that the log need not be folded anew, and a ledger made of that.
//!
//! Invariant: [`Ledger::restore`] of what [`Ledger::saved`] and [`Ledger::saved_run`] gave of all jobs and runs is a ledger
//! that goes on as the one that was saved. The fleet's database keeps the parts as rows. So does a ledger that folded what
//! another one decided, once that is saved.

use std::collections::{BTreeMap, BTreeSet};

use crate::bulk_operations::SavedBulkOperation;
use crate::event::{ExecutorSettings, Gang};
use crate::failure::Preemption;
use crate::ids::{Digest, JobId, NodeRef, PodRef, RunId, TimeMs};
use crate::interned::{QueueIx, SetIx, ShapeIx};
use crate::job::{Away, Job, PendingRequests, Phase, Run, RunPhase};
use crate::ledger::{Changes, GangRow, Ledger, PriorityClasses, SetRow, ShapeRow};
use crate::memory::Grown;
use crate::queue::Queue;
use crate::retries::RetryPolicy;
use crate::shape::Shape;
use crate::volcano_job::NodePods;

/// A job that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedJob {
    pub job: JobId,
    pub queue: String,
    pub job_set: String,
    /// The digest of its specification.
    pub spec: Digest,
    /// The digest of its shape.
    pub shape: Digest,
    /// The gang it is a member of.
    pub gang: Option<Gang>,
    /// Its place in the queue: lower first.
    pub priority: u32,
    /// When it was submitted.
    pub submitted: TimeMs,
    pub phase: Phase,
    /// A returned lease is not tried again.
    pub fail_fast: bool,
    /// Runs there were, the present one among them.
    pub attempts: u32,
    /// Returned runs that were tried.
    pub returned: u32,
    /// Failed runs that were tried again.
    pub failed: u32,
    /// What is asked of it.
    pub requests: Option<PendingRequests>,
    /// Nodes on which it was tried.
    pub avoid: Vec<NodeRef>,
    /// By how much memory it has grown.
    pub grown: Option<Grown>,
}

/// A run that holds room; its job may have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedRun {
    pub run: RunId,
    pub queue: String,
    /// Its job's job set.
    pub job_set: String,
    /// The digest of its job's shape.
    pub shape: Digest,
    pub at: NodeRef,
    /// Where a Volcano job's pods have room.
    pub places: Vec<NodePods>,
    /// The pool that the node is counted in.
    pub pool: String,
    /// How it is away from home, where it is.
    pub away: Option<Away>,
    /// How far it is.
    pub phase: RunPhase,
    /// Since when it is leased.
    pub leased: TimeMs,
    /// Since when it runs.
    pub running: Option<TimeMs>,
    pub pod: PodRef,
    /// Why it has to make room, where it has to.
    pub preempted: Option<Preemption>,
}

/// All of a ledger that its database keeps: [`Ledger::restore`] makes the same ledger of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Saved {
    /// Definitions of queues by name.
    pub queues: BTreeMap<String, Queue>,
    /// Settings of executors by name.
    pub executors: BTreeMap<String, ExecutorSettings>,
    /// Retry policies that requests have set, by name.
    pub policies: BTreeMap<String, RetryPolicy>,
    /// Shapes of the jobs and runs; there may be more.
    pub shapes: BTreeMap<Digest, Shape>,
    /// Jobs that have not ended.
    pub jobs: Vec<SavedJob>,
    /// Runs that hold room.
    pub runs: Vec<SavedRun>,
    /// Requests that are not carried out to their end, in order.
    pub bulk_operations: Vec<SavedBulkOperation>,
}

/// Why no ledger can be made of what was saved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A shape is missing.
    #[error("shape {0} is not there")]
    NoShape(Digest),
    /// A job is there twice.
    #[error("job {0} is there twice")]
    Twice(JobId),
    /// A run is there twice.
    #[error("run {0} is there twice")]
    RunTwice(RunId),
    /// A job has a run which is not there, or is where it can't be.
    #[error("the run of job {0} is not where the job wants it")]
    NoRun(JobId),
}

/// What a saved job or run belongs to, by the indices that this ledger gives.
struct Owner {
    queue: QueueIx,
    set: SetIx,
    shape: ShapeIx,
}

impl Ledger {
    /// Makes a ledger. Nothing in it counts as changed: scheduling that begins looks at everything. O(jobs + runs).
    ///
    /// # Errors
    /// When the parts do not belong together.
    pub fn restore(classes: PriorityClasses, saved: Saved) -> Result<Self, RestoreError> {
        let Saved { queues, executors, policies, shapes, jobs, runs, bulk_operations } = saved;
        let mut ledger = Self { executors, policies, ..Self::new(classes) };
        ledger.jobs.reserve(jobs.len());
        ledger.runs.reserve(runs.len());
        for (name, definition) in queues {
            let row = ledger.queue_row(&name);
            ledger.queues.row_mut(row).definition = Some(definition);
        }
        for run in runs {
            ledger.restore_run(run, &shapes)?;
        }
        for job in jobs {
            ledger.restore_job(job, &shapes)?;
        }
        ledger.restore_bulk_operations(bulk_operations);
        Ok(ledger)
    }

    /// What is to be saved of a job; none if it has ended.
    pub fn saved(&self, id: JobId) -> Option<SavedJob> {
        let job = self.jobs.get(&id)?;
        let (queue, job_set) = self.owner(job);
        let gang = self.gang(job).map(|gang| Gang {
            id: gang.id.to_owned(),
            cardinality: gang.cardinality,
            uniformity: gang.uniformity.to_owned(),
        });
        Some(SavedJob {
            job: id,
            queue: queue.to_owned(),
            job_set: job_set.to_owned(),
            spec: job.spec,
            shape: self.shape_digest(job),
            gang,
            priority: job.priority,
            submitted: job.submitted,
            phase: job.phase,
            fail_fast: job.fail_fast,
            attempts: job.attempts,
            returned: job.returned,
            failed: job.failed,
            requests: job.requests.as_deref().cloned(),
            avoid: job.avoid.clone(),
            grown: job.grown.as_deref().copied(),
        })
    }

    /// What is to be saved of a run; none if it holds no room any more.
    pub fn saved_run(&self, id: RunId) -> Option<SavedRun> {
        let run = self.runs.get(&id)?;
        let (queue, job_set) = self.owner_of_run(run);
        Some(SavedRun {
            run: id,
            queue: queue.to_owned(),
            job_set: job_set.to_owned(),
            shape: *self.shapes.name(run.shape),
            at: run.at.clone(),
            places: run.places.clone(),
            pool: run.pool.clone(),
            away: run.away.as_deref().cloned(),
            phase: run.phase,
            leased: run.leased,
            running: run.running,
            pod: run.pod.clone(),
            preempted: run.preempted.clone(),
        })
    }

    /// Jobs of which something changed that is saved, of them or of their runs, since this was last asked. One that was only
    /// submitted has not changed: its submission says all that is saved of it.
    pub fn take_touched(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.touched)
    }

    /// All that was folded is saved, by whoever decided it: from here on this ledger is as one that is restored from that.
    pub fn set_saved(&mut self) {
        self.changed = Changes::default();
        self.touched.clear();
        self.ended.clear();
        self.bulk_operations.set_saved();
        let jobs = &self.jobs;
        self.requested
            .retain(|id| jobs.get(id).and_then(|job| job.requests.as_deref()).is_some_and(PendingRequests::is_open));
    }

    fn restore_owner(
        &mut self,
        queue: &str,
        job_set: &str,
        digest: Digest,
        shapes: &BTreeMap<Digest, Shape>,
    ) -> Result<Owner, RestoreError> {
        let shape = shapes.get(&digest).ok_or(RestoreError::NoShape(digest))?;
        let shape = self.shapes.intern(&digest, || ShapeRow { shape: shape.clone(), holders: 0 });
        self.shapes.row_mut(shape).holders += 1;
        let queue = self.queue_row(queue);
        let set = self.sets.intern(&(queue, job_set.to_owned()), SetRow::default);
        Ok(Owner { queue, set, shape })
    }

    fn restore_run(&mut self, saved: SavedRun, shapes: &BTreeMap<Digest, Shape>) -> Result<(), RestoreError> {
        let id = saved.run;
        if self.runs.contains_key(&id) {
            return Err(RestoreError::RunTwice(id));
        }
        let Owner { queue, set, shape } = self.restore_owner(&saved.queue, &saved.job_set, saved.shape, shapes)?;
        self.sets.row_mut(set).runs += 1;
        self.clusters.entry(saved.at.cluster.clone()).or_default().insert(id);
        let run = Run {
            queue,
            set,
            shape,
            at: saved.at,
            places: saved.places,
            pool: saved.pool,
            away: saved.away.map(Box::new),
            phase: saved.phase,
            leased: saved.leased,
            running: saved.running,
            pod: saved.pod,
            preempted: saved.preempted,
        };
        self.runs.insert(id, run);
        self.count_room(id, true);
        Ok(())
    }

    /// Puts a job in its place. Its runs have to be there already: whether they fit the job is checked.
    fn restore_job(&mut self, saved: SavedJob, shapes: &BTreeMap<Digest, Shape>) -> Result<(), RestoreError> {
        let id = saved.job;
        if self.jobs.contains_key(&id) {
            return Err(RestoreError::Twice(id));
        }
        let run = self.runs.get(&RunId { job: id, attempt: saved.attempts }).map(|run| run.phase);
        let fits = match saved.phase {
            Phase::Queued => run.is_none(),
            Phase::Leaving => run == Some(RunPhase::Stopping),
            Phase::Leased => run == Some(RunPhase::Leased),
            Phase::Pending => run == Some(RunPhase::Pending),
            Phase::Running => run == Some(RunPhase::Running),
        };
        if !fits {
            return Err(RestoreError::NoRun(id));
        }
        let Owner { queue, set, shape } = self.restore_owner(&saved.queue, &saved.job_set, saved.shape, shapes)?;
        self.sets.row_mut(set).jobs.insert(id);
        let gang = saved.gang.filter(|gang| gang.cardinality > 1).map(|gang| {
            let index = self.gangs.intern(&(set, gang.id), GangRow::default);
            let row = self.gangs.row_mut(index);
            (row.cardinality, row.uniformity) = (gang.cardinality, gang.uniformity);
            row.members.insert(id);
            index
        });
        if saved.requests.as_ref().is_some_and(PendingRequests::is_open) {
            self.requested.insert(id);
        }
        let job = Job {
            queue,
            set,
            shape,
            gang,
            spec: saved.spec,
            priority: saved.priority,
            submitted: saved.submitted,
            phase: saved.phase,
            fail_fast: saved.fail_fast,
            attempts: saved.attempts,
            returned: saved.returned,
            failed: saved.failed,
            requests: saved.requests.map(Box::new),
            avoid: saved.avoid,
            grown: saved.grown.map(Box::new),
        };
        let turn = self.turn(id, &job);
        self.queues.row_mut(queue).active += 1;
        if job.phase == Phase::Queued {
            self.line_up(queue, turn, shape);
        }
        self.jobs.insert(id, job);
        Ok(())
    }
}
