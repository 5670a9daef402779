//! What a pool is told of the ledger: the runs that hold room in it, and the first of every queue's lines.
//!
//! Invariant: after [`PoolView::sync`] the pool knows exactly that. Where the first few of a line don't fit the rest doesn't
//! either, so however long a queue is, a round looks at no more than this, and what has not changed is not looked at again.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pumice_engine::{Delta, GroupFacts, GroupUid, PodUid, TimeMs};
use pumice_ledger::{Changes, Digest, GangView, Job, JobId, Ledger, Phase, QueueView, Run, RunId, Shape};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::bids::Bids;
use crate::constraints::{Allowance, Constraints, PoolUsage};
use crate::rate_limits::Grant;
use crate::volcano_jobs;
use crate::{gang_uniformity, names};

mod exposed;
mod queue_snapshot;
mod updates;

pub(crate) use exposed::template;
use exposed::{Claim, ExposedJob, ExposedRun, GangKey, ParsedShape};
use queue_snapshot::{QueueSnapshot, WaitingJob};
pub use updates::{PoolUpdate, RunUpdate};

/// Shapes kept read; beyond that all are read again.
const SHAPES_MAX: usize = 100_000;

/// How much of a queue a round looks at.
#[derive(Debug, Clone, Copy)]
pub struct ViewLimits {
    /// Jobs of one shape: what could start in a round.
    pub per_shape: usize,
    /// Jobs of a queue.
    pub per_queue: usize,
}

impl Default for ViewLimits {
    fn default() -> Self {
        Self { per_shape: 10_000, per_queue: 20_000 }
    }
}

/// A gang as the pool knows it.
#[derive(Debug)]
struct Gang {
    least: u32,
    uniformity: String,
    members: BTreeSet<JobId>,
}

/// One pool's view of the ledger.
#[derive(Debug)]
pub struct PoolView {
    pool: String,
    limits: ViewLimits,
    constraints: Arc<Constraints>,
    exposed: FxHashMap<JobId, ExposedJob>,
    /// Those among them that wait.
    waiting: FxHashMap<JobId, WaitingJob>,
    /// By queue, as of the last sync.
    snapshots: BTreeMap<Arc<str>, QueueSnapshot>,
    has_begun: bool,
    gangs: BTreeMap<Arc<GangKey>, Gang>,
    shapes: FxHashMap<Digest, Arc<ParsedShape>>,
    queues: FxHashSet<Arc<str>>,
    usage: PoolUsage,
    /// What queues bid, where bids decide.
    bids: Option<Arc<Bids>>,
}

impl PoolView {
    /// A view that has shown nothing yet, of a pool without limits.
    pub fn new(pool: &str, limits: ViewLimits) -> Self {
        Self::within(pool, limits, Arc::default())
    }

    /// A view of a pool with these limits.
    pub fn within(pool: &str, limits: ViewLimits, constraints: Arc<Constraints>) -> Self {
        let bids = constraints.markets.contains_key(pool).then(Arc::default);
        Self {
            pool: pool.to_owned(),
            limits,
            constraints,
            bids,
            exposed: FxHashMap::default(),
            waiting: FxHashMap::default(),
            snapshots: BTreeMap::new(),
            has_begun: false,
            gangs: BTreeMap::new(),
            shapes: FxHashMap::default(),
            queues: FxHashSet::default(),
            usage: PoolUsage::default(),
        }
    }

    /// One of the same pool that has shown nothing yet.
    #[cfg(test)]
    pub(crate) fn begun_again(&self, limits: ViewLimits) -> Self {
        Self { bids: self.bids.clone(), ..Self::within(&self.pool, limits, self.constraints.clone()) }
    }

    /// Who waits by queue, what is shown of jobs that have not ended, and what is held.
    #[cfg(test)]
    pub(crate) fn knows(&self, ledger: &Ledger) -> impl PartialEq + std::fmt::Debug + use<> {
        let snapshots: BTreeMap<_, _> =
            self.snapshots.iter().map(|(queue, look)| (queue.clone(), look.jobs.clone())).collect();
        let waiting: BTreeMap<JobId, (bool, Option<u32>)> =
            self.waiting.iter().map(|(id, waits)| (*id, (waits.is_single, waits.volcano_pods))).collect();
        let active = self.exposed.iter().filter(|(id, _)| ledger.job(**id).is_some());
        let shown: BTreeMap<JobId, Vec<ExposedRun>> =
            active.map(|(id, shown)| (*id, shown.runs(*id).into_owned())).collect();
        let gangs: BTreeMap<Arc<GangKey>, (u32, BTreeSet<JobId>)> =
            self.gangs.iter().map(|(key, gang)| (key.clone(), (gang.least, gang.members.clone()))).collect();
        (snapshots, waiting, shown, gangs, self.usage.clone())
    }

