//! The course of a simulation: the server's ledger and rounds in virtual time, and clusters that do as they are told.
//!
//! Invariant: nothing happens but at a moment of the queue of events or of a round, so equal inputs give equal histories. What
//! is asked and reported goes through the ledger as on a server, and what happened is what its log says. Called by
//! [`super::Simulation::run`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use pumice_engine::NodeName;
use pumice_fleet_scheduling::node_name;
use pumice_ledger::{
    Digest, Entry, Event, Gang, Inbox, JobId, Ledger, PodRef, Queue, Report, ReportKind, RunId, RunPhase, Shape,
    Submitted, TimeMs,
};

use super::history::History;
use super::plan::{Batch, Plan};
use super::pools::Pools;
use super::workload::Template;
use super::{Simulation, Stopwatch, draw};

/// When simulations begin: 2026-01-01.
pub(super) const EPOCH_MS: i64 = 1_767_225_600_000;
/// Bits of a job's id that are its place among the jobs.
const INDEX_BITS: u32 = 80;
/// Rounds in a row that the engine asked for and that found nothing, when nothing else is to come: the rest never starts.
const IDLE_ROUNDS_MAX: u32 = 1_000;
/// Rounds of one simulation; one that wants more turns in circles.
const ROUNDS_MAX: usize = 2_000_000;
/// Virtual time, as with Armada: 100 years.
const TIME_MAX_MS: i64 = 100 * 365 * 24 * 3_600_000;
/// Jobs that never started of which it is asked why.
const REASONS_MAX: usize = 100;

/// The job's place among all.
pub(super) fn job_of(id: JobId) -> usize {
    usize::try_from(id.0 & ((1 << INDEX_BITS) - 1)).unwrap_or(usize::MAX)
}

/// What is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// The pod of a run has ended well.
    Ends(RunId),
    /// The pod of a run that was stopped is gone.
    Gone(RunId),
    /// The pod of a run begins to run.
    Runs(RunId),
    Submits(usize),
}

/// What happens when. At one moment what was put in first comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Coming {
    at: i64,
    put_in: u64,
    event: Happens,
}

/// A simulation under way.
pub(super) struct SimulationRun<'s> {
    simulation: &'s Simulation,
    plan: &'s Plan,
    ledger: Ledger,
    pools: Pools,
    events: BinaryHeap<Reverse<Coming>>,
    put_in: u64,
    now: i64,
    inbox: Inbox,
    nodes: BTreeMap<NodeName, usize>,
    shapes: Vec<(Digest, Shape)>,
    /// Jobs of a template that have not succeeded.
    left: Vec<usize>,
    /// Dependencies of a template that are not done.
    open: Vec<usize>,
    waiting_for: Vec<Vec<usize>>,
    history: History,
}

impl<'s> SimulationRun<'s> {
    pub(super) fn new(simulation: &'s Simulation, plan: &'s Plan) -> Self {
        let workload = &simulation.workload;
        let queues = queues(simulation);
        let mut ledger = Ledger::new(simulation.scheduling.classes.clone());
        for queue in &queues {
            let set = Event::QueueSet(Box::new(queue.clone()));
            ledger.fold(&Entry { events: vec![set], ..Entry::new(TimeMs(EPOCH_MS), &queue.name, "") });
        }
        let templates = &workload.templates;
        let mut waiting_for = vec![Vec::new(); templates.len()];
        for (index, template) in templates.iter().enumerate() {
            template.dependencies.iter().for_each(|on| waiting_for[*on].push(index));
        }
        let clusters = &simulation.clusters;
        let mut course = Self {
            pools: Pools::new(clusters, &queues, &simulation.scheduling, simulation.delays.round_every_ms),
            simulation,
            plan,
            ledger,
            events: BinaryHeap::new(),
            put_in: 0,
            now: EPOCH_MS,
            inbox: Inbox::default(),
            nodes: clusters
                .nodes
                .iter()
                .enumerate()
                .map(|(index, node)| (node_name(&node.cluster, &node.facts.name), index))
                .collect(),
            shapes: plan.shapes.clone(),
            left: templates.iter().map(Template::jobs).collect(),
            open: templates.iter().map(|template| template.dependencies.len()).collect(),
            waiting_for,
            history: History::new(plan.run_ms.len()),
        };
        for (index, template) in templates.iter().enumerate() {
            if template.dependencies.is_empty() {
                course.submit_later(index, template.earliest_ms);
            }
        }
        course
    }

