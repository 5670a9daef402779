//! Figures of a history: waits, slowdowns, utilisation, fairness, what preemption cost.
//!
//! Invariant: equal histories give equal figures; a figure of no jobs is 0 and its count says so. Times are in seconds.
//! What each figure means stands in docs/simulate.md. Called by the simulator; printed by `table`, serialised as JSON.

use std::collections::BTreeMap;

use pumice_engine::NodeFacts;
use serde::Serialize;

use super::fairness;
use super::history::History;
use super::nodes;
use super::trace::{Job, Span, Trace};

/// Shorter runs count as so long in slowdowns (tau of Feitelson's bounded slowdown).
const TAU_S: f64 = 10.0;

/// Parts of the time that use is told of.
const SERIES: usize = 120;

/// Bounds and names of the classes of sizes, in pods.
const SIZES: [(u32, &str); 4] = [(1, "1 pod"), (8, "2-8 pods"), (64, "9-64 pods"), (u32::MAX, ">64 pods")];

/// How the values of many jobs lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    /// Half of them are no larger.
    pub p50: f64,
    /// Nine of ten are no larger.
    pub p90: f64,
    /// All but one in a hundred are no larger.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these values; all 0 if there are none.
    pub fn of(mut values: Vec<f64>) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_by(f64::total_cmp);
        let at = |part: f64| values[((values.len() as f64 * part).ceil() as usize).clamp(1, values.len()) - 1];
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Self { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
    }
}

/// Of some of the jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Of {
    /// How many they are.
    pub jobs: usize,
    /// How many of them never started.
    pub never_started: usize,
    /// From submission to start, in seconds, of those that started.
    pub wait_s: Spread,
    /// Bounded slowdowns of those that ended.
    pub slowdown: Spread,
}

/// Of all that happened under a policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    pub all: Of,
    /// By how many pods they have, small to large; classes without jobs are left out.
    pub by_size: Vec<(String, Of)>,
    /// By queue, in alphabetical order.
    pub by_queue: BTreeMap<String, Of>,
    /// The part of all cores that was held in the span that counts, 0 to 1; work that was lost counts as held.
    pub utilisation: f64,
    /// How far queues were from their fair shares in the span that counts, 0 (never) to 1.
    pub unfairness_of_queues: f64,
    pub unfairness_of_users: f64,
    /// Pods that were told to leave.
    pub evictions: u64,
    /// Core-hours that ran in vain.
    pub lost_core_hours: f64,
    /// From the first submission to the last end, in seconds.
    pub makespan_s: f64,
    /// Jobs whose deadline passed before they had ended.
    pub deadlines_missed: usize,
    /// The longest wait of the largest class of sizes, in seconds.
    pub longest_wait_of_the_largest_s: f64,
    pub cycles: u64,
    /// Some of the reasons why jobs never started, with how many they hold for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub why_never: BTreeMap<String, usize>,
}

/// The part of a trace that utilisation and fairness are measured over: the warm-up is left out, and so is what comes
/// after the last submission, when the cluster only empties.
pub(super) fn span(trace: &Trace, warm_up: f64) -> Span {
    let last = trace.jobs.last().map_or(0, |job| job.submit_ms);
    Span { from_ms: (last as f64 * warm_up.clamp(0.0, 1.0)) as i64, to_ms: last }
}