    /// What queues bid from now on: where bids decide, the highest are looked at first.
    pub fn bid(&mut self, bids: &Arc<Bids>) {
        if let Some(known) = &mut self.bids {
            *known = Arc::clone(bids);
        }
    }

    /// The jobs of a queue that are looked at.
    fn first(&self, ledger: &Ledger, queue: &str) -> Vec<JobId> {
        let ViewLimits { per_shape, per_queue } = self.limits;
        match &self.bids {
            None => ledger.first(queue, per_shape, per_queue),
            Some(bids) => ledger.first_ranked(queue, per_shape, per_queue, |shape| {
                Reverse(bids.of(queue, &self.pool, shape.price_band).queued)
            }),
        }
    }

    /// What the pool has to be told. `ledger` is the one of the last time, and `changed` what it says has changed since then.
    /// O(changed, with the gangs they are in, + looked at in queues whose jobs that wait are others or wait otherwise); the
    /// first time O(runs + looked at).
    pub fn sync(&mut self, ledger: &Ledger, changed: &Changes) -> Vec<PoolUpdate> {
        let mut look: Vec<JobId> = if self.has_begun {
            changed.jobs.iter().copied().filter(|id| self.concerns(ledger, *id)).collect()
        } else {
            self.begin(ledger).into_iter().collect()
        };
        self.has_begun = true;
        let mut told = Vec::with_capacity(look.len());
        self.wait(ledger, changed, &mut look, &mut told);
        self.with_gangs(ledger, &mut look);
        let mut touched = BTreeSet::new();
        for job in look {
            self.show(ledger, job, &mut touched, &mut told);
        }
        self.settle_gangs(ledger, touched, &mut told);
        told
    }

    /// What a round may start beside what the pool's runs hold, as of the last sync.
    pub fn allowance(&self, ledger: &Ledger, grant: Grant) -> Allowance {
        Allowance::new(grant, self.usage.clone(), ledger.queues().filter_map(|queue| queue.definition))
    }

    /// Whose runs are there when a view begins. Those whose jobs have ended hold their room, too, and only they know of it.
    fn begin(&mut self, ledger: &Ledger) -> BTreeSet<JobId> {
        let mut ended: FxHashMap<JobId, Vec<ExposedRun>> = FxHashMap::default();
        for (run, row) in ledger.runs() {
            if row.pool == self.pool && ledger.job(run.job).is_none() {
                let members = volcano_jobs::holding(ledger, row).map(Arc::new);
                let shown = ExposedRun { run, priority: 0, gang: None, holds: None, members };
                ended.entry(run.job).or_default().push(shown);
            }
        }
        self.exposed.extend(ended.into_iter().map(|(id, runs)| (id, ExposedJob::Runs(runs.into()))));
        ledger.runs().map(|(run, _)| run.job).collect()
    }

    /// Whether there is, or was, something to show of a job even where it is not among the first of its queue: it ran
    /// already, or others have to start with it. Of most that are submitted there is nothing.
    fn concerns(&self, ledger: &Ledger, id: JobId) -> bool {
        self.exposed.contains_key(&id)
            || ledger.job(id).is_some_and(|job| job.attempts > 0 || ledger.gang(job).is_some())
    }

    /// Finds who waits now; those that did not before, or don't any more, are to be looked at, or are told at once.
    fn wait(&mut self, ledger: &Ledger, changed: &Changes, look: &mut Vec<JobId>, told: &mut Vec<PoolUpdate>) {
        let open = |queue: &QueueView<'_>| queue.definition.is_some_and(|queue| !queue.cordoned);
        let mut queues: Vec<QueueView<'_>> = ledger.queues().filter(open).collect();
        queues.sort_unstable_by_key(|queue| queue.name);
        let (mut before, mut gone) = (std::mem::take(&mut self.snapshots), Vec::new());
        let most: usize = queues.iter().map(|queue| queue.waiting.min(self.limits.per_queue)).sum();
        let more = most.saturating_sub(self.waiting.len());
        self.waiting.reserve(more);
        self.exposed.reserve(more + look.len());
        told.reserve(more + look.len());
        for queue in queues {
            let (name, was) =
                before.remove_entry(queue.name).unwrap_or_else(|| (queue.name.into(), QueueSnapshot::default()));
            // Bids change the order, too.
            let is_same = was.is_plain && was.version == queue.version && self.bids.is_none();
            let now = if is_same { was } else { self.look(ledger, queue, &was, look, &mut gone, told) };
            self.snapshots.insert(name, now);
        }
        gone.extend(before.into_values().flat_map(|closed| closed.jobs));
        for id in &gone {
            self.waiting.remove(id);
        }
        gone.retain(|id| !changed.jobs.contains(id));
        gone.sort_unstable();
        look.extend(gone);
    }

