//! Figures of a history.
//!
//! Invariant: equal histories give equal figures, but for what rounds took on the clock. Times are in seconds.

use std::collections::BTreeSet;

use pumice_engine::Resources;

use super::Simulation;
use super::history::{End, History, JobHistory};
use super::plan::Plan;
use super::report::{QueueReport, Report, Rounds, Spread};
use super::shares::{self, Change, Shares};

#[allow(clippy::cast_precision_loss, reason = "milliseconds and cores as people read them")]
pub(super) fn report(simulation: &Simulation, plan: &Plan, history: &History) -> Report {
    let Simulation { clusters, workload, .. } = simulation;
    let first_ms = history.jobs.iter().filter_map(|job| job.submitted_ms).min().unwrap_or(0);
    let last_ms = history.jobs.iter().filter_map(|job| job.ended).map(|(at, _)| at).max().unwrap_or(first_ms);
    let last_ms = last_ms.max(first_ms);
    let of_job = OfJob::new(simulation, plan);
    let Shares { queues, over_time, resources, unfairness } =
        shares_of(simulation, &of_job, history, first_ms, last_ms);
    let ended = |end: End| history.jobs.iter().filter(|job| job.ended.is_some_and(|(_, how)| how == end)).count();
    let open = |is: fn(&JobHistory) -> bool| history.jobs.iter().filter(|job| job.ended.is_none() && is(job)).count();
    let lost = history.holds.iter().filter(|hold| hold.lost);
    let lost_ms = lost.map(|hold| of_job.cpu_milli(hold.job) as f64 * (hold.to_ms - hold.from_ms) as f64);
    let took_ms: Vec<f64> = history.took.iter().map(|took| took.as_secs_f64() * 1_000.0).collect();
    let mut by_queue: Vec<QueueReport> = workload
        .queues
        .iter()
        .zip(queues)
        .map(|(queue, share)| QueueReport {
            name: queue.name.clone(),
            weight: queue.weight,
            jobs: 0,
            succeeded: 0,
            wait_s: Spread::default(),
            share,
            preemptions: 0,
        })
        .collect();
    let mut waits: Vec<Vec<f64>> = vec![Vec::new(); by_queue.len()];
    for (index, job) in history.jobs.iter().enumerate() {
        let place = of_job.queue(index);
        let queue = &mut by_queue[place];
        queue.jobs += 1;
        queue.succeeded += usize::from(job.ended.is_some_and(|(_, end)| end == End::Succeeded));
        queue.preemptions += u64::from(job.preempted);
        if let (Some(submitted), Some(started)) = (job.submitted_ms, job.started_ms) {
            waits[place].push((started - submitted) as f64 / 1_000.0);
        }
    }
    for (queue, waits) in by_queue.iter_mut().zip(waits) {
        queue.wait_s = Spread::of(waits);
    }
    Report {
        clusters: clusters.name.clone(),
        workload: workload.name.clone(),
        seed: plan.seed,
        cluster_count: clusters.nodes.iter().map(|node| &node.cluster).collect::<BTreeSet<_>>().len(),
        nodes: clusters.nodes.len(),
        pools: clusters.pools().len(),
        notes: clusters.notes.iter().chain(&workload.notes).cloned().collect(),
        jobs: history.jobs.len(),
        succeeded: ended(End::Succeeded),
        failed: ended(End::Failed),
        rejected: ended(End::Rejected),
        unfinished: open(|job| job.started_ms.is_some()),
        never_started: open(|job| job.submitted_ms.is_some() && job.started_ms.is_none()),
        never_submitted: open(|job| job.submitted_ms.is_none()),
        why_never: history.why_never.clone(),
        cut_off: history.cut_off,
        makespan_s: (last_ms - first_ms) as f64 / 1_000.0,
        makespan_at_least_s: at_least_ms(simulation, plan, &of_job, history, first_ms) / 1_000.0,
        preemptions: by_queue.iter().map(|queue| queue.preemptions).sum(),
        lost_core_hours: lost_ms.fold(0.0, |sum, ms| sum + ms) / 3.6e9,
        unfairness,
        resources,
        queues: by_queue,
        over_time,
        rounds: Rounds { count: history.rounds, wall_ms: took_ms.iter().sum(), each_ms: Spread::of(took_ms) },
    }
}

/// What a job is of.
struct OfJob<'s> {
    simulation: &'s Simulation,
    plan: &'s Plan,
    /// By job: its template.
    templates: Vec<usize>,
}

impl<'s> OfJob<'s> {
    fn new(simulation: &'s Simulation, plan: &'s Plan) -> Self {
        let templates = plan.batches.iter().flat_map(|batch| batch.jobs.clone().map(|_| batch.template));
        Self { simulation, plan, templates: templates.collect() }
    }

    fn queue(&self, job: usize) -> usize {
        self.simulation.workload.templates[self.templates[job]].queue
    }

    fn requests(&self, job: usize) -> &Resources {
        &self.plan.shapes[self.templates[job]].1.requests
    }

    fn cpu_milli(&self, job: usize) -> i64 {
        self.requests(job).get("cpu").copied().unwrap_or(0)
    }
}

fn shares_of(simulation: &Simulation, of_job: &OfJob<'_>, history: &History, from_ms: i64, to_ms: i64) -> Shares {
    let mut changes = Vec::with_capacity(2 * (history.jobs.len() + history.holds.len()));
    let change = |job: usize, at_ms, demand, is_more| Change {
        at_ms,
        queue: of_job.queue(job),
        demand,
        is_more,
        requests: of_job.requests(job),
    };
    for (index, job) in history.jobs.iter().enumerate() {
        changes.extend(job.submitted_ms.map(|at| change(index, at, true, true)));
        changes.extend(job.ended.map(|(at, _)| change(index, at, true, false)));
    }
    for hold in &history.holds {
        changes.push(change(hold.job, hold.from_ms, false, true));
        changes.push(change(hold.job, hold.to_ms, false, false));
    }
    let weights: Vec<f64> = simulation.workload.queues.iter().map(|queue| queue.weight).collect();
    shares::shares(&weights, &simulation.clusters.total(), changes, from_ms, to_ms)
}

/// No order of the jobs that ended well takes less than the longest of them, nor than all their work on all nodes.
#[allow(clippy::cast_precision_loss, reason = "milliseconds and cores as people read them")]
fn at_least_ms(simulation: &Simulation, plan: &Plan, of_job: &OfJob<'_>, history: &History, first_ms: i64) -> f64 {
    let ended = || {
        let ended = |(_, job): &(usize, &JobHistory)| job.ended.is_some_and(|(_, end)| end == End::Succeeded);
        history.jobs.iter().enumerate().filter(ended)
    };
    let alone = |(index, job): (usize, &JobHistory)| job.submitted_ms.unwrap_or(0) + plan.run_ms[index] - first_ms;
    let longest = ended().map(alone).max().unwrap_or(0) as f64;
    let total = simulation.clusters.total();
    let together = total.iter().filter(|(_, offered)| **offered > 0).map(|(name, offered)| {
        let asked = |index: usize| of_job.requests(index).get(name).copied().unwrap_or(0) as f64;
        ended().map(|(index, _)| asked(index) * plan.run_ms[index] as f64).sum::<f64>() / *offered as f64
    });
    together.fold(longest, f64::max)
}
