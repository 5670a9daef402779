//! The ledger: what is kept of jobs that have not ended, and how to look at it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::bulk_operations::{BulkOperations, PriorityNotice};
use crate::counters::{Counters, UsageKey};
use crate::event::ExecutorSettings;
use crate::ids::{Digest, JobId, RunId};
use crate::interned::{GangIx, Interned, QueueIx, SetIx, ShapeIx};
use crate::job::{Ended, Job, Phase, Run, RunPhase};
use crate::queue::{Queue, QueueView};
use crate::queue_order::{OrderKey, QueueOrder, Rank};
use crate::retries::RetryPolicy;
use crate::shape::Shape;
use crate::slab::Slab;

/// A priority class of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityClass {
    /// Higher goes first, and may take room from lower ones.
    pub value: i32,
    /// Its runs may have to make room.
    pub preemptible: bool,
}

/// The classes by name.
pub type PriorityClasses = BTreeMap<String, PriorityClass>;

#[derive(Debug, Clone, Default)]
pub(crate) struct QueueRow {
    pub definition: Option<Queue>,
    pub lines: QueueOrder,
    pub active: usize,
    /// Those that stand in lines, by priority class.
    pub queued: Counters<String>,
    /// Runs that hold room.
    pub usage: Counters<UsageKey>,
}

/// A job set: it is known as long as it has jobs that have not ended, or runs that hold room.
#[derive(Debug, Clone, Default)]
pub(crate) struct SetRow {
    pub jobs: BTreeSet<JobId>,
    pub runs: usize,
}

/// What is known of a gang.
#[derive(Debug, Clone, Default)]
pub(crate) struct GangRow {
    pub cardinality: u32,
    pub uniformity: String,
    /// Those that have not ended.
    pub members: BTreeSet<JobId>,
}

/// A gang, as the ledger has it now.
#[derive(Debug, Clone, Copy)]
pub struct GangView<'l> {
    /// Its name, which is its own within its job set.
    pub id: &'l str,
    /// How many members start together.
    pub cardinality: u32,
    /// The label whose value the nodes of all members share; empty where any nodes do.
    pub uniformity: &'l str,
    /// Those that have not ended: fewer than `cardinality` while some are to come, or once some have ended.
    pub members: &'l BTreeSet<JobId>,
}

/// A shape, and how many jobs and runs have it: it goes with the last of them.
#[derive(Debug, Clone)]
pub(crate) struct ShapeRow {
    pub shape: Shape,
    pub holders: usize,
}

/// What scheduling has to look at again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Jobs that changed, those that came to a gang, and one of a gang that another one left.
    pub jobs: BTreeSet<JobId>,
    /// Other jobs came. They stand in lines, where whoever looks finds them, and are too many to be named.
    pub came: bool,
}

impl Changes {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && !self.came
    }

    /// Takes in what changed after it.
    pub fn extend(&mut self, later: &Changes) {
        self.jobs.extend(&later.jobs);
        self.came |= later.came;
    }
}

/// Jobs that have not ended, and runs that hold room.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub(crate) classes: PriorityClasses,
    pub(crate) queues: Interned<String, QueueRow, QueueIx>,
    pub(crate) sets: Interned<(QueueIx, String), SetRow, SetIx>,
    pub(crate) shapes: Interned<Digest, ShapeRow, ShapeIx>,
    pub(crate) gangs: Interned<(SetIx, String), GangRow, GangIx>,
    pub(crate) jobs: Slab<JobId, Job>,
    pub(crate) runs: Slab<RunId, Run>,
    pub(crate) clusters: BTreeMap<String, BTreeSet<RunId>>,
    pub(crate) executors: BTreeMap<String, ExecutorSettings>,
    pub(crate) policies: BTreeMap<String, RetryPolicy>,
    /// Jobs of which something is asked.
    pub(crate) requested: BTreeSet<JobId>,
    /// Jobs that moved with their set. Whoever folds requests decides before anything is saved, so this is not.
    pub(crate) priority_notices: Vec<PriorityNotice>,
    /// Requests that are carried out in parts.
    pub(crate) bulk_operations: BulkOperations,
    /// What has ended since somebody asked.
    pub(crate) ended: Vec<Ended>,
    /// What scheduling has to look at again.
    pub(crate) changed: Changes,
    /// Jobs of which something else is to be saved.
    pub(crate) touched: BTreeSet<JobId>,
}

