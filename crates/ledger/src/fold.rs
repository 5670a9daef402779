//! Taking in the log: each event changes the ledger, or is refused because it does not fit.

use crate::bulk_operations::PriorityNotice;
use crate::event::{Entry, Event, Submitted};
use crate::ids::{Digest, JobId, NodeRef, PodRef, RunId, TimeMs};
use crate::interned::{QueueIx, SetIx, ShapeIx};
use crate::job::{Away, Ended, Job, Phase, Run, RunPhase};
use crate::ledger::{GangRow, Ledger, QueueRow, SetRow, ShapeRow};
use crate::refusal::Refusal;
use crate::volcano_job::NodePods;

/// Runs that are kept for whoever asks what has ended.
const ENDED_MAX: usize = 10_000;

impl Ledger {
    /// Takes in one entry. What it gives back changed nothing; everything else did, in order.
    pub fn fold(&mut self, entry: &Entry) -> Vec<Refusal> {
        let mut refused = Vec::new();
        for event in &entry.events {
            if let Err(refusal) = self.fold_event(entry, event) {
                refused.push(refusal);
            }
        }
        refused
    }

    pub(crate) fn fold_event(&mut self, entry: &Entry, event: &Event) -> Result<(), Refusal> {
        match event {
            Event::QueueSet(queue) => {
                let row = self.queue_row(&entry.queue);
                self.queues.row_mut(row).definition = Some((**queue).clone());
                Ok(())
            }
            Event::QueueRemoved => self.remove_queue(&entry.queue),
            Event::Submitted(submitted) => self.submit(entry, submitted),
            Event::CancelAsked { .. }
            | Event::PreemptAsked { .. }
            | Event::Reprioritised { .. }
            | Event::ScopeCancelAsked { .. }
            | Event::ScopePreemptAsked { .. } => {
                self.fold_request(entry, event);
                Ok(())
            }
            Event::RetryPolicySet(policy) => {
                self.policies.insert(policy.name.clone(), (**policy).clone());
                Ok(())
            }
            Event::RetryPolicyRemoved { policy } => {
                self.policies.remove(policy);
                Ok(())
            }
            Event::ExecutorSet { executor, .. } => {
                self.executors.extend(event.settings(entry).map(|settings| (executor.clone(), settings)));
                Ok(())
            }
            Event::ExecutorUnset { executor } => {
                self.executors.remove(executor);
                Ok(())
            }
            Event::SetReprioritised { jobs, priority, requestor } => {
                let owner = (entry.queue.clone(), entry.job_set.clone());
                self.take_notice(&PriorityNotice {
                    owner,
                    jobs: jobs.clone(),
                    priority: *priority,
                    requestor: requestor.clone(),
                })
            }
            Event::CarriedOut { .. } => self.carry_out(entry, event),
            // Whether it lives is the leader's to know, who decides of its runs then.
            Event::ExecutorForgotten { .. } => Ok(()),
            Event::Leased { run, at, pool, away, places } => {
                self.lease(entry.at, *run, at, places, pool, away.as_ref())
            }
            Event::Pending { run, pod } => {
                self.advance(*run, RunPhase::Pending)?.pod = pod.clone();
                Ok(())
            }
            Event::Running { run, pod, .. } => {
                let row = self.advance(*run, RunPhase::Running)?;
                row.pod = pod.clone();
                row.running = Some(entry.at);
                Ok(())
            }
            Event::Ingress { run, .. } => self.counted(*run).map(drop),
            Event::Returned { run, attempted, .. } => {
                let at = self.counted(*run)?.at.clone();
                self.drop_run(*run, Some(entry.at));
                self.requeue(run.job, |job| {
                    job.returned += u32::from(*attempted);
                    if *attempted && !job.avoid.contains(&at) {
                        job.avoid.push(at);
                    }
                });
                Ok(())
            }
            Event::RunFailed { run, avoid, grows, .. } => {
                let at = self.counted(*run)?.at.clone();
                let grows = match grows {
                    Some(growth) => Some((self.hold_shape(run.job, growth.shape, entry)?, growth.memory)),
                    None => None,
                };
                self.drop_run(*run, Some(entry.at));
                if let Some((shape, _)) = grows {
                    self.reshape(run.job, shape);
                }
                self.requeue(run.job, |job| {
                    job.failed += 1;
                    if let Some((_, memory)) = grows {
                        job.grown = Some(Box::new(memory));
                    }
                    if *avoid && !job.avoid.contains(&at) {
                        job.avoid.push(at);
                    }
                });
                Ok(())
            }
            Event::RunPreempted { run, preemption, requeued } => {
                self.counted(*run)?;
                self.stop_run(*run);
                if let Some(row) = self.runs.get_mut(run) {
                    row.preempted = Some(preemption.clone());
                }
                if *requeued {
                    let job = self.jobs.get_mut(&run.job).ok_or(Refusal::NoJob(run.job))?;
                    job.phase = Phase::Leaving;
                    if let Some(asked) = &mut job.requests {
                        asked.preempt = None;
                    }
                    self.touch(run.job);
                    Ok(())
                } else {
                    self.end(run.job)
                }
            }
            Event::RunLost { run } => {
                let phase = self.runs.get(run).map(|row| row.phase).ok_or(Refusal::NoRun(*run))?;
                self.drop_run(*run, None);
                let waits = self.jobs.get(&run.job).is_some_and(|job| job.attempts == run.attempt);
                if waits && (phase != RunPhase::Stopping || self.jobs[&run.job].phase == Phase::Leaving) {
                    self.requeue(run.job, |_| ());
                }
                Ok(())
            }
            Event::RunGone { run } => {
                let stopping = self.runs.get(run).is_some_and(|row| row.phase == RunPhase::Stopping);
                if !stopping {
                    return Err(Refusal::NoRun(*run));
                }
                self.drop_run(*run, Some(entry.at));
                let leaving = |job: &Job| job.phase == Phase::Leaving && job.attempts == run.attempt;
                if self.jobs.get(&run.job).is_some_and(leaving) {
                    self.requeue(run.job, |_| ());
                }
                Ok(())
            }
            Event::Succeeded { run } => {
                self.counted(*run)?;
                self.drop_run(*run, Some(entry.at));
                self.end(run.job)
            }
            Event::Failed { job, .. } | Event::Rejected { job, .. } | Event::Cancelled { job, .. } => {
                if let Some(run) = self.current(*job) {
                    self.stop_run(run);
                }
                self.end(*job)
            }
        }
    }

