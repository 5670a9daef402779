//! Market pools: who bids most has the room.

use proptest::prelude::*;
use pumice_ledger::{Phase, PriceBand};

use super::*;

const CUTOFF: f64 = 0.5;

/// A market with nodes of so many cores.
pub(crate) fn market(cores: &[i64], constraints: Constraints) -> Fixture {
    let markets = [("p".to_owned(), MarketRules { spot_price_cutoff: CUTOFF })].into();
    let names: Vec<String> = (0..cores.len()).map(|index| format!("n{index}")).collect();
    let nodes: Vec<(&str, &str, i64)> = names.iter().zip(cores).map(|(name, cores)| ("one", &**name, *cores)).collect();
    Fixture::within(&nodes, &[("a", 1.0), ("b", 1.0)], Constraints { markets, ..constraints })
}

fn submit(scene: &mut Fixture, queue: &str, class: &str, cores: i64, band: Option<PriceBand>) -> JobId {
    submit_of(scene, queue, class, cores, band, None)
}

pub(crate) fn submit_of(
    scene: &mut Fixture,
    queue: &str,
    class: &str,
    cores: i64,
    price_band: Option<PriceBand>,
    gang: Option<Gang>,
) -> JobId {
    let job = JobId(scene.next);
    scene.next += 1;
    let body = Shape {
        priority_class: class.to_owned(),
        requests: [("cpu".to_owned(), cores * 1000)].into(),
        template: serde_json::Value::Null,
        volcano_job: None,
        price_band,
        retries: None,
    };
    let number = cores.unsigned_abs() as u128 * 100 + price_band.map_or(0, |band| band as u128 + 1);
    let shape = Digest(number * 10 + u128::from(class == "urgent"));
    let submitted = Submitted { job, spec: Digest(1), shape, priority: 0, gang, fail_fast: false };
    let entry = Entry {
        shapes: [(shape, body)].into(),
        events: vec![Event::Submitted(submitted)],
        ..Entry::new(pumice_ledger::TimeMs(scene.now), queue, "set")
    };
    assert_eq!(scene.ledger.fold(&entry), []);
    job
}

/// From now on queues bid so much for a band: while jobs wait, and while they run.
pub(crate) fn bid(scene: &mut Fixture, all: &[(&str, Option<PriceBand>, f64, f64)]) {
    let mut queues: BTreeMap<&str, Vec<(Option<PriceBand>, Bid)>> = BTreeMap::new();
    for (queue, band, queued, running) in all {
        let bid = Bid { queued: Price(*queued), running: Price(*running) };
        queues.entry(queue).or_default().push((*band, bid));
    }
    let mut bids = Bids::default();
    queues.into_iter().for_each(|(queue, list)| bids.set(queue, "p", PoolBids::new(list)));
    let bids = Arc::new(bids);
    scene.view.bid(&bids);
    scene.pool.bid(bids);
}

fn runs(scene: &mut Fixture, jobs: &[JobId]) {
    for job in jobs {
        scene.report(*job, ReportKind::Running(PodRef::default(), String::new()));
    }
}

fn leased(scene: &mut Fixture) -> Vec<JobId> {
    scene.round().into_keys().collect()
}

const A: Option<PriceBand> = Some(PriceBand::A);
const B: Option<PriceBand> = Some(PriceBand::B);

#[test]
fn the_highest_bids_have_the_room_whatever_their_queue_and_turn() {
    let mut scene = market(&[2], Constraints::default());
    bid(&mut scene, &[("a", A, 1.0, 1.0), ("a", B, 3.0, 3.0), ("b", A, 2.0, 2.0)]);
    let [none, low, middle, high] =
        [("a", None), ("a", A), ("b", A), ("a", B)].map(|(queue, band)| submit(&mut scene, queue, "default", 1, band));
    assert_eq!(leased(&mut scene), [middle, high]);
    for (job, bids) in [(low, "1 (price band A of queue a)"), (none, "0 (no price band of queue a)")] {
        let why = scene.why(job);
        assert!(why.contains(&format!("it bids {bids}")), "{why}");
    }
    scene.report(high, ReportKind::Succeeded);
    assert_eq!(leased(&mut scene), [low]);
}

