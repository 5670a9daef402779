//! What follows from what was asked and reported, as the next entries of the log.

use std::collections::{BTreeMap, btree_map};

use pumice_units::Quantity;

use crate::bulk_operations::PriorityNotice;
use crate::event::{Entry, Event};
use crate::failure::{Cause, Failure, INTERNAL, LEASE_EXPIRED, Preemption};
use crate::heartbeat_timeout::HeartbeatTimeout;
use crate::ids::{JobId, NodeRef, PodRef, RunId, TimeMs};
use crate::job::{Away, Phase, RunPhase};
use crate::ledger::Ledger;
use crate::memory::{Grown, Growth, MEMORY, grow};
use crate::retries::{Failed, Retries, Verdict};
use crate::shape::Shape;
use crate::volcano_job::NodePods;

/// What an executor says of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The cluster that says it.
    pub cluster: String,
    pub run: RunId,
    pub kind: ReportKind,
}

/// What may be said of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportKind {
    /// Its pod is made.
    Pending(PodRef),
    /// Its pod runs on that node.
    Running(PodRef, String),
    /// Where its ports are reached.
    Ingress(BTreeMap<u32, String>),
    Succeeded,
    Failed(Failure),
    /// It could not be started there. True: it was tried.
    Returned(String, bool),
    /// Its pod is gone, or never was.
    Gone,
}

/// What a round found. It was made from an older state of the ledger: what does not fit any more is left out.
#[derive(Debug, Clone, PartialEq)]
pub enum Proposal {
    /// These get nodes, all or none.
    Lease {
        /// The jobs and where.
        jobs: Vec<(JobId, NodeRef)>,
        pool: String,
        /// How they are away from home, where they are.
        away: Option<Away>,
    },
    /// A Volcano job gets a cluster.
    LeaseVolcanoJob {
        job: JobId,
        /// Nodes, all of one cluster, and the numbers of the pods that have room there.
        places: Vec<(NodeRef, Vec<u32>)>,
        pool: String,
    },
    /// A run makes room.
    Preempt {
        run: RunId,
        /// Why, and for whom.
        preemption: Preemption,
    },
    /// A job can never run.
    Reject { job: JobId, reason: String },
}

impl Proposal {
    /// The jobs that it starts, and how many pods each has.
    pub fn starts(&self) -> Vec<(JobId, u32)> {
        match self {
            Proposal::Lease { jobs, .. } => jobs.iter().map(|(job, _)| (*job, 1)).collect(),
            Proposal::LeaseVolcanoJob { job, places, .. } => {
                let pods = places.iter().map(|(_, pods)| pods.len()).sum::<usize>();
                vec![(*job, u32::try_from(pods).unwrap_or(u32::MAX))]
            }
            Proposal::Preempt { .. } | Proposal::Reject { .. } => Vec::new(),
        }
    }
}

/// What came in since the last decision.
#[derive(Debug, Clone, Default)]
pub struct Inbox {
    /// What executors said, in order.
    pub reports: Vec<Report>,
    pub proposals: Vec<Proposal>,
    /// Clusters of which nothing was heard, and for how many milliseconds.
    pub silent: Vec<(String, i64)>,
}

/// Whether some node could hold a job of this shape, off these nodes, if nothing ran there. Where that is not known, it could.
pub type CouldHold<'r> = dyn Fn(&Shape, &[NodeRef]) -> bool + 'r;

/// Entries under way: events by queue and job set.
struct Draft<'l> {
    ledger: &'l mut Ledger,
    could_hold: &'l CouldHold<'l>,
    now: TimeMs,
    entries: BTreeMap<(String, String), Entry>,
}

impl Draft<'_> {
    fn owner(&self, id: JobId) -> Option<(String, String)> {
        let (queue, set) = self.ledger.owner(self.ledger.job(id)?);
        Some((queue.to_owned(), set.to_owned()))
    }

    fn owner_of_run(&self, run: RunId) -> Option<(String, String)> {
        let (queue, set) = self.ledger.owner_of_run(self.ledger.run(run)?);
        Some((queue.to_owned(), set.to_owned()))
    }

    /// Adds an event if it fits. True if it does.
    fn say(&mut self, owner: Option<(String, String)>, event: Event) -> bool {
        let Some(owner) = owner else { return false };
        let now = self.now;
        let entry = match self.entries.entry(owner) {
            btree_map::Entry::Occupied(entry) => entry.into_mut(),
            btree_map::Entry::Vacant(vacant) => {
                let entry = Entry::new(now, &vacant.key().0, &vacant.key().1);
                vacant.insert(entry)
            }
        };
        if self.ledger.fold_event(entry, &event).is_err() {
            return false;
        }
        entry.events.push(event);
        true
    }
}