    /// Scheduling has to look at the job again, and what is saved of it is old.
    pub(crate) fn touch(&mut self, id: JobId) {
        self.changed.jobs.insert(id);
        self.touched.insert(id);
    }

    /// Scheduling has to look at a job that came. One that never ran and starts alone is found in its line.
    fn note_came(&mut self, id: JobId) {
        if self.jobs.get(&id).is_some_and(|job| job.attempts == 0 && job.gang.is_none()) {
            self.changed.came = true;
        } else {
            self.changed.jobs.insert(id);
        }
    }

    pub(crate) fn queue_row(&mut self, name: &str) -> QueueIx {
        self.queues.intern(&name.to_owned(), QueueRow::default)
    }

    fn remove_queue(&mut self, name: &str) -> Result<(), Refusal> {
        let Some(index) = self.queues.find(&name.to_owned()) else { return Ok(()) };
        if self.queues.row(index).active > 0 {
            return Err(Refusal::QueueInUse(name.to_owned()));
        }
        self.queues.row_mut(index).definition = None;
        Ok(())
    }

    fn submit(&mut self, entry: &Entry, submitted: &Submitted) -> Result<(), Refusal> {
        let id = submitted.job;
        if self.jobs.contains_key(&id) {
            return Err(Refusal::Twice(id));
        }
        let shape = self.hold_shape(id, submitted.shape, entry)?;
        let queue = self.queue_row(&entry.queue);
        let set = self.sets.intern(&(queue, entry.job_set.clone()), SetRow::default);
        self.sets.row_mut(set).jobs.insert(id);
        let gang = submitted.gang.as_ref().filter(|gang| gang.cardinality > 1).map(|gang| {
            let index = self.gangs.intern(&(set, gang.id.clone()), GangRow::default);
            let row = self.gangs.row_mut(index);
            row.cardinality = gang.cardinality;
            row.uniformity.clone_from(&gang.uniformity);
            row.members.insert(id);
            index
        });
        let job = Job {
            queue,
            set,
            shape,
            gang,
            spec: submitted.spec,
            priority: submitted.priority,
            submitted: entry.at,
            phase: Phase::Queued,
            fail_fast: submitted.fail_fast,
            attempts: 0,
            returned: 0,
            failed: 0,
            requests: None,
            avoid: Vec::new(),
            grown: None,
        };
        let turn = self.turn(id, &job);
        self.queues.row_mut(queue).active += 1;
        self.line_up(queue, turn, shape);
        self.jobs.insert(id, job);
        self.comes_late(id);
        // Whoever wrote the submission saved the job with it.
        self.note_came(id);
        Ok(())
    }

