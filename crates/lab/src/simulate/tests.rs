//! Whole simulations: what the table says of a small trace, that equal inputs give equal answers, that no job is lost.

use std::collections::BTreeMap;

use super::trace::tests::{job, trace};
use super::trace::{Job, Notes};
use super::*;

fn simulation(trace: Trace, nodes: &str, policies: &[&str]) -> Simulation {
    let policy = |name: &&str| match Baseline::from_name(name) {
        Some(baseline) => Policy::Baseline(baseline),
        None if *name == "volcano" => Policy::without_reservations(Config::default()),
        None => Policy::Engine(Box::default()),
    };
    let nodes = nodes::parse(nodes).unwrap();
    let mut trace = trace;
    trace.fit(&nodes);
    Simulation {
        name: "test".to_owned(),
        trace,
        nodes,
        policies: policies.iter().map(|name| ((*name).to_owned(), policy(name))).collect(),
        plugins: Registry::default(),
        warm_up: 0.0,
        delays: Delays::default(),
        looks: Looks::default(),
    }
}

fn histories(simulation: &Simulation) -> BTreeMap<String, History> {
    let mut all = BTreeMap::new();
    simulation.run(|name, history| {
        all.insert(name.to_owned(), history.clone());
    });
    all
}

fn small() -> Trace {
    let mut jobs = vec![
        job("long", 0, 3, 60, 100),
        job("wide", 1, 4, 10, 10),
        job("small", 2, 1, 20, 50),
        job("beyond", 3, 1, 200, 300),
        job("other", 600, 1, 5, 10),
        job("huge", 601, 9, 5, 10),
    ];
    jobs[4].queue = "other".into();
    trace(jobs)
}

#[test]
fn the_table_of_a_small_trace() {
    let report = simulation(small(), "4x1cpu", &["volcano", "fifo"]).run(|_, _| {});
    insta::assert_snapshot!(report.table());
}

#[test]
fn the_json_of_a_small_trace() {
    let report = simulation(small(), "2x2cpu", &["fifo"]).run(|_, _| {});
    insta::assert_json_snapshot!(report);
}

#[test]
fn without_reservations_small_jobs_pass_a_wide_one() {
    let history = &histories(&simulation(small(), "4x1cpu", &["volcano"]))["volcano"];
    let started: Vec<i64> = history.outcomes.iter().map(|outcome| outcome.started_ms.unwrap() / 1_000).collect();
    // `small` and `beyond` take the one free core in turn, so that `wide` waits until `beyond` has ended.
    assert_eq!(started, [0, 222, 2, 22, 600]);
    assert_eq!(history.outcomes[1].ended_ms, Some(232_000));
    assert_eq!(history.outcomes[2].ended_ms, Some(22_000));
}

#[test]
fn what_runs_too_long_is_ended_at_its_limit() {
    let history = &histories(&simulation(trace(vec![job("long", 0, 2, 100, 30)]), "2x1cpu", &["engine"]))["engine"];
    assert_eq!(history.outcomes[0].ended_ms, Some(30_000));
    assert_eq!(history.holds, [history::Hold { job: 0, pods: 2, from_ms: 0, to_ms: 30_000 }]);
}

#[test]
fn a_victim_begins_anew_and_what_it_ran_is_lost() {
    let low = Job { preemptable: true, ..job("low", 0, 2, 100, 1_000) };
    let high = Job { priority: 100, ..job("high", 40, 2, 50, 1_000) };
    let history = &histories(&simulation(trace(vec![low, high]), "2x1cpu", &["engine"]))["engine"];
    let (low, high) = (&history.outcomes[0], &history.outcomes[1]);
    assert_eq!((low.evicted, low.started_ms, low.lost_core_ms), (2, Some(0), 2 * 70_000 * 1_000));
    // 30 s of grace, 50 s of the other, then 100 s from the beginning.
    assert_eq!((high.started_ms, high.ended_ms, low.ended_ms), (Some(70_000), Some(120_000), Some(220_000)));
}

