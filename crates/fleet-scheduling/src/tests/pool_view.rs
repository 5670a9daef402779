//! What a view knows, however it came to know it.

use proptest::prelude::*;
use pumice_ledger::{Filter, PriceBand};

use super::*;

/// What happens to a fleet. Numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    /// A queue, cores, a priority, whether the class is the higher one.
    Submit(usize, i64, u32, bool),
    /// A queue, the number of a gang, and how many it has.
    Gang(usize, u8, u32),
    /// A queue, and pods.
    VolcanoJob(usize, u32),
    Reprioritise(usize, u32),
    Cancel(usize),
    /// A queue opens, or does not start anything.
    Cordon(usize, bool),
    /// A queue has no definition any more, where that may be.
    Undefine(usize),
    End(usize),
    Return(usize),
    Preempt(usize),
    Bid([u8; 2]),
    Round,
}

const QUEUES: [&str; 2] = ["a", "b"];

fn step() -> impl Strategy<Value = Step> {
    let (queue, which) = (0..2usize, any::<usize>());
    prop_oneof![
        8 => (queue.clone(), 1..3i64, 0..3u32, any::<bool>()).prop_map(|(q, c, p, urgent)| Step::Submit(q, c, p, urgent)),
        2 => (queue.clone(), 0..3u8, 2..4u32).prop_map(|(queue, gang, least)| Step::Gang(queue, gang, least)),
        1 => (queue.clone(), 1..4u32).prop_map(|(queue, pods)| Step::VolcanoJob(queue, pods)),
        3 => (which, 0..3u32).prop_map(|(job, priority)| Step::Reprioritise(job, priority)),
        3 => which.prop_map(Step::Cancel),
        1 => (queue.clone(), any::<bool>()).prop_map(|(queue, cordoned)| Step::Cordon(queue, cordoned)),
        1 => queue.prop_map(Step::Undefine),
        2 => which.prop_map(Step::End),
        2 => which.prop_map(Step::Return),
        1 => which.prop_map(Step::Preempt),
        1 => any::<[u8; 2]>().prop_map(Step::Bid),
        4 => Just(Step::Round),
    ]
}

fn any_job(scene: &Fixture, which: usize) -> Option<JobId> {
    let mut jobs: Vec<JobId> = scene.ledger.jobs().map(|(id, _)| id).collect();
    jobs.sort_unstable();
    jobs.get(which % jobs.len().max(1)).copied()
}

/// A request for a job, as it is folded and decided.
fn ask(scene: &mut Fixture, job: Option<JobId>, event: impl FnOnce(Vec<JobId>) -> Event) {
    let Some((job, row)) = job.and_then(|job| Some((job, scene.ledger.job(job)?))) else { return };
    let (queue, set) = scene.ledger.owner(row);
    let at = pumice_ledger::TimeMs(scene.now);
    let entry = Entry { events: vec![event(vec![job])], ..Entry::new(at, queue, set) };
    scene.ledger.fold(&entry);
    scene.ledger.decide(at, Inbox::default(), Retries::default());
}

fn of_queue(scene: &mut Fixture, queue: usize, event: Event) {
    let at = pumice_ledger::TimeMs(scene.now);
    scene.ledger.fold(&Entry { events: vec![event], ..Entry::new(at, QUEUES[queue], "") });
}

fn report(scene: &mut Fixture, which: usize, kind: ReportKind) {
    let mut runs: Vec<RunId> = scene.ledger.runs().map(|(run, _)| run).collect();
    runs.sort_unstable();
    if let Some(run) = runs.get(which % runs.len().max(1)) {
        let stops = scene.ledger.run(*run).is_some_and(|row| row.phase == pumice_ledger::RunPhase::Stopping);
        scene.report(run.job, if stops { ReportKind::Gone } else { kind });
    }
}

