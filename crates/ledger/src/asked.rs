//! What people ask of jobs: which jobs are meant, and what is to be decided of them.

use crate::event::{Entry, Event, Filter, Scope};
use crate::fold::Refusal;
use crate::ids::JobId;
use crate::job::{Asked, Phase, Run};
use crate::ledger::Ledger;

/// Jobs that one event tells of: whoever tells people of it holds all of its messages at once.
const TOLD_MAX: usize = 1_000;

/// Jobs that got another place with all of their set, and are to be told so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Untold {
    /// Their queue and job set.
    pub owner: (String, String),
    pub jobs: Vec<JobId>,
    pub priority: u32,
    pub requestor: String,
}

impl Ledger {
    /// Takes in what is asked of jobs.
    pub(crate) fn fold_asked(&mut self, entry: &Entry, event: &Event) {
        match event {
            Event::CancelAsked { jobs, filter, reason } => {
                for id in self.meant(entry, jobs, *filter) {
                    self.ask_cancel(id, &entry.user, reason);
                }
            }
            Event::PreemptAsked { jobs, reason } => {
                for id in self.meant(entry, jobs, Filter::Running) {
                    self.ask_preempt(id, &entry.user, reason);
                }
            }
            Event::Reprioritised { jobs, priority } => {
                let meant = self.meant(entry, jobs, Filter::Active);
                for id in &meant {
                    self.reprioritise(*id, *priority);
                }
                if jobs.is_empty() {
                    let owner = || (entry.queue.clone(), entry.job_set.clone());
                    self.untold.extend(meant.chunks(TOLD_MAX).map(|jobs| Untold {
                        owner: owner(),
                        jobs: jobs.to_vec(),
                        priority: *priority,
                        requestor: entry.user.clone(),
                    }));
                }
            }
            Event::ScopeCancelAsked { scope, reason } => {
                for id in self.in_scope(scope) {
                    self.ask_cancel(id, &entry.user, reason);
                }
            }
            Event::ScopePreemptAsked { scope, reason } => {
                for id in self.in_scope(scope) {
                    self.ask_preempt(id, &entry.user, reason);
                }
            }
            _ => {}
        }
    }

    /// The jobs of a scope. O(runs of the cluster) where it names one, else O(jobs of the queues).
    fn in_scope(&self, scope: &Scope) -> Vec<JobId> {
        if !scope.cluster.is_empty() {
            let runs = self.runs_of(&scope.cluster).filter(|(id, _)| self.current(id.job) == Some(*id));
            return runs.map(|(id, _)| id.job).filter(|id| self.is_in(scope, *id)).collect();
        }
        let is_named = |queue: &String| scope.queues.is_empty() || scope.queues.contains(queue);
        let sets = self.sets.iter().filter(|((queue, _), _)| is_named(self.queues.name(*queue)));
        sets.flat_map(|(_, set)| &set.jobs).copied().filter(|id| self.is_in(scope, *id)).collect()
    }

    fn is_in(&self, scope: &Scope, id: JobId) -> bool {
        let fits = |names: &[String], name: &str| names.is_empty() || names.iter().any(|known| known == name);
        let Some(job) = self.job(id) else { return false };
        let run = self.current(id).and_then(|run| self.run(run));
        let is_at = |wanted: &str, at: fn(&Run) -> &str| wanted.is_empty() || run.is_some_and(|run| at(run) == wanted);
        fits(&scope.queues, self.owner(job).0)
            && fits(&scope.priority_classes, &self.shape(job).priority_class)
            && (scope.phases.is_empty() || scope.phases.contains(&job.phase))
            && (scope.pools.is_empty() || run.is_some_and(|run| scope.pools.contains(&run.pool)))
            && is_at(&scope.cluster, |run| &run.at.cluster)
            && is_at(&scope.node, |run| &run.at.node)
    }

    /// Jobs were told of their place.
    pub(crate) fn told(&mut self, untold: &Untold) -> Result<(), Refusal> {
        match self.untold.iter().position(|known| known == untold) {
            Some(place) => {
                self.untold.remove(place);
                Ok(())
            }
            None => {
                let (queue, job_set) = untold.owner.clone();
                Err(Refusal::NotAsked { queue, job_set })
            }
        }
    }

    fn ask_cancel(&mut self, id: JobId, user: &str, reason: &str) {
        self.ask(id, |asked| {
            asked.cancel.get_or_insert_with(|| (user.to_owned(), reason.to_owned()));
        });
    }

    /// What can't make room now is not asked later.
    fn ask_preempt(&mut self, id: JobId, user: &str, reason: &str) {
        let run = self.current(id).and_then(|run| self.run(run));
        if run.is_some_and(|run| self.is_preemptible(run)) {
            self.ask(id, |asked| {
                asked.preempt.get_or_insert_with(|| (user.to_owned(), reason.to_owned()));
            });
        }
    }

    /// The jobs of the entry's set that are named, or that `filter` takes where none is.
    fn meant(&self, entry: &Entry, jobs: &[JobId], filter: Filter) -> Vec<JobId> {
        let queue = self.queues.find(&entry.queue);
        let set = queue.and_then(|queue| self.sets.find(&(queue, entry.job_set.clone())));
        let Some(set) = set else { return Vec::new() };
        let ours = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.set == set);
        if !jobs.is_empty() {
            return jobs.iter().copied().filter(ours).collect();
        }
        let taken = |id: &JobId| match filter {
            Filter::Active => true,
            Filter::Queued => self.jobs.get(id).is_some_and(|job| !job.phase.has_run()),
            Filter::Running => self.jobs.get(id).is_some_and(|job| job.phase.has_run()),
        };
        self.sets.row(set).jobs.iter().copied().filter(taken).collect()
    }

    fn ask(&mut self, id: JobId, ask: impl FnOnce(&mut Asked)) {
        if let Some(job) = self.jobs.get_mut(&id) {
            ask(job.asked.get_or_insert_default());
            self.asked.insert(id);
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
            lines.insert(crate::job::Turn { priority, ..before }, shape);
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.priority = priority;
        }
        self.touch(id);
    }
}