impl Ledger {
    /// Which entries follow. They are folded already: whoever can't write them has to drop this ledger and load it anew.
    pub fn decide(&mut self, now: TimeMs, inbox: Inbox, retries: Retries) -> Vec<Entry> {
        self.decide_where(now, inbox, retries, &|_, _| true)
    }

    /// The same where it is known which nodes there are: a failed job is not tried again with more memory, or elsewhere, if
    /// no node could hold that.
    pub fn decide_where(
        &mut self,
        now: TimeMs,
        inbox: Inbox,
        retries: Retries,
        could_hold: &CouldHold<'_>,
    ) -> Vec<Entry> {
        // It comes before all else, which may follow from it.
        let part = self.carry_on(now);
        let mut lost_left = self.bulk_operations.part();
        let mut draft = Draft { ledger: self, could_hold, now, entries: BTreeMap::new() };
        draft.priority_notices();
        for report in inbox.reports {
            draft.report(report, &retries);
        }
        draft.requests();
        for proposal in inbox.proposals {
            draft.proposal(proposal);
        }
        for (cluster, silent_ms) in inbox.silent {
            lost_left -= draft.silent(&cluster, silent_ms, lost_left, &retries);
        }
        let rest = draft.entries.into_values().filter(|entry| !entry.events.is_empty());
        part.into_iter().chain(rest).collect()
    }
}

