//! How large a measurement is: from the command line and the environment, in one place.

use std::path::PathBuf;
use std::time::Duration;

/// Sizes and bounds of a run.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Share of the full size; `PUMICE_BENCH_SCALE`, 1 by default, 0.01 under `cargo test`.
    pub scale: f64,
    /// Only scenarios whose name holds one of these; `PUMICE_BENCH_ONLY`, separated by commas.
    pub only: Vec<String>,
    /// A folder of logs in the Standard Workload Format; `PUMICE_BENCH_TRACES`, none by default.
    pub traces: Option<PathBuf>,
    /// A scenario that takes longer is given up; `PUMICE_BENCH_SECONDS`, 180 by default.
    pub limit: Duration,
}

impl Setting {
    /// Reads them. `cargo test --benches` runs benches too, to see that they work: then all is small.
    #[allow(clippy::disallowed_methods)] // a binary may read its environment
    pub fn read() -> Setting {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let small = !std::env::args().any(|arg| arg == "--bench");
        let scale = variable("PUMICE_BENCH_SCALE").and_then(|text| text.parse().ok());
        let seconds = variable("PUMICE_BENCH_SECONDS").and_then(|text| text.parse().ok());
        let only = variable("PUMICE_BENCH_ONLY").unwrap_or_default();
        Setting {
            scale: scale.unwrap_or(if small { 0.01 } else { 1.0 }),
            only: only.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
            traces: variable("PUMICE_BENCH_TRACES").map(PathBuf::from),
            limit: Duration::from_secs(seconds.unwrap_or(180)),
        }
    }

    /// `full` at this run's scale, at least 1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn size(&self, full: usize) -> usize {
        ((full as f64 * self.scale).round() as usize).max(1)
    }

    /// Whether a scenario is asked for.
    pub fn wants(&self, scenario: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| scenario.contains(word.as_str()))
    }
}
