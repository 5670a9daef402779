//! What people ask of jobs: which jobs are meant, and what is to be decided of them.

use crate::bulk_operations::PriorityNotice;
use crate::event::{Entry, Event, Filter, Scope};
use crate::ids::JobId;
use crate::interned::SetIx;
use crate::job::{PendingRequests, Phase, Run};
use crate::ledger::Ledger;
use crate::limits::JOBS_PER_EVENT_MAX;
use crate::refusal::Refusal;

impl Ledger {
    /// Takes in what is asked of jobs, or that it is to be carried out in parts.
    pub(crate) fn fold_request(&mut self, entry: &Entry, event: &Event) {
        let Some(mut jobs) = self.put_off(entry, event) else { return };
        jobs.retain(|id| self.is_meant(entry, event, *id));
        self.ask_of(entry, event, &jobs);
    }

    /// Asks it of these jobs.
    pub(crate) fn ask_of(&mut self, entry: &Entry, event: &Event, meant: &[JobId]) {
        match event {
            Event::CancelAsked { reason, .. } | Event::ScopeCancelAsked { reason, .. } => {
                meant.iter().for_each(|id| self.ask_cancel(*id, &entry.user, reason));
            }
            Event::PreemptAsked { reason, .. } | Event::ScopePreemptAsked { reason, .. } => {
                meant.iter().for_each(|id| self.ask_preempt(*id, &entry.user, reason));
            }
            Event::Reprioritised { jobs, priority } => {
                meant.iter().for_each(|id| self.reprioritise(*id, *priority));
                if jobs.is_empty() {
                    let owner = || (entry.queue.clone(), entry.job_set.clone());
                    self.priority_notices.extend(meant.chunks(JOBS_PER_EVENT_MAX).map(|jobs| PriorityNotice {
                        owner: owner(),
                        jobs: jobs.to_vec(),
                        priority: *priority,
                        requestor: entry.user.clone(),
                    }));
                }
            }
            _ => {}
        }
    }