fn take(scene: &mut Fixture, step: Step, is_market: bool) {
    match step {
        Step::Submit(queue, cores, _, urgent) if is_market => {
            let band = [None, Some(PriceBand::A), Some(PriceBand::B)][(scene.next % 3) as usize];
            let class = if urgent { "urgent" } else { "default" };
            market::submit_of(scene, QUEUES[queue], class, cores, band, None);
        }
        Step::Submit(queue, cores, priority, urgent) => {
            let class = if urgent { "urgent" } else { "default" };
            scene.submit(QUEUES[queue], class, cores, priority, None);
        }
        Step::Gang(queue, number, cardinality) => {
            let gang = Gang { id: format!("g{number}"), cardinality, uniformity: String::new() };
            scene.submit(QUEUES[queue], "default", 1, u32::from(number), Some(gang));
        }
        Step::VolcanoJob(queue, pods) => drop(volcano_jobs::submit(scene, QUEUES[queue], 1, &[(pods, 1)])),
        Step::Reprioritise(job, priority) => {
            let job = any_job(scene, job);
            ask(scene, job, |jobs| Event::Reprioritised { jobs, priority });
        }
        Step::Cancel(job) => {
            let (job, reason) = (any_job(scene, job), String::new());
            ask(scene, job, |jobs| Event::CancelAsked { jobs, filter: Filter::Active, reason });
        }
        Step::Cordon(queue, cordoned) => {
            let definition = Queue { name: QUEUES[queue].to_owned(), cordoned, ..Queue::default() };
            of_queue(scene, queue, Event::QueueSet(Box::new(definition)));
        }
        Step::Undefine(queue) => of_queue(scene, queue, Event::QueueRemoved),
        Step::End(run) => report(scene, run, ReportKind::Succeeded),
        Step::Return(run) => report(scene, run, ReportKind::Returned("no image".to_owned(), true)),
        Step::Preempt(job) => {
            let (job, reason) = (any_job(scene, job), String::new());
            ask(scene, job, |jobs| Event::PreemptAsked { jobs, reason });
        }
        Step::Bid(bids) if is_market => {
            let [a, b] = bids.map(|bid| f64::from(bid % 4));
            let bids = [("a", Some(PriceBand::A), a, a), ("a", Some(PriceBand::B), b, b), ("b", None, a, b)];
            market::bid(scene, &bids);
        }
        Step::Bid(_) => {}
        Step::Round => drop(scene.round()),
    }
}

/// A view that follows knows what one knows that begins now.
fn check(steps: Vec<Step>, limits: ViewLimits, is_market: bool) -> Result<(), TestCaseError> {
    let nodes = [("one", "n0", 3), ("two", "n1", 2)];
    let mut scene = if is_market {
        market::market(&[3, 2], Constraints::default())
    } else {
        Fixture::new(&nodes, &QUEUES.map(|name| (name, 1.0)))
    };
    let fresh = |view: &PoolView| view.begun_again(limits);
    scene.view = fresh(&scene.view);
    for step in steps {
        take(&mut scene, step.clone(), is_market);
        let changed = scene.ledger.take_changed();
        let told = scene.view.sync(&scene.ledger, &changed);
        scene.pool.take_in(told);
        let mut begins = fresh(&scene.view);
        begins.sync(&scene.ledger, &pumice_ledger::Changes::default());
        prop_assert_eq!(scene.view.knows(&scene.ledger), begins.knows(&scene.ledger), "after {:?}", step);
        prop_assert!(scene.view.sync(&scene.ledger, &pumice_ledger::Changes::default()).is_empty());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_window_that_follows_knows_what_a_new_one_does(
        steps in proptest::collection::vec(step(), 1..60),
        (per_shape, per_queue) in (1..4usize, 1..8usize),
        is_market in any::<bool>(),
        alone in any::<bool>(),
    ) {
        let is_alone = |step: &Step| !matches!(step, Step::Gang(..) | Step::VolcanoJob(..));
        // Queues that never had other than single jobs are skipped most.
        let steps = steps.into_iter().filter(|step| !alone || is_alone(step)).collect();
        check(steps, ViewLimits { per_shape, per_queue }, is_market)?;
    }
}

/// It may come to be looked at when another one goes.
#[test]
fn a_whole_job_of_one_pod_waits_as_a_whole() {
    let one = || Step::Submit(0, 1, 0, false);
    let steps = vec![one(), Step::VolcanoJob(0, 1), one(), one(), one(), Step::Cancel(0), Step::Round];
    check(steps, ViewLimits { per_shape: 1, per_queue: 2 }, false).unwrap();
}

/// Of those that run on the gang is smaller, though nobody looked at the one that left.
#[test]
fn a_gang_is_smaller_when_one_ends_that_is_not_looked_at() {
    let member = || Step::Gang(0, 0, 2);
    let steps = vec![member(), member(), Step::Round, Step::Return(1), Step::Cordon(0, true), Step::Cancel(1)];
    check(steps, ViewLimits { per_shape: 3, per_queue: 6 }, false).unwrap();
}
