//! Limits: what is held back by one, by which, and for how long.

use pumice_ledger::ClassLimit;

use super::*;

fn half() -> ClassLimit {
    ClassLimit { fraction: [("cpu".to_owned(), 0.5)].into(), ..ClassLimit::default() }
}

fn gang(id: &str, cardinality: u32) -> Option<Gang> {
    Some(Gang { id: id.to_owned(), cardinality, uniformity: String::new() })
}

fn submit_gang(scene: &mut Fixture, id: &str, cardinality: u32, priority: u32) -> Vec<JobId> {
    (0..cardinality).map(|_| scene.submit("q", "default", 1, priority, gang(id, cardinality))).collect()
}

#[test]
fn a_queue_holds_no_more_of_a_class_than_it_may() {
    let constraints = Constraints { per_queue: [("default".to_owned(), half())].into(), ..Constraints::default() };
    let mut scene = Fixture::within(&[("one", "a", 8)], &[("q", 1.0), ("other", 1.0)], constraints);
    let jobs: Vec<JobId> = (0..6).map(|_| scene.submit("q", "default", 1, 0, None)).collect();
    assert_eq!(scene.round().len(), 4);
    let why = scene.why(jobs[5]);
    assert!(
        why.starts_with(
            "limits: queue q holds 4 of 4 cpu that its jobs of class default may have in pool p, 1 asked for \
             (maximumResourceFractionPerQueue)"
        ),
        "{why}"
    );
    // It is of this queue, and of this class.
    let other = scene.submit("other", "default", 2, 0, None);
    let urgent = scene.submit("q", "urgent", 1, 0, None);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [other, urgent]);
    assert_eq!(scene.round(), BTreeMap::new());
    scene.report(jobs[0], ReportKind::Succeeded);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [jobs[4]]);
    let large = scene.submit("q", "default", 5, 0, None);
    scene.round();
    assert!(scene.why(large).contains("5 more than it may ever hold"), "{}", scene.why(large));
}

#[test]
fn a_queues_own_limit_goes_before_that_of_the_class() {
    let constraints = Constraints { per_queue: [("default".to_owned(), half())].into(), ..Constraints::default() };
    let mut scene = Fixture::within(&[("one", "a", 8)], &[("q", 1.0)], constraints);
    let by_pool = [("p".to_owned(), [("cpu".to_owned(), 0.25)].into())].into();
    let own = ClassLimit { by_pool, ..ClassLimit::default() };
    let queue = Queue { name: "q".to_owned(), limits: [("default".to_owned(), own)].into(), ..Queue::default() };
    let events = vec![Event::QueueSet(Box::new(queue))];
    scene.ledger.fold(&Entry { events, ..Entry::new(pumice_ledger::TimeMs(0), "q", "") });
    for _ in 0..6 {
        scene.submit("q", "default", 1, 0, None);
    }
    assert_eq!(scene.round().len(), 2);
}

#[test]
fn a_gang_is_within_limits_as_a_whole() {
    let constraints = Constraints { per_queue: [("default".to_owned(), half())].into(), ..Constraints::default() };
    let mut scene = Fixture::within(&[("one", "a", 8)], &[("q", 1.0)], constraints);
    scene.submit("q", "default", 1, 0, None);
    let gang = submit_gang(&mut scene, "g", 4, 1);
    let single = scene.submit("q", "default", 1, 2, None);
    let leased = scene.round();
    assert!(leased.contains_key(&single) && leased.len() == 2, "{leased:?}");
    assert!(scene.why(gang[0]).contains("maximumResourceFractionPerQueue"), "{}", scene.why(gang[0]));
}

#[test]
fn who_is_held_back_makes_nobody_leave() {
    let constraints = Constraints { per_queue: [("urgent".to_owned(), half())].into(), ..Constraints::default() };
    let mut scene = Fixture::within(&[("one", "a", 2)], &[("q", 1.0)], constraints);
    let spare: Vec<JobId> = (0..2).map(|_| scene.submit("q", "default", 1, 0, None)).collect();
    scene.round();
    let urgent: Vec<JobId> = (0..2).map(|_| scene.submit("q", "urgent", 1, 0, None)).collect();
    scene.round();
    let leaves = |scene: &Fixture| {
        let leaving =
            |job: &&JobId| scene.ledger.job(**job).map(|job| job.phase) == Some(pumice_ledger::Phase::Leaving);
        spare.iter().filter(leaving).copied().collect::<Vec<_>>()
    };
    let left = leaves(&scene);
    assert_eq!(left.len(), 1, "one urgent job is within the limit");
    scene.report(left[0], ReportKind::Gone);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [urgent[0]]);
    scene.round();
    assert_eq!(leaves(&scene), []);
}

#[test]
fn a_round_starts_its_part_and_the_next_goes_on() {
    let constraints = Constraints { per_round: half(), ..Constraints::default() };
    let mut scene = Fixture::within(&[("one", "a", 8)], &[("q", 1.0)], constraints);
    let jobs: Vec<JobId> = (0..8).map(|_| scene.submit("q", "default", 1, 0, None)).collect();
    assert_eq!(scene.round().len(), 5, "as in Armada the one that reaches the limit starts");
    assert!(scene.pool.cut_short());
    assert!(scene.why(jobs[7]).contains("(maximumResourceFractionToSchedule)"), "{}", scene.why(jobs[7]));
    assert_eq!(scene.round().len(), 3);
    assert!(!scene.pool.cut_short());
}

