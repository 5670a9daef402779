//! `pumice fleet simulate`: specifications from files, run, and told.
//!
//! Invariant: all files are read before anything runs; an answer is printed as soon as it is there.

mod table;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use pumice_lab::fleet_simulate::{
    Clusters, Delays, EVENTS_HEADER, Outcome, SPEC_BYTES_MAX, Scheduling, Simulation, Workload, event_rows,
};

use super::specifications;
use crate::args::fleet::{FleetSimulateArgs, SimulateForm};
use crate::output;

/// A file can't be read, or is not what it should be.
const UNREADABLE: i32 = 2;
/// Most pairs of a workload and a cluster in one call.
const COMBINATIONS_MAX: usize = 1_000;

/// Runs each workload on each of the clusters.
pub fn run(args: &FleetSimulateArgs) -> Result<()> {
    let simulations = match read(args) {
        Ok(simulations) => simulations,
        Err(error) => {
            output::note(format_args!("pumice: {error:#}"));
            // Nothing runs yet that would have to end.
            std::process::exit(UNREADABLE);
        }
    };
    let mut reports = Vec::new();
    for (index, simulation) in simulations.iter().enumerate() {
        let report = simulate(simulation, args.events.as_deref())?.report;
        match args.output {
            SimulateForm::Table => {
                let gap = if index > 0 { "\n" } else { "" };
                output::print(&format!("{gap}{}", table::render(&report)))?;
            }
            SimulateForm::Json => reports.push(report),
        }
    }
    if args.output == SimulateForm::Json {
        let text = serde_json::to_string_pretty(&reports).context("print the answer")?;
        output::line(text)?;
    }
    Ok(())
}

/// Reads the files and makes each pair of a workload and a cluster.
fn read(args: &FleetSimulateArgs) -> Result<Vec<Simulation>> {
    let scheduling = match &args.config {
        None => Scheduling::default(),
        Some(path) => {
            let text = text(path)?;
            Scheduling::read(&text).with_context(|| format!("--config {} can't be used", path.display()))?
        }
    };
    if let (Some(path), false) = (&args.config, scheduling.ignored.is_empty()) {
        let keys = scheduling.ignored.join(", ");
        let path = path.display();
        output::note(format_args!("pumice: these keys of {path} mean nothing here and are ignored: {keys}"));
    }
    let clusters = all(&args.clusters, "clusters", Clusters::read)?;
    let workloads = all(&args.workloads, "a workload", Workload::read)?;
    let combinations = clusters.len().saturating_mul(workloads.len());
    ensure!(combinations <= COMBINATIONS_MAX, "there are {combinations} combinations: have at most {COMBINATIONS_MAX}");
    ensure!(
        args.events.is_none() || combinations == 1,
        "--events takes what happened in one simulation, and there are {combinations}"
    );
    let delays =
        Delays { grace_ms: i64::from(args.grace) * 1_000, round_every_ms: i64::from(args.round_every) * 1_000 };
    let mut simulations = Vec::new();
    for workload in &workloads {
        for clusters in &clusters {
            let simulation = Simulation {
                clusters: clusters.clone(),
                workload: workload.clone(),
                scheduling: scheduling.clone(),
                seed: args.seed,
                delays,
            };
            simulation.check().with_context(|| format!("the workload {} can't be run", workload.name))?;
            simulations.push(simulation);
        }
    }
    Ok(simulations)
}

/// Every specification of a kind.
fn all<T, E>(patterns: &[String], what: &str, read: impl Fn(&str, &str) -> Result<T, E>) -> Result<Vec<T>>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let mut files = Vec::new();
    for pattern in patterns {
        specifications::find_like(pattern, &mut files)?;
    }
    ensure!(!files.is_empty(), "there are no files ending in .yaml or .yml in {}", patterns.join(", "));
    let one = |(name, path): &(String, std::path::PathBuf)| {
        let text = text(path)?;
        read(&text, name).with_context(|| format!("{} is no specification of {what}", path.display()))
    };
    files.iter().map(one).collect()
}

fn text(path: &Path) -> Result<String> {
    let reading = || format!("read {}", path.display());
    let bytes = std::fs::metadata(path).with_context(reading)?.len();
    let max = SPEC_BYTES_MAX as u64;
    ensure!(bytes <= max, "{} has {bytes} bytes: have at most {max}", path.display());
    std::fs::read_to_string(path).with_context(reading)
}

fn simulate(simulation: &Simulation, events: Option<&Path>) -> Result<Outcome> {
    let began = now();
    let mut watch = || began.elapsed();
    let Some(path) = events else { return Ok(simulation.run(&mut watch, &mut |_| {})?) };
    let writing = || format!("write {}", path.display());
    let mut file = BufWriter::new(File::create(path).with_context(writing)?);
    let mut written = writeln!(file, "{EVENTS_HEADER}");
    let mut log = |entry: &pumice_lab::fleet_simulate::LogEntry| {
        if written.is_ok() {
            written = file.write_all(event_rows(entry).as_bytes());
        }
    };
    let outcome = simulation.run(&mut watch, &mut log)?;
    written.and_then(|()| file.flush()).with_context(writing)?;
    Ok(outcome)
}

#[allow(clippy::disallowed_methods)] // the binary says how long rounds took
fn now() -> Instant {
    Instant::now()
}
