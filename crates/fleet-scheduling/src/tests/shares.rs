//! Whatever happened before: once nothing fails any more, every queue that wants it has its share again.

use pumice_ledger::RunPhase;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

const QUEUES: [(&str, f64); 3] = [("a", 1.0), ("b", 1.0), ("c", 2.0)];
const NODES: usize = 8;
const CORES: i64 = 2;
const STEPS: usize = 40;
const SEEDS: u64 = 20;
/// Rounds in which all has to settle, and quiet ones after which it has.
const CALM: usize = 400;
const QUIET: usize = 5;

fn node(scene: &mut Fixture, index: usize, unschedulable: bool) {
    let name = format!("n{index}").into();
    let allocatable = [("cpu".to_owned(), CORES * 1000), ("pods".to_owned(), 110)].into();
    let facts = NodeFacts { name, allocatable, unschedulable, ..NodeFacts::default() };
    scene.pool.apply(&[node_delta("one", facts)]);
}

fn runs(scene: &Fixture, which: impl Fn(&pumice_ledger::Run) -> bool) -> Vec<JobId> {
    let mut jobs: Vec<JobId> = scene.ledger.runs().filter(|(_, row)| which(row)).map(|(run, _)| run.job).collect();
    jobs.sort_unstable();
    jobs
}

/// What is told of pods between two rounds.
fn pods(scene: &mut Fixture) -> bool {
    let leaving = runs(scene, |row| row.phase == RunPhase::Stopping);
    let leased = runs(scene, |row| row.phase == RunPhase::Leased);
    leaving.iter().for_each(|job| scene.report(*job, ReportKind::Gone));
    leased.iter().for_each(|job| scene.report(*job, ReportKind::Running(PodRef::default(), String::new())));
    !leaving.is_empty() || !leased.is_empty()
}

fn trouble(scene: &mut Fixture, rng: &mut StdRng) {
    match rng.gen_range(0..6) {
        0 => {
            let (queue, _) = QUEUES[rng.gen_range(0..QUEUES.len())];
            for _ in 0..rng.gen_range(1..12) {
                let class = if rng.gen_bool(0.1) { "urgent" } else { "default" };
                scene.submit(queue, class, 1, rng.gen_range(0..3), None);
            }
        }
        1 => {
            let index = rng.gen_range(0..NODES);
            node(scene, index, true);
            let lost = runs(scene, |row| row.at.node == format!("n{index}") && row.phase != RunPhase::Stopping);
            lost.iter().for_each(|job| scene.report(*job, ReportKind::Returned("lost".to_owned(), false)));
        }
        2 => node(scene, rng.gen_range(0..NODES), false),
        3 => {
            let running = runs(scene, |row| row.phase == RunPhase::Running);
            if !running.is_empty() {
                scene.report(running[rng.gen_range(0..running.len())], ReportKind::Succeeded);
            }
        }
        _ => {
            pods(scene);
        }
    }
    scene.round();
}

#[test]
fn shares_are_restored_after_faults() {
    for seed in 0..SEEDS {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut scene = Fixture::new(&[], &QUEUES);
        (0..NODES).for_each(|index| node(&mut scene, index, false));
        (0..STEPS).for_each(|_| trouble(&mut scene, &mut rng));
        // What is urgent here makes no room for anybody: it ends.
        let urgent: Vec<JobId> = runs(&scene, |row| !scene.ledger.is_preemptible(row));
        (0..NODES).for_each(|index| node(&mut scene, index, false));
        for job in urgent {
            scene.report(job, ReportKind::Succeeded);
        }
        for (queue, _) in QUEUES {
            for _ in 0..20 {
                scene.submit(queue, "default", 1, 5, None);
            }
        }
        let (mut rounds, mut quiet) = (0, 0);
        while quiet < QUIET {
            rounds += 1;
            assert!(rounds < CALM, "seed {seed}: it does not settle");
            let leased = !scene.round().is_empty();
            let told = pods(&mut scene);
            let urgent: Vec<JobId> = runs(&scene, |row| !scene.ledger.is_preemptible(row));
            urgent.iter().for_each(|job| scene.report(*job, ReportKind::Succeeded));
            quiet = if leased || told { 0 } else { quiet + 1 };
        }
        let held = |queue: &str| runs(&scene, |row| scene.ledger.owner_of_run(row).0 == queue).len();
        let held = QUEUES.map(|(queue, _)| held(queue));
        // 16 cores for weights of 2, 2 and 1.
        let fair = [6..=7, 6..=7, 3..=4];
        let is_fair = held.iter().zip(fair).all(|(held, fair)| fair.contains(held));
        assert!(is_fair && held.iter().sum::<usize>() == 16, "seed {seed}: {held:?} after {rounds} rounds");
    }
}