fn slow(per_second: f64, burst: u32) -> Constraints {
    let rates = RateLimits { all: Some(Rate { per_second, burst }), per_queue: None };
    Constraints { rates, ..Constraints::default() }
}

#[test]
fn jobs_start_no_faster_than_the_rate() {
    let mut scene = Fixture::within(&[("one", "a", 64)], &[("q", 1.0), ("other", 1.0)], slow(2.0, 3));
    let jobs: Vec<JobId> = (0..8).map(|_| scene.submit("q", "default", 1, 0, None)).collect();
    assert_eq!(scene.round().len(), 3);
    assert!(scene.pool.cut_short());
    let why = scene.why(jobs[7]);
    assert!(why.starts_with("limits: jobs start no faster in the fleet: 2 a second, 3 at once (maximumSched"), "{why}");
    // A second later there are two more.
    assert_eq!(scene.round().len(), 2);
    assert_eq!(scene.round().len(), 2);
    assert_eq!(scene.round().len(), 1);
    assert!(!scene.pool.cut_short());
}

#[test]
fn a_queue_that_was_quick_does_not_slow_down_another() {
    let rates = RateLimits { all: None, per_queue: Some(Rate { per_second: 1.0, burst: 2 }) };
    let constraints = Constraints { rates, ..Constraints::default() };
    let mut scene = Fixture::within(&[("one", "a", 64)], &[("q", 1.0), ("other", 1.0)], constraints);
    let jobs: Vec<JobId> = (0..4).map(|_| scene.submit("q", "default", 1, 0, None)).collect();
    assert_eq!(scene.round().len(), 2);
    assert!(scene.why(jobs[3]).contains("jobs of queue q start no faster: 1 a second"), "{}", scene.why(jobs[3]));
    for _ in 0..4 {
        scene.submit("other", "default", 1, 0, None);
    }
    assert_eq!(scene.round().len(), 3);
}

#[test]
fn a_gang_above_the_burst_is_told_so_and_a_smaller_one_is_not_starved() {
    let mut scene = Fixture::within(&[("one", "a", 64)], &[("q", 1.0)], slow(1.0, 4));
    let (large, small) = (submit_gang(&mut scene, "large", 5, 0), submit_gang(&mut scene, "small", 4, 1));
    let singles: Vec<JobId> = (0..20).map(|_| scene.submit("q", "default", 1, 0, None)).collect();
    assert_eq!(scene.round().len(), 4, "the large gang holds up nobody");
    let why = scene.why(large[0]);
    assert!(
        why.starts_with("limits: a gang of 5 never starts: at most 4 jobs start at once (maximumSchedulingBurst)"),
        "{why}"
    );
    // Others go before it, and would take each token as it comes.
    scene.report(singles[0], ReportKind::Succeeded);
    let mut rounds = 0;
    while scene.ledger.job(small[0]).is_some_and(|job| job.attempts == 0) {
        rounds += 1;
        assert!(rounds < 40, "it starts once its turn comes");
        scene.round();
    }
    assert!(small.iter().all(|job| scene.ledger.current(*job).is_some()));
    assert_eq!(scene.round(), BTreeMap::new(), "what it took in advance is waited for");
}

#[test]
fn licences_are_counted_for_the_pool_and_for_no_node() {
    let floating = [("licence".to_owned(), [("p".to_owned(), 3)].into())].into();
    let constraints = Constraints { floating, ..Constraints::default() };
    let mut scene = Fixture::within(&[("one", "a", 8), ("two", "b", 8)], &[("q", 1.0)], constraints);
    let with = |scene: &mut Fixture, licences| {
        scene.submit_asking("q", "default", &[("cpu", 1000), ("licence", licences)], 0, None)
    };
    let jobs: Vec<JobId> = (0..3).map(|_| with(&mut scene, 2)).collect();
    let without = scene.submit("q", "default", 1, 1, None);
    let one = with(&mut scene, 1);
    let leased = scene.round();
    assert_eq!(leased.keys().copied().collect::<Vec<_>>(), [jobs[0], without, one]);
    let why = scene.why(jobs[1]);
    assert!(why.starts_with("limits: pool p has too little left: 2 of 3 licence in use, 2 asked for"), "{why}");
    scene.report(jobs[0], ReportKind::Succeeded);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [jobs[1]]);
    // More than the pool has at all.
    let never = with(&mut scene, 4);
    scene.round();
    assert!(scene.why(never).contains("4 asked for"), "{}", scene.why(never));
}

#[test]
fn a_queue_loses_what_is_beyond_its_protected_share() {
    for (fraction, lost) in [(1.0, 4), (1.5, 2), (2.0, 0)] {
        let protected = Protected { fraction: 3.0, by_pool: [("p".to_owned(), fraction)].into() };
        let constraints = Constraints { protected, ..Constraints::default() };
        let mut scene = Fixture::within(&[("one", "a", 8)], &[("q", 1.0), ("other", 1.0)], constraints);
        let jobs: Vec<JobId> = (0..8).map(|_| scene.submit("q", "default", 1, 0, None)).collect();
        assert_eq!(scene.round().len(), 8, "what nobody else wants is lent");
        for _ in 0..8 {
            scene.submit("other", "default", 1, 0, None);
        }
        scene.round();
        let leaving =
            |job: &&JobId| scene.ledger.job(**job).map(|job| job.phase) == Some(pumice_ledger::Phase::Leaving);
        assert_eq!(jobs.iter().filter(leaving).count(), lost, "{fraction}");
    }
}
