//! Jobs away from home, and home jobs that want their nodes back.

use pumice_engine::{PodTemplate, Taint, TaintEffect, Toleration};
use pumice_ledger::{AwayToleration, Phase, RunPhase};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

const AWAY: i32 = -5;

pub(crate) fn constraints(pool: PoolRules) -> Constraints {
    let taints = vec![AwayToleration { key: "gpu".to_owned(), value: None, effect: Some("NoSchedule".to_owned()) }];
    let small = Condition { resource: "cpu".to_owned(), compare: Compare::Less, amount: 4000 };
    let kinds = vec![NodeKind { name: "gpu".to_owned(), taints, conditions: vec![small] }];
    let ways = [("default".to_owned(), vec![Way { priority: AWAY, kinds }])].into();
    let away = AwayRules { ways, pools: [("p".to_owned(), pool)].into(), ..AwayRules::default() };
    Constraints { away, ..Constraints::default() }
}

/// A node at home of `home` cores, and one that is kept for others of `kept`.
fn scene(home: i64, kept: i64, constraints: Constraints) -> Fixture {
    let mut scene = Fixture::within(&[("one", "home", home)], &[("q", 1.0), ("gpus", 1.0)], constraints);
    let taint = Taint { key: "gpu".to_owned(), value: "true".to_owned(), effect: TaintEffect::NoSchedule };
    let facts = NodeFacts {
        name: "kept".into(),
        allocatable: [("cpu".to_owned(), kept * 1000), ("pods".to_owned(), 110)].into(),
        taints: vec![taint],
        ..NodeFacts::default()
    };
    scene.pool.apply(&[node_delta("one", facts)]);
    scene
}

/// A job that is at home on the kept node.
fn submit_gpu(scene: &mut Fixture, cores: i64) -> JobId {
    let job = JobId(scene.next);
    scene.next += 1;
    let gpu = Toleration { key: "gpu".to_owned(), exists: true, ..Toleration::default() };
    let template = PodTemplate { tolerations: vec![gpu], ..PodTemplate::default() };
    let shape = Shape {
        priority_class: "urgent".to_owned(),
        requests: [("cpu".to_owned(), cores * 1000)].into(),
        template: serde_json::to_value(template).unwrap(),
        volcano_job: None,
        price_band: None,
        retries: None,
    };
    let digest = Digest(9_000_000 + cores.unsigned_abs() as u128);
    let submitted = Submitted { job, spec: Digest(1), shape: digest, priority: 0, gang: None, fail_fast: false };
    let entry = Entry {
        shapes: [(digest, shape)].into(),
        events: vec![Event::Submitted(submitted)],
        ..Entry::new(pumice_ledger::TimeMs(scene.now), "gpus", "set")
    };
    assert_eq!(scene.ledger.fold(&entry), []);
    job
}

fn away(scene: &Fixture, job: JobId) -> Option<i32> {
    let run = scene.ledger.current(job).and_then(|run| scene.ledger.run(run)).expect("a run");
    run.away.as_deref().map(|away| away.priority)
}

fn starts(scene: &mut Fixture) {
    let leased: Vec<JobId> =
        scene.ledger.runs().filter(|(_, row)| row.phase == RunPhase::Leased).map(|(run, _)| run.job).collect();
    leased.into_iter().for_each(|job| scene.report(job, ReportKind::Running(PodRef::default(), String::new())));
}

#[test]
fn what_finds_no_room_at_home_goes_away() {
    let mut scene = scene(1, 2, constraints(PoolRules::default()));
    let jobs: Vec<JobId> = (0..4).map(|_| scene.submit("q", "default", 1, 0, None)).collect();
    let leased = scene.round();
    let at: Vec<Option<&str>> = jobs.iter().map(|job| leased.get(job).map(String::as_str)).collect();
    assert_eq!(at, [Some("one/home"), Some("one/kept"), Some("one/kept"), None]);
    assert_eq!([0, 1, 2].map(|index| away(&scene, jobs[index])), [None, Some(AWAY), Some(AWAY)]);
    starts(&mut scene);
    assert_eq!(scene.round(), BTreeMap::new());
    let why = scene.why(jobs[3]);
    assert!(why.contains("it could also run away from home, on nodes of type gpu, at priority -5"), "{why}");
    // What is free at home again is taken before what is away.
    scene.report(jobs[0], ReportKind::Succeeded);
    assert_eq!(scene.round().values().collect::<Vec<_>>(), ["one/home"]);
    scene.report(jobs[1], ReportKind::Succeeded);
    let last = scene.submit("q", "default", 1, 0, None);
    let leased = scene.round();
    assert_eq!(leased.get(&last).map(String::as_str), Some("one/kept"), "{}", scene.why(last));
}