impl Ledger {
    /// An empty ledger. A class that is not among `classes` counts as one of value 0 that makes no room.
    pub fn new(classes: PriorityClasses) -> Self {
        Self { classes, ..Self::default() }
    }

    /// A job that has not ended.
    pub fn job(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(&job)
    }

    /// A run that holds room.
    pub fn run(&self, run: RunId) -> Option<&Run> {
        self.runs.get(&run)
    }

    /// All jobs that have not ended, in no order.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs.iter().map(|(id, job)| (*id, job))
    }

    /// All runs that hold room, in no order.
    pub fn runs(&self) -> impl Iterator<Item = (RunId, &Run)> {
        self.runs.iter().map(|(id, run)| (*id, run))
    }

    /// The runs of a cluster, in order.
    pub fn runs_of(&self, cluster: &str) -> impl Iterator<Item = (RunId, &Run)> {
        self.clusters.get(cluster).into_iter().flatten().filter_map(|id| Some((*id, self.runs.get(id)?)))
    }

    /// Clusters that have runs which hold room, by name.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        self.clusters.keys().map(String::as_str)
    }

    /// What is set of executors, by name; there may be settings of one that never came.
    pub fn executors(&self) -> &BTreeMap<String, ExecutorSettings> {
        &self.executors
    }

    /// Retry policies that requests have set, by name.
    pub fn policies(&self) -> &BTreeMap<String, RetryPolicy> {
        &self.policies
    }

    /// Nothing new starts on this cluster.
    pub fn is_cordoned(&self, cluster: &str) -> bool {
        self.executors.get(cluster).is_some_and(|settings| settings.cordoned)
    }

    /// The shape of a job.
    pub fn shape(&self, job: &Job) -> &Shape {
        &self.shapes.row(job.shape).shape
    }

    /// The shape of a run.
    pub fn shape_of_run(&self, run: &Run) -> &Shape {
        &self.shapes.row(run.shape).shape
    }

    /// The digest of a job's shape.
    pub fn shape_digest(&self, job: &Job) -> Digest {
        *self.shapes.name(job.shape)
    }

    /// The digest of a run's shape.
    pub fn shape_digest_of_run(&self, run: &Run) -> Digest {
        *self.shapes.name(run.shape)
    }

    /// Queue and job set of a job.
    pub fn owner(&self, job: &Job) -> (&str, &str) {
        self.names(job.queue, job.set)
    }

    /// Queue and job set of a run.
    pub fn owner_of_run(&self, run: &Run) -> (&str, &str) {
        self.names(run.queue, run.set)
    }

    pub(crate) fn names(&self, queue: QueueIx, set: SetIx) -> (&str, &str) {
        (self.queues.name(queue), &self.sets.name(set).1)
    }

    /// The gang of a job; none where it starts alone.
    pub fn gang(&self, job: &Job) -> Option<GangView<'_>> {
        let gang = job.gang?;
        let row = self.gangs.row(gang);
        Some(GangView {
            id: &self.gangs.name(gang).1,
            cardinality: row.cardinality,
            uniformity: &row.uniformity,
            members: &row.members,
        })
    }

    /// Whether any job is a member of a gang.
    pub fn has_gangs(&self) -> bool {
        !self.gangs.is_empty()
    }

    /// Where a job stands in its queue.
    pub fn rank(&self, job: &Job) -> Rank {
        Rank { class: self.class_of(job.shape).value, priority: job.priority }
    }

    /// The priority class of a job.
    pub fn class(&self, job: &Job) -> PriorityClass {
        self.class_of(job.shape)
    }

    /// The class of a shape.
    pub(crate) fn class_of(&self, shape: ShapeIx) -> PriorityClass {
        let name = &self.shapes.row(shape).shape.priority_class;
        self.classes.get(name).copied().unwrap_or(PriorityClass { value: 0, preemptible: false })
    }

    /// Whether a run may have to make room.
    pub fn is_preemptible(&self, run: &Run) -> bool {
        self.class_of(run.shape).preemptible
    }

    /// The run of a job that counts.
    pub fn current(&self, id: JobId) -> Option<RunId> {
        let job = self.jobs.get(&id)?;
        job.phase.has_run().then_some(RunId { job: id, attempt: job.attempts })
    }

    /// All queues that are defined or have jobs, in no order.
    pub fn queues(&self) -> impl Iterator<Item = QueueView<'_>> {
        self.queues.iter().map(|(name, row)| view(name, row))
    }

    /// A queue, as scheduling and answers to people see it; none where nobody defined it and it has no jobs.
    pub fn queue(&self, name: &str) -> Option<QueueView<'_>> {
        let index = self.queues.find(&name.to_owned())?;
        Some(view(self.queues.name(index), self.queues.row(index)))
    }

    /// Whether a job set has jobs that have not ended, or runs that hold room.
    pub fn has_set(&self, queue: &str, job_set: &str) -> bool {
        let queue = self.queues.find(&queue.to_owned());
        queue.is_some_and(|queue| self.sets.find(&(queue, job_set.to_owned())).is_some())
    }

    /// The first of those that wait in a queue, in order: at most `per_shape` of each shape, `most` in all.
    pub fn first(&self, queue: &str, per_shape: usize, most: usize) -> Vec<JobId> {
        let index = self.queues.find(&queue.to_owned());
        index.map(|index| self.queues.row(index).lines.first(per_shape, most)).unwrap_or_default()
    }

    /// The same where shapes of a class have ranks, the lowest first, that go before places in the queue.
    pub fn first_ranked<K: Ord>(
        &self,
        queue: &str,
        per_shape: usize,
        most: usize,
        rank: impl Fn(&Shape) -> K,
    ) -> Vec<JobId> {
        let Some(index) = self.queues.find(&queue.to_owned()) else { return Vec::new() };
        let rank = |shape| rank(&self.shapes.row(shape).shape);
        self.queues.row(index).lines.first_ranked(per_shape, most, rank)
    }

    /// What scheduling has to look at again, since this was last asked.
    pub fn take_changed(&mut self) -> Changes {
        std::mem::take(&mut self.changed)
    }

    /// Runs that ran and have ended, other than to make room, since this was last asked; after very many the rest is left
    /// out.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// A job takes its place in its queue.
    pub(crate) fn line_up(&mut self, queue: QueueIx, turn: OrderKey, shape: ShapeIx) {
        let (row, shape_of) = (self.queues.row_mut(queue), &self.shapes.row(shape).shape);
        if row.lines.insert(turn, shape) {
            row.queued.add(shape_of.priority_class.clone(), turn.submitted, &shape_of.requests);
        }
    }

    /// It leaves its place, if it had one.
    pub(crate) fn step_out(&mut self, queue: QueueIx, turn: OrderKey, shape: ShapeIx) {
        let (row, shape_of) = (self.queues.row_mut(queue), &self.shapes.row(shape).shape);
        if row.lines.remove(turn, shape) {
            row.queued.remove(&shape_of.priority_class, turn.submitted, &shape_of.requests);
        }
    }

    /// Counts a run's room before its job's queue, or no more where it does not `hold` any; to be called around every
    /// change of its phase.
    pub(crate) fn count_room(&mut self, id: RunId, hold: bool) {
        let Some(run) = self.runs.get(&id) else { return };
        let (row, shape) = (self.queues.row_mut(run.queue), &self.shapes.row(run.shape).shape);
        let key = UsageKey {
            pool: run.pool.clone(),
            cluster: run.at.cluster.clone(),
            class: shape.priority_class.clone(),
            phase: run.phase,
        };
        if hold {
            row.usage.add(key, run.leased, &shape.requests);
        } else {
            row.usage.remove(&key, run.leased, &shape.requests);
        }
    }

    pub(crate) fn turn(&self, id: JobId, job: &Job) -> OrderKey {
        let class = Reverse(self.class_of(job.shape).value);
        OrderKey { class, priority: job.priority, submitted: job.submitted, job: id }
    }

    /// What the log has to give again when it is folded anew: everything, as text in one order. For tests and `doctor`.
    pub fn digest(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        let mut jobs: Vec<_> = self.jobs.iter().collect();
        jobs.sort_by_key(|(id, _)| **id);
        for (id, job) in jobs {
            let (queue, set) = self.owner(job);
            let gang = self.gang(job).map(|gang| (gang.id, gang.cardinality, gang.uniformity, gang.members.len()));
            let _ = writeln!(
                text,
                "{id} {queue}/{set} {:?} {} {:?} {} {} {} {:?} {:?} {:?} {} {gang:?}",
                job.phase,
                job.priority,
                job.submitted,
                job.attempts,
                job.returned,
                job.failed,
                job.requests,
                job.avoid,
                job.grown,
                self.shape_digest(job)
            );
        }
        let mut runs: Vec<_> = self.runs.iter().collect();
        runs.sort_by_key(|(id, _)| **id);
        for (id, run) in runs {
            let _ = writeln!(
                text,
                "{id} {:?} {:?} {:?} {} {:?} {:?} {:?}",
                run.at, run.places, run.phase, run.pool, run.away, run.leased, run.preempted
            );
        }
        let mut queues: Vec<_> =
            self.queues.iter().filter(|(_, row)| row.definition.is_some() || row.active > 0).collect();
        queues.sort_by_key(|(name, _)| *name);
        for (name, row) in queues {
            let _ = writeln!(text, "{name} {} {} {:?}", row.active, row.lines.waiting(), row.definition);
        }
        for (name, settings) in &self.executors {
            let _ = writeln!(text, "{name} {settings:?}");
        }
        for (name, policy) in &self.policies {
            let _ = writeln!(text, "{name} {policy:?}");
        }
        for priority_notices in &self.priority_notices {
            let _ = writeln!(text, "{priority_notices:?}");
        }
        let _ = write!(text, "{}", self.bulk_operations);
        text
    }

    /// What must hold at any time; each line says what does not.
    pub fn lint(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, job) in self.jobs.iter() {
            let current = self.runs.get(&RunId { job: *id, attempt: job.attempts });
            let holds = current.is_some_and(|run| run.phase != RunPhase::Stopping);
            if job.phase.has_run() != holds {
                wrong.push(format!("{id} is {:?}, and its run {:?}", job.phase, current.map(|run| run.phase)));
            }
            if job.phase == Phase::Leaving && current.is_none_or(|run| run.phase != RunPhase::Stopping) {
                wrong.push(format!("{id} waits for a run that is over"));
            }
        }
        for id in self.runs.keys() {
            let live = (1..id.attempt).any(|attempt| self.runs.contains_key(&RunId { job: id.job, attempt }));
            if live {
                wrong.push(format!("{id} runs beside an earlier attempt"));
            }
        }
        for (id, run) in self.runs.iter() {
            let is_whole = self.shape_of_run(run).volcano_job.is_some();
            if is_whole == run.places.is_empty() {
                let what = if is_whole { "a whole job" } else { "a single pod" };
                wrong.push(format!("{id} is {what}, and its pods have places on {} nodes", run.places.len()));
            }
        }
        let waiting: usize = self.queues.iter().map(|(_, row)| row.lines.waiting()).sum();
        let queued = self.jobs.values().filter(|job| job.phase == Phase::Queued).count();
        if waiting != queued {
            wrong.push(format!("{queued} jobs wait, and {waiting} stand in lines"));
        }
        let counted = self.counted_anew();
        for (name, row) in self.queues.iter() {
            let anew = counted.get(name.as_str());
            let (queued, held) = anew.map(|(queued, held)| (queued.all().len(), held.all().len())).unwrap_or_default();
            let fits = anew.map_or(row.queued.all().is_empty() && row.usage.all().is_empty(), |(queued, held)| {
                *queued == row.queued && *held == row.usage
            });
            if !fits {
                wrong.push(format!(
                    "queue {name} is counted wrongly: it has {queued} classes that wait and {held} that hold room"
                ));
            }
        }
        wrong
    }

    /// What waits and what is held by queue, as a look at everything gives it.
    fn counted_anew(&self) -> BTreeMap<&str, (Counters<String>, Counters<UsageKey>)> {
        let mut counted: BTreeMap<&str, (Counters<String>, Counters<UsageKey>)> = BTreeMap::new();
        for job in self.jobs.values().filter(|job| job.phase == Phase::Queued) {
            let shape = self.shape(job);
            let (queued, _) = counted.entry(self.owner(job).0).or_default();
            queued.add(shape.priority_class.clone(), job.submitted, &shape.requests);
        }
        for run in self.runs.values() {
            let shape = self.shape_of_run(run);
            let (pool, cluster) = (run.pool.clone(), run.at.cluster.clone());
            let key = UsageKey { pool, cluster, class: shape.priority_class.clone(), phase: run.phase };
            counted.entry(self.owner_of_run(run).0).or_default().1.add(key, run.leased, &shape.requests);
        }
        counted
    }
}

fn view<'l>(name: &'l str, row: &'l QueueRow) -> QueueView<'l> {
    QueueView {
        definition: row.definition.as_ref(),
        name,
        waiting: row.lines.waiting(),
        version: row.lines.version(),
        active: row.active,
        shapes: row.lines.count(),
        queued: row.queued.all(),
        usage: row.usage.all(),
    }
}
