//! Volcano jobs: gangs of pods that lie in one cluster.

use pumice_engine::{Taint, TaintEffect};
use pumice_ledger::{RunPhase, VolcanoJob, VolcanoTask};

use super::*;

/// Nodes of so many cores in a cluster that runs Volcano jobs.
fn cluster(scene: &mut Fixture, cluster: &str, nodes: &[(&str, i64)]) {
    for (name, cores) in nodes {
        let facts = NodeFacts {
            name: (*name).into(),
            allocatable: [("cpu".to_owned(), cores * 1000), ("pods".to_owned(), 110)].into(),
            labels: [(CLUSTER_LABEL.to_owned(), cluster.to_owned())].into(),
            ..NodeFacts::default()
        };
        scene.pool.apply(&[node_delta(cluster, facts)]);
    }
}

/// Parts as pods and cores of each.
pub(crate) fn submit(scene: &mut Fixture, queue: &str, least: u32, parts: &[(u32, i64)]) -> JobId {
    let job = JobId(scene.next);
    scene.next += 1;
    let part = |(pods, cores): &(u32, i64)| VolcanoTask {
        pods: *pods,
        requests: [("cpu".to_owned(), cores * 1000)].into(),
        template: serde_json::Value::Null,
    };
    let whole = VolcanoJob { least, parts: parts.iter().map(part).collect() };
    let cores: i64 = parts.iter().map(|(pods, cores)| i64::from(*pods) * cores).sum();
    let body = Shape {
        priority_class: "default".to_owned(),
        requests: [("cpu".to_owned(), cores * 1000)].into(),
        template: serde_json::Value::Null,
        volcano_job: Some(whole),
        price_band: None,
        retries: None,
    };
    let shape = Digest(1_000_000_000 + job.0);
    let submitted = Submitted { job, spec: Digest(1), shape, priority: 0, gang: None, fail_fast: false };
    let at = pumice_ledger::TimeMs(scene.now);
    let events = vec![Event::Submitted(submitted)];
    let entry = Entry { shapes: [(shape, body)].into(), events, ..Entry::new(at, queue, "set") };
    assert_eq!(scene.ledger.fold(&entry), []);
    job
}

/// Where a job's run has room: cluster, and its pods by node.
fn places(scene: &Fixture, job: JobId) -> String {
    let (_, run) = scene.ledger.runs().find(|(run, _)| run.job == job).expect("a run");
    let mut places: Vec<String> = run.places.iter().map(|place| format!("{} {:?}", place.node, place.pods)).collect();
    places.sort();
    format!("{}: {}", run.at.cluster, places.join(", "))
}

#[test]
fn it_lies_in_one_cluster_that_has_room_for_all_of_it() {
    let mut scene = Fixture::new(&[], &[("q", 1.0)]);
    cluster(&mut scene, "one", &[("a", 2)]);
    cluster(&mut scene, "two", &[("a", 2), ("b", 1)]);
    let job = submit(&mut scene, "q", 3, &[(1, 1), (2, 1)]);
    assert_eq!(scene.round().into_keys().collect::<Vec<_>>(), [job]);
    let found = places(&scene, job);
    assert!(found.starts_with("two: a [") && found.contains("b ["), "{found}");
    let pods: usize = scene.ledger.runs().flat_map(|(_, run)| &run.places).map(|place| place.pods.len()).sum();
    assert_eq!(pods, 3);
    assert_eq!(scene.round(), BTreeMap::new(), "it is leased once");
}

#[test]
fn what_is_beyond_its_least_starts_where_there_is_room() {
    let mut scene = Fixture::new(&[], &[("q", 1.0)]);
    cluster(&mut scene, "one", &[("a", 3)]);
    let job = submit(&mut scene, "q", 2, &[(5, 1)]);
    scene.round();
    assert_eq!(places(&scene, job), "one: a [0, 1, 2]");
}

// INV-35
#[test]
fn it_holds_its_room_until_its_end() {
    let mut scene = Fixture::new(&[], &[("q", 1.0)]);
    cluster(&mut scene, "one", &[("a", 1), ("b", 1)]);
    let (first, second) = (submit(&mut scene, "q", 2, &[(2, 1)]), submit(&mut scene, "q", 2, &[(2, 1)]));
    assert_eq!(scene.round().into_keys().collect::<Vec<_>>(), [first]);
    scene.report(first, ReportKind::Running(PodRef::default(), String::new()));
    assert_eq!(scene.round(), BTreeMap::new());
    scene.report(first, ReportKind::Succeeded);
    assert_eq!(scene.round().into_keys().collect::<Vec<_>>(), [second]);
    scene.report(second, ReportKind::Succeeded);
    let single = scene.submit("q", "default", 1, 0, None);
    assert_eq!(scene.round().into_keys().collect::<Vec<_>>(), [single]);
}

#[test]
fn it_waits_where_no_cluster_runs_such_jobs_and_says_so() {
    let mut scene = Fixture::new(&[("one", "a", 9)], &[("q", 1.0)]);
    let job = submit(&mut scene, "q", 1, &[(1, 1)]);
    assert_eq!(scene.round(), BTreeMap::new());
    let why = scene.why(job);
    assert!(why.starts_with("uniformity: no cluster of the pool runs Volcano Jobs"), "{why}");
    cluster(&mut scene, "two", &[("a", 1)]);
    assert_eq!(scene.round().into_keys().collect::<Vec<_>>(), [job]);
    assert_eq!(places(&scene, job), "two: a [0]");
}

