//! What is counted of requests, under upstream's names.
//!
//! Invariant: a request of a kind that was asked for before costs a hash, a lock for reading and a few atomic additions; no
//! memory is taken. There are never more than [`SERIES_MAX`] series: what clients make up counts as one. Counted by the
//! pipeline through [`crate::handlers::request_log`], shown by [`crate::handlers::metrics_page`].

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::StatusCode;
use pumice_metrics::{Histogram, Page};

/// Most series; then everything new counts as the one without labels.
const SERIES_MAX: usize = 10_000;
/// Codes that are counted by themselves.
const CODES: [u16; 22] =
    [101, 200, 201, 202, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504];
/// Upstream's bounds, in seconds.
const BOUNDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// What a request is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Labels<'r> {
    pub(crate) verb: &'static str,
    pub(crate) group: &'r str,
    pub(crate) version: &'r str,
    pub(crate) resource: &'r str,
    pub(crate) subresource: &'r str,
    /// `cluster`, `namespace` or `resource`.
    pub(crate) scope: &'static str,
    pub(crate) dry_run: bool,
}

impl Labels<'_> {
    const OTHER: Labels<'static> =
        Labels { verb: "other", group: "", version: "", resource: "", subresource: "", scope: "", dry_run: false };

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }
}

/// The counters of requests of one kind.
#[derive(Debug)]
pub(crate) struct Series {
    verb: &'static str,
    scope: &'static str,
    dry_run: bool,
    /// Group, version, resource, subresource.
    names: [Box<str>; 4],
    codes: [AtomicU64; CODES.len()],
    other_codes: AtomicU64,
    durations: Histogram,
    /// Those that go on: watches and streams.
    long_running: AtomicU64,
}

impl Series {
    fn new(labels: &Labels<'_>) -> Self {
        Self {
            verb: labels.verb,
            scope: labels.scope,
            dry_run: labels.dry_run,
            names: [labels.group, labels.version, labels.resource, labels.subresource].map(Into::into),
            codes: std::array::from_fn(|_| AtomicU64::new(0)),
            other_codes: AtomicU64::new(0),
            durations: Histogram::in_seconds(&BOUNDS),
            long_running: AtomicU64::new(0),
        }
    }

    fn labels(&self) -> Labels<'_> {
        let [group, version, resource, subresource] = &self.names;
        let (verb, scope, dry_run) = (self.verb, self.scope, self.dry_run);
        Labels { verb, group, version, resource, subresource, scope, dry_run }
    }

    /// Counts an answer; `took` is none of what goes on.
    pub(crate) fn count(&self, code: StatusCode, took: Option<Duration>) {
        let known = CODES.binary_search(&code.as_u16()).ok();
        known.map_or(&self.other_codes, |at| &self.codes[at]).fetch_add(1, Relaxed);
        if let Some(took) = took {
            self.durations.observe(took);
        }
    }

    pub(crate) fn begin_long(&self) {
        self.long_running.fetch_add(1, Relaxed);
    }

    pub(crate) fn end_long(&self) {
        self.long_running.fetch_sub(1, Relaxed);
    }

    /// Shows `write` the labels in upstream's order.
    fn with_labels(&self, code: Option<&str>, write: impl FnOnce(&[(&str, &str)])) {
        let Labels { verb, group, version, resource, subresource, scope, dry_run } = self.labels();
        let all = [
            ("code", code.unwrap_or_default()),
            ("component", "apiserver"),
            ("dry_run", if dry_run { "All" } else { "" }),
            ("group", group),
            ("resource", resource),
            ("scope", scope),
            ("subresource", subresource),
            ("verb", verb),
            ("version", version),
        ];
        write(if code.is_some() { &all[..] } else { &all[1..] });
    }
}

/// Everything that is counted of requests.
#[derive(Debug)]
pub(crate) struct RequestMetrics {
    series: RwLock<HashMap<u64, Arc<Series>>>,
    other: Arc<Series>,
    in_flight: [AtomicU64; 2],
}

impl Default for RequestMetrics {
    fn default() -> Self {
        let other = Arc::new(Series::new(&Labels::OTHER));
        Self { series: RwLock::default(), other, in_flight: Default::default() }
    }
}

