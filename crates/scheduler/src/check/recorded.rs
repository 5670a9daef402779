//! Cases that were cut from a recording: played, and each plan compared with the one that the case holds.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use pumice_engine::plugin::Registry;

use super::{Counts, Outcome, Verdict};
use crate::record::{Case, CaseError, PlayError, time};

/// Runs a case that was cut from a recording, and tells `each` how it went.
///
/// # Errors
/// When the file is no such case, or is damaged.
pub fn check_recorded(path: &Path, registry: &Registry, each: impl FnOnce(&Outcome)) -> Result<Counts, CaseError> {
    let case = Case::read(path)?;
    let verdict = catch_unwind(AssertUnwindSafe(|| match case.run(registry) {
        Ok(None) => Verdict::Pass,
        Ok(Some(difference)) => {
            let (cycle, at) = (difference.cycle, time(difference.recorded.at));
            Verdict::Fails(format!("cycle {cycle} at {at} came out otherwise\n{}", difference.to_string().trim_end()))
        }
        Err(error) => Verdict::Fails(chain(&error)),
    }));
    let verdict = verdict.unwrap_or_else(|_| Verdict::Fails("the engine panicked".to_owned()));
    let outcome = Outcome { name: case.name(path), verdict };
    let mut counts = Counts::default();
    counts.count(&outcome.verdict);
    each(&outcome);
    Ok(counts)
}

/// An error and its causes on one line.
fn chain(error: &PlayError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