    /// Looks at a queue again. Who came to wait is told, or to be looked at; `gone` don't wait any more.
    fn look(
        &mut self,
        ledger: &Ledger,
        queue: QueueView<'_>,
        was: &QueueSnapshot,
        look: &mut Vec<JobId>,
        gone: &mut Vec<JobId>,
        told: &mut Vec<PoolUpdate>,
    ) -> QueueSnapshot {
        let first = self.first(ledger, queue.name);
        let mut now = QueueSnapshot { version: queue.version, is_plain: true, jobs: first };
        let mut differs = if was.is_plain { Some(now.differs(was, &self.waiting)) } else { None };
        let single = |id: &JobId| {
            let job = ledger.job(*id)?;
            let waits = WaitingJob::of(ledger, job);
            waits.is_plain().then_some((*id, job, waits))
        };
        let singles = |came: &[JobId]| came.iter().map(single).collect::<Option<Vec<_>>>();
        let came = if let Some(came) = differs.as_ref().and_then(|differs| singles(&differs.came)) {
            came
        } else {
            let (wanted, is_plain) = self.wanted(ledger, &now.jobs);
            now = QueueSnapshot { is_plain, jobs: wanted.iter().map(|(id, _)| *id).collect(), ..now };
            differs = Some(now.differs(was, &self.waiting));
            let came = wanted.into_iter().filter(|(id, _)| !self.waiting.contains_key(id));
            came.filter_map(|(id, waits)| Some((id, ledger.job(id)?, waits))).collect()
        };
        // They are told in the order of their turns: so the engine finds them their places at once.
        for (id, job, waits) in came {
            self.waiting.insert(id, waits);
            let is_first = waits.is_plain() && job.attempts == 0;
            match self.exposed.entry(id) {
                // Most are such jobs, and when a view begins there are hundreds of thousands of them.
                Entry::Vacant(entry) if is_first => {
                    entry.insert(ExposedJob::Waits(job.priority));
                    let claim = self.wish(ledger, job);
                    told.push(PoolUpdate::Run(RunUpdate::new(
                        ledger,
                        &ExposedRun::first(id, job.priority),
                        claim,
                        Some(job),
                    )));
                }
                _ => look.push(id),
            }
        }
        gone.extend(differs.into_iter().flat_map(|differs| differs.gone));
        now
    }

    /// Who of a queue's first waits, with all members of their gangs, and whether each is a job of one pod by itself.
    fn wanted(&self, ledger: &Ledger, first: &[JobId]) -> (Vec<(JobId, WaitingJob)>, bool) {
        let (mut wanted, mut gangs, mut is_plain) = (Vec::with_capacity(first.len()), FxHashSet::default(), true);
        let mut left = self.limits.per_queue;
        for id in first.iter().copied() {
            let known = self.waiting.get(&id).filter(|waits| waits.is_single).copied();
            let job = || ledger.job(id).map(|job| WaitingJob::of(ledger, job));
            let Some(waits) = known.or_else(job) else { continue };
            is_plain &= waits.is_plain();
            if !volcano_jobs::is_looked_at(&mut left, waits.pods()) {
                continue;
            }
            let gang = if waits.is_single { None } else { ledger.job(id).and_then(|job| ledger.gang(job)) };
            let Some(GangView { cardinality, members, .. }) = gang else {
                wanted.push((id, waits));
                continue;
            };
            let started = |member: &JobId| ledger.job(*member).is_some_and(|job| job.attempts > 0);
            // Before they start together all have to be there; what runs again does so by itself.
            if members.len() >= cardinality as usize || members.iter().any(started) {
                let queued = |member: &JobId| ledger.job(*member).is_some_and(|job| job.phase == Phase::Queued);
                let new = members.iter().copied().filter(|member| queued(member) && gangs.insert(*member));
                wanted.extend(new.map(|member| (member, waits)));
            }
        }
        (wanted, is_plain)
    }

