//! A report for people: one column for each policy, and how the others differ from the first.
//!
//! Invariant: the widths of columns depend on what is in them alone. Called by [`super::Report::table`];
//! the fleet's simulator shares [`align`] and [`time`].

use std::fmt::Write as _;

use super::figures::{Figures, Of, Spread};
use super::{Report, Run};

/// How a figure is shown.
#[derive(Clone, Copy)]
enum Form {
    /// Seconds.
    Time,
    /// A part of 1.
    Part,
    /// A number with a fraction.
    Number,
    Count,
}

type Read = fn(&Figures) -> f64;

/// What is said of the run as a whole.
const ROWS: &[(&str, Form, Read)] = &[
    ("jobs", Form::Count, |figures| figures.all.jobs as f64),
    ("never started", Form::Count, |figures| figures.all.never_started as f64),
    ("wait mean", Form::Time, |figures| figures.all.wait_s.mean),
    ("wait p50", Form::Time, |figures| figures.all.wait_s.p50),
    ("wait p90", Form::Time, |figures| figures.all.wait_s.p90),
    ("wait p99", Form::Time, |figures| figures.all.wait_s.p99),
    ("slowdown mean", Form::Number, |figures| figures.all.slowdown.mean),
    ("slowdown p50", Form::Number, |figures| figures.all.slowdown.p50),
    ("slowdown p99", Form::Number, |figures| figures.all.slowdown.p99),
    ("utilisation", Form::Part, |figures| figures.utilisation),
    ("unfairness, queues", Form::Part, |figures| figures.unfairness_of_queues),
    ("unfairness, users", Form::Part, |figures| figures.unfairness_of_users),
    ("evictions", Form::Count, |figures| figures.evictions as f64),
    ("lost core-hours", Form::Number, |figures| figures.lost_core_hours),
    ("deadlines missed", Form::Count, |figures| figures.deadlines_missed as f64),
    ("makespan", Form::Time, |figures| figures.makespan_s),
    ("longest wait, largest", Form::Time, |figures| figures.longest_wait_of_the_largest_s),
];

pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String never fails.
    let _ = head(&mut text, report);
    let mut rows: Vec<Vec<String>> = vec![titles(report)];
    for (name, form, read) in ROWS {
        rows.push(row((*name).to_owned(), *form, report, |figures| Some(read(figures))));
    }
    rows.push(Vec::new());
    rows.push(vec!["wait by size".to_owned(), "jobs".to_owned()]);
    let sizes: Vec<&str> =
        report.runs.first().into_iter().flat_map(|run| &run.figures.by_size).map(|(name, _)| name.as_str()).collect();
    for size in sizes {
        let of = |figures: &Figures| figures.by_size.iter().find(|(name, _)| name == size).map(|(_, of)| of.clone());
        rows.extend(group(size, report, of));
    }
    rows.push(Vec::new());
    rows.push(vec!["wait by queue".to_owned()]);
    let queues: Vec<&String> = report.runs.first().into_iter().flat_map(|run| run.figures.by_queue.keys()).collect();
    for queue in queues {
        rows.extend(group(queue, report, |figures| figures.by_queue.get(queue).cloned()));
    }
    align(&mut text, &rows);
    for run in &report.runs {
        forecasts(&mut text, run);
        predictions(&mut text, run);
    }
    why(&mut text, &report.runs);
    text
}

/// How starts came beside what was expected.
fn forecasts(text: &mut String, run: &Run) {
    let Some(forecasts) = &run.forecasts else { return };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut rows =
        vec![words(&["", "asked", "answered", "in 80 %", "off by, p50", "width, p50", "< 1 min", "< 10 min"])];
    let kinds = [
        ("engine, when submitted", forecasts.first),
        ("engine, later", forecasts.later),
        ("last 100 of the queue, when submitted", forecasts.naive_first),
        ("last 100 of the queue, later", forecasts.naive_later),
    ];
    for (name, quality) in kinds {
        let part = |value: f64| format_figure(value, Form::Part);
        let mut row = vec![name.to_owned(), quality.questions.to_string(), quality.answered.to_string()];
        // No answer was neither right nor wrong.
        if quality.answered > 0 {
            row.extend([part(quality.inside), time(quality.error_p50_s), time(quality.width_p50_s)]);
            row.extend([part(quality.within_1m), part(quality.within_10m)]);
        }
        rows.push(row);
    }
    let _ = writeln!(text, "\nexpected starts under {}", run.policy);
    align(text, &rows);
    let (one, ten) =
        (format_figure(forecasts.all_within_1m, Form::Part), format_figure(forecasts.all_within_10m, Form::Part));
    let at_once = forecasts.started_at_once;
    let _ =
        writeln!(text, "with the {at_once} jobs that started when they came: {one} within 1 min, {ten} within 10 min");
}