#[test]
fn a_higher_bid_makes_a_lower_one_leave_and_says_both() {
    let mut scene = market(&[2], Constraints::default());
    bid(&mut scene, &[("a", A, 1.0, 1.0), ("a", B, 1.5, 1.5), ("b", A, 2.0, 2.5)]);
    let [low, other] = [A, B].map(|band| submit(&mut scene, "a", "default", 1, band));
    assert_eq!(leased(&mut scene), [low, other]);
    runs(&mut scene, &[low, other]);
    let high = submit(&mut scene, "b", "default", 1, A);
    assert_eq!(leased(&mut scene), [], "the room is not free yet");
    let phase = |scene: &Fixture, job| scene.ledger.job(job).map(|job| job.phase);
    assert_eq!(phase(&scene, low), Some(Phase::Leaving));
    assert_eq!(phase(&scene, other), Some(Phase::Running), "it bids more than the other");
    let preempted = scene.ledger.run(RunId { job: low, attempt: 1 }).and_then(|run| run.preempted.clone()).unwrap();
    let wanted = format!("job {high} bids more in market pool p: its bid is 2, the bid of this job 1");
    assert_eq!((preempted.reason, preempted.beneficiary), (wanted, Some(high)));
    scene.report(low, ReportKind::Gone);
    assert_eq!(leased(&mut scene), [high]);
    runs(&mut scene, &[high]);
    assert_eq!(leased(&mut scene), [], "the lower bid waits");
    assert_eq!(phase(&scene, low), Some(Phase::Queued));
}

// INV-37
#[test]
fn who_makes_whom_leave_follows_from_class_and_bids() {
    for (runner, runs_at, comer, comes_at, leaves) in [
        ("default", 1.0, "default", 1.0, false),
        ("default", 1.0, "default", 0.5, false),
        ("default", 1.0, "default", 1.000_001, true),
        // Urgent runs make no room, and urgent jobs go first, whatever they bid.
        ("urgent", 1.0, "default", 9.0, false),
        ("urgent", 1.0, "urgent", 9.0, false),
        ("default", 9.0, "urgent", 0.0, true),
    ] {
        let mut scene = market(&[1], Constraints::default());
        bid(&mut scene, &[("a", A, runs_at, runs_at), ("b", A, comes_at, comes_at)]);
        let first = submit(&mut scene, "a", runner, 1, A);
        assert_eq!(leased(&mut scene), [first]);
        runs(&mut scene, &[first]);
        submit(&mut scene, "b", comer, 1, A);
        scene.round();
        let left = scene.ledger.job(first).unwrap().phase == Phase::Leaving;
        assert_eq!(left, leaves, "{runner} at {runs_at}, {comer} at {comes_at}");
    }
}

#[test]
fn bids_that_change_change_who_runs() {
    let mut scene = market(&[1], Constraints::default());
    bid(&mut scene, &[("a", A, 2.0, 2.0), ("b", A, 1.0, 1.0)]);
    let [first, second] = ["a", "b"].map(|queue| submit(&mut scene, queue, "default", 1, A));
    assert_eq!(leased(&mut scene), [first]);
    runs(&mut scene, &[first]);
    scene.round();
    bid(&mut scene, &[("a", A, 2.0, 2.0), ("b", A, 3.0, 3.0)]);
    scene.round();
    scene.report(first, ReportKind::Gone);
    assert_eq!(leased(&mut scene), [second]);
    // While it runs it bids more than it did to come in.
    bid(&mut scene, &[("a", A, 4.0, 4.0), ("b", A, 3.0, 5.0)]);
    runs(&mut scene, &[second]);
    scene.round();
    assert_eq!(scene.ledger.job(second).unwrap().phase, Phase::Running);
}

#[test]
fn queues_that_bid_alike_take_turns() {
    let mut scene = market(&[6], Constraints::default());
    bid(&mut scene, &[("a", A, 1.0, 1.0), ("b", A, 1.0, 1.0)]);
    for _ in 0..9 {
        submit(&mut scene, "a", "default", 1, A);
    }
    let later: Vec<JobId> = (0..9).map(|_| submit(&mut scene, "b", "default", 1, A)).collect();
    let leased = leased(&mut scene);
    assert_eq!(leased.len(), 6);
    assert_eq!(leased.iter().filter(|job| later.contains(job)).count(), 3);
}

