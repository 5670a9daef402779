//! `pumice scheduler`: the scheduler's tools for one who has no cluster at hand.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use pumice_scheduler::check::{Counts, check};

use crate::args::SchedulerCommand;

/// A case failed.
const FAILED: u8 = 1;
/// There was nothing to check.
const UNREADABLE: u8 = 2;

pub fn run(command: &SchedulerCommand) -> ExitCode {
    let SchedulerCommand::Check { file } = command;
    match check_file(file) {
        Ok(counts) if counts.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => {
            eprintln!("pumice: {error:#}");
            ExitCode::from(UNREADABLE)
        }
    }
}

fn check_file(file: &Path) -> anyhow::Result<Counts> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} could not be read", file.display()))?;
    let mut out = std::io::stdout().lock();
    let mut written = Ok(());
    let counts = check(&text, |outcome| {
        if written.is_ok() {
            written = writeln!(out, "{outcome}");
        }
    })
    .with_context(|| format!("{} can't be checked", file.display()))?;
    written.and_then(|()| writeln!(out, "{counts}")).context("the outcome could not be written")?;
    Ok(counts)
}
