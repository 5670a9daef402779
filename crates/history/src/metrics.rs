//! What the history counts of itself.

use std::sync::{Arc, Mutex, PoisonError};

use pumice_cluster::metrics::{Cell, Page};

/// Counters; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rows: Cell,
    commits: Cell,
    failures: Cell,
    waiting: Cell,
    /// Why the last attempt to write failed; nothing if it did not.
    failing: Mutex<Option<String>>,
}

impl Numbers {
    pub(crate) fn written(&self, rows: usize) {
        self.0.rows.add(rows as u64);
        self.0.commits.add(1);
        self.well();
    }

    pub(crate) fn well(&self) {
        *self.0.failing.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn failed(&self, why: String) {
        self.0.failures.add(1);
        *self.0.failing.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    pub(crate) fn failing(&self) -> Option<String> {
        self.0.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn waiting(&self, entries: usize) {
        self.0.waiting.set(entries);
    }

    pub(crate) fn render(&self) -> String {
        let Inner { rows, commits, failures, waiting, .. } = &*self.0;
        let failing = u64::from(self.failing().is_some());
        let mut page = Page::default();
        page.counter("pumice_history_rows_total", "Rows taken in.", rows.get());
        page.counter("pumice_history_commits_total", "Transactions written.", commits.get());
        page.counter(
            "pumice_history_failures_total",
            "Attempts to open or write the database that failed.",
            failures.get(),
        );
        page.gauge("pumice_history_failing", "1 while the database can't be opened or written.", failing);
        page.gauge("pumice_history_waiting", "Entries that waited when the last batch was written.", waiting.get());
        page.into_text()
    }
}