/// The figures of a history of `trace` on `nodes`.
pub fn figures(trace: &Trace, nodes: &[NodeFacts], history: &History, warm_up: f64) -> Figures {
    let every = || 0..trace.jobs.len();
    let class = |job: &Job| SIZES.iter().position(|(max, _)| job.pods <= *max).unwrap_or(SIZES.len() - 1);
    let mut by_size = Vec::new();
    for (place, (_, name)) in SIZES.iter().enumerate() {
        let of = of(trace, history, every().filter(|index| class(&trace.jobs[*index]) == place));
        if of.jobs > 0 {
            by_size.push(((*name).to_owned(), of));
        }
    }
    let mut queues: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for index in every() {
        queues.entry(&trace.jobs[index].queue).or_default().push(index);
    }
    let by_queue = queues.into_iter().map(|(queue, jobs)| (queue.to_owned(), of(trace, history, jobs.into_iter())));
    let span = span(trace, warm_up);
    let Span { from_ms: from, to_ms: to } = span;
    let cores_milli = nodes::total(nodes).get("cpu").copied().unwrap_or(0);
    let held = history.holds.iter().map(|hold| {
        let both = (hold.to_ms.min(to) - hold.from_ms.max(from)).max(0);
        both as f64 * f64::from(hold.pods) * trace.jobs[hold.job as usize].cpu_milli() as f64
    });
    let held: f64 = held.sum();
    let offered = cores_milli as f64 * (to - from) as f64;
    let mut why_never: BTreeMap<String, usize> = BTreeMap::new();
    for why in history.outcomes.iter().filter_map(|outcome| outcome.why.clone()) {
        *why_never.entry(why).or_default() += 1;
    }
    let missed = |(job, outcome): (&Job, &super::history::Outcome)| {
        job.deadline_ms.is_some_and(|deadline| outcome.ended_ms.is_none_or(|ended| ended > deadline))
    };
    let lost: i128 = history.outcomes.iter().map(|outcome| outcome.lost_core_ms).sum();
    let ends = history.outcomes.iter().filter_map(|outcome| outcome.ended_ms);
    Figures {
        all: of(trace, history, every()),
        longest_wait_of_the_largest_s: by_size.last().map_or(0.0, |(_, of)| of.wait_s.max),
        by_size,
        by_queue: by_queue.collect(),
        utilisation: if offered > 0.0 { held / offered } else { 0.0 },
        unfairness_of_queues: fairness::of_queues(trace, history, cores_milli, span),
        unfairness_of_users: fairness::of_users(trace, history, cores_milli, span),
        evictions: history.outcomes.iter().map(|outcome| u64::from(outcome.evicted)).sum(),
        lost_core_hours: lost as f64 / 3.6e9,
        makespan_s: ends.max().unwrap_or(0) as f64 / 1_000.0,
        deadlines_missed: trace.jobs.iter().zip(&history.outcomes).filter(|pair| missed(*pair)).count(),
        cycles: history.cycles,
        why_never,
    }
}

/// The part of all cores that was held in each of `SERIES` equal parts of the time until the last submission.
pub(super) fn in_use(trace: &Trace, nodes: &[NodeFacts], history: &History) -> Vec<f64> {
    let last = trace.jobs.last().map_or(0, |job| job.submit_ms).max(1) as f64;
    let cores_milli = nodes::total(nodes).get("cpu").copied().unwrap_or(0).max(1) as f64;
    let step = last / SERIES as f64;
    let mut held = vec![0.0; SERIES];
    for hold in &history.holds {
        let milli = f64::from(hold.pods) * trace.jobs[hold.job as usize].cpu_milli() as f64;
        let (from, to) = (hold.from_ms as f64, (hold.to_ms as f64).min(last));
        let first = (from / step) as usize;
        for (place, cell) in held.iter_mut().enumerate().skip(first) {
            let begins = place as f64 * step;
            if begins >= to {
                break;
            }
            *cell += milli * (to.min(begins + step) - from.max(begins)).max(0.0);
        }
    }
    held.into_iter().map(|held| held / (cores_milli * step)).collect()
}

fn of(trace: &Trace, history: &History, jobs: impl Iterator<Item = usize>) -> Of {
    let (mut all, mut waits, mut slowdowns) = (Of::default(), Vec::new(), Vec::new());
    for index in jobs {
        let (job, outcome) = (&trace.jobs[index], &history.outcomes[index]);
        let seconds = |ms: i64| (ms - job.submit_ms) as f64 / 1_000.0;
        all.jobs += 1;
        match outcome.started_ms {
            Some(started) => waits.push(seconds(started)),
            None => all.never_started += 1,
        }
        if let Some(ended) = outcome.ended_ms {
            let run = (job.held_ms() as f64 / 1_000.0).max(TAU_S);
            slowdowns.push((seconds(ended) / run).max(1.0));
        }
    }
    Of { wait_s: Spread::of(waits), slowdown: Spread::of(slowdowns), ..all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occur() {
        let spread = Spread::of((1..=100).rev().map(f64::from).collect());
        assert_eq!((spread.mean, spread.p50, spread.p90, spread.p99, spread.max), (50.5, 50.0, 90.0, 99.0, 100.0));
        assert_eq!(Spread::of(vec![3.0]).p99, 3.0);
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}
