//! What if: a recording's jobs under another configuration, beside what was recorded.
//!
//! Invariant: what is compared with the other configuration is the recorded one on the same virtual cluster, so that a
//! difference is the configuration's, not the model's; what really happened stands beside both. Called by
//! `pumice scheduler replay --conf`.

use std::fmt::Write as _;

use pumice_engine::Config;
use pumice_engine::plugin::Registry;
use serde::Serialize;

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
    /// Its queue.
    pub queue: String,
    /// Its wait under the recorded configuration, in seconds; absent if it never starts.
    pub before_s: Option<f64>,
    /// Its wait under the other.
    pub after_s: Option<f64>,
}

/// Runs a recording's jobs under both configurations. Nothing if no job of it can run on its nodes.
pub fn what_if(
    name: String,
    mut recorded: Recorded,
    (before, after): (Config, (String, Config)),
    plugins: Registry,
) -> Option<WhatIf> {
    let mut trace = std::mem::take(&mut recorded.trace);
    trace.fit(&recorded.nodes);
    if trace.jobs.is_empty() {
        return None;
    }
    let (after_name, after) = after;
    let policies =
        vec![(SAME.to_owned(), Policy::Engine(Box::new(before))), (after_name, Policy::Engine(Box::new(after)))];
    let history = recorded.history(&trace);
    let simulation = Simulation {
        name,
        trace,
        nodes: std::mem::take(&mut recorded.nodes),
        policies,
        plugins,
        warm_up: 0.0,
        delays: Delays::default(),
        looks: Looks::default(),
    };
    let mut waits = Vec::new();
    let mut report = simulation.run(|_, history| waits.push(waits_of(&simulation.trace, history)));
    let figures = figures::figures(&simulation.trace, &simulation.nodes, &history, simulation.warm_up);
    let mut runs = vec![Run { policy: RECORDED.to_owned(), figures, in_use: None, forecasts: None, predictions: None }];
    runs.append(&mut report.runs);
    report.runs = runs;
    let [before, after] = &waits[..] else { return None };
    Some(compare(report, &simulation.trace, before, after))
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
    /// For people.
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
