//! What if: a recording's jobs under another configuration, or with other weights of queues, beside what was recorded.
//!
//! Invariant: what is compared with the other policy is the recorded one on the same virtual cluster, so that a
//! difference is the policy's, not the model's; what really happened stands beside both. Called by
//! `pumice scheduler replay --conf` and `--weight`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pumice_engine::Config;
use pumice_engine::plugin::Registry;
use serde::Serialize;
use thiserror::Error;

use super::history::History;
use super::recorded::Recorded;
use super::trace::Trace;
use super::{Delays, Looks, Policy, Report, Run, Simulation, figures};

/// Jobs whose starts moved most that are named.
const NAMED_MAX: usize = 10;
/// What happened, and what the recorded configuration does on the virtual cluster.
const RECORDED: &str = "recorded";
const SAME: &str = "same conf";

/// What would have been.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// Figures of what was recorded, of the recorded configuration, and of the other.
    pub report: Report,
    /// Jobs that start earlier under the other configuration than under the recorded one, by a second or more.
    pub earlier: usize,
    /// That start later, or never.
    pub later: usize,
    /// Those of both that moved most.
    pub moved: Vec<Moved>,
}

/// A job that starts at another time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// `namespace/name`.
    pub job: String,
    pub queue: String,
    /// Its wait under the recorded configuration, in seconds; absent if it never starts.
    pub before_s: Option<f64>,
    /// Its wait under the other.
    pub after_s: Option<f64>,
}

/// What is tried instead of what was recorded.
#[derive(Debug, Clone)]
pub struct Other {
    /// What it is called.
    pub name: String,
    pub config: Config,
    /// Queues that weigh something else.
    pub weights: BTreeMap<String, i32>,
}

/// Why a recording can't be run under another configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoWhatIf {
    /// Of all that was submitted.
    #[error("the recording has no job that its nodes could run")]
    NoJob,
    /// Whose weight was to be another.
    #[error("the recording has no queue {name}; it has {}", .known.join(", "))]
    NoQueue {
        /// The one that was named.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
}

/// Runs a recording's jobs under the configuration and the weights that it has, and under others.
///
/// # Errors
/// If no job of it can run on its nodes, or it has no queue of such a name.
pub fn what_if(
    name: String,
    mut recorded: Recorded,
    before: Config,
    other: Other,
    plugins: Registry,
) -> Result<WhatIf, NoWhatIf> {
    let mut trace = std::mem::take(&mut recorded.trace);
    trace.fit(&recorded.nodes);
    if trace.jobs.is_empty() {
        return Err(NoWhatIf::NoJob);
    }
    let queues = trace.all_queues();
    if let Some(name) = other.weights.keys().find(|name| !queues.contains_key(name.as_str())) {
        let known = queues.keys().map(ToString::to_string).collect();
        return Err(NoWhatIf::NoQueue { name: name.clone(), known });
    }
    let history = recorded.history(&trace);
    let mut simulation = Simulation {
        name,
        trace,
        nodes: std::mem::take(&mut recorded.nodes),
        policies: vec![(SAME.to_owned(), Policy::Engine(Box::new(before)))],
        plugins,
        warm_up: 0.0,
        delays: Delays::default(),
        looks: Looks::default(),
    };
    let figures = figures::figures(&simulation.trace, &simulation.nodes, &history, simulation.warm_up);
    let recorded = Run { policy: RECORDED.to_owned(), figures, in_use: None, forecasts: None, predictions: None };
    let (mut report, before) = run(&simulation);
    simulation.policies = vec![(other.name, Policy::Engine(Box::new(other.config)))];
    simulation.trace.queues.extend(other.weights.into_iter().map(|(queue, weight)| (queue.into(), weight)));
    let (otherwise, after) = run(&simulation);
    report.runs.insert(0, recorded);
    report.runs.extend(otherwise.runs);
    Ok(compare(report, &simulation.trace, &before, &after))
}

/// The outcome, and how long each job waited.
fn run(simulation: &Simulation) -> (Report, Vec<Option<f64>>) {
    let mut waits = Vec::new();
    let report = simulation.run(|_, history| waits = waits_of(&simulation.trace, history));
    (report, waits)
}

fn waits_of(trace: &Trace, history: &History) -> Vec<Option<f64>> {
    let wait = |(job, started): (&super::trace::Job, Option<i64>)| {
        started.map(|started| (started - job.submit_ms) as f64 / 1_000.0)
    };
    trace.jobs.iter().zip(history.outcomes.iter().map(|outcome| outcome.started_ms)).map(wait).collect()
}

fn compare(report: Report, trace: &Trace, before: &[Option<f64>], after: &[Option<f64>]) -> WhatIf {
    /// What never starts moved furthest.
    const NEVER: f64 = 1e12;
    let by = |index: usize| after[index].unwrap_or(NEVER) - before[index].unwrap_or(NEVER);
    let mut moved: Vec<usize> = (0..trace.jobs.len()).filter(|index| by(*index).abs() >= 1.0).collect();
    let earlier = moved.iter().filter(|index| by(**index) < 0.0).count();
    let later = moved.len() - earlier;
    moved.sort_by(|left, right| by(*right).abs().total_cmp(&by(*left).abs()));
    let named = moved.into_iter().take(NAMED_MAX).map(|index| {
        let job = &trace.jobs[index];
        Moved {
            job: format!("{}/{}", job.user, job.name),
            queue: job.queue.to_string(),
            before_s: before[index],
            after_s: after[index],
        }
    });
    WhatIf { report, earlier, later, moved: named.collect() }
}

impl WhatIf {
    /// The figures as a table of text, and below it the jobs whose start moved most.
    pub fn table(&self) -> String {
        let mut text = self.report.table();
        let [_, before, after] = &self.report.runs[..] else { return text };
        let same = self.report.jobs.saturating_sub(self.earlier + self.later);
        // Writing to a String never fails.
        let _ = writeln!(
            text,
            "\njobs from {} to {}: {} start earlier, {} later, {same} at the same time",
            before.policy, after.policy, self.earlier, self.later
        );
        let wait = |wait: Option<f64>| wait.map_or_else(|| "never".to_owned(), |wait| format!("{wait:.0} s"));
        for moved in &self.moved {
            let (before, after) = (wait(moved.before_s), wait(moved.after_s));
            let _ = writeln!(text, "  {} in {}: waits {after} instead of {before}", moved.job, moved.queue);
        }
        text
    }
}
