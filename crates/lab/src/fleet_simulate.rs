//! `pumice fleet simulate`: what the fleet's scheduling would do with a workload on clusters, in virtual time.
//!
//! Clusters and workloads are specifications of Armada's simulator. What decides is what the server has: its ledger, its
//! rounds and their engine; clusters and people are made up. Pure: the same specifications, configuration and seed give the
//! same history; the one thing that is measured, the time of rounds, comes from the caller's stopwatch. (`fleet_faults` is
//! something else: it tests the server under faults.)

mod clusters;
mod draw;
mod events;
mod figures;
mod history;
mod plan;
mod pools;
mod report;
mod run;
mod scheduling;
mod shares;
#[cfg(test)]
mod tests;
mod workload;

use std::time::Duration;

pub use pumice_ledger::Entry as LogEntry;
use pumice_ledger::Entry;
pub use pumice_translate::armada::{SPEC_BYTES_MAX, SpecError};

pub use clusters::{Clusters, NODES_MAX, Node};
pub use events::{HEADER as EVENTS_HEADER, rows as event_rows};
pub use history::{End, History, Hold, JobHistory};
pub use report::{Moment, Part, QueueReport, Report, ResourceReport, Rounds, Spread};
pub use scheduling::{CONFIG_BYTES_MAX, Scheduling, SchedulingError};
pub use workload::{JOBS_MAX, QUEUES_MAX, SEED, TEMPLATES_MAX, Workload, WorkloadQueue};

/// How long it is since some moment; only differences count.
pub type Stopwatch<'w> = &'w mut dyn FnMut() -> Duration;

/// How long things take that are nobody's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// From a preemption until the pod is gone.
    pub grace_ms: i64,
    /// Between two rounds of a pool.
    pub round_every_ms: i64,
}

impl Default for Delays {
    fn default() -> Self {
        Self { grace_ms: 30_000, round_every_ms: 1_000 }
    }
}

/// A workload, the clusters that it is tried on, and under what.
#[derive(Debug, Clone)]
pub struct Simulation {
    pub clusters: Clusters,
    pub workload: Workload,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// What run times are drawn by; the workload's own where it is absent.
    pub seed: Option<u64>,
    /// How long things take.
    pub delays: Delays,
}

impl Simulation {
    /// Whether it can run.
    ///
    /// # Errors
    /// Where a template names a priority class that there is not.
    pub fn check(&self) -> Result<(), SpecError> {
        self.workload.templates.iter().try_for_each(|template| plan::class_of(template, &self.scheduling).map(drop))
    }

    /// Runs it to its end. `log` is told of every entry of the fleet's log.
    ///
    /// # Errors
    /// Where a template names a priority class that there is not.
    pub fn run(&self, watch: Stopwatch<'_>, log: &mut dyn FnMut(&Entry)) -> Result<Outcome, SpecError> {
        let seed = self.seed.unwrap_or(self.workload.seed);
        let plan = plan::Plan::new(&self.workload, &self.scheduling, seed)?;
        let history = run::SimulationRun::new(self, &plan).run(watch, log);
        let report = figures::report(self, &plan, &history);
        Ok(Outcome { history, report })
    }
}

/// What came of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub history: History,
    /// What that comes to.
    pub report: Report,
}