    /// The shape of a digest, for one more who has it.
    fn hold_shape(&mut self, job: JobId, digest: Digest, entry: &Entry) -> Result<ShapeIx, Refusal> {
        let shape = match (self.shapes.find(&digest), entry.shapes.get(&digest)) {
            (Some(known), _) => known,
            (None, Some(shape)) => self.shapes.intern(&digest, || ShapeRow { shape: shape.clone(), holders: 0 }),
            (None, None) => return Err(Refusal::NoShape(job)),
        };
        self.shapes.row_mut(shape).holders += 1;
        Ok(shape)
    }

    /// A job that stands in no line has another shape from now on.
    fn reshape(&mut self, id: JobId, shape: ShapeIx) {
        let before = self.jobs.get_mut(&id).map_or(shape, |job| std::mem::replace(&mut job.shape, shape));
        self.release_shape(before);
    }

    fn lease(
        &mut self,
        now: TimeMs,
        run: RunId,
        at: &NodeRef,
        places: &[NodePods],
        pool: &str,
        away: Option<&Away>,
    ) -> Result<(), Refusal> {
        let job = self.jobs.get(&run.job).ok_or(Refusal::NoJob(run.job))?;
        let asked = job.requests.as_ref().is_some_and(|asked| asked.cancel.is_some());
        if job.phase != Phase::Queued || asked || run.attempt != job.attempts + 1 {
            return Err(Refusal::NotWaiting(run.job));
        }
        let (queue, set, shape) = (job.queue, job.set, job.shape);
        let turn = self.turn(run.job, job);
        self.step_out(queue, turn, shape);
        self.shapes.row_mut(shape).holders += 1;
        self.sets.row_mut(set).runs += 1;
        let row = Run {
            queue,
            set,
            shape,
            at: at.clone(),
            places: places.to_vec(),
            pool: pool.to_owned(),
            away: away.cloned().map(Box::new),
            phase: RunPhase::Leased,
            leased: now,
            running: None,
            pod: PodRef::default(),
            preempted: None,
        };
        self.runs.insert(run, row);
        self.count_room(run, true);
        match self.clusters.get_mut(&at.cluster) {
            Some(runs) => drop(runs.insert(run)),
            None => drop(self.clusters.insert(at.cluster.clone(), [run].into())),
        }
        if let Some(job) = self.jobs.get_mut(&run.job) {
            job.phase = Phase::Leased;
            job.attempts = run.attempt;
        }
        self.touch(run.job);
        Ok(())
    }

    /// The run, if it is the one that counts.
    fn counted(&self, run: RunId) -> Result<&Run, Refusal> {
        match self.runs.get(&run) {
            Some(row) if row.phase != RunPhase::Stopping && self.current(run.job) == Some(run) => Ok(row),
            _ => Err(Refusal::NoRun(run)),
        }
    }

