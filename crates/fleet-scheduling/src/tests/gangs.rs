//! Gangs leave whole, whoever makes them leave, and a class takes only from those that are not above it.

use std::collections::BTreeSet;

use pumice_ledger::{Phase, RunPhase};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

const SEEDS: u64 = 40;
const STEPS: usize = 60;

fn gang(id: &str, cardinality: u32) -> Option<Gang> {
    Some(Gang { id: id.to_owned(), cardinality, uniformity: String::new() })
}

fn submit_gang(scene: &mut Fixture, queue: &str, id: &str, members: u32, cores: i64) -> Vec<JobId> {
    (0..members).map(|_| scene.submit(queue, "default", cores, 0, gang(id, members))).collect()
}

fn runs(scene: &mut Fixture, jobs: &[JobId]) {
    for job in jobs {
        scene.report(*job, ReportKind::Running(PodRef::default(), String::new()));
    }
}

/// Which of the jobs are on their way out, or wait again.
fn leaving(scene: &Fixture, jobs: &[JobId]) -> Vec<JobId> {
    let phase = |job: &JobId| scene.ledger.job(*job).map(|job| job.phase);
    jobs.iter().copied().filter(|job| matches!(phase(job), Some(Phase::Leaving | Phase::Queued))).collect()
}

#[test]
fn a_higher_class_makes_the_whole_gang_leave() {
    let mut scene = Fixture::new(&[("one", "a", 8), ("one", "b", 8), ("two", "c", 8)], &[("q", 1.0)]);
    let members = submit_gang(&mut scene, "q", "g", 3, 6);
    assert_eq!(scene.round().len(), 3);
    runs(&mut scene, &members);
    let urgent = scene.submit("q", "urgent", 8, 0, None);
    assert_eq!(scene.round(), BTreeMap::new(), "no room is free yet");
    assert_eq!(leaving(&scene, &members), members);
    members.iter().for_each(|job| scene.report(*job, ReportKind::Gone));
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [urgent]);
    scene.report(urgent, ReportKind::Succeeded);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), members, "it starts anew as a whole");
}

#[test]
fn a_single_run_leaves_rather_than_a_gang() {
    let mut scene = Fixture::new(&[("one", "a", 8), ("one", "b", 8), ("one", "c", 8), ("one", "d", 8)], &[("q", 1.0)]);
    let members = submit_gang(&mut scene, "q", "g", 3, 8);
    let single = scene.submit("q", "default", 8, 0, None);
    assert_eq!(scene.round().len(), 4);
    runs(&mut scene, &members);
    runs(&mut scene, &[single]);
    scene.submit("q", "urgent", 8, 0, None);
    scene.round();
    assert_eq!((leaving(&scene, &members), leaving(&scene, &[single])), (vec![], vec![single]));
}

#[test]
fn a_queue_that_wants_its_share_gets_it_from_a_gang_and_keeps_it() {
    let mut scene =
        Fixture::new(&[("one", "a", 8), ("one", "b", 8), ("one", "c", 8)], &[("large", 1.0), ("other", 1.0)]);
    let members = submit_gang(&mut scene, "large", "g", 3, 8);
    scene.round();
    runs(&mut scene, &members);
    let wanted: Vec<JobId> = (0..2).map(|_| scene.submit("other", "default", 8, 0, None)).collect();
    scene.round();
    assert_eq!(leaving(&scene, &members), members);
    members.iter().for_each(|job| scene.report(*job, ReportKind::Gone));
    for _ in 0..5 {
        let leased: Vec<JobId> = scene.round().into_keys().collect();
        runs(&mut scene, &leased);
    }
    assert_eq!(leaving(&scene, &wanted), [], "they have their share and more, and nobody takes it back");
    assert_eq!(leaving(&scene, &members), members, "there is no room for all of it");
}

#[test]
fn who_asks_one_member_to_make_room_asks_all() {
    let mut scene = Fixture::new(&[("one", "a", 8)], &[("q", 1.0)]);
    let members = submit_gang(&mut scene, "q", "g", 3, 1);
    let single = scene.submit("q", "default", 1, 0, None);
    scene.round();
    runs(&mut scene, &members);
    runs(&mut scene, &[single]);
    let ask = Event::PreemptAsked { jobs: vec![members[1]], reason: "repair".to_owned() };
    scene.ledger.fold(&Entry { events: vec![ask], ..Entry::new(pumice_ledger::TimeMs(scene.now), "q", "set") });
    scene.ledger.decide(pumice_ledger::TimeMs(scene.now), Inbox::default(), Retries::default());
    let going = |scene: &Fixture| {
        let stopping = scene.ledger.runs().filter(|(_, row)| row.phase == RunPhase::Stopping);
        stopping.map(|(run, _)| run.job).collect::<Vec<_>>()
    };
    assert_eq!(going(&scene), members);
}

