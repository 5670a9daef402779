//! The script of `jobctl submit SCRIPT`, with the flags of its first lines.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

use pumice_jobs::idempotency;
use pumice_jobs::script::{Carrier, SCRIPT_BYTES_MAX, Script};

use super::usage;
use crate::args::{JobArgs, Work};
use crate::failure::Failure;
use crate::files::read_bounded;
use crate::terminal;

/// A script and what its lines ask for.
pub struct Given {
    pub script: Script,
    pub args: JobArgs,
}

/// Reads it, to travel in that; `None` where the command line has none.
pub fn read(work: &Work, carrier: Carrier) -> Result<Option<Given>, Failure> {
    let Some(path) = work.script.first() else { return Ok(None) };
    if path.starts_with('-') {
        return Err(usage(format!("unexpected flag {path}; the flags of a command go after --")));
    }
    let bytes = read_bounded(Path::new(path), SCRIPT_BYTES_MAX as u64).map_err(|error| Failure::Usage {
        message: format!("cannot read the script {path}: {error}; a command goes after --"),
        next: format!("jobctl run -- {}", work.script.join(" ")),
    })?;
    let mut script = Script::read(path, &bytes, String::new(), carrier).map_err(|error| usage(error.to_string()))?;
    let header = script.header().map_err(|error| usage(error.to_string()))?;
    for warning in &header.warnings {
        terminal::say(&format!("warning: {path}, {warning}"));
    }
    let mut args = JobArgs::default();
    for line in &header.lines {
        let of_line = JobArgs::of_line(&line.words)
            .map_err(|problem| usage(format!("{path}, line {}: {problem}", line.number)))?;
        args = of_line.over(args);
    }
    // A key names one job, so its script has one name too.
    let key = work.flags.idempotency_key.as_ref().or(args.idempotency_key.as_ref());
    script.tag = key.map_or_else(made_up, |key| idempotency::tag(key));
    Ok(Some(Given { script, args }))
}

/// Eight digits that nobody else has.
fn made_up() -> String {
    // The standard library seeds its hash tables from the system's randomness.
    let random = RandomState::new().build_hasher().finish();
    format!("{:08x}", random >> 32)
}