    /// What a gang is called depends on all of its members: where one is looked at all are.
    fn with_gangs(&self, ledger: &Ledger, look: &mut Vec<JobId>) {
        if self.gangs.is_empty() && !ledger.has_gangs() {
            return;
        }
        let looked: FxHashSet<JobId> = look.iter().copied().collect();
        let mut others: BTreeSet<JobId> = BTreeSet::new();
        for id in look.iter().copied() {
            if others.contains(&id) {
                continue;
            }
            if let Some(gang) = ledger.job(id).and_then(|job| ledger.gang(job)) {
                others.extend(gang.members);
            }
            let Some(ExposedJob::Runs(before)) = self.exposed.get(&id) else { continue };
            let gangs = before.iter().filter_map(|shown| shown.gang.as_ref());
            for gang in gangs.filter_map(|key| self.gangs.get(key)) {
                others.extend(&gang.members);
            }
        }
        look.extend(others.into_iter().filter(|id| !looked.contains(id)));
    }

    /// Brings what is shown of a job to what it is.
    fn show(&mut self, ledger: &Ledger, id: JobId, touched: &mut BTreeSet<Arc<GangKey>>, told: &mut Vec<PoolUpdate>) {
        let job = ledger.job(id);
        let waits = self.waiting.contains_key(&id);
        let before = self.exposed.remove(&id);
        let before = before.as_ref().map(|before| before.runs(id)).unwrap_or_default();
        let last = job.filter(|job| job.attempts > 0).map(|job| RunId { job: id, attempt: job.attempts });
        let mut runs: Vec<RunId> = before.iter().map(|shown| shown.run).chain(last).collect();
        runs.sort_unstable();
        runs.dedup();
        let gang = job.and_then(|job| gang_key(ledger, job)).map(Arc::new);
        let shown = |run: RunId, holds, members| {
            let was = before.iter().find(|shown| shown.run == run);
            let priority = job.map(|job| job.priority).or(was.map(|was| was.priority)).unwrap_or_default();
            ExposedRun { run, priority, gang: gang.clone(), holds, members }
        };
        // Most have one, and there are many of them.
        let mut now: Vec<ExposedRun> = Vec::with_capacity(1);
        for run in runs {
            if let Some(row) = ledger.run(run).filter(|row| row.pool == self.pool) {
                let known = before.iter().find(|was| was.run == run).and_then(|was| was.holds.as_ref());
                let claim = known.map_or_else(|| self.claim(ledger, row), |(_, claim)| claim.clone());
                now.push(shown(run, Some((row.phase, claim)), volcano_jobs::holding(ledger, row).map(Arc::new)));
            }
        }
        if let Some(job) = job.filter(|job| waits && job.phase == Phase::Queued) {
            let members = volcano_jobs::waiting(ledger, job).map(Arc::new);
            now.push(shown(RunId { job: id, attempt: job.attempts + 1 }, None, members));
        }
        for (list, sign) in [(&*before, -1), (&now, 1)] {
            for (_, claim) in list.iter().filter_map(|shown| shown.holds.as_ref()) {
                let Claim { queue, shape } = claim;
                self.usage.count(queue, &shape.class, &shape.template.requests, &shape.floating, sign);
            }
        }
        // Under another name, or in another gang, it is another task.
        let same = |one: &ExposedRun, other: &ExposedRun| {
            (one.priority, one.run) == (other.priority, other.run) && one.gang == other.gang
        };
        for was in before.iter() {
            let is = now.iter().find(|is| same(was, is));
            if is.is_some() && was.members.is_none() {
                continue;
            }
            let kept: BTreeSet<PodUid> = is.map(ExposedRun::uids).into_iter().flatten().collect();
            let gone = was.uids().into_iter().filter(|uid| !kept.contains(uid));
            told.extend(gone.map(Delta::TaskRemove).map(PoolUpdate::from));
            if is.is_none()
                && let Some(members) = &was.members
            {
                told.push(volcano_jobs::group_gone(&members.queue, was.run, was.priority).into());
            }
        }
        for shown in now.iter().filter(|shown| !before.contains(shown)) {
            let is_new = !before.iter().any(|was| same(was, shown));
            if is_new && shown.members.is_some() {
                let group = job.and_then(|job| volcano_jobs::group(ledger, job, shown.run, shown.priority));
                told.extend(group.map(PoolUpdate::from));
            }
            let claim = match (&shown.holds, job) {
                (Some((_, claim)), _) => claim.clone(),
                (None, Some(job)) => self.wish(ledger, job),
                (None, None) => continue,
            };
            told.push(PoolUpdate::Run(RunUpdate::new(ledger, shown, claim, job)));
        }
        touched.extend(before.iter().chain(&now).filter_map(|shown| shown.gang.clone()));
        for key in before.iter().filter_map(|was| was.gang.as_ref()) {
            if let Some(gang) = self.gangs.get_mut(key) {
                gang.members.remove(&id);
            }
        }
        if now.is_empty() {
            return;
        }
        if let Some(key) = gang {
            let empty = || Gang { least: 0, uniformity: String::new(), members: BTreeSet::new() };
            self.gangs.entry(key).or_insert_with(empty).members.insert(id);
        }
        let of_job = match now.as_slice() {
            [one] if *one == ExposedRun::first(id, one.priority) => ExposedJob::Waits(one.priority),
            _ => ExposedJob::Runs(now.into()),
        };
        self.exposed.insert(id, of_job);
    }

