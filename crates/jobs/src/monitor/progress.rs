//! How far a job is: counts, rate, time left, in one line.
//!
//! Invariant: counts come from the job's status, not from its pods, so a job of 300,000 pods costs
//! the same as one of three. Pure: time comes in as milliseconds. Called while `run` and `wait` wait.

use std::cmp::Ordering;

use crate::job::Counts;
use serde::Serialize;

use crate::output::age;

/// Over how long the rate is measured.
const WINDOW_MS: i64 = 30_000;
/// Samples kept of that window; older ones are thinned.
const SAMPLES_MAX: usize = 64;
/// Cells of the bar.
const BAR_CELLS: u64 = 12;
/// Cells of the bar that are not full: the first of what is still to be done.
const SHADES: [char; 3] = ['░', '▒', '▓'];

/// Remembers recent counts, to tell the rate.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    samples: Vec<Sample>,
    counts: Counts,
}

/// How many pods had ended at a time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at_ms: i64,
    done: u64,
}

impl Progress {
    /// Takes note of counts at `now_ms` (any steady clock).
    pub fn observe(&mut self, counts: Counts, now_ms: i64) {
        // A restart throws finished pods away: the rate starts anew.
        if counts.done() < self.counts.done() {
            self.samples.clear();
        }
        self.counts = counts;
        self.samples.retain(|sample| now_ms - sample.at_ms <= WINDOW_MS);
        if self.samples.len() >= SAMPLES_MAX {
            // Drop every other one but the newest; the rate needs the ends of the window only.
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        self.samples.push(Sample { at_ms: now_ms, done: counts.done() });
    }

    /// Finished pods per second over the window; `None` without progress.
    pub fn rate(&self) -> Option<f64> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        let (elapsed_ms, done) = (last.at_ms - first.at_ms, last.done.checked_sub(first.done)?);
        (elapsed_ms > 0 && done > 0).then(|| done as f64 * 1000.0 / elapsed_ms as f64)
    }

    /// Seconds until all pods have ended at the present rate; `None` without one, or when all have.
    pub fn left_s(&self) -> Option<i64> {
        let left = self.counts.total.saturating_sub(self.counts.done());
        if left == 0 {
            return None;
        }
        Some((left as f64 / self.rate()?).ceil() as i64)
    }

    /// The same as the line for programs.
    pub fn snapshot(&self) -> Snapshot {
        let Counts { total, succeeded, failed, running, waiting } = self.counts;
        let rate = self.left_s().and(self.rate());
        Snapshot { total, succeeded, failed, running, waiting, rate, left_seconds: self.left_s() }
    }

    /// The line, at most `width` characters; the bar and then the tail go first where it is narrow.
    pub fn line(&self, width: usize, bar: bool) -> String {
        let Counts { total, succeeded, failed, running, waiting } = self.counts;
        let percent = (self.counts.done() * 100).checked_div(total).unwrap_or(0);
        let mut parts = vec![
            format!("{percent} % {}/{} ok", grouped(succeeded), grouped(total)),
            format!("{} run", grouped(running)),
            format!("{} wait", grouped(waiting)),
        ];
        if failed > 0 {
            parts.insert(1, format!("{} fail", grouped(failed)));
        }
        if let Some(rate) = self.rate()
            && waiting + running > 0
        {
            parts.push(if rate >= 10.0 { format!("{rate:.0}/s") } else { format!("{rate:.1}/s") });
            parts.extend(self.left_s().map(|left| format!("left {}", left_text(left))));
        }
        let bar = if bar { bar_of(self.counts.done(), total) } else { String::new() };
        let full = format!("{bar}{}", parts.join(" · "));
        if full.chars().count() <= width {
            return full;
        }
        while parts.len() > 1 && parts.join(" · ").chars().count() > width {
            parts.pop();
        }
        parts.join(" · ").chars().take(width).collect()
    }
}

/// What the progress line says, as a JSON object for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Pods the job asks for.
    pub total: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub running: u64,
    /// Pods that wait or do not exist yet.
    pub waiting: u64,
    /// Pods that end in a second; `null` if unknown.
    pub rate: Option<f64>,
    /// Seconds until all have ended; `null` if unknown.
    pub left_seconds: Option<i64>,
}

/// `68 s`, but `5m30s`.
fn left_text(seconds: i64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { age::short(seconds) }
}

/// Cells from full to faint, followed by a space; the one between is as dark as it is full, so that no gap is seen.
fn bar_of(done: u64, total: u64) -> String {
    let parts = SHADES.len() as u64;
    let filled = (done.min(total) * BAR_CELLS * parts).checked_div(total).unwrap_or(0);
    let (full, part) = (filled / parts, (filled % parts) as usize);
    let cell = |cell: u64| match cell.cmp(&full) {
        Ordering::Less => '█',
        Ordering::Equal => SHADES[part],
        Ordering::Greater => SHADES[0],
    };
    (0..BAR_CELLS).map(cell).chain([' ']).collect()
}

/// A number for people, with its digits in groups, such as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(total: u64, succeeded: u64, failed: u64, running: u64) -> Counts {
        Counts { total, succeeded, failed, running, waiting: total - succeeded - failed - running }
    }

    #[test]
    fn lines() {
        let mut progress = Progress::default();
        let mut lines = Vec::new();
        progress.observe(counts(100_000, 0, 0, 0), 0);
        lines.push(progress.line(120, true));
        progress.observe(counts(100_000, 71_240, 12, 3_980), 20_000);
        for (width, bar) in [(120, true), (120, false), (70, true), (30, true), (8, true)] {
            lines.push(progress.line(width, bar));
        }
        progress.observe(counts(100_000, 100_000, 0, 0), 25_000);
        lines.push(progress.line(120, true));
        let mut empty = Progress::default();
        empty.observe(counts(0, 0, 0, 0), 0);
        lines.push(empty.line(120, true));
        let mut slow = Progress::default();
        slow.observe(counts(3, 0, 0, 3), 0);
        slow.observe(counts(3, 1, 0, 2), 10_000);
        lines.push(slow.line(120, false));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn a_restart_starts_the_rate_anew() {
        let mut progress = Progress::default();
        progress.observe(counts(4, 0, 0, 4), 0);
        progress.observe(counts(4, 2, 0, 2), 1000);
        assert_eq!(progress.rate(), Some(2.0));
        progress.observe(counts(4, 0, 0, 0), 2000);
        assert_eq!(progress.rate(), None);
    }

    #[test]
    fn many_samples_stay_bounded_and_the_rate_right() {
        let mut progress = Progress::default();
        for step in 0..10_000 {
            progress.observe(counts(100_000, step, 0, 0), step as i64 * 10);
        }
        assert!(progress.samples.len() <= SAMPLES_MAX);
        let rate = progress.rate().unwrap();
        assert!((99.0..101.0).contains(&rate), "{rate}");
    }
}
