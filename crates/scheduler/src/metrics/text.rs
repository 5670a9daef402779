//! The text format of Prometheus, and the one kind of number that is more than a number.
//!
//! Invariant: every name has its HELP and TYPE once, before its lines; a histogram's classes add up to its count.

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Times, counted by class.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is above all of them.
    classes: Box<[AtomicU64]>,
    sum_micros: AtomicU64,
}

impl Histogram {
    /// `bounds` are milliseconds, ascending.
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let classes = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, classes, sum_micros: AtomicU64::new(0) }
    }

    pub(super) fn observe(&self, time: Duration) {
        let class = self.bounds.partition_point(|bound| *bound < time.as_secs_f64() * 1e3);
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// A page of metrics.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    pub(super) fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.write(format_args!("{name}{} {value}\n", Labels(labels, None)));
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, &[], value);
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.line(name, &[], value);
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut count = 0;
        for (index, class) in histogram.classes.iter().enumerate() {
            count += class.load(Ordering::Relaxed);
            let bound = histogram.bounds.get(index).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            self.write(format_args!("{name}_bucket{} {count}\n", Labels(labels, Some(&bound))));
        }
        let sum = histogram.sum_micros.load(Ordering::Relaxed) as f64 / 1e3;
        self.write(format_args!("{name}_sum{} {sum}\n", Labels(labels, None)));
        self.write(format_args!("{name}_count{} {count}\n", Labels(labels, None)));
    }

    pub(super) fn into_text(self) -> String {
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
    fn label_values_are_escaped() {
        let mut page = Page::default();
        page.line("m", &[("queue", "a\"b\\c\nd")], 1);
        assert_eq!(page.into_text(), "m{queue=\"a\\\"b\\\\c\\nd\"} 1\n");
    }
}