#[test]
fn an_elastic_job_starts_with_what_fits() {
    let elastic = Job { min: 1, ..job("elastic", 0, 5, 10, 10) };
    let history = &histories(&simulation(trace(vec![elastic]), "2x1cpu", &["engine"]))["engine"];
    assert_eq!(history.outcomes[0].started_ms, Some(0));
    assert_eq!(history.outcomes[0].ended_ms, Some(30_000));
}

#[test]
fn what_never_starts_is_said_with_its_reason() {
    // Room on each node, but never for both at once: `closed` can't hold more than it may.
    let config = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n";
    let mut simulation = simulation(trace(vec![job("a", 0, 1, 10, 10), job("b", 1, 2, 10, 10)]), "2x1cpu", &[]);
    let (config, _) = Config::parse_with(config, &simulation.plugins).unwrap();
    simulation.policies = vec![("bare".to_owned(), Policy::Engine(Box::new(config)))];
    // A node that takes no pods is not counted among those that jobs are fitted to, so that it is cordoned afterwards.
    simulation.nodes[1].unschedulable = true;
    let report = simulation.run(|_, _| {});
    let figures = &report.runs[0].figures;
    assert_eq!((figures.all.jobs, figures.all.never_started), (2, 1));
    assert_eq!(figures.why_never.values().sum::<usize>(), 1);
}

/// Runs what `words` generate twice, checks what happened to each job, and that both runs say the same.
fn answers_are_equal_and_no_job_is_lost(words: &str) {
    let (trace, nodes) = generate::generate(words).unwrap();
    let simulation = simulation(trace, &nodes, &["engine", "volcano", "fifo", "easy", "conservative"]);
    let check = |name: &str, history: &history::History| {
        for (job, outcome) in simulation.trace.jobs.iter().zip(&history.outcomes) {
            assert!(outcome.ended_ms >= outcome.started_ms, "{name} {}", job.name);
            assert!(outcome.ended_ms.is_some(), "{name}: {} never ended", job.name);
            assert!(outcome.started_ms >= Some(job.submit_ms), "{name} {}", job.name);
        }
        // All that was held is what the jobs ran, and what was lost to evictions.
        let held = |hold: &history::Hold| {
            let milli = simulation.trace.jobs[hold.job as usize].cpu_milli() * i64::from(hold.pods);
            i128::from(milli) * i128::from(hold.to_ms - hold.from_ms)
        };
        let held: i128 = history.holds.iter().map(held).sum();
        let lost: i128 = history.outcomes.iter().map(|outcome| outcome.lost_core_ms).sum();
        let ran = |job: &Job| i128::from(job.cpu_milli_all()) * i128::from(job.held_ms());
        assert_eq!(held, lost + simulation.trace.jobs.iter().map(ran).sum::<i128>(), "{name}");
    };
    let text = |report: &Report| serde_json::to_string(report).unwrap();
    let again = || text(&simulation.run(|_, _| {}));
    let (first, second) = std::thread::scope(|scope| {
        let again = scope.spawn(again);
        (text(&simulation.run(check)), again.join().unwrap())
    });
    assert_eq!(first, second);
}

#[test]
fn equal_clusters_of_batch_jobs_give_equal_answers() {
    answers_are_equal_and_no_job_is_lost("lublin:jobs=300,seed=5,procs=64,load=1.1");
}

#[test]
fn equal_farms_give_equal_answers() {
    answers_are_equal_and_no_job_is_lost("farm:days=1,pods=3000");
}

#[test]
fn equal_clusters_that_train_models_give_equal_answers() {
    answers_are_equal_and_no_job_is_lost("ml:jobs=200,machines=4,load=1.2");
}

#[test]
fn an_empty_trace_has_figures() {
    let empty = Trace::new(Vec::new(), BTreeMap::new(), Notes::default());
    let report = simulation(empty, "1x1cpu", &["engine", "fifo"]).run(|_, _| {});
    assert_eq!(report.runs[0].figures.all.jobs, 0);
    assert!(report.table().contains("0 jobs"));
}
