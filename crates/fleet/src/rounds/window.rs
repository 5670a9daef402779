//! What a pool is told of the ledger: the runs that hold room in it, and the first of every queue's lines.
//!
//! Invariant: after [`Window::sync`] the pool knows exactly that. Where the first few of a line don't fit the rest doesn't
//! either, so however long a queue is, a round looks at no more than this.

use std::collections::{BTreeMap, BTreeSet};

use pumice_engine::{Delta, GroupFacts, NodeTerm, Operator, PodFacts, PodPhase, PodTemplate, Requirement, TimeMs};
use pumice_ledger::{Digest, Job, JobId, Ledger, NodeRef, Phase, Run, RunId, RunPhase};
use rustc_hash::FxHashMap;

use super::{node_name, turn};

/// Templates kept read; beyond that all are read again.
const TEMPLATES_MAX: usize = 100_000;
/// The field by which nodes are told apart in affinities.
const NODE_NAME: &str = "metadata.name";

/// How much of a queue a round looks at.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Jobs of one shape: what could start in a round.
    pub per_shape: usize,
    /// Jobs of a queue.
    pub per_queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_shape: 10_000, per_queue: 20_000 }
    }
}

/// A run as the pool knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    run: RunId,
    /// Whose turn it is; 0 where its job is gone.
    priority: u32,
    /// The gang it is in.
    gang: Option<String>,
    /// How far it is, where it holds room; else it waits.
    holds: Option<RunPhase>,
}

impl Shown {
    fn uid(&self) -> String {
        turn::uid(self.priority, self.run)
    }
}

/// One pool's view of the ledger.
#[derive(Debug)]
pub struct Window {
    pool: String,
    limits: Limits,
    shown: BTreeMap<JobId, Vec<Shown>>,
    /// Those among them that wait.
    waiting: BTreeSet<JobId>,
    /// Gangs that the pool knows, by namespace and name, with their least number.
    gangs: BTreeMap<(String, String), u32>,
    templates: FxHashMap<Digest, PodTemplate>,
    began: bool,
}

impl Window {
    /// A window that has shown nothing yet.
    pub fn new(pool: &str, limits: Limits) -> Self {
        Self {
            pool: pool.to_owned(),
            limits,
            shown: BTreeMap::new(),
            waiting: BTreeSet::new(),
            gangs: BTreeMap::new(),
            templates: FxHashMap::default(),
            began: false,
        }
    }

    /// What the pool has to be told. `changed` are the jobs that the ledger says have changed since the last time.
    /// O(changed + looked at).
    pub fn sync(&mut self, ledger: &Ledger, changed: &BTreeSet<JobId>) -> Vec<Delta> {
        let wanted = self.wanted(ledger);
        let mut look: BTreeSet<JobId> = wanted.symmetric_difference(&self.waiting).copied().collect();
        look.extend(changed);
        if !std::mem::replace(&mut self.began, true) {
            look.extend(ledger.runs().map(|(run, _)| run.job));
        }
        let mut deltas = Vec::with_capacity(look.len());
        self.gangs(ledger, &wanted, &mut deltas);
        for job in look {
            self.show(ledger, job, wanted.contains(&job), &mut deltas);
        }
        self.waiting = wanted;
        deltas
    }

    /// The first of all queues, gangs with all of their members.
    fn wanted(&self, ledger: &Ledger) -> BTreeSet<JobId> {
        let mut wanted = BTreeSet::new();
        for queue in ledger.queues() {
            if queue.definition.is_none_or(|queue| queue.cordoned) {
                continue;
            }
            for id in ledger.first(queue.name, self.limits.per_shape, self.limits.per_queue) {
                let Some(job) = ledger.job(id) else { continue };
                let Some((_, cardinality, _, members)) = ledger.gang(job) else {
                    wanted.insert(id);
                    continue;
                };
                let started = |member: &JobId| ledger.job(*member).is_some_and(|job| job.attempts > 0);
                // Before they start together all have to be there; what runs again does so by itself.
                if members.len() >= cardinality as usize || members.iter().any(started) {
                    let waits = |member: &&JobId| ledger.job(**member).is_some_and(|job| job.phase == Phase::Queued);
                    wanted.extend(members.iter().filter(waits));
                }
            }
        }
        wanted
    }

