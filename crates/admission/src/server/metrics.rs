//! What the webhook server counts.
//!
//! Invariant: one line for each path and outcome, never more; counting takes no lock.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::routes::{ROUTES, Route};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    Refused,
    /// No answer: the API server goes by its failure policy.
    Failed,
}

const OUTCOMES: [(Outcome, &str); 3] =
    [(Outcome::Admitted, "admitted"), (Outcome::Refused, "refused"), (Outcome::Failed, "failed")];

/// The counters of one server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    ends: [[AtomicU64; OUTCOMES.len()]; ROUTES.len()],
    micros: [AtomicU64; ROUTES.len()],
}

impl Metrics {
    /// Counts a request to `route` that took so long.
    pub fn count(&self, route: &Route, outcome: Outcome, took: Duration) {
        let Some(row) = ROUTES.iter().position(|known| known.path == route.path) else { return };
        self.ends[row][outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.micros[row].fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The page of `/metrics`.
    pub fn page(&self) -> String {
        let mut page = String::from(
            "# HELP pumice_admission_reviews_total Requests by path and outcome\n\
             # TYPE pumice_admission_reviews_total counter\n",
        );
        // A String takes whatever is written to it.
        for (route, ends) in ROUTES.iter().zip(&self.ends) {
            for ((_, outcome), end) in OUTCOMES.iter().zip(ends) {
                let (path, end) = (route.path, end.load(Ordering::Relaxed));
                let _ = writeln!(page, "pumice_admission_reviews_total{{path=\"{path}\",outcome=\"{outcome}\"}} {end}");
            }
        }
        page.push_str(
            "# HELP pumice_admission_review_seconds_total Time spent on requests, waits for other objects included\n\
             # TYPE pumice_admission_review_seconds_total counter\n",
        );
        for (route, micros) in ROUTES.iter().zip(&self.micros) {
            let seconds = Duration::from_micros(micros.load(Ordering::Relaxed)).as_secs_f64();
            let _ = writeln!(page, "pumice_admission_review_seconds_total{{path=\"{}\"}} {seconds}", route.path);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_path_and_outcome() {
        let metrics = Metrics::default();
        for (outcome, times) in [(Outcome::Admitted, 3), (Outcome::Refused, 2), (Outcome::Failed, 1)] {
            (0..times).for_each(|_| metrics.count(&ROUTES[1], outcome, Duration::from_millis(250)));
        }
        let page = metrics.page();
        for line in [
            "pumice_admission_reviews_total{path=\"/jobs/validate\",outcome=\"admitted\"} 3\n",
            "pumice_admission_reviews_total{path=\"/jobs/validate\",outcome=\"refused\"} 2\n",
            "pumice_admission_reviews_total{path=\"/jobs/validate\",outcome=\"failed\"} 1\n",
            "pumice_admission_reviews_total{path=\"/jobs/mutate\",outcome=\"failed\"} 0\n",
            "pumice_admission_review_seconds_total{path=\"/jobs/validate\"} 1.5\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }
}