    /// Tells of gangs of which members were looked at.
    fn settle_gangs(&mut self, ledger: &Ledger, touched: BTreeSet<Arc<GangKey>>, told: &mut Vec<PoolUpdate>) {
        for key in touched {
            let Some(gang) = self.gangs.get_mut(&key) else { continue };
            let job = gang.members.first().and_then(|id| ledger.job(*id));
            let found = job.and_then(|job| {
                let view = ledger.gang(job)?;
                Some((job, view, *view.members.first()?))
            });
            let Some((job, GangView { uniformity, members, .. }, first)) = found else {
                let is_known = gang.least > 0;
                self.gangs.remove(&key);
                if is_known {
                    let (namespace, name) = (key.namespace.to_string(), key.name.clone());
                    told.push(Delta::GroupRemove { namespace, name, uid: GroupUid::default() }.into());
                }
                continue;
            };
            let least = u32::try_from(members.len()).unwrap_or(u32::MAX);
            if (gang.least, gang.uniformity.as_str()) == (least, uniformity) {
                continue;
            }
            gang.least = least;
            uniformity.clone_into(&mut gang.uniformity);
            let facts = GroupFacts {
                uid: first.to_string().into(),
                namespace: key.namespace.to_string(),
                name: key.name.clone(),
                queue: key.namespace.to_string(),
                min_member: least,
                priority_class: ledger.shape(job).priority_class.clone(),
                created: TimeMs(job.submitted.0),
                preemptable: Some(ledger.class(job).preemptible),
                topology: gang_uniformity::topology(uniformity),
                ..GroupFacts::default()
            };
            told.push(Delta::GroupUpsert(Box::new(facts)).into());
        }
    }

    /// What a job wants.
    fn wish(&mut self, ledger: &Ledger, job: &Job) -> Claim {
        let shape = self.shape(ledger.shape_digest(job), ledger.shape(job));
        Claim { queue: self.queue(ledger.owner(job).0), shape }
    }

    /// What a run holds.
    fn claim(&mut self, ledger: &Ledger, run: &Run) -> Claim {
        let shape = self.shape(ledger.shape_digest_of_run(run), ledger.shape_of_run(run));
        Claim { queue: self.queue(ledger.owner_of_run(run).0), shape }
    }

    /// The name of a queue, which all of its jobs share.
    fn queue(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.queues.get(name) {
            return known.clone();
        }
        if self.queues.len() >= SHAPES_MAX {
            self.queues.clear();
        }
        let name: Arc<str> = name.into();
        self.queues.insert(name.clone());
        name
    }

    fn shape(&mut self, digest: Digest, shape: &Shape) -> Arc<ParsedShape> {
        if self.shapes.len() >= SHAPES_MAX {
            self.shapes.clear();
        }
        let (constraints, is_market) = (&self.constraints, self.bids.is_some());
        self.shapes.entry(digest).or_insert_with(|| Arc::new(ParsedShape::read(shape, constraints, is_market))).clone()
    }
}

/// Namespace and name of a job's gang. It stands where its first member does.
fn gang_key(ledger: &Ledger, job: &Job) -> Option<GangKey> {
    let first = *ledger.gang(job)?.members.first()?;
    let priority = ledger.job(first).map_or(job.priority, |first| first.priority);
    Some(GangKey { namespace: ledger.owner(job).0.into(), name: names::gang_name(priority, first) })
}

/// Namespace and name of the group under which the engine knows the next run of a job that waits.
pub fn group_of(ledger: &Ledger, id: JobId, job: &Job) -> (String, String) {
    match gang_key(ledger, job) {
        Some(GangKey { namespace, name }) => (namespace.to_string(), name),
        None => {
            let run = RunId { job: id, attempt: job.attempts + 1 };
            (ledger.owner(job).0.to_owned(), names::single_name(job.priority, run))
        }
    }
}
