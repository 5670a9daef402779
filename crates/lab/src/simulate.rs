//! `pumice scheduler simulate`: runs a workload's trace against the engine of production, and says how it fared.
//!
//! Invariant: everything here but `read` is pure: equal traces, nodes and configurations give equal answers. Called by
//! `pumice`. A trace is read (`swf`, `native`, `armada`) or made from a model (`generate`), runs on a virtual cluster (`cluster`) or under a baseline
//! (`baseline`), and what happened (`history`) becomes figures.

use pumice_engine::plugin::Registry;
use pumice_engine::{Argument, Config, NodeFacts};
use serde::Serialize;

pub mod armada;
pub mod baseline;
mod cluster;
mod fairness;
pub mod figures;
pub mod forecasts;
pub mod generate;
pub mod history;
pub mod native;
pub mod nodes;
pub mod predictors;
mod read;
pub mod recorded;
mod room;
mod svg;
pub mod swf;
mod table;
pub mod trace;
pub mod whatif;

pub use baseline::Baseline;
pub use cluster::Delays;
pub use read::{Request, SimulateError, read};
pub use table::{align, time};

use figures::Figures;
use forecasts::Forecasts;
use history::History;
use predictors::Predictions;
use trace::{Notes, Span, Trace};

/// The configuration that switches reservations off, and its argument.
const RESERVATION: &str = "reservation";
const ENABLE: &str = "enable";

/// What decides in one run of a trace.
#[derive(Debug, Clone, PartialEq)]
pub enum Policy {
    /// The engine, configured so.
    Engine(Box<Config>),
    Baseline(Baseline),
}

impl Policy {
    /// The engine without reservations: what Volcano's policy does by itself.
    pub fn without_reservations(mut config: Config) -> Self {
        let arguments = config.configurations.entry(RESERVATION.to_owned()).or_default();
        arguments.insert(ENABLE.to_owned(), Argument::Bool(false));
        Self::Engine(Box::new(config))
    }
}

/// A trace, the nodes it is to run on, and under what.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// What the trace is called.
    pub name: String,
    /// The trace, fitted to the nodes.
    pub trace: Trace,
    pub nodes: Vec<NodeFacts>,
    /// What is tried, with names; the first is what others are compared with.
    pub policies: Vec<(String, Policy)>,
    /// Plugins that configurations may name.
    pub plugins: Registry,
    /// The part of the time of submissions that utilisation and fairness leave out, 0 to 1.
    pub warm_up: f64,
    /// How long things take.
    pub delays: Delays,
    /// What else is looked at.
    pub looks: Looks,
}

/// What is looked at besides how jobs fared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Looks {
    /// When the engine expected jobs to start.
    pub forecasts: bool,
    /// How long it expected them to run.
    pub predictors: bool,
    /// How much was in use in the course of time; the picture shows it.
    pub series: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What the trace is called.
    pub trace: String,
    pub jobs: usize,
    pub pods: u64,
    /// What was mended or left out when it was read.
    pub notes: Notes,
    pub nodes: usize,
    /// Their cores.
    pub cores: f64,
    /// What the jobs ask for in the span that counts, as a part of what the nodes offer in it.
    pub load: f64,
    /// The span that utilisation and fairness are measured over, in seconds from the first submission.
    pub measured_from_s: f64,
    /// Its end: the last submission.
    pub measured_to_s: f64,
    /// By policy.
    pub runs: Vec<Run>,
}

/// What came of a trace under one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub policy: String,
    /// How the jobs fared.
    pub figures: Figures,
    /// The part of all cores in use in each of some equal parts of the time until the last submission, where that was
    /// looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use: Option<Vec<f64>>,
    /// How starts were as expected, where that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecasts: Option<Forecasts>,
    /// How runs were as expected, where that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predictions: Option<Predictions>,
}

impl Simulation {
    /// Runs the trace under each policy. `each` is told of every history as it is there.
    pub fn run(&self, mut each: impl FnMut(&str, &History)) -> Report {
        let mut runs = Vec::new();
        for (name, policy) in &self.policies {
            let asks = self.looks.forecasts || self.looks.predictors;
            let history = match policy {
                Policy::Engine(config) => {
                    let config = (**config).clone();
                    cluster::run(&self.trace, &self.nodes, config, &self.plugins, self.delays, asks)
                }
                Policy::Baseline(baseline) => baseline::run(&self.trace, &self.nodes, *baseline),
            };
            let decided_by_engine = matches!(policy, Policy::Engine(_));
            let mut run = Run {
                policy: name.clone(),
                figures: figures::figures(&self.trace, &self.nodes, &history, self.warm_up),
                in_use: None,
                forecasts: None,
                predictions: None,
            };
            if self.looks.series {
                run.in_use = Some(figures::in_use(&self.trace, &self.nodes, &history));
            }
            if self.looks.forecasts && decided_by_engine {
                run.forecasts = Some(forecasts::forecasts(&self.trace, &history));
            }
            if self.looks.predictors && decided_by_engine {
                run.predictions = Some(predictors::predictions(&self.trace, &history));
            }
            runs.push(run);
            each(name, &history);
        }
        let Span { from_ms: from, to_ms: to } = figures::span(&self.trace, self.warm_up);
        let cores_milli = nodes::total(&self.nodes).get("cpu").copied().unwrap_or(0);
        let asked = self.trace.jobs.iter().filter(|job| (from..=to).contains(&job.submit_ms));
        let asked: f64 = asked.map(|job| job.cpu_milli_all() as f64 * job.held_ms() as f64).sum();
        let offered = cores_milli as f64 * (to - from) as f64;
        Report {
            trace: self.name.clone(),
            jobs: self.trace.jobs.len(),
            pods: self.trace.jobs.iter().map(|job| u64::from(job.pods)).sum(),
            notes: self.trace.notes.clone(),
            nodes: self.nodes.len(),
            cores: cores_milli as f64 / 1_000.0,
            load: if offered > 0.0 { asked / offered } else { 0.0 },
            measured_from_s: from as f64 / 1_000.0,
            measured_to_s: to as f64 / 1_000.0,
            runs,
        }
    }
}

impl Report {
    /// The report as a table of text: a column for each policy.
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// The report as one SVG document.
    pub fn svg(&self) -> String {
        svg::render(self)
    }
}

#[cfg(test)]
mod tests;
