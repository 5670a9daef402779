//! Cases that were cut from a recording: played, and each plan compared with the one that the case holds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use pumice_engine::plugin::Registry;
use pumice_recording::{Case, CaseError, time};
use pumice_units::with_causes;

use super::{Counts, Outcome, Verdict};

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
        Err(error) => Verdict::Fails(with_causes(&error)),
    }));
    let verdict = verdict.unwrap_or_else(|_| Verdict::Fails("the engine panicked".to_owned()));
    let outcome = Outcome { name: case.name(path), verdict };
    let mut counts = Counts::default();
    counts.count(&outcome.verdict);
    each(&outcome);
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each begins with a saved World. One that can't be read tells of a row, or of facts, that were renamed.
    #[test]
    fn cases_of_earlier_versions_are_played() {
        let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/upgrade");
        let folders = std::fs::read_dir(&versions).unwrap().map(|entry| entry.unwrap().path());
        let mut passed = 0;
        for folder in folders.filter(|path| path.is_dir()) {
            for name in ["world.case", "redacted.case"] {
                let counts = check_recorded(&folder.join(name), &Registry::default(), |outcome| {
                    assert_eq!(outcome.verdict, Verdict::Pass, "{name} of {}", folder.display());
                });
                passed += counts.unwrap().passed;
            }
        }
        assert!(passed >= 2, "{passed}");
    }
}