    /// Gangs have to be known before their members are of use.
    fn gangs(&mut self, ledger: &Ledger, wanted: &BTreeSet<JobId>, deltas: &mut Vec<Delta>) {
        let mut now = BTreeMap::new();
        let held = ledger.runs().filter(|(_, run)| run.pool == self.pool).map(|(run, _)| run.job);
        let known = wanted.iter().copied().chain(held);
        for job in known.filter_map(|id| ledger.job(id)) {
            let Some((_, _, _, members)) = ledger.gang(job) else { continue };
            let Some((name, first)) = gang_name(ledger, job) else { continue };
            let (queue, _) = ledger.owner(job);
            let key = (queue.to_owned(), name);
            let least = u32::try_from(members.len()).unwrap_or(u32::MAX);
            if now.insert(key.clone(), least).is_none() && self.gangs.get(&key) != Some(&least) {
                let facts = GroupFacts {
                    uid: first.to_string(),
                    namespace: key.0.clone(),
                    name: key.1,
                    queue: key.0,
                    min_member: least,
                    priority_class: ledger.shape(job).priority_class.clone(),
                    created: TimeMs(job.submitted.0),
                    preemptable: Some(ledger.class(job).preemptible),
                    ..GroupFacts::default()
                };
                deltas.push(Delta::GroupUpsert(Box::new(facts)));
            }
        }
        for (namespace, name) in self.gangs.keys().filter(|key| !now.contains_key(*key)) {
            let (namespace, name) = (namespace.clone(), name.clone());
            deltas.push(Delta::GroupRemove { namespace, name, uid: String::new() });
        }
        self.gangs = now;
    }

    /// Brings what is shown of a job to what it is.
    fn show(&mut self, ledger: &Ledger, id: JobId, waits: bool, deltas: &mut Vec<Delta>) {
        let before = self.shown.remove(&id).unwrap_or_default();
        let job = ledger.job(id);
        let last = job.map(|job| RunId { job: id, attempt: job.attempts });
        let runs: BTreeSet<RunId> = before.iter().map(|shown| shown.run).chain(last).collect();
        let gang = job.and_then(|job| gang_name(ledger, job)).map(|(name, _)| name);
        let shown = |run: RunId, holds| {
            let was = before.iter().find(|shown| shown.run == run);
            let priority = job.map(|job| job.priority).or(was.map(|was| was.priority)).unwrap_or_default();
            Shown { run, priority, gang: gang.clone(), holds }
        };
        let mut now: Vec<Shown> = Vec::new();
        for run in runs {
            if let Some(row) = ledger.run(run).filter(|row| row.pool == self.pool) {
                now.push(shown(run, Some(row.phase)));
            }
        }
        if let Some(job) = job.filter(|job| waits && job.phase == Phase::Queued) {
            now.push(shown(RunId { job: id, attempt: job.attempts + 1 }, None));
        }
        // Under another name, or in another gang, it is another task.
        let same = |one: &Shown, other: &Shown| one.uid() == other.uid() && one.gang == other.gang;
        let gone = before.iter().filter(|was| !now.iter().any(|is| same(was, is)));
        deltas.extend(gone.map(|was| Delta::TaskRemove(was.uid())));
        for shown in now.iter().filter(|shown| !before.contains(shown)) {
            let facts = match (shown.holds.and_then(|_| ledger.run(shown.run)), job) {
                (Some(row), job) => self.holding(ledger, shown, row, job),
                (None, Some(job)) => self.facts(ledger, shown, job),
                (None, None) => continue,
            };
            deltas.push(Delta::TaskUpsert(Box::new(facts)));
        }
        if !now.is_empty() {
            self.shown.insert(id, now);
        }
    }

