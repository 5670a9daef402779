//! How long the database takes to write, and what it refuses.

use std::time::Instant;

use pumice_metrics::{Counts, Histogram, Page};

/// Seconds that a write may take.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// How long writes took, by kind, and how many failed.
#[derive(Debug)]
pub struct Writes {
    submissions: Histogram,
    requests: Histogram,
    commits: Histogram,
    failures: Counts<1>,
}

/// The kind of a write, as the label of its metrics has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Submission,
    Request,
    Commit,
}

impl Default for Writes {
    fn default() -> Self {
        let times = || Histogram::in_seconds(&SECONDS);
        let failures = Counts::new(["kind"]);
        Self { submissions: times(), requests: times(), commits: times(), failures }
    }
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Submission => "submission",
            Kind::Request => "request",
            Kind::Commit => "commit",
        }
    }
}

impl Writes {
    fn times(&self, kind: Kind) -> &Histogram {
        match kind {
            Kind::Submission => &self.submissions,
            Kind::Request => &self.requests,
            Kind::Commit => &self.commits,
        }
    }

    /// A write that `began` was answered.
    pub(super) fn observe<T>(&self, kind: Kind, began: Instant, answer: &Result<T, super::Error>) {
        self.times(kind).observe(began.elapsed());
        // What a queue is expected to be is no failure of the database.
        if matches!(answer, Err(super::Error::Failed(_) | super::Error::Closed)) {
            self.failures.add([kind.word()]);
        }
    }

    /// Lines of a page.
    pub fn write(&self, page: &mut Page) {
        let name = "pumice_fleet_database_write_seconds";
        page.head(
            name,
            "histogram",
            "Time from asking the database to write to its answer, what waited before it included",
        );
        for kind in [Kind::Submission, Kind::Request, Kind::Commit] {
            page.classes(name, &[("kind", kind.word())], self.times(kind));
        }
        let help = "Writes that the database did not take";
        page.counts("pumice_fleet_database_write_failures_total", help, &self.failures);
    }
}
