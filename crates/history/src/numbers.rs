//! What the history counts of itself.

use std::sync::Arc;

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
}

impl Numbers {
    pub(crate) fn written(&self, rows: usize) {
        self.0.rows.add(rows as u64);
        self.0.commits.add(1);
    }

    pub(crate) fn failed(&self) {
        self.0.failures.add(1);
    }

    pub(crate) fn waiting(&self, entries: usize) {
        self.0.waiting.set(entries);
    }

    pub(crate) fn render(&self) -> String {
        let Inner { rows, commits, failures, waiting } = &*self.0;
        let mut page = Page::default();
        page.counter("pumice_history_rows_total", "Rows taken in.", rows.get());
        page.counter("pumice_history_commits_total", "Transactions written.", commits.get());
        page.counter("pumice_history_failures_total", "Transactions that failed and were tried again.", failures.get());
        page.gauge("pumice_history_waiting", "Entries that waited when the last batch was written.", waiting.get());
        page.into_text()
    }
}