    fn facts(&mut self, ledger: &Ledger, shown: &Shown, job: &Job) -> PodFacts {
        let mut template = self.template(ledger.shape_digest(job), ledger.shape(job)).clone();
        if !job.avoid.is_empty() {
            avoid(&mut template, &job.avoid);
        }
        PodFacts {
            group: shown.gang.clone(),
            created: TimeMs(job.submitted.0),
            preemptable: Some(ledger.class(job).preemptible),
            ..task(shown, ledger.owner(job).0, &ledger.shape(job).priority_class, template)
        }
    }

    fn holding(&mut self, ledger: &Ledger, shown: &Shown, run: &Run, job: Option<&Job>) -> PodFacts {
        let shape = ledger.shape_of_run(run);
        let facts = match job {
            Some(job) => self.facts(ledger, shown, job),
            // Its job has ended; it only holds its room until it is gone.
            None => task(shown, ledger.owner_of_run(run).0, &shape.priority_class, read_template(shape)),
        };
        PodFacts {
            node: Some(node_name(&run.at.cluster, &run.at.node)),
            phase: if run.running.is_some() { PodPhase::Running } else { PodPhase::Pending },
            terminating: run.phase == RunPhase::Stopping,
            scheduled: Some(TimeMs(run.leased.0)),
            started: run.running.map(|at| TimeMs(at.0)),
            ..facts
        }
    }

    fn template(&mut self, digest: Digest, shape: &pumice_ledger::Shape) -> &PodTemplate {
        if self.templates.len() >= TEMPLATES_MAX {
            self.templates.clear();
        }
        self.templates.entry(digest).or_insert_with(|| read_template(shape))
    }
}

/// A shape's template; one that can't be read asks for its amounts and nothing else.
fn read_template(shape: &pumice_ledger::Shape) -> PodTemplate {
    let read = serde_json::from_value::<Option<PodTemplate>>(shape.template.clone());
    let mut template = read.ok().flatten().unwrap_or_default();
    template.requests.clone_from(&shape.requests);
    template
}

fn task(shown: &Shown, queue: &str, class: &str, template: PodTemplate) -> PodFacts {
    PodFacts {
        uid: shown.uid(),
        // Users of a queue share it by their turns alone: the queue is their one namespace.
        namespace: queue.to_owned(),
        name: shown.run.to_string(),
        mine: true,
        queue: Some(queue.to_owned()),
        priority_class: class.to_owned(),
        template,
        ..PodFacts::default()
    }
}

/// Name of a job's gang, and its first member.
fn gang_name(ledger: &Ledger, job: &Job) -> Option<(String, JobId)> {
    let (_, _, _, members) = ledger.gang(job)?;
    let first = *members.first()?;
    Some((turn::gang_name(job.priority, first), first))
}

/// Namespace and name of the group under which the engine knows the next run of a job that waits.
pub fn group_of(ledger: &Ledger, id: JobId, job: &Job) -> (String, String) {
    let single = || turn::single_name(job.priority, RunId { job: id, attempt: job.attempts + 1 });
    let name = gang_name(ledger, job).map_or_else(single, |(name, _)| name);
    (ledger.owner(job).0.to_owned(), name)
}

/// Keeps a template off nodes.
fn avoid(template: &mut PodTemplate, nodes: &[NodeRef]) {
    let values = nodes.iter().map(|at| node_name(&at.cluster, &at.node)).collect();
    let not = Requirement { key: NODE_NAME.to_owned(), operator: Operator::NotIn, values };
    match &mut template.required_terms {
        Some(terms) => terms.iter_mut().for_each(|term| term.fields.push(not.clone())),
        none => *none = Some(vec![NodeTerm { expressions: Vec::new(), fields: vec![not] }]),
    }
}