    /// Runs it to its end. `log` is told of every entry.
    pub(super) fn run(mut self, watch: Stopwatch<'_>, log: &mut dyn FnMut(&Entry)) -> History {
        let mut idle = 0;
        while let Some((at, comes)) = self.next() {
            if at - EPOCH_MS > TIME_MAX_MS || self.history.rounds >= ROUNDS_MAX {
                self.history.cut_off = true;
                break;
            }
            self.now = at.max(self.now);
            while let Some(event) = self.due() {
                self.happen(event, log);
            }
            let acted = self.decide(watch, log);
            idle = if acted || comes { 0 } else { idle + 1 };
            if idle > IDLE_ROUNDS_MAX {
                break;
            }
        }
        self.tell_why();
        self.history.finish(self.now - EPOCH_MS);
        self.history
    }

    /// The next moment, and whether anything comes that is not the engine's own wish.
    fn next(&self) -> Option<(i64, bool)> {
        let event = self.events.peek().map(|Reverse(coming)| coming.at);
        let round = self.pools.next();
        let at = event.into_iter().chain(round.map(|(at, _)| at)).min()?;
        Some((at, event.is_some() || round.is_some_and(|(_, is_new)| is_new)))
    }

    fn due(&mut self) -> Option<Happens> {
        let Reverse(Coming { at, event, .. }) = *self.events.peek()?;
        if at > self.now {
            return None;
        }
        self.events.pop();
        Some(event)
    }

    fn later(&mut self, at: i64, event: Happens) {
        self.put_in += 1;
        self.events.push(Reverse(Coming { at, put_in: self.put_in, event }));
    }

    fn submit_later(&mut self, template: usize, from_ms: i64) {
        for batch in self.plan.batches_of(template) {
            let after =
                self.simulation.workload.templates[template].period_ms.saturating_mul(self.plan.batches[batch].repeat);
            self.later(EPOCH_MS.saturating_add(from_ms).saturating_add(after), Happens::Submits(batch));
        }
    }

    fn happen(&mut self, event: Happens, log: &mut dyn FnMut(&Entry)) {
        match event {
            Happens::Submits(batch) => self.submit(self.plan.batches[batch].clone(), log),
            Happens::Runs(run) => self.report(run, |node| ReportKind::Running(PodRef::default(), node)),
            Happens::Ends(run) => self.report(run, |_| ReportKind::Succeeded),
            Happens::Gone(run) => {
                let Some(row) = self.ledger.run(run) else { return };
                let report = Report { cluster: row.at.cluster.clone(), run, kind: ReportKind::Gone };
                self.inbox.reports.push(report);
            }
        }
    }

    /// What a cluster says of a run, unless it was told to stop it.
    fn report(&mut self, run: RunId, kind: impl FnOnce(String) -> ReportKind) {
        let Some(row) = self.ledger.run(run).filter(|row| row.phase != RunPhase::Stopping) else { return };
        let report = Report { cluster: row.at.cluster.clone(), run, kind: kind(row.at.node.clone()) };
        self.inbox.reports.push(report);
    }

    fn submit(&mut self, batch: Batch, log: &mut dyn FnMut(&Entry)) {
        let workload = &self.simulation.workload;
        let template = &workload.templates[batch.template];
        let (digest, shape) = &self.shapes[batch.template];
        let at = TimeMs(self.now);
        let submitted = |job: usize| Submitted {
            job: JobId::new(at, job as u128),
            spec: *digest,
            shape: *digest,
            priority: template.priority,
            gang: template.gang.as_ref().map(|gang| Gang {
                id: format!(
                    "{}-{}-{}",
                    template.id,
                    batch.repeat,
                    (job - batch.jobs.start) / gang.cardinality as usize
                ),
                cardinality: gang.cardinality,
                uniformity: gang.uniformity.clone(),
            }),
            fail_fast: template.gang.is_some(),
        };
        let entry = Entry {
            shapes: [(*digest, shape.clone())].into(),
            events: batch.jobs.clone().map(|job| Event::Submitted(submitted(job))).collect(),
            ..Entry::new(at, &workload.queues[template.queue].name, &template.job_set)
        };
        self.ledger.fold(&entry);
        self.written(&[entry], log);
    }