#[test]
fn a_gang_comes_in_as_a_whole_and_bids_what_its_lowest_member_bids() {
    let gang = || Some(Gang { id: "g".to_owned(), cardinality: 2, uniformity: String::new() });
    for (second, comes_in) in [(B, true), (A, false)] {
        let mut scene = market(&[1, 1], Constraints::default());
        bid(&mut scene, &[("a", A, 2.0, 2.0), ("b", A, 1.0, 1.0), ("b", B, 3.0, 3.0)]);
        let before: Vec<JobId> = (0..2).map(|_| submit(&mut scene, "a", "default", 1, A)).collect();
        assert_eq!(leased(&mut scene), before);
        runs(&mut scene, &before);
        let members = [B, second].map(|band| submit_of(&mut scene, "b", "default", 1, band, gang()));
        scene.round();
        let leaving = before.iter().filter(|job| scene.ledger.job(**job).unwrap().phase == Phase::Leaving).count();
        assert_eq!(leaving, if comes_in { 2 } else { 0 }, "{second:?}");
        if comes_in {
            before.iter().for_each(|job| scene.report(*job, ReportKind::Gone));
            assert_eq!(leased(&mut scene), members);
        }
    }
}

#[test]
fn a_gang_of_two_bands_follows_the_one_that_is_lower_now() {
    let gang = || Some(Gang { id: "g".to_owned(), cardinality: 2, uniformity: String::new() });
    let mut scene = market(&[2], Constraints::default());
    bid(&mut scene, &[("a", A, 2.0, 2.0), ("b", A, 3.0, 3.0), ("b", B, 1.0, 1.0)]);
    let before = submit(&mut scene, "a", "default", 2, A);
    assert_eq!(leased(&mut scene), [before]);
    runs(&mut scene, &[before]);
    for band in [A, B] {
        submit_of(&mut scene, "b", "default", 1, band, gang());
    }
    for (low, high, leaves) in [(3.0, 1.0, false), (1.5, 2.5, false), (2.5, 2.25, true)] {
        bid(&mut scene, &[("a", A, 2.0, 2.0), ("b", A, low, low), ("b", B, high, high)]);
        scene.round();
        assert_eq!(scene.ledger.job(before).unwrap().phase == Phase::Leaving, leaves, "{low} {high}");
    }
}

#[test]
fn the_price_is_the_bid_with_which_the_cutoff_is_passed() {
    let bids = [("a", A, 5.0, 4.0), ("a", B, 2.0, 2.0), ("b", A, 3.0, 3.0)];
    for (jobs, price) in [
        (&[][..], None),
        (&[("a", A, 5)], None),
        (&[("a", A, 5), ("a", B, 1)], Some(2.0)),
        (&[("a", A, 4), ("b", A, 1), ("a", B, 4)], Some(2.0)),
        (&[("a", A, 4), ("b", A, 2), ("a", B, 4)], Some(3.0)),
        (&[("a", A, 9)], Some(4.0)),
    ] {
        let mut scene = market(&[10], Constraints::default());
        bid(&mut scene, &bids);
        for (queue, band, cores) in jobs {
            submit(&mut scene, queue, "default", *cores, *band);
        }
        scene.round();
        scene.round();
        assert_eq!(scene.pool.spot_price(), price.map(Price), "{jobs:?}");
    }
}

#[test]
fn limits_of_queues_hold_in_markets() {
    let limit =
        |cpu: f64| pumice_ledger::ClassLimit { fraction: [("cpu".to_owned(), cpu)].into(), by_pool: BTreeMap::new() };
    let constraints = Constraints { per_queue: [("default".to_owned(), limit(0.25))].into(), ..Constraints::default() };
    let mut scene = market(&[8], constraints);
    bid(&mut scene, &[("a", A, 9.0, 9.0), ("b", A, 1.0, 1.0)]);
    let high: Vec<JobId> = (0..4).map(|_| submit(&mut scene, "a", "default", 1, A)).collect();
    let low: Vec<JobId> = (0..4).map(|_| submit(&mut scene, "b", "default", 1, A)).collect();
    assert_eq!(leased(&mut scene), [&high[..2], &low[..2]].concat());
    assert!(scene.why(high[3]).contains("limits: queue a holds 2 of 2 cpu"), "{}", scene.why(high[3]));

    let rate = Rate { per_second: 0.001, burst: 1 };
    let rates = RateLimits { per_queue: Some(rate), ..RateLimits::default() };
    let mut scene = market(&[8], Constraints { rates, ..Constraints::default() });
    let jobs = ["a", "a", "b", "b"].map(|queue| submit(&mut scene, queue, "default", 1, A));
    assert_eq!(leased(&mut scene), [jobs[0], jobs[2]]);
    assert!(scene.pool.cut_short());
}

