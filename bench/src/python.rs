//! Measurements that are Python programs, because what they measure is: they print figures, which are kept here as all others.
//!
//! Invariant: a figure counts only if its program ended well, which it does only if every result it saw was right.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use serde::Deserialize;

use crate::figures::Figures;
use crate::setting::Setting;

/// A line of such a program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    value: f64,
    unit: String,
    n: usize,
}

/// Takes the figures of `bench`, whose program is `bench/python/BENCH.py`; `pumice` and all else it runs is beside `program`.
///
/// # Panics
/// When the results can't be written.
pub fn measure(bench: &'static str, program: &Path) -> ExitCode {
    let mut figures = Figures::open(bench);
    let measured = run(bench, program.parent().unwrap_or(program), &Setting::read(), &mut figures);
    figures.finish();
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("NOT MEASURED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(script: &str, built: &Path, setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/run");
    let mut program = Command::new(run)
        .args([Path::new(script), built])
        .env("PUMICE_BENCH_SCALE", setting.scale.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start bench/python/run {script}"))?;
    let printed = program.stdout.take().context("its output is a pipe")?;
    // Where this ends early its pipe is closed, and so the program ends, too.
    let written = write(BufReader::new(printed), figures);
    let status = program.wait().context("wait for it")?;
    written?;
    anyhow::ensure!(status.success(), "{script}.py ended with {status}");
    Ok(())
}

fn write(printed: impl BufRead, figures: &mut Figures) -> anyhow::Result<()> {
    for line in printed.lines() {
        let line = line.context("read its output")?;
        let figure: Line = serde_json::from_str(&line).with_context(|| format!("no figure: {line}"))?;
        figures.add(&figure.name, figure.value, &figure.unit, figure.n);
    }
    Ok(())
}