impl Draft<'_> {
    fn report(&mut self, report: Report, retries: &Retries) {
        let Some(row) = self.ledger.run(report.run) else { return };
        // Nobody speaks for runs of another cluster.
        if row.at.cluster != report.cluster {
            return;
        }
        let run = report.run;
        let owner = self.owner_of_run(run);
        if row.phase == RunPhase::Stopping {
            let over =
                !matches!(report.kind, ReportKind::Pending(_) | ReportKind::Running(..) | ReportKind::Ingress(_));
            if over {
                self.say(owner, Event::RunGone { run });
            }
            return;
        }
        match report.kind {
            ReportKind::Pending(pod) => drop(self.say(owner, Event::Pending { run, pod })),
            ReportKind::Running(pod, node) => {
                if self.ledger.run(run).is_some_and(|row| row.phase < RunPhase::Pending) {
                    self.say(owner.clone(), Event::Pending { run, pod: pod.clone() });
                }
                self.say(owner, Event::Running { run, pod, node });
            }
            ReportKind::Ingress(addresses) => drop(self.say(owner, Event::Ingress { run, addresses })),
            ReportKind::Succeeded => drop(self.say(owner, Event::Succeeded { run })),
            ReportKind::Failed(failure) => self.failed(run, owner, failure, retries),
            ReportKind::Returned(reason, attempted) => self.returned(run, owner, reason, attempted, retries),
            ReportKind::Gone => {
                let failure = internal("pod-missing", "its pod is gone, and nobody asked for that".to_owned());
                self.ends(run, owner, failure);
            }
        }
    }

    /// The run failed, and its job with it.
    fn ends(&mut self, run: RunId, owner: Option<(String, String)>, failure: Failure) {
        let failed = Event::RunFailed { run, failure: failure.clone(), retried: false, avoid: false, grows: None };
        self.say(owner.clone(), failed);
        self.say(owner, Event::Failed { job: run.job, failure });
    }

    /// The run failed. Its job is tried again where it or its queue's policy wants that, and its gang with it: what is left of
    /// a gang is of no use alone.
    fn failed(&mut self, run: RunId, owner: Option<(String, String)>, mut failure: Failure, retries: &Retries) {
        let Some(job) = self.ledger.job(run.job) else { return };
        let members = self.ledger.gang(job).map(|gang| gang.members.clone()).unwrap_or_default();
        let used = if members.is_empty() {
            job.failed
        } else {
            // Each failure starts the whole gang anew, whoever failed.
            let failed = members.iter().filter_map(|member| self.ledger.job(*member)).map(|job| job.failed);
            failed.fold(0, u32::saturating_add)
        };
        let definition = self.ledger.queues.row(job.queue).definition.as_ref();
        let policies = definition.map_or(&[][..], |queue| &queue.retry_policies);
        let wanted = job.requests.as_ref().is_none_or(|asked| asked.cancel.is_none());
        // All members of a gang are to fail fast where a lease is returned; a failure is another matter.
        let may = wanted && (!job.fail_fast || !members.is_empty());
        let verdict = if may {
            let shape = self.ledger.shape(job);
            let memory = shape.requests.get(MEMORY).copied().unwrap_or_default();
            let failed = Failed { failure: &failure, used, own: shape.retries.as_ref(), memory };
            retries.policies.verdict(&self.ledger.policies, policies, &failed)
        } else {
            Verdict::Fail(None)
        };
        match self.possible(run, verdict) {
            Next::Fail(why) => {
                if let Some(why) = why {
                    failure.message =
                        if failure.message.is_empty() { why } else { format!("{}; {why}", failure.message) };
                }
                self.ends(run, owner, failure);
            }
            Next::Retry { avoid, grows } => {
                let grows = grows.map(|(growth, shape)| {
                    if let Some((queue, set)) = &owner {
                        let now = self.now;
                        let entry = self.entries.entry((queue.clone(), set.clone()));
                        entry.or_insert_with(|| Entry::new(now, queue, set)).shapes.insert(growth.shape, shape);
                    }
                    growth
                });
                if !self.say(owner, Event::RunFailed { run, failure, retried: true, avoid, grows }) {
                    return;
                }
                let reason = format!("its gang starts anew: run {run} failed, and is tried again");
                for other in members.into_iter().filter(|member| *member != run.job) {
                    let Some(run) = self.ledger.current(other) else { continue };
                    let preemption = Preemption { reason: reason.clone(), ..Preemption::default() };
                    self.say(self.owner(other), Event::RunPreempted { run, preemption, requeued: true });
                }
            }
        }
    }

    /// What a verdict comes to, once it is known what the next try would be and whether there is room for it anywhere.
    fn possible(&self, run: RunId, verdict: Verdict) -> Next {
        let (avoid, bump) = match verdict {
            Verdict::Fail(why) => return Next::Fail(why),
            Verdict::Retry { avoid, memory } => (avoid, memory),
        };
        let (Some(job), Some(row)) = (self.ledger.job(run.job), self.ledger.run(run)) else { return Next::Fail(None) };
        let before: Option<Grown> = job.grown.as_deref().copied();
        let shape = self.ledger.shape(job);
        let grows = bump.and_then(|bump| grow(self.ledger.shape_digest(job), shape, before, bump));
        let mut off = job.avoid.clone();
        if avoid && !off.contains(&row.at) {
            off.push(row.at.clone());
        }
        let shape = grows.as_ref().map_or(shape, |(_, shape)| shape);
        if (avoid || grows.is_some()) && !(self.could_hold)(shape, &off) {
            let memory = if grows.is_some() { shape.requests.get(MEMORY) } else { None };
            let memory = memory.map(|bytes| format!(" with {} of memory", Quantity::from_bytes(*bytes)));
            // A Volcano job keeps off clusters.
            let (holder, places) =
                if shape.volcano_job.is_some() { ("cluster", "clusters") } else { ("node", "nodes") };
            let off = if off.is_empty() { String::new() } else { format!(", {places} it keeps off: {}", off.len()) };
            let memory = memory.unwrap_or_default();
            return Next::Fail(Some(format!("not tried again: no {holder} could hold it{memory}{off}")));
        }
        Next::Retry { avoid, grows }
    }

    fn returned(
        &mut self,
        run: RunId,
        owner: Option<(String, String)>,
        reason: String,
        attempted: bool,
        retries: &Retries,
    ) {
        let text = reason.clone();
        if !self.say(owner.clone(), Event::Returned { run, reason, attempted }) {
            return;
        }
        let Some(job) = self.ledger.job(run.job) else { return };
        if attempted && (job.fail_fast || job.returned >= retries.returned_max) {
            let tried = job.returned;
            let message = format!("given back after {tried} of {} runs; the last time: {text}", retries.returned_max);
            let failure = internal("max-runs-exceeded", message);
            self.say(owner, Event::Failed { job: run.job, failure });
        }
    }

    /// Jobs that moved with their set, while they are there.
    fn priority_notices(&mut self) {
        for PriorityNotice { owner, jobs, priority, requestor } in self.ledger.priority_notices.clone() {
            self.say(Some(owner), Event::SetReprioritised { jobs, priority, requestor });
        }
    }

    /// What people asked for.
    fn requests(&mut self) {
        for id in std::mem::take(&mut self.ledger.requested) {
            let Some(job) = self.ledger.job(id) else { continue };
            let Some(asked) = job.requests.as_deref().cloned() else { continue };
            let owner = self.owner(id);
            if let Some((requestor, reason)) = asked.cancel {
                self.say(owner, Event::Cancelled { job: id, requestor, reason });
            } else if let Some((requestor, reason)) = asked.preempt
                && let Some(run) = self.ledger.current(id)
            {
                let preemption = Preemption { reason, beneficiary: None, requestor };
                self.say(owner, Event::RunPreempted { run, preemption, requeued: false });
            }
        }
    }

    fn proposal(&mut self, proposal: Proposal) {
        match proposal {
            Proposal::Lease { jobs, pool, away } => {
                let open = jobs.iter().all(|(id, at)| self.may_start(*id, &at.cluster, false));
                if open {
                    for (id, at) in jobs {
                        self.lease(id, at, &pool, away.clone(), Vec::new());
                    }
                }
            }
            Proposal::LeaseVolcanoJob { job, places, pool } => {
                let Some(cluster) = places.first().map(|(at, _)| at.cluster.clone()) else { return };
                let is_one = places.iter().all(|(at, _)| at.cluster == cluster);
                if is_one && self.may_start(job, &cluster, true) {
                    let places = places.into_iter().map(|(at, pods)| NodePods { node: at.node, pods }).collect();
                    self.lease(job, NodeRef { cluster, node: String::new() }, &pool, None, places);
                }
            }
            Proposal::Preempt { run, preemption } => {
                if self.ledger.run(run).is_some_and(|row| self.ledger.is_preemptible(row)) {
                    self.say(self.owner_of_run(run), Event::RunPreempted { run, preemption, requeued: true });
                }
            }
            Proposal::Reject { job, reason } => {
                if self.ledger.job(job).is_some_and(|job| job.phase == Phase::Queued) {
                    self.say(self.owner(job), Event::Rejected { job, reason });
                }
            }
        }
    }

    /// Whether a job that is whole, or is not, may start in a cluster.
    fn may_start(&self, id: JobId, cluster: &str, whole: bool) -> bool {
        if self.ledger.is_cordoned(cluster) {
            return false;
        }
        let Some(job) = self.ledger.job(id) else { return false };
        let queue = &self.ledger.queues.row(job.queue).definition;
        let takes = queue.as_ref().is_some_and(|queue| !queue.cordoned);
        job.phase == Phase::Queued
            && job.requests.as_ref().is_none_or(|asked| asked.cancel.is_none())
            && self.ledger.shape(job).volcano_job.is_some() == whole
            && takes
    }

    fn lease(&mut self, id: JobId, at: NodeRef, pool: &str, away: Option<Away>, places: Vec<NodePods>) {
        let attempt = self.ledger.job(id).map_or(0, |job| job.attempts) + 1;
        let run = RunId { job: id, attempt };
        self.say(self.owner(id), Event::Leased { run, at, pool: pool.to_owned(), away, places });
    }

    /// Runs of a cluster that is away and has been for too long: at most so many, how many they are. The others' turn comes
    /// with the next decision, which is told of the silence, too.
    fn silent(&mut self, cluster: &str, silent_ms: i64, most: usize, retries: &Retries) -> usize {
        let runs: Vec<RunId> = self.ledger.runs_of(cluster).map(|(run, _)| run).collect();
        let mut lost = 0;
        for run in runs {
            if lost == most {
                break;
            }
            let Some(row) = self.ledger.run(run) else { continue };
            let silence = retries.heartbeat_timeout(self.ledger.queues.row(row.queue).definition.as_ref());
            // The cluster may have got the lease though it was not heard itself: its time begins with that.
            let lasts_ms = silent_ms.min(self.now.since(row.leased));
            let Some(after_ms) = silence.after_ms().filter(|after_ms| lasts_ms >= *after_ms) else { continue };
            let (owner, is_over) = (self.owner_of_run(run), row.phase == RunPhase::Stopping);
            // What becomes of the job of a run that is stopped is settled.
            if is_over || matches!(silence, HeartbeatTimeout::Rerun { .. }) {
                lost += usize::from(self.say(owner, Event::RunLost { run }));
            } else {
                let seconds = after_ms / 1_000;
                let message = format!("nothing was heard of its cluster {cluster} for {seconds} s (executorTimeout)");
                self.failed(run, owner, internal(LEASE_EXPIRED, message), retries);
                lost += 1;
            }
        }
        lost
    }
}

/// What becomes of a failed run's job.
enum Next {
    Retry {
        avoid: bool,
        grows: Option<(Growth, Shape)>,
    },
    /// The job fails; why, where that is not the failure alone.
    Fail(Option<String>),
}

/// A failure of ours.
fn internal(subcategory: &str, message: String) -> Failure {
    Failure {
        message,
        cause: Cause::Error,
        category: INTERNAL.to_owned(),
        subcategory: subcategory.to_owned(),
        containers: Vec::new(),
    }
}