#[test]
fn a_long_queue_does_not_hide_its_highest_bids() {
    let mut scene = market(&[1], Constraints::default());
    scene.view = {
        let markets = [("p".to_owned(), MarketRules { spot_price_cutoff: CUTOFF })].into();
        let constraints = Constraints { markets, ..Constraints::default() };
        PoolView::within("p", ViewLimits { per_shape: 3, per_queue: 3 }, Arc::new(constraints))
    };
    bid(&mut scene, &[("a", A, 1.0, 1.0), ("a", B, 2.0, 2.0)]);
    for _ in 0..5 {
        submit(&mut scene, "a", "default", 1, A);
    }
    let high = submit(&mut scene, "a", "default", 1, B);
    assert_eq!(leased(&mut scene), [high]);
}

/// What happens to a market.
#[derive(Debug, Clone)]
enum Step {
    Submit(usize, usize),
    End(usize),
    Bid([[u8; 2]; 2]),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2usize, 0..2usize).prop_map(|(queue, band)| Step::Submit(queue, band)),
        2 => any::<usize>().prop_map(Step::End),
        1 => any::<[[u8; 2]; 2]>().prop_map(|bids| Step::Bid(bids.map(|of| of.map(|bid| bid % 4)))),
    ]
}

/// Rounds until nobody has to leave and nobody starts.
fn settle(scene: &mut Fixture) {
    for _ in 0..50 {
        let started = leased(scene);
        runs(scene, &started);
        let leaving: Vec<RunId> = scene.ledger.runs().map(|(run, _)| run).collect();
        let stops =
            |run: &RunId| scene.ledger.run(*run).is_some_and(|row| row.phase == pumice_ledger::RunPhase::Stopping);
        let leaving: Vec<RunId> = leaving.into_iter().filter(stops).collect();
        if started.is_empty() && leaving.is_empty() {
            return;
        }
        leaving.iter().for_each(|run| scene.report(run.job, ReportKind::Gone));
    }
    panic!("they make each other leave for ever");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    // INV-37
    /// Where all jobs are alike but for their bids, those that run bid at least what those bid that wait.
    #[test]
    fn nobody_waits_who_bids_more_than_one_that_runs(steps in proptest::collection::vec(step(), 1..40)) {
        let mut scene = market(&[1, 2], Constraints::default());
        let (queues, bands) = (["a", "b"], [A, B]);
        let mut prices = [[0u8; 2]; 2];
        let mut jobs: BTreeMap<JobId, (usize, usize)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Submit(queue, band) => {
                    let job = submit(&mut scene, queues[queue], "default", 1, bands[band]);
                    jobs.insert(job, (queue, band));
                }
                Step::End(which) => {
                    let running: Vec<JobId> = scene.ledger.runs().map(|(run, _)| run.job).collect();
                    if let Some(job) = running.get(which % running.len().max(1)) {
                        scene.report(*job, ReportKind::Succeeded);
                    }
                }
                Step::Bid(bids) => {
                    prices = bids;
                    let all = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(queue, band)| {
                        let price = f64::from(prices[queue][band]);
                        (queues[queue], bands[band], price, price)
                    });
                    bid(&mut scene, &all);
                }
            }
            settle(&mut scene);
            let price = |id: &JobId| jobs.get(id).map_or(0, |(queue, band)| prices[*queue][*band]);
            let of = |phase: Phase| scene.ledger.jobs().filter(move |(_, job)| job.phase == phase).map(|(id, _)| id);
            let running: Vec<JobId> = of(Phase::Running).collect();
            let waits = of(Phase::Queued).map(|job| price(&job)).max();
            prop_assert!(waits.is_none() || running.len() == 3, "{} run, and others wait", running.len());
            let least = running.iter().map(&price).min();
            prop_assert!(waits.is_none() || least >= waits, "{least:?} runs, {waits:?} waits");
        }
    }
}
