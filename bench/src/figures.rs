//! Figures: written as lines of JSON, shown as a table, judged by the range file.
//!
//! `bench/results/latest.jsonl` gets one line a figure, `{"name","value","unit","n","env"}`; a bench replaces its own
//! lines of an earlier run. `bench/ranges.json` says what a figure is compared with and which values are accepted.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::machine;

/// What is accepted of figures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Name of the figure; a `*` stands for any part of it.
    pub figure: String,
    /// What it is compared with.
    pub compared_with: String,
    /// Least value.
    pub min: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
}

/// The figures of one bench.
pub struct Figures {
    bench: &'static str,
    env: String,
    path: PathBuf,
    ranges: Vec<Range>,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    value: f64,
    unit: String,
}

impl Figures {
    /// Begins the figures of `bench`, whose name begins theirs. What it wrote before is taken away.
    ///
    /// # Panics
    /// When the results can't be written or the range file can't be read.
    pub fn open(bench: &'static str) -> Figures {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        std::fs::create_dir_all(root.join("results")).expect("create bench/results");
        let path = root.join("results/latest.jsonl");
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let own = format!("{bench}/");
        let is_own = |line: &&str| {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            line["name"].as_str().is_some_and(|name| name.starts_with(&own))
        };
        let kept: String = before.lines().filter(|line| !is_own(line)).map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, kept).expect("write bench/results/latest.jsonl");
        let ranges = std::fs::read(root.join("ranges.json")).expect("read bench/ranges.json");
        let ranges = serde_json::from_slice(&ranges).expect("bench/ranges.json is a list of ranges");
        Figures { bench, env: machine::description(), path, ranges, rows: Vec::new() }
    }

    /// Writes a figure: `n` is how many measurements it stands for.
    ///
    /// # Panics
    /// When it can't be written.
    pub fn add(&mut self, name: &str, value: f64, unit: &str, n: usize) {
        let name = format!("{}/{name}", self.bench);
        let value = round(value);
        let line = json!({"name": name, "value": value, "unit": unit, "n": n, "env": self.env});
        println!("{line}");
        let mut file = std::fs::File::options().append(true).create(true).open(&self.path).expect("open the results");
        writeln!(file, "{line}").expect("write a figure");
        self.rows.push(Row { name, value, unit: unit.to_owned() });
    }

    /// Writes the median and the 99th of a hundred, in milliseconds; gives both.
    pub fn times(&mut self, name: &str, times: &[Duration]) -> (f64, f64) {
        let (p50, p99) = (percentile(times, 50), percentile(times, 99));
        self.add(&format!("{name}_p50"), p50, "ms", times.len());
        self.add(&format!("{name}_p99"), p99, "ms", times.len());
        (p50, p99)
    }

    /// Shows all figures with their ranges; `false` if one is out of its range.
    pub fn finish(self) -> bool {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let mut good = true;
        println!();
        for row in &self.rows {
            let range = self.ranges.iter().find(|range| matches(&range.figure, &row.name));
            let verdict = range.map(|range| {
                let inside =
                    range.min.is_none_or(|min| row.value >= min) && range.max.is_none_or(|max| row.value <= max);
                good &= inside;
                let min = range.min.map(|min| format!("at least {min}"));
                let max = range.max.map(|max| format!("at most {max}"));
                let bounds: Vec<String> = [min, max].into_iter().flatten().collect();
                let word = if inside { "ok" } else { "OUT OF RANGE" };
                format!("{word}: {} ({})", bounds.join(", "), range.compared_with)
            });
            println!("{:width$}  {:>12} {:<8} {}", row.name, row.value, row.unit, verdict.unwrap_or_default());
        }
        println!();
        good
    }
}

/// A value with four digits that count.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    #[allow(clippy::cast_possible_truncation)] // the size of a number, a few hundred at most
    let digits = 3 - value.abs().log10().floor() as i32;
    let factor = 10_f64.powi(digits.clamp(0, 12));
    (value * factor).round() / factor
}

/// The value below which `percent` of a hundred lie, in milliseconds.
///
/// # Panics
/// When there are no times.
pub fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted[index].as_secs_f64() * 1e3
}

/// Whether `name` is `pattern`, in which a `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name
            .strip_prefix(start)
            .is_some_and(|left| (0..=left.len()).any(|at| left.get(at..).is_some_and(|left| matches(rest, left)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expected) in [
            ("a/b", "a/b", true),
            ("a/b", "a/bc", false),
            ("a/*/c", "a/b/c", true),
            ("a/*/c", "a/c", false),
            ("*ratio", "x/y_ratio", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!((percentile(&times, 50), percentile(&times, 99)), (50.0, 99.0));
        assert_eq!(percentile(&times[..1], 99), 100.0);
    }

    #[test]
    fn four_digits_are_kept() {
        assert_eq!([round(1234.56), round(0.012_345), round(98_765.4), round(0.0)], [1235.0, 0.01235, 98_765.0, 0.0]);
    }

    #[test]
    fn the_range_file_can_be_read() {
        let text = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("ranges.json")).unwrap();
        let ranges: Vec<Range> = serde_json::from_slice(&text).unwrap();
        assert!(ranges.iter().all(|range| range.min.is_some() || range.max.is_some()));
    }
}