    /// The jobs that may be meant, in no order. O(runs of the cluster) where a scope names one, else O(jobs of the queues).
    pub(crate) fn may_mean(&self, entry: &Entry, event: &Event) -> Vec<JobId> {
        match event {
            Event::CancelAsked { jobs, .. } | Event::PreemptAsked { jobs, .. } | Event::Reprioritised { jobs, .. } => {
                if !jobs.is_empty() {
                    return jobs.clone();
                }
                let set = self.set(entry).map(|set| &self.sets.row(set).jobs);
                set.into_iter().flatten().copied().collect()
            }
            Event::ScopeCancelAsked { scope, .. } | Event::ScopePreemptAsked { scope, .. } => {
                if scope.cluster.is_empty() {
                    return self.of_queues(scope);
                }
                let runs = self.runs_of(&scope.cluster).filter(|(id, _)| self.current(id.job) == Some(*id));
                runs.map(|(id, _)| id.job).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The jobs that may come to be meant while a request is carried out, in no order: which those are does not change with
    /// time, but for jobs that are submitted or end. O(jobs of the queues).
    pub(crate) fn may_come_to_mean(&self, entry: &Entry, event: &Event) -> Vec<JobId> {
        match event {
            Event::ScopeCancelAsked { scope, .. } | Event::ScopePreemptAsked { scope, .. } => self.of_queues(scope),
            _ => self.may_mean(entry, event),
        }
    }

    fn of_queues(&self, scope: &Scope) -> Vec<JobId> {
        let is_named = |queue: &String| scope.queues.is_empty() || scope.queues.contains(queue);
        let sets = self.sets.iter().filter(|((queue, _), _)| is_named(self.queues.name(*queue)));
        sets.flat_map(|(_, set)| &set.jobs).copied().collect()
    }

    /// Whether one of those that may be meant is, as it stands now.
    pub(crate) fn is_meant(&self, entry: &Entry, event: &Event, id: JobId) -> bool {
        let Some(job) = self.job(id) else { return false };
        let (jobs, filter) = match event {
            Event::ScopeCancelAsked { scope, .. } | Event::ScopePreemptAsked { scope, .. } => {
                return self.is_in(scope, id);
            }
            Event::CancelAsked { jobs, filter, .. } => (jobs, *filter),
            Event::PreemptAsked { jobs, .. } => (jobs, Filter::Running),
            Event::Reprioritised { jobs, .. } => (jobs, Filter::Active),
            _ => return false,
        };
        let fits = match filter {
            Filter::Active => true,
            _ if !jobs.is_empty() => true,
            Filter::Queued => !job.phase.has_run(),
            Filter::Running => job.phase.has_run(),
        };
        fits && self.set(entry) == Some(job.set)
    }

    /// The job set of an entry, where it has jobs that have not ended.
    fn set(&self, entry: &Entry) -> Option<SetIx> {
        let queue = self.queues.find(&entry.queue)?;
        self.sets.find(&(queue, entry.job_set.clone()))
    }

    fn is_in(&self, scope: &Scope, id: JobId) -> bool {
        let fits = |names: &[String], name: &str| names.is_empty() || names.iter().any(|known| known == name);
        let Some(job) = self.job(id) else { return false };
        let run = self.current(id).and_then(|run| self.run(run));
        let is_at =
            |wanted: &str, is: fn(&Run, &str) -> bool| wanted.is_empty() || run.is_some_and(|run| is(run, wanted));
        fits(&scope.queues, self.owner(job).0)
            && fits(&scope.priority_classes, &self.shape(job).priority_class)
            && (scope.phases.is_empty() || scope.phases.contains(&job.phase))
            && (scope.pools.is_empty() || run.is_some_and(|run| scope.pools.contains(&run.pool)))
            && is_at(&scope.cluster, |run, cluster| run.at.cluster == cluster)
            && is_at(&scope.node, Run::is_on)
    }

    /// Jobs were told of their place.
    pub(crate) fn take_notice(&mut self, priority_notices: &PriorityNotice) -> Result<(), Refusal> {
        match self.priority_notices.iter().position(|known| known == priority_notices) {
            Some(place) => {
                self.priority_notices.remove(place);
                Ok(())
            }
            None => {
                let (queue, job_set) = priority_notices.owner.clone();
                Err(Refusal::NotAsked { queue, job_set })
            }
        }
    }

    fn ask_cancel(&mut self, id: JobId, user: &str, reason: &str) {
        self.ask(id, |asked| {
            asked.cancel.get_or_insert_with(|| (user.to_owned(), reason.to_owned()));
        });
    }

    /// What can't make room now is not asked later. A gang leaves whole: who asks one member asks all.
    fn ask_preempt(&mut self, id: JobId, user: &str, reason: &str) {
        let gang = self.job(id).and_then(|job| self.gang(job)).map(|gang| gang.members.iter().copied().collect());
        for member in gang.unwrap_or_else(|| vec![id]) {
            let run = self.current(member).and_then(|run| self.run(run));
            if run.is_some_and(|run| self.is_preemptible(run)) {
                self.ask(member, |asked| {
                    asked.preempt.get_or_insert_with(|| (user.to_owned(), reason.to_owned()));
                });
            }
        }
    }

    fn ask(&mut self, id: JobId, ask: impl FnOnce(&mut PendingRequests)) {
        if let Some(job) = self.jobs.get_mut(&id) {
            ask(job.requests.get_or_insert_default());
            self.requested.insert(id);
            self.touched.insert(id);
        }
    }

    fn reprioritise(&mut self, id: JobId, priority: u32) {
        let Some(job) = self.jobs.get(&id) else { return };
        let (queue, shape, waits) = (job.queue, job.shape, job.phase == Phase::Queued);
        let before = self.turn(id, job);
        if waits {
            let lines = &mut self.queues.row_mut(queue).lines;
            lines.remove(before, shape);
            lines.insert(crate::queue_order::OrderKey { priority, ..before }, shape);
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.priority = priority;
        }
        self.touch(id);
    }
}
