//! What the webhook server counts.
//!
//! Invariant: one line for each path and outcome, never more; counting takes no lock.

use std::time::Duration;

use pumice_cluster::metrics::{Cell, Histogram, Page};

use crate::routes::{ROUTES, Route};

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

/// Milliseconds up to which one request falls into each class; the API server waits for ten seconds.
const BOUNDS_MS: &[f64] = &[0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 5_000.0, 10_000.0];

/// The counters of one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    ends: [[Cell; OUTCOMES.len()]; ROUTES.len()],
    times: [Histogram; ROUTES.len()],
}

impl Default for Metrics {
    fn default() -> Self {
        Self { ends: Default::default(), times: std::array::from_fn(|_| Histogram::new(BOUNDS_MS)) }
    }
}

impl Metrics {
    /// Counts a request to `route` that took so long.
    pub fn count(&self, route: &Route, outcome: Outcome, took: Duration) {
        let Some(row) = ROUTES.iter().position(|known| known.path == route.path) else { return };
        self.ends[row][outcome as usize].add(1);
        self.times[row].observe(took);
    }

    /// The page of `/metrics`.
    pub fn page(&self) -> String {
        let mut page = Page::default();
        let name = "pumice_admission_reviews_total";
        page.head(name, "counter", "Requests by path and outcome");
        for (route, ends) in ROUTES.iter().zip(&self.ends) {
            for ((_, outcome), end) in OUTCOMES.iter().zip(ends) {
                page.line(name, &[("path", route.path), ("outcome", outcome)], end.get());
            }
        }
        let name = "pumice_admission_review_milliseconds";
        page.head(name, "histogram", "Time of a request, waits for other objects included, in milliseconds");
        for (route, times) in ROUTES.iter().zip(&self.times) {
            page.classes(name, &[("path", route.path)], times);
        }
        page.into_text()
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
            "pumice_admission_review_milliseconds_sum{path=\"/jobs/validate\"} 1500\n",
            "pumice_admission_review_milliseconds_bucket{path=\"/jobs/validate\",le=\"200\"} 0\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }
}