#[test]
fn home_jobs_take_their_nodes_back() {
    let mut scene = scene(1, 2, constraints(PoolRules::default()));
    let jobs: Vec<JobId> = (0..3).map(|_| scene.submit("q", "default", 1, 0, None)).collect();
    assert_eq!(scene.round().len(), 3);
    starts(&mut scene);
    let gpu = submit_gpu(&mut scene, 1);
    assert_eq!(scene.round(), BTreeMap::new(), "the room is not free yet");
    let leaving: Vec<JobId> = jobs
        .iter()
        .copied()
        .filter(|job| scene.ledger.job(*job).is_some_and(|job| job.phase == Phase::Leaving))
        .collect();
    assert_eq!(leaving.len(), 1);
    assert_ne!(leaving[0], jobs[0], "who is at home stays");
    scene.report(leaving[0], ReportKind::Gone);
    let leased = scene.round();
    assert_eq!(leased.into_iter().collect::<Vec<_>>(), [(gpu, "one/kept".to_owned())]);
    assert_eq!(away(&scene, gpu), None);
}

#[test]
fn pools_and_conditions_say_who_goes_away() {
    let all = PoolRules::default();
    for (rules, cores, gang, wanted) in [
        (all, 1, false, vec!["one/home", "one/kept"]),
        (PoolRules { away: false, ..all }, 1, false, vec!["one/home"]),
        (PoolRules { home: false, ..all }, 1, false, vec!["one/kept", "one/kept"]),
        (PoolRules { gangs: false, ..all }, 1, false, vec!["one/home", "one/kept"]),
        // Together or not at all, and so all of it is away.
        (all, 1, true, vec!["one/kept", "one/kept"]),
        (PoolRules { gangs: false, ..all }, 1, true, vec![]),
        // It asks for too much of cpu.
        (all, 4, false, vec![]),
    ] {
        let mut scene = scene(1, 8, constraints(rules));
        let gang = || gang.then(|| Gang { id: "g".to_owned(), cardinality: 2, uniformity: String::new() });
        let jobs = [0, 1].map(|_| scene.submit("q", "default", cores, 0, gang()));
        let leased = scene.round();
        assert_eq!(leased.values().collect::<Vec<_>>(), wanted, "{rules:?} {cores}");
        if !rules.home {
            assert_eq!(away(&scene, jobs[0]), Some(AWAY));
        }
        // Nothing changes by itself.
        starts(&mut scene);
        assert_eq!(scene.round(), BTreeMap::new());
        assert_eq!(scene.ledger.runs().count(), wanted.len());
    }
}

#[test]
fn an_urgent_job_waits_at_home() {
    let mut scene = scene(0, 2, constraints(PoolRules::default()));
    let urgent = scene.submit("q", "urgent", 1, 0, None);
    assert_eq!(scene.round(), BTreeMap::new());
    assert!(!scene.why(urgent).contains("away"), "its class has no way");
}

#[test]
fn limits_count_what_is_away() {
    let limit = pumice_ledger::ClassLimit { fraction: [("cpu".to_owned(), 0.5)].into(), ..Default::default() };
    let constraints =
        Constraints { per_queue: [("default".to_owned(), limit)].into(), ..constraints(PoolRules::default()) };
    let mut scene = scene(2, 2, constraints);
    for _ in 0..4 {
        scene.submit("q", "default", 1, 0, None);
    }
    assert_eq!(scene.round().len(), 2);
    starts(&mut scene);
    assert_eq!(scene.round().len(), 0);
}

/// Whatever happens: nothing is started twice, and all of it ends.
#[test]
fn all_end_at_home_or_away() {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut scene = scene(2, 3, constraints(PoolRules::default()));
        let mut left = 0;
        for step in 0..400 {
            match rng.gen_range(0..6) {
                _ if step > 200 => {}
                0 => {
                    submit_gpu(&mut scene, 1);
                    left += 1;
                }
                1 => {
                    let id = format!("g{step}");
                    for _ in 0..2 {
                        let gang = Gang { id: id.clone(), cardinality: 2, uniformity: String::new() };
                        scene.submit("q", "default", 1, rng.gen_range(0..2), Some(gang));
                    }
                    left += 2;
                }
                2 | 3 => {
                    scene.submit("q", "default", 1, rng.gen_range(0..2), None);
                    left += 1;
                }
                _ => {}
            }
            let mut runs: Vec<(RunId, RunPhase)> = scene.ledger.runs().map(|(run, row)| (run, row.phase)).collect();
            runs.sort_unstable();
            for (run, phase) in runs {
                let kind = match phase {
                    RunPhase::Stopping => ReportKind::Gone,
                    RunPhase::Leased if rng.gen_bool(0.2) => ReportKind::Returned("lost".to_owned(), false),
                    RunPhase::Leased => ReportKind::Running(PodRef::default(), String::new()),
                    _ if rng.gen_bool(0.5) => {
                        left -= 1;
                        ReportKind::Succeeded
                    }
                    _ => continue,
                };
                let report = Report { cluster: "one".to_owned(), run, kind };
                let inbox = Inbox { reports: vec![report], ..Inbox::default() };
                scene.ledger.decide(pumice_ledger::TimeMs(scene.now), inbox, Retries::default());
            }
            let leased = scene.round();
            let runs = scene.ledger.runs().filter(|(_, row)| row.at.node == "kept");
            let at_kept = runs.count();
            assert!(at_kept <= 3, "seed {seed}: {at_kept} on 3 cores, {leased:?}");
        }
        assert_eq!((left, scene.ledger.jobs().count()), (0, 0), "seed {seed}");
    }
}
