//! Numbers for `/metrics`, and the text format of Prometheus.
//!
//! Invariant: counting takes no lock but for counters by name; of those there are never more than [`LINES_MAX`]. On a page
//! every name has its HELP and TYPE once, before its lines; a histogram's classes add up to its count. Counted by components
//! and the API server, read by whoever serves them.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mod lines;
mod lint;

pub use lines::{LOG_LINES_LOST, LossyLines, Written};
pub use lint::lint;

/// Most lines of one counter by name; what comes later counts as [`OTHER`].
pub const LINES_MAX: usize = 10_000;
/// The name of everything beyond [`LINES_MAX`].
const OTHER: &str = "other";

/// A counter, or a gauge.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    /// A cell that stands at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds so much to what was counted; it wraps around at the end of `u64`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Is so much now.
    pub fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    /// The number as it is now; others may count at the same time.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters by name: the values of `N` labels.
#[derive(Debug)]
pub struct Counts<const N: usize> {
    labels: [&'static str; N],
    counts: Mutex<BTreeMap<[String; N], u64>>,
}

impl<const N: usize> Counts<N> {
    /// No counters yet; `labels` are the names of the labels.
    pub fn new(labels: [&'static str; N]) -> Self {
        Self { labels, counts: Mutex::default() }
    }

    /// Counts one more. O(log of the lines).
    pub fn add(&self, values: [&str; N]) {
        self.add_many(values, 1);
    }

    /// Counts so many more; a line is there from the first on. O(log of the lines).
    pub fn add_many(&self, values: [&str; N], more: u64) {
        if more == 0 {
            return;
        }
        let mut counts = self.counts();
        let mut key = values.map(str::to_owned);
        if counts.len() >= LINES_MAX && !counts.contains_key(&key) {
            key = [OTHER; N].map(str::to_owned);
        }
        let count = counts.entry(key).or_default();
        *count = count.saturating_add(more);
    }

    /// Shows each, in the order of the values.
    pub fn each(&self, mut show: impl FnMut([&str; N], u64)) {
        for (values, count) in &*self.counts() {
            show(values.each_ref().map(String::as_str), *count);
        }
    }

    /// All of them together.
    pub fn sum(&self) -> u64 {
        self.counts().values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<[String; N], u64>> {
        // Counts are whole at every moment.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Times, counted by class.
#[derive(Debug)]
pub struct Histogram {
    /// In the histogram's unit.
    bounds: Box<[f64]>,
    /// Units in a second.
    per_second: f64,
    /// One for each bound, and one for what is above all of them.
    classes: Box<[AtomicU64]>,
    sum_micros: AtomicU64,
}

impl Histogram {
    /// `bounds` are milliseconds, ascending.
    pub fn new(bounds: &[f64]) -> Self {
        Self::with_unit(bounds, 1e3)
    }

    /// `bounds` are seconds, ascending.
    pub fn in_seconds(bounds: &[f64]) -> Self {
        Self::with_unit(bounds, 1.0)
    }

    fn with_unit(bounds: &[f64], per_second: f64) -> Self {
        let classes = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds: bounds.into(), per_second, classes, sum_micros: AtomicU64::new(0) }
    }

    /// Counts a time in the first class whose bound it does not exceed.
    pub fn observe(&self, time: Duration) {
        let class = self.bounds.partition_point(|bound| *bound < time.as_secs_f64() * self.per_second);
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// A page of metrics.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// What a name means; its lines come next.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A line of the name that was headed last.
    pub fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.write(format_args!("{name}{} {value}\n", Labels(labels, None)));
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, &[], value);
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.line(name, &[], value);
    }

    /// Writes a counter with its names: a line for each, in the order of the values of their labels.
    pub fn counts<const N: usize>(&mut self, name: &str, help: &str, counts: &Counts<N>) {
        self.head(name, "counter", help);
        counts.each(|values, count| {
            let labels: Vec<(&str, &str)> = counts.labels.into_iter().zip(values).collect();
            self.line(name, &labels, count);
        });
    }

    /// Writes a histogram: its head, then a line for each class, the sum and the number of all.
    pub fn histogram(&mut self, name: &str, help: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        self.head(name, "histogram", help);
        self.classes(name, labels, histogram);
    }

    /// The lines of a histogram whose name was headed: one of several that differ by their labels.
    pub fn classes(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let mut count = 0;
        for (index, class) in histogram.classes.iter().enumerate() {
            count += class.load(Ordering::Relaxed);
            let bound = histogram.bounds.get(index).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            self.write(format_args!("{name}_bucket{} {count}\n", Labels(labels, Some(&bound))));
        }
        let sum = histogram.sum_micros.load(Ordering::Relaxed) as f64 / (1e6 / histogram.per_second);
        self.write(format_args!("{name}_sum{} {sum}\n", Labels(labels, None)));
        self.write(format_args!("{name}_count{} {count}\n", Labels(labels, None)));
    }

    /// The text of the page, in the exposition format of Prometheus.
    pub fn into_text(self) -> String {
        self.0
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // A String takes all it is given.
        let _ = self.0.write_fmt(text);
    }
}

/// Labels in braces, and the bound of a class.
struct Labels<'l>(&'l [(&'l str, &'l str)], Option<&'l str>);

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.0.iter().copied().chain(self.1.map(|bound| ("le", bound)));
        for (index, (name, value)) in all.enumerate() {
            f.write_str(if index == 0 { "{" } else { "," })?;
            let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            write!(f, "{name}=\"{value}\"")?;
        }
        if self.0.is_empty() && self.1.is_none() { Ok(()) } else { f.write_str("}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_on_a_bound_belongs_below_it_and_classes_add_up() {
        let histogram = Histogram::new(&[1.0, 10.0]);
        for micros in [500, 1_000, 1_001, 10_000, 10_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let mut page = Page::default();
        page.histogram("t", "Time", &[("a", "b")], &histogram);
        let wanted = "# HELP t Time\n# TYPE t histogram\nt_bucket{a=\"b\",le=\"1\"} 2\nt_bucket{a=\"b\",le=\"10\"} 4\n\
            t_bucket{a=\"b\",le=\"+Inf\"} 5\nt_sum{a=\"b\"} 22.502\nt_count{a=\"b\"} 5\n";
        assert_eq!(page.into_text(), wanted);
    }

    #[test]
    fn seconds_are_seconds() {
        let histogram = Histogram::in_seconds(&[0.005, 0.1]);
        for millis in [5, 6, 1_500] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut page = Page::default();
        page.classes("t", &[], &histogram);
        let wanted =
            "t_bucket{le=\"0.005\"} 1\nt_bucket{le=\"0.1\"} 2\nt_bucket{le=\"+Inf\"} 3\nt_sum 1.511\nt_count 3\n";
        assert_eq!(page.into_text(), wanted);
    }

    #[test]
    fn label_values_are_escaped() {
        let mut page = Page::default();
        page.line("m", &[("queue", "a\"b\\c\nd")], 1);
        assert_eq!(page.into_text(), "m{queue=\"a\\\"b\\\\c\\nd\"} 1\n");
    }

    #[test]
    fn names_are_counted_one_by_one_until_there_are_too_many() {
        let counts = Counts::new(["queue", "phase"]);
        for (queue, phase) in [("b", "Failed"), ("a", "Failed"), ("a", "Failed")] {
            counts.add([queue, phase]);
        }
        let mut page = Page::default();
        page.counts("m", "Ends", &counts);
        let wanted =
            "# HELP m Ends\n# TYPE m counter\nm{queue=\"a\",phase=\"Failed\"} 2\nm{queue=\"b\",phase=\"Failed\"} 1\n";
        assert_eq!(page.into_text(), wanted);
        (0..2 * LINES_MAX).for_each(|number| counts.add([&number.to_string(), "Failed"]));
        counts.add(["a", "Failed"]);
        assert_eq!(counts.sum(), 2 * LINES_MAX as u64 + 4);
        assert_eq!(counts.counts().len(), LINES_MAX + 1);
        assert_eq!(counts.counts()[&["a".to_owned(), "Failed".to_owned()]], 3);
    }
}