    /// What follows from reports, then the rounds that are due. Whether a round found something.
    fn decide(&mut self, watch: Stopwatch<'_>, log: &mut dyn FnMut(&Entry)) -> bool {
        let now = TimeMs(self.now);
        let retries = &self.simulation.scheduling.retries;
        let inbox = std::mem::take(&mut self.inbox);
        if !inbox.reports.is_empty() {
            let entries = self.ledger.decide(now, inbox, retries.clone());
            self.written(&entries, log);
        }
        self.pools.ended(self.ledger.take_ended());
        let changed = self.ledger.take_changed();
        self.pools.changed(&changed);
        let found = self.pools.rounds(&self.ledger, self.now, watch);
        self.history.rounds += found.took.len();
        self.history.took.extend(&found.took);
        let proposals: Vec<_> = found.proposals.iter().flat_map(|(_, proposals)| proposals).cloned().collect();
        let acted = !proposals.is_empty();
        if acted {
            let entries = self.ledger.decide(now, Inbox { proposals, ..Inbox::default() }, retries.clone());
            self.pools.settle(&self.ledger, &entries, &found, self.now);
            self.written(&entries, log);
            let changed = self.ledger.take_changed();
            self.pools.changed(&changed);
        }
        acted
    }

    /// Takes in what the log says, and has the clusters do it.
    fn written(&mut self, entries: &[Entry], log: &mut dyn FnMut(&Entry)) {
        for entry in entries {
            log(entry);
            let (ledger, nodes) = (&self.ledger, &self.nodes);
            self.history.take(entry, |run| {
                let at = &ledger.run(run)?.at;
                nodes.get(&node_name(&at.cluster, &at.node)).copied()
            });
            for event in &entry.events {
                self.obey(event);
            }
        }
    }

    fn obey(&mut self, event: &Event) {
        match event {
            Event::Leased { run, .. } => {
                let mut random = draw::of_run(self.plan.seed, job_of(run.job), run.attempt);
                let pending_ms = self.simulation.clusters.pending.draw_ms(&mut random);
                self.later(self.now.saturating_add(pending_ms), Happens::Runs(*run));
            }
            Event::Running { run, .. } => {
                let runs_ms = self.plan.run_ms.get(job_of(run.job)).copied().unwrap_or(0);
                self.later(self.now.saturating_add(runs_ms), Happens::Ends(*run));
            }
            Event::RunPreempted { run, .. } => {
                self.later(self.now.saturating_add(self.simulation.delays.grace_ms), Happens::Gone(*run));
            }
            Event::Succeeded { run } => self.succeeded(job_of(run.job)),
            _ => {}
        }
    }

    /// Others may have waited for the last one of a template.
    fn succeeded(&mut self, job: usize) {
        let Some(template) = self.plan.template_of(job) else { return };
        self.left[template] -= 1;
        if self.left[template] > 0 {
            return;
        }
        for waiting in std::mem::take(&mut self.waiting_for[template]) {
            self.open[waiting] -= 1;
            if self.open[waiting] == 0 {
                let of = &self.simulation.workload.templates[waiting];
                let since = (self.now - EPOCH_MS).saturating_add(of.after_dependencies_ms);
                self.submit_later(waiting, since.max(of.earliest_ms));
            }
        }
    }

    /// Asks of the first jobs that wait, why.
    fn tell_why(&mut self) {
        let jobs = self.history.jobs.iter().enumerate();
        let waits =
            |job: &super::JobHistory| job.submitted_ms.is_some() && job.started_ms.is_none() && job.ended.is_none();
        let never: Vec<(usize, i64)> =
            jobs.filter(|(_, job)| waits(job)).filter_map(|(index, job)| Some((index, job.submitted_ms?))).collect();
        for (index, submitted_ms) in never.into_iter().take(REASONS_MAX) {
            let id = JobId::new(TimeMs(EPOCH_MS + submitted_ms), index as u128);
            let why = self.pools.why(&self.ledger, id).unwrap_or_else(|| "no round looked at it".to_owned());
            *self.history.why_never.entry(why).or_default() += 1;
        }
    }
}

/// The workload's queues. Shares are in proportion to weights, so the largest weight may stand for the least factor there is.
fn queues(simulation: &Simulation) -> Vec<Queue> {
    let queues = &simulation.workload.queues;
    let largest = queues.iter().map(|queue| queue.weight).fold(f64::MIN_POSITIVE, f64::max);
    queues
        .iter()
        .map(|queue| Queue { name: queue.name.clone(), priority_factor: largest / queue.weight, ..Queue::default() })
        .collect()
}