impl RequestMetrics {
    /// The counters for `labels`. `known` says whether they name something that is served: it is asked the first time.
    pub(crate) fn series(&self, labels: &Labels<'_>, known: impl FnOnce() -> bool) -> Arc<Series> {
        let hash = labels.hash();
        let found = self.series.read().unwrap_or_else(PoisonError::into_inner).get(&hash).cloned();
        match found {
            Some(series) if series.labels() == *labels => return series,
            // Two that share a hash: one of them has no counters of its own.
            Some(_) => return Arc::clone(&self.other),
            None if !known() => return Arc::clone(&self.other),
            None => {}
        }
        let mut all = self.series.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SERIES_MAX {
            return Arc::clone(&self.other);
        }
        Arc::clone(all.entry(hash).or_insert_with(|| Arc::new(Series::new(labels))))
    }

    /// Requests under way that change something, or that read.
    pub(crate) fn in_flight(&self, mutating: bool) -> &AtomicU64 {
        &self.in_flight[usize::from(mutating)]
    }

    /// Writes all of it.
    pub(crate) fn show(&self, page: &mut Page) {
        let mut all: Vec<Arc<Series>> =
            self.series.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.push(Arc::clone(&self.other));
        all.sort_by_cached_key(|series| format!("{:?}", series.labels()));
        self.show_counts(&all, page);
        let name = "apiserver_request_duration_seconds";
        page.head(name, "histogram", "How long requests took that do not go on, by kind");
        for series in &all {
            series.with_labels(None, |labels| page.classes(name, labels, &series.durations));
        }
        let name = "apiserver_longrunning_requests";
        page.head(name, "gauge", "Watches and streams that go on, by kind");
        for series in &all {
            let count = series.long_running.load(Relaxed);
            if count > 0 {
                series.with_labels(None, |labels| page.line(name, labels, count));
            }
        }
        let name = "apiserver_current_inflight_requests";
        page.head(name, "gauge", "Requests under way that do not go on");
        for (index, kind) in ["readOnly", "mutating"].into_iter().enumerate() {
            page.line(name, &[("request_kind", kind)], self.in_flight[index].load(Relaxed));
        }
    }

    fn show_counts(&self, all: &[Arc<Series>], page: &mut Page) {
        let name = "apiserver_request_total";
        page.head(name, "counter", "Requests that were answered, by kind and code");
        for series in all {
            let codes = CODES.iter().map(|code| code.to_string()).zip(&series.codes);
            for (code, count) in codes.chain([("other".to_owned(), &series.other_codes)]) {
                let count = count.load(Relaxed);
                if count > 0 {
                    series.with_labels(Some(&code), |labels| page.line(name, labels, count));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(resource: &str) -> Labels<'_> {
        Labels { verb: "GET", group: "", version: "v1", resource, subresource: "", scope: "resource", dry_run: false }
    }

    #[test]
    fn codes_are_in_order() {
        assert!(CODES.is_sorted());
    }

    #[test]
    fn a_kind_has_one_series_and_what_is_made_up_none() {
        let metrics = RequestMetrics::default();
        let first = metrics.series(&labels("pods"), || true);
        first.count(StatusCode::OK, Some(Duration::from_millis(3)));
        metrics.series(&labels("pods"), || panic!("known already")).count(StatusCode::IM_A_TEAPOT, None);
        metrics.series(&labels("nonsense"), || false).count(StatusCode::NOT_FOUND, None);
        let mut page = Page::default();
        metrics.show(&mut page);
        let page = page.into_text();
        let line = "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",\
                    scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"} 1\n";
        assert!(page.contains(line), "{page}");
        assert!(page.contains("code=\"other\"") && !page.contains("nonsense"), "{page}");
        assert!(page.contains("verb=\"GET\",version=\"v1\",le=\"0.005\"} 1\n"), "{page}");
    }

    #[test]
    fn series_are_bounded() {
        let metrics = RequestMetrics::default();
        for number in 0..SERIES_MAX + 10 {
            metrics.series(&labels(&number.to_string()), || true).count(StatusCode::OK, None);
        }
        assert_eq!(metrics.series.read().unwrap().len(), SERIES_MAX);
        assert_eq!(metrics.other.codes[1].load(Relaxed), 10);
    }
}
