//! `pumice fleet testsuite`: Armada's test specifications, from files to lines of results.
//!
//! Invariant: all files are read before anything is submitted; a case has exactly one line.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt as _, stream};
use pumice_fleet::testsuite::{self, Case, Report, Server, Settings, Spec, junit};
use pumice_wire::client::Credentials;
use tokio_util::sync::CancellationToken;

use crate::args::fleet::FleetTestsuiteArgs;
use crate::up::{runtime, stop_on_signal};

/// A file can't be read, or is not what it should be.
const UNREADABLE: i32 = 2;
/// Folders within folders.
const DEPTH_MAX: usize = 32;

/// Runs them; those that fail are an error.
pub fn run(args: &FleetTestsuiteArgs) -> Result<()> {
    let (cases, shown) = match read(args) {
        Ok(read) => read,
        Err(error) => {
            eprintln!("pumice: {error:#}");
            // Nothing runs yet that would have to end.
            std::process::exit(UNREADABLE);
        }
    };
    let started = now();
    let reports = runtime()?.block_on(async {
        let stop = stop_on_signal()?;
        let server = Server::connect(&args.server, &shown.tls).await?;
        anyhow::Ok(run_all(&server, &cases, args, &stop).await)
    })?;
    let took = started.elapsed();
    if let Some(path) = &args.junit {
        fs::write(path, junit(&reports, took)).with_context(|| format!("write {}", path.display()))?;
    }
    let failed = reports.iter().filter(|report| report.failure.is_some()).count();
    let passed = reports.len() - failed;
    println!("{passed} of {} cases passed in {:.1} s", reports.len(), took.as_secs_f64());
    ensure!(failed == 0, "{failed} of {} cases failed", reports.len());
    Ok(())
}

/// All cases, and who runs them.
fn read(args: &FleetTestsuiteArgs) -> Result<(Vec<Case>, Credentials)> {
    let shown = super::shown(&args.identity)?;
    let mut files = Vec::new();
    for path in &args.files {
        find(path, path, DEPTH_MAX, &mut files)?;
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
    Ok((cases, shown))
}

/// Names and paths of the specifications below `path`, in order. Names are relative to the folder that was given.
fn find(base: &Path, path: &Path, depth: usize, files: &mut Vec<(String, PathBuf)>) -> Result<()> {
    ensure!(depth > 0, "{} is {DEPTH_MAX} folders deep: give one of them", path.display());
    if !path.is_dir() {
        let name = if path == base { path.file_name().unwrap_or_default().as_ref() } else { path };
        let name = name.strip_prefix(base).unwrap_or(name).with_extension("");
        files.push((name.display().to_string(), path.to_owned()));
        return Ok(());
    }
    let reading = || format!("read the folder {}", path.display());
    let entries = fs::read_dir(path).with_context(reading)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().with_context(reading)?;
    paths.sort();
    for path in paths {
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if is_yaml || path.is_dir() {
            find(base, &path, depth - 1, files)?;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_found_in_folders_and_have_names() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("basic/deep")).unwrap();
        for file in ["b.yml", "a.yaml", "README.md", "basic/c.yaml", "basic/deep/d.yaml"] {
            fs::write(root.join(file), "").unwrap();
        }
        let mut files = Vec::new();
        find(root, root, DEPTH_MAX, &mut files).unwrap();
        let alone = root.join("basic/c.yaml");
        find(&alone, &alone, DEPTH_MAX, &mut files).unwrap();
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "basic/c", "basic/deep/d", "c"]);
        assert!(find(root, root, 2, &mut files).is_err());
    }
}