    fn advance(&mut self, run: RunId, to: RunPhase) -> Result<&mut Run, Refusal> {
        if self.counted(run)?.phase >= to {
            return Err(Refusal::NoRun(run));
        }
        let job = self.jobs.get_mut(&run.job).ok_or(Refusal::NoJob(run.job))?;
        job.phase = if to == RunPhase::Running { Phase::Running } else { Phase::Pending };
        self.touch(run.job);
        self.move_to(run, to);
        self.runs.get_mut(&run).ok_or(Refusal::NoRun(run))
    }

    fn move_to(&mut self, run: RunId, phase: RunPhase) {
        self.count_room(run, false);
        if let Some(row) = self.runs.get_mut(&run) {
            row.phase = phase;
        }
        self.count_room(run, true);
    }

    /// The run holds no room any more: it has ended at that time, or nobody knows.
    fn drop_run(&mut self, run: RunId, ended: Option<TimeMs>) {
        self.count_room(run, false);
        let Some(row) = self.runs.remove(&run) else { return };
        if let (Some(started), Some(at), None) = (row.running, ended, &row.preempted)
            && self.ended.len() < ENDED_MAX
        {
            let shape = &self.shapes.row(row.shape).shape;
            // Of a Volcano job only those pods held room that had found some.
            let held = shape.volcano_job.as_ref().map(|whole| whole.requests_at(&row.places));
            let requests = held.unwrap_or_else(|| shape.requests.clone());
            let queue = self.queues.name(row.queue).clone();
            self.ended.push(Ended { queue, pool: row.pool.clone(), requests, started, at });
        }
        if let Some(runs) = self.clusters.get_mut(&row.at.cluster) {
            runs.remove(&run);
            if runs.is_empty() {
                self.clusters.remove(&row.at.cluster);
            }
        }
        self.release_shape(row.shape);
        self.sets.row_mut(row.set).runs -= 1;
        self.forget_set(row.set);
        self.touch(run.job);
    }

    /// The run does not count any more, and holds its room until it is gone.
    fn stop_run(&mut self, run: RunId) {
        self.move_to(run, RunPhase::Stopping);
        self.touch(run.job);
    }

    /// The job stands in its queue again.
    fn requeue(&mut self, id: JobId, change: impl FnOnce(&mut Job)) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        change(job);
        job.phase = Phase::Queued;
        if let Some(asked) = &mut job.requests {
            asked.preempt = None;
        }
        let job = &self.jobs[&id];
        let (turn, queue, shape) = (self.turn(id, job), job.queue, job.shape);
        self.line_up(queue, turn, shape);
        self.touch(id);
    }

    /// The job has ended: it is forgotten.
    fn end(&mut self, id: JobId) -> Result<(), Refusal> {
        let job = self.jobs.get(&id).ok_or(Refusal::NoJob(id))?;
        let turn = self.turn(id, job);
        let (queue, set, shape, gang) = (job.queue, job.set, job.shape, job.gang);
        self.jobs.remove(&id);
        self.step_out(queue, turn, shape);
        self.queues.row_mut(queue).active -= 1;
        if let Some(gang) = gang {
            let row = self.gangs.row_mut(gang);
            row.members.remove(&id);
            match row.members.first().copied() {
                // Whoever knows one of the others has to know that they are fewer, also where this one was never looked at.
                Some(other) => {
                    self.changed.jobs.insert(other);
                }
                None => {
                    self.gangs.remove(gang);
                }
            }
        }
        self.sets.row_mut(set).jobs.remove(&id);
        self.forget_set(set);
        self.release_shape(shape);
        self.requested.remove(&id);
        self.touch(id);
        Ok(())
    }

    fn forget_set(&mut self, set: SetIx) {
        let row = self.sets.row(set);
        if row.jobs.is_empty() && row.runs == 0 {
            self.sets.remove(set);
        }
    }

    fn release_shape(&mut self, shape: ShapeIx) {
        let row = self.shapes.row_mut(shape);
        row.holders -= 1;
        if row.holders == 0 {
            self.shapes.remove(shape);
        }
    }
}