/// How runs were as expected.
fn predictions(text: &mut String, run: &Run) {
    let Some(predictions) = &run.predictions else { return };
    let mut rows = vec![["", "jobs", "accuracy", "over by then"].map(str::to_owned).to_vec()];
    let kinds = [
        ("engine", predictions.engine),
        ("mean of the user's last two", predictions.last_two),
        ("limit", predictions.limit),
    ];
    for (name, found) in kinds {
        let part = |value: f64| format_figure(value, Form::Part);
        rows.push(vec![name.to_owned(), found.jobs.to_string(), part(found.accuracy), part(found.within)]);
    }
    let _ = writeln!(text, "\nexpected runs under {}", run.policy);
    align(text, &rows);
}

fn head(text: &mut String, report: &Report) -> std::fmt::Result {
    let Report { trace, jobs, pods, nodes, cores, load, .. } = report;
    writeln!(text, "trace     {trace}: {jobs} jobs, {pods} pods")?;
    writeln!(text, "cluster   {nodes} nodes, {cores} cores, offered load {:.2}", load)?;
    let (from, to) = (time(report.measured_from_s), time(report.measured_to_s));
    writeln!(text, "measured  utilisation, unfairness and load from {from} to the last submission at {to}")?;
    for (what, times) in report.notes.iter() {
        writeln!(text, "noted     {times} {what}")?;
    }
    writeln!(text)
}

fn titles(report: &Report) -> Vec<String> {
    let mut titles = vec![String::new()];
    for (place, run) in report.runs.iter().enumerate() {
        titles.push(run.policy.clone());
        if place > 0 {
            titles.push("+/-".to_owned());
        }
    }
    titles
}

/// The figure of each policy, and beside all but the first how it differs from the first's.
fn row(name: String, form: Form, report: &Report, read: impl Fn(&Figures) -> Option<f64>) -> Vec<String> {
    let mut row = vec![name];
    let first = report.runs.first().and_then(|run| read(&run.figures));
    for (place, run) in report.runs.iter().enumerate() {
        let value = read(&run.figures);
        row.push(value.map_or_else(|| "-".to_owned(), |value| format_figure(value, form)));
        if place > 0 {
            row.push(first.zip(value).map_or_else(String::new, |(first, value)| difference(first, value)));
        }
    }
    row
}

fn group(name: &str, report: &Report, of: impl Fn(&Figures) -> Option<Of>) -> [Vec<String>; 2] {
    let read = |pick: fn(&Spread) -> f64| {
        let of = &of;
        move |figures: &Figures| of(figures).map(|of| pick(&of.wait_s))
    };
    [
        row(format!("{name}, mean"), Form::Time, report, read(|spread| spread.mean)),
        row(format!("{name}, p99"), Form::Time, report, read(|spread| spread.p99)),
    ]
}

fn why(text: &mut String, runs: &[Run]) {
    for run in runs.iter().filter(|run| !run.figures.why_never.is_empty()) {
        let _ = writeln!(text, "\nwhy jobs never started under {}", run.policy);
        let mut all: Vec<(&String, &usize)> = run.figures.why_never.iter().collect();
        all.sort_by_key(|(_, jobs)| std::cmp::Reverse(**jobs));
        for (why, jobs) in all.into_iter().take(WHYS_MAX) {
            let _ = writeln!(text, "  {jobs} x {}", why.replace('\n', " "));
        }
    }
}

/// Reasons that are shown.
const WHYS_MAX: usize = 5;

/// Adds rows to a text: the first column to the left, the others to the right.
pub fn align(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if column == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn format_figure(value: f64, form: Form) -> String {
    match form {
        Form::Time => time(value),
        Form::Part => format!("{:.1} %", value * 100.0),
        Form::Number => format!("{value:.1}"),
        Form::Count => format!("{value:.0}"),
    }
}

/// In per cent of the first, where there is something to compare with.
fn difference(first: f64, value: f64) -> String {
    if first == value {
        return "=".to_owned();
    }
    if first == 0.0 {
        return String::new();
    }
    format!("{:+.0} %", (value - first) / first * 100.0)
}

/// A time of so many seconds, for people: two units are enough.
pub fn time(seconds: f64) -> String {
    let whole = seconds.round() as i64;
    match whole {
        ..60 => format!("{whole}s"),
        60..3_600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h{:02}m", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (seconds, text) in [(0.4, "0s"), (59.0, "59s"), (61.0, "1m01s"), (7_260.0, "2h01m"), (90_000.0, "1d01h")] {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn differences_are_of_the_first() {
        for (first, value, text) in [(2.0, 1.0, "-50 %"), (1.0, 1.0, "="), (0.0, 1.0, ""), (1.0, 3.0, "+200 %")] {
            assert_eq!(difference(first, value), text);
        }
    }
}
