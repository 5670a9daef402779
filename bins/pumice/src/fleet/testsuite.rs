//! `pumice fleet testsuite`: Armada's test specifications, from files to lines of results.
//!
//! Invariant: all files are read before anything is submitted; a case has exactly one line.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt as _, stream};
use pumice_lab::fleet_testsuite::{self as testsuite, Case, Report, Server, Settings, Spec, junit};
use pumice_wire::client::Credentials;
use tokio_util::sync::CancellationToken;

use super::specifications;
use crate::args::fleet::FleetTestsuiteArgs;
use crate::output;
use crate::process::{runtime, stop_on_signal};

/// A file can't be read, or is not what it should be.
const UNREADABLE: i32 = 2;

/// Runs them; those that fail are an error.
pub fn run(args: &FleetTestsuiteArgs) -> Result<()> {
    let (cases, credentials) = match read(args) {
        Ok(read) => read,
        Err(error) => {
            output::note(format_args!("pumice: {error:#}"));
            // Nothing runs yet that would have to end.
            std::process::exit(UNREADABLE);
        }
    };
    let started = now();
    let reports = runtime()?.block_on(async {
        let stop = stop_on_signal()?;
        let server = Server::connect(&args.server, &credentials.tls).await?;
        anyhow::Ok(run_all(&server, &cases, args, &stop).await)
    })?;
    let took = started.elapsed();
    if let Some(path) = &args.junit {
        fs::write(path, junit(&reports, took)).with_context(|| format!("write {}", path.display()))?;
    }
    let failed = reports.iter().filter(|report| report.failure.is_some()).count();
    let passed = reports.len() - failed;
    output::line(format_args!("{passed} of {} cases passed in {:.1} s", reports.len(), took.as_secs_f64()))?;
    ensure!(failed == 0, "{failed} of {} cases failed", reports.len());
    Ok(())
}

/// All cases, and who runs them.
fn read(args: &FleetTestsuiteArgs) -> Result<(Vec<Case>, Credentials)> {
    let credentials = super::credentials(&args.identity)?;
    let mut files = Vec::new();
    for path in &args.files {
        specifications::find(path, &mut files)?;
    }
    ensure!(!files.is_empty(), "there are no files ending in .yaml or .yml");
    let (mut cases, mut problems) = (Vec::new(), Vec::new());
    for (name, path) in files {
        match case(name, &path) {
            Ok(case) => cases.push(case),
            Err(error) => problems.push(format!("{error:#}")),
        }
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n        "));
    }
    if let Some(only) = &args.only {
        cases.retain(|case| case.name.contains(only.as_str()));
        ensure!(!cases.is_empty(), "no case has {only:?} in its name");
    }
    Ok((cases, credentials))
}

fn case(name: String, path: &Path) -> Result<Case> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let spec = Spec::read(&text).with_context(|| format!("{} is no specification", path.display()))?;
    Ok(Case { name: spec.name.clone().unwrap_or(name), spec })
}

/// Runs all and prints each when it ends. Reports come in the order of the cases.
async fn run_all(server: &Server, cases: &[Case], args: &FleetTestsuiteArgs, stop: &CancellationToken) -> Vec<Report> {
    let settings = &Settings {
        annotations: args.annotate.iter().cloned().collect(),
        namespaces: args.namespace.iter().cloned().collect(),
    };
    let mut running = stream::iter(cases.iter().enumerate())
        .map(async |(index, case)| (index, testsuite::run(server, case, settings, stop).await))
        .buffer_unordered(usize::from(args.parallel));
    let mut reports = Vec::with_capacity(cases.len());
    while let Some((index, report)) = running.next().await {
        print(&report);
        reports.push((index, report));
    }
    reports.sort_by_key(|(index, _)| *index);
    reports.into_iter().map(|(_, report)| report).collect()
}

fn print(report: &Report) {
    let seconds = report.took.as_secs_f64();
    // Whoever reads no further is not a reason to leave jobs behind.
    let mut out = std::io::stdout().lock();
    let _ = match &report.failure {
        None => writeln!(out, "ok      {} ({seconds:.1} s)", report.name),
        Some(why) => writeln!(out, "FAILED  {} ({seconds:.1} s): {why}", report.name),
    };
    for note in &report.notes {
        let _ = writeln!(out, "        note: {note}");
    }
}

#[allow(clippy::disallowed_methods)] // the binary says how long it took
fn now() -> Instant {
    Instant::now()
}