#[test]
fn a_lower_class_takes_nothing_of_a_higher_one_for_its_share() {
    for (holder, taker, leaves) in [("high", "default", false), ("default", "default", true), ("default", "high", true)]
    {
        let mut scene = Fixture::new(&[("one", "a", 2)], &[("large", 1.0), ("other", 1.0)]);
        let held: Vec<JobId> = (0..2).map(|_| scene.submit("large", holder, 1, 0, None)).collect();
        scene.round();
        runs(&mut scene, &held);
        scene.submit("other", taker, 1, 0, None);
        scene.round();
        assert_eq!(!leaving(&scene, &held).is_empty(), leaves, "{taker} of {holder}");
    }
}

#[test]
fn shares_come_no_faster_than_the_rate() {
    let rate = Rate { per_second: 0.5, burst: 1 };
    let constraints = Constraints { preemption_rates: [("p".to_owned(), rate)].into(), ..Constraints::default() };
    let mut scene = Fixture::within(&[("one", "a", 8)], &[("large", 1.0), ("other", 1.0)], constraints);
    let held: Vec<JobId> = (0..8).map(|_| scene.submit("large", "default", 1, 0, None)).collect();
    scene.round();
    runs(&mut scene, &held);
    for _ in 0..8 {
        scene.submit("other", "default", 1, 0, None);
    }
    let left: Vec<usize> = (0..20)
        .map(|_| {
            scene.round();
            leaving(&scene, &held).len()
        })
        .collect();
    assert_eq!(left[0], 1, "one after a rest");
    assert!(left.windows(2).all(|pair| pair[1] - pair[0] <= 1), "{left:?}");
    assert_eq!(left.last(), Some(&4), "and in the end all that is due: {left:?}");
}

/// Gangs and single jobs of all classes and queues come and go: a gang never runs in part once all of it has started.
#[test]
fn no_gang_is_left_in_part() {
    let mut preempted: BTreeSet<(u64, JobId)> = BTreeSet::new();
    for seed in 0..SEEDS {
        let mut rng = StdRng::seed_from_u64(seed);
        let nodes: Vec<(String, i64)> = (0..6).map(|index| (format!("n{index}"), rng.gen_range(4..9))).collect();
        let nodes: Vec<(&str, &str, i64)> = nodes.iter().map(|(name, cores)| ("one", name.as_str(), *cores)).collect();
        let mut scene = Fixture::new(&nodes, &[("a", 1.0), ("b", 1.0), ("c", 3.0)]);
        let mut gangs: Vec<Vec<JobId>> = Vec::new();
        for step in 0..STEPS {
            let queue = ["a", "b", "c"][rng.gen_range(0..3)];
            let class = ["default", "default", "high", "urgent"][rng.gen_range(0..4)];
            match rng.gen_range(0..4) {
                0 => {
                    let (members, cores) = (rng.gen_range(2..5), rng.gen_range(1..5));
                    let id = format!("g{step}");
                    let jobs = (0..members).map(|_| scene.submit(queue, class, cores, 0, gang(&id, members)));
                    gangs.push(jobs.collect());
                }
                1 | 2 => {
                    scene.submit(queue, class, rng.gen_range(1..9), rng.gen_range(0..3), None);
                }
                _ => {}
            }
            scene.round();
            let of = |scene: &Fixture, wanted: RunPhase| {
                let runs = scene.ledger.runs().filter(|(_, row)| row.phase == wanted);
                runs.map(|(run, _)| run.job).collect::<Vec<_>>()
            };
            let (stopping, leased) = (of(&scene, RunPhase::Stopping), of(&scene, RunPhase::Leased));
            for members in &gangs {
                let gone = stopping.iter().filter(|job| members.contains(job)).count();
                assert!(gone == 0 || gone == members.len(), "seed {seed}, step {step}: {gone} of {members:?} leave");
                if gone > 0 {
                    preempted.extend(members.first().map(|first| (seed, *first)));
                }
            }
            stopping.iter().for_each(|job| scene.report(*job, ReportKind::Gone));
            runs(&mut scene, &leased);
            // Gangs end as a whole here: what is left of one that ends otherwise is not what is tried.
            let running = of(&scene, RunPhase::Running);
            if !running.is_empty() && rng.gen_bool(0.3) {
                let first = running[rng.gen_range(0..running.len())];
                let gang = gangs.iter().find(|members| members.contains(&first)).cloned();
                gang.unwrap_or_else(|| vec![first]).iter().for_each(|job| scene.report(*job, ReportKind::Succeeded));
            }
        }
    }
    assert!(!preempted.is_empty(), "some gang had to make room");
}
