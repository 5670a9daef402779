//! Schedule quality: how jobs fare under the engine, beside the engine without reservations (plain Volcano policy), strict
//! order, EASY and conservative backfilling; how starts come beside what was expected, and runs beside what was predicted.
//!
//! On generated workloads, and on every log in the folder that `PUMICE_BENCH_TRACES` names: those of the Parallel Workloads
//! Archive are not ours to ship.

use std::path::PathBuf;

use pumice_bench::figures::Figures;
use pumice_bench::setting::Setting;
use pumice_lab::simulate::figures::Figures as Fared;
use pumice_lab::simulate::forecasts::Quality;
use pumice_lab::simulate::{Looks, Request, Run, read};

const AGAINST: [&str; 4] = ["volcano", "fifo", "easy", "conservative"];

fn main() {
    let setting = Setting::read();
    let mut figures = Figures::open("quality");
    let mut table = vec![HEAD.map(str::to_owned).to_vec()];
    for (name, trace, nodes) in workloads(&setting) {
        if !setting.wants(&name) {
            continue;
        }
        let request = Request {
            trace,
            nodes,
            against: AGAINST.map(str::to_owned).to_vec(),
            warm_up: 0.01,
            looks: Looks { forecasts: true, predictors: true, series: false },
            ..Request::default()
        };
        let report = read(&request).unwrap_or_else(|error| panic!("{name}: {error}")).run(|_, _| {});
        for run in &report.runs {
            fared(&mut figures, &name, run);
            table.push(row(&name, run));
        }
        compared(&mut figures, &name, &report.runs);
        expected(&mut figures, &name, &report.runs[0]);
    }
    print(&table);
    std::process::exit(i32::from(!figures.finish()));
}

/// Names, traces and nodes.
fn workloads(setting: &Setting) -> Vec<(String, String, Option<String>)> {
    let size = |full: usize| setting.size(full);
    let mut all = vec![
        ("lublin".to_owned(), format!("lublin:jobs={},load=0.9", size(10_000)), None),
        ("farm".to_owned(), format!("farm:days=7,pods={},load=0.9", size(10_000)), None),
        ("ml".to_owned(), format!("ml:jobs={},machines=32,load=0.9", size(10_000)), None),
    ];
    let logs = setting.traces.iter().flat_map(|folder| {
        let files = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut logs: Vec<PathBuf> = files.map(|file| file.expect("a file of the folder").path()).collect();
        logs.retain(|path| path.extension().is_some_and(|ending| ending == "swf"));
        logs.sort();
        logs
    });
    all.extend(logs.map(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        (name, path.to_string_lossy().into_owned(), None)
    }));
    all
}

fn fared(figures: &mut Figures, name: &str, run: &Run) {
    let (fared, jobs) = (&run.figures, run.figures.all.jobs);
    let mut add = |figure: &str, value: f64, unit: &str| {
        figures.add(&format!("{name}/{}/{figure}", run.policy), value, unit, jobs);
    };
    add("use", fared.utilisation * 100.0, "%");
    add("wait_mean", fared.all.wait_s.mean / 60.0, "min");
    add("wait_p90", fared.all.wait_s.p90 / 60.0, "min");
    add("wait_p99", fared.all.wait_s.p99 / 60.0, "min");
    add("slowdown_mean", fared.all.slowdown.mean, "x");
    add("unfairness_users", fared.unfairness_of_users * 100.0, "%");
    add("longest_wait_largest", fared.longest_wait_of_the_largest_s / 3_600.0, "h");
}

/// What reservations change, and what is paid for it.
fn compared(figures: &mut Figures, name: &str, runs: &[Run]) {
    let of = |policy: &str| runs.iter().find(|run| run.policy == policy).map(|run| &run.figures);
    let Some(engine) = of("engine") else { return };
    for (policy, figure, read) in COMPARED {
        let Some(other) = of(policy) else { continue };
        let (own, others) = (read(engine), read(other));
        if others > 0.0 {
            figures.add(&format!("{name}/{figure}_of_{policy}"), own / others, "x", engine.all.jobs);
        }
    }
}

type Read = fn(&Fared) -> f64;

const COMPARED: [(&str, &str, Read); 4] = [
    ("volcano", "longest_wait_largest", |fared| fared.longest_wait_of_the_largest_s),
    ("volcano", "wait_mean", |fared| fared.all.wait_s.mean),
    ("easy", "wait_mean", |fared| fared.all.wait_s.mean),
    ("fifo", "wait_mean", |fared| fared.all.wait_s.mean),
];

fn expected(figures: &mut Figures, name: &str, run: &Run) {
    let Some((forecasts, predictions)) = run.forecasts.zip(run.predictions) else { return };
    let mut quality = |kind: &str, quality: Quality| {
        let mut add = |figure: &str, value: f64, unit: &str| {
            figures.add(&format!("{name}/forecast/{kind}/{figure}"), value, unit, quality.answered);
        };
        add("inside_80", quality.inside * 100.0, "%");
        add("error_p50", quality.error_p50_s / 60.0, "min");
        add("width_p50", quality.width_p50_s / 60.0, "min");
        add("within_1m", quality.within_1m * 100.0, "%");
        add("within_10m", quality.within_10m * 100.0, "%");
    };
    quality("first", forecasts.first);
    quality("later", forecasts.later);
    quality("naive_first", forecasts.naive_first);
    quality("naive_later", forecasts.naive_later);
    figures.add(&format!("{name}/forecast/all/within_1m"), forecasts.all_within_1m * 100.0, "%", run.figures.all.jobs);
    figures.add(
        &format!("{name}/forecast/all/within_10m"),
        forecasts.all_within_10m * 100.0,
        "%",
        run.figures.all.jobs,
    );
    let (engine, last_two) = (predictions.engine, predictions.last_two);
    figures.add(&format!("{name}/predictor/accuracy"), engine.accuracy * 100.0, "%", engine.jobs);
    figures.add(&format!("{name}/predictor/over_by_p95"), engine.within * 100.0, "%", engine.jobs);
    figures.add(&format!("{name}/predictor/last_two_accuracy"), last_two.accuracy * 100.0, "%", last_two.jobs);
    let of = engine.accuracy / last_two.accuracy.max(f64::MIN_POSITIVE);
    figures.add(&format!("{name}/predictor/accuracy_of_last_two"), of, "x", engine.jobs);
}

const HEAD: [&str; 10] = [
    "workload",
    "policy",
    "use %",
    "wait mean",
    "p50",
    "p90",
    "p99 (h)",
    "slowdown",
    "unfair %",
    "longest, largest (h)",
];

fn row(name: &str, run: &Run) -> Vec<String> {
    let (fared, hours) = (&run.figures, |seconds: f64| format!("{:.2}", seconds / 3_600.0));
    let wait = fared.all.wait_s;
    vec![
        name.to_owned(),
        run.policy.clone(),
        format!("{:.1}", fared.utilisation * 100.0),
        hours(wait.mean),
        hours(wait.p50),
        hours(wait.p90),
        hours(wait.p99),
        format!("{:.1}", fared.all.slowdown.mean),
        format!("{:.1}", fared.unfairness_of_users * 100.0),
        hours(fared.longest_wait_of_the_largest_s),
    ]
}

/// As Markdown has tables, so that it can be put into a page.
fn print(table: &[Vec<String>]) {
    println!();
    for (place, row) in table.iter().enumerate() {
        println!("| {} |", row.join(" | "));
        if place == 0 {
            println!("|{}", "---|".repeat(row.len()));
        }
    }
}