#[test]
fn a_cluster_that_gave_it_back_is_not_tried_again() {
    let mut scene = Fixture::new(&[], &[("q", 1.0)]);
    cluster(&mut scene, "one", &[("a", 2)]);
    let job = submit(&mut scene, "q", 2, &[(2, 1)]);
    scene.round();
    scene.report(job, ReportKind::Returned("stuck".to_owned(), true));
    assert_eq!(scene.round(), BTreeMap::new());
    cluster(&mut scene, "two", &[("a", 2)]);
    assert_eq!(scene.round().len(), 1);
    assert_eq!(places(&scene, job), "two: a [0, 1]");
}

#[test]
fn it_counts_to_its_queue_and_makes_room_as_a_whole() {
    let mut scene = Fixture::new(&[], &[("greedy", 1.0), ("fair", 1.0)]);
    cluster(&mut scene, "one", &[("a", 2), ("b", 2)]);
    let job = submit(&mut scene, "greedy", 4, &[(4, 1)]);
    scene.round();
    let others = [scene.submit("fair", "urgent", 1, 0, None), scene.submit("fair", "urgent", 1, 0, None)];
    for _ in 0..3 {
        scene.round();
        let leaving = scene.ledger.runs().find(|(run, row)| run.job == job && row.phase == RunPhase::Stopping);
        if let Some((run, row)) = leaving.map(|(run, row)| (run, row.at.cluster.clone())) {
            let reports = vec![Report { cluster: row, run, kind: ReportKind::Gone }];
            let inbox = Inbox { reports, ..Inbox::default() };
            scene.ledger.decide(pumice_ledger::TimeMs(scene.now), inbox, Retries::default());
        }
    }
    for other in others {
        assert!(scene.ledger.current(other).is_some(), "{other} has its room");
    }
    assert!(scene.ledger.current(job).is_none(), "all of it went");
    let job = scene.ledger.job(job).expect("it waits again");
    assert_eq!(job.phase, pumice_ledger::Phase::Queued);
}

#[test]
fn pods_that_find_room_while_others_are_proposed_wait_for_the_next_run() {
    let mut scene = Fixture::new(&[], &[("q", 1.0)]);
    cluster(&mut scene, "one", &[("a", 2)]);
    let job = submit(&mut scene, "q", 2, &[(3, 1)]);
    let changed = scene.ledger.take_changed();
    let told = scene.view.sync(&scene.ledger, &changed);
    scene.pool.take_in(told);
    let proposed = scene.pool.round(TimeMs(1));
    // Room for the third comes before the ledger said anything of the first two.
    cluster(&mut scene, "one", &[("b", 1)]);
    assert_eq!(scene.pool.round(TimeMs(2)), [], "a second lease of it would not count");
    let inbox = Inbox { proposals: proposed.clone(), ..Inbox::default() };
    scene.ledger.decide(pumice_ledger::TimeMs(3), inbox, Retries::default());
    assert_eq!((proposed.len(), places(&scene, job).as_str()), (1, "one: a [0, 1]"));
    scene.pool.settle(&proposed[0], true, TimeMs(3));
    let single = scene.submit("q", "default", 1, 0, None);
    let leased = scene.round();
    assert_eq!(leased, [(single, "one/b".to_owned())].into(), "its room was given back");
}

#[test]
fn whole_jobs_beside_each_other_are_looked_at_up_to_a_number_of_pods() {
    let mut scene = Fixture::new(&[], &[("q", 1.0)]);
    scene.view = PoolView::new("p", ViewLimits { per_shape: 10, per_queue: 6 });
    cluster(&mut scene, "one", &[("a", 100)]);
    let jobs: Vec<JobId> = (0..4).map(|_| submit(&mut scene, "q", 3, &[(3, 1)])).collect();
    assert_eq!(scene.round().into_keys().collect::<Vec<_>>(), jobs[..2]);
    assert_eq!(scene.round().into_keys().collect::<Vec<_>>(), jobs[2..]);
}

#[test]
fn it_never_goes_away_from_home() {
    let mut scene = Fixture::within(&[], &[("q", 1.0)], away::constraints(PoolRules::default()));
    cluster(&mut scene, "one", &[("a", 2)]);
    let kept = NodeFacts {
        name: "kept".into(),
        allocatable: [("cpu".to_owned(), 9000), ("pods".to_owned(), 110)].into(),
        labels: [(CLUSTER_LABEL.to_owned(), "one".to_owned())].into(),
        taints: vec![Taint { key: "gpu".to_owned(), value: String::new(), effect: TaintEffect::NoSchedule }],
        ..NodeFacts::default()
    };
    scene.pool.apply(&[node_delta("one", kept)]);
    let large = submit(&mut scene, "q", 3, &[(3, 1)]);
    let elastic = submit(&mut scene, "q", 2, &[(5, 1)]);
    let single = scene.submit("q", "default", 1, 0, None);
    let leased = scene.round();
    assert_eq!(leased.keys().copied().collect::<Vec<_>>(), [elastic, single]);
    assert_eq!((places(&scene, elastic).as_str(), leased[&single].as_str()), ("one: a [0, 1]", "one/kept"));
    let why = scene.why(large);
    assert!(!why.contains("away from home"), "{why}");
    assert_eq!(scene.round(), BTreeMap::new());
    scene.report(elastic, ReportKind::Succeeded);
    cluster(&mut scene, "one", &[("b", 1)]);
    assert_eq!(scene.round().into_keys().collect::<Vec<_>>(), [large]);
    scene.report(large, ReportKind::Running(PodRef::default(), String::new()));
    assert_eq!(scene.round(), BTreeMap::new());
}
