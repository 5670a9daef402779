//! Laws that hold for any story: what may happen is drawn at random, and a database follows beside the ledger.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Jobs that one decision changes of what was asked of more.
const JOBS_PER_DECISION: usize = 2;

/// One thing that may happen.
#[derive(Debug, Clone)]
enum Step {
    Request(u8, u8),
    Lease(u8, bool),
    /// A Volcano job gets room for so many pods on one node and the rest on another, which is of the same cluster or not.
    LeaseVolcanoJob(u8, u32, bool),
    Report(u8, u8, u8),
    Preempt(u8, u8),
    Silent(bool),
    Stale(u8),
    /// A leader ends while it decides of a request, and one that followed it goes on.
    Failover(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..9_u8, 0..8_u8).prop_map(|(kind, job)| Step::Request(kind, job)),
        4 => (0..8_u8, any::<bool>()).prop_map(|(job, first)| Step::Lease(job, first)),
        3 => (0..8_u8, 1..=3_u32, any::<bool>()).prop_map(|(job, split, apart)| Step::LeaseVolcanoJob(job, split, apart)),
        4 => (0..8_u8, 1..4_u8, 0..6_u8).prop_map(|(job, attempt, kind)| Step::Report(job, attempt, kind)),
        1 => (0..8_u8, 1..4_u8).prop_map(|(job, attempt)| Step::Preempt(job, attempt)),
        1 => any::<bool>().prop_map(Step::Silent),
        1 => any::<u8>().prop_map(Step::Stale),
        1 => (0..9_u8, 0..8_u8).prop_map(|(kind, job)| Step::Failover(kind, job)),
    ]
}

/// Which jobs of a story are whole.
fn is_whole(job: u128) -> bool {
    job.is_multiple_of(3)
}

/// A job of a story, of one pod or whole.
fn submission(job: u8) -> Event {
    let job = u128::from(job);
    match submitted(job, if job.is_multiple_of(2) { "urgent" } else { "spare" }) {
        Event::Submitted(new) if is_whole(job) => Event::Submitted(Submitted { shape: volcano_job::DIGEST, ..new }),
        event => event,
    }
}

fn known_shapes() -> BTreeMap<Digest, Shape> {
    let single = ["urgent", "spare"].map(|class| (digest(class), shape(class)));
    single.into_iter().chain([(volcano_job::DIGEST, volcano_job::whole_shape())]).collect()
}

fn scope(place: u8) -> Scope {
    let cluster = ["one", "two", "", "one"][usize::from(place % 4)].to_owned();
    let priority_classes = if place < 4 { vec!["spare".to_owned()] } else { vec![] };
    let phases = if place == 6 { vec![Phase::Queued, Phase::Leaving] } else { vec![] };
    Scope { cluster, priority_classes, phases, ..Scope::default() }
}

fn requested(kind: u8, job: u8) -> Event {
    let jobs = vec![JobId(u128::from(job))];
    match kind {
        0..=2 => submission(job),
        3 => Event::CancelAsked { jobs, filter: Filter::Active, reason: String::new() },
        4 => Event::PreemptAsked { jobs, reason: String::new() },
        5 => Event::ScopeCancelAsked { scope: scope(job), reason: String::new() },
        6 => Event::ScopePreemptAsked { scope: scope(job), reason: String::new() },
        7 if job < 5 => set("one", job < 2),
        7 => Event::ExecutorUnset { executor: "one".to_owned() },
        _ => Event::Reprioritised { jobs: if job < 4 { jobs } else { vec![] }, priority: u32::from(job) },
    }
}

fn inbox(step: &Step) -> Inbox {
    match step {
        Step::Lease(job, first) => lease(u128::from(*job), if *first { "one" } else { "two" }),
        Step::LeaseVolcanoJob(job, split, apart) => {
            let at = |cluster: &str, node: &str| NodeRef { cluster: cluster.to_owned(), node: node.to_owned() };
            let second = at(if *apart { "two" } else { "one" }, "m");
            let places = vec![(at("one", "n"), (0..*split).collect()), (second, (*split..3).collect())];
            let places = places.into_iter().filter(|(_, pods): &(NodeRef, Vec<u32>)| !pods.is_empty()).collect();
            let proposal = Proposal::LeaseVolcanoJob { job: JobId(u128::from(*job)), places, pool: "p".to_owned() };
            Inbox { proposals: vec![proposal], ..Inbox::default() }
        }
        Step::Report(job, attempt, kind) => {
            let kind = match kind {
                0 => ReportKind::Pending(PodRef::default()),
                1 => ReportKind::Running(PodRef::default(), "n".to_owned()),
                2 => ReportKind::Succeeded,
                3 => ReportKind::Failed(Failure::default()),
                4 => ReportKind::Returned(String::new(), true),
                _ => ReportKind::Gone,
            };
            report(u128::from(*job), u32::from(*attempt), kind)
        }
        Step::Preempt(job, attempt) => {
            let run = RunId { job: JobId(u128::from(*job)), attempt: u32::from(*attempt) };
            Inbox { proposals: vec![Proposal::Preempt { run, preemption: Preemption::default() }], ..Inbox::default() }
        }
        Step::Silent(long) => {
            Inbox { silent: vec![("one".to_owned(), if *long { 10_000 } else { 1 })], ..Inbox::default() }
        }
        Step::Request(..) | Step::Stale(_) | Step::Failover(..) => Inbox::default(),
    }
}

/// What is kept of a ledger, as a database would: submissions write their jobs, and only what was touched is written again.
#[derive(Default)]
struct Tables {
    jobs: BTreeMap<JobId, SavedJob>,
    runs: BTreeMap<RunId, SavedRun>,
    queues: BTreeMap<String, Queue>,
    executors: BTreeMap<String, ExecutorSettings>,
    bulk_operations: Vec<SavedBulkOperation>,
}

impl Tables {
    fn submit(&mut self, entry: &Entry) {
        for event in &entry.events {
            let Event::Submitted(new) = event.clone() else { continue };
            let job = SavedJob {
                job: new.job,
                queue: entry.queue.clone(),
                job_set: entry.job_set.clone(),
                spec: new.spec,
                shape: new.shape,
                gang: new.gang,
                priority: new.priority,
                submitted: entry.at,
                phase: Phase::Queued,
                fail_fast: new.fail_fast,
                attempts: 0,
                returned: 0,
                failed: 0,
                requests: None,
                avoid: Vec::new(),
                grown: None,
            };
            self.jobs.insert(new.job, job);
        }
    }

    fn follow(&mut self, ledger: &mut Ledger) {
        for id in ledger.take_touched() {
            self.jobs.remove(&id);
            self.runs.retain(|run, _| run.job != id);
            self.jobs.extend(ledger.saved(id).map(|job| (id, job)));
            let runs = ledger.runs().map(|(run, _)| run).filter(|run| run.job == id);
            self.runs.extend(runs.filter_map(|run| Some((run, ledger.saved_run(run)?))));
        }
        let defined = ledger.queues().filter_map(|queue| Some((queue.name.to_owned(), queue.definition?.clone())));
        self.queues = defined.collect();
        self.executors.clone_from(ledger.executors());
        if let Some(bulk_operations) = ledger.take_bulk_operations() {
            let text = serde_json::to_string(&bulk_operations).unwrap();
            self.bulk_operations = serde_json::from_str(&text).unwrap();
        }
    }

    fn restored(&self) -> Ledger {
        let saved = Saved {
            queues: self.queues.clone(),
            executors: self.executors.clone(),
            policies: BTreeMap::new(),
            shapes: known_shapes(),
            jobs: self.jobs.values().cloned().collect(),
            runs: self.runs.values().cloned().collect(),
            bulk_operations: self.bulk_operations.clone(),
        };
        Ledger::restore(classes(), saved).unwrap().in_parts_of(JOBS_PER_DECISION)
    }
}

/// All that a ledger goes on from.
fn everything(ledger: &Ledger, now: TimeMs) -> String {
    let mut jobs: Vec<SavedJob> = ledger.jobs().filter_map(|(id, _)| ledger.saved(id)).collect();
    let mut runs: Vec<SavedRun> = ledger.runs().filter_map(|(id, _)| ledger.saved_run(id)).collect();
    jobs.sort_unstable_by_key(|job| job.job);
    runs.sort_unstable_by_key(|run| run.run);
    let (next, first, asked) = (ledger.next_part(now), ledger.first("q", 2, 9), &ledger.requested);
    let changed = (&ledger.changed, &ledger.touched, &ledger.ended, ledger.clone().take_bulk_operations());
    format!("{}{jobs:?} {runs:?} {next:?} {first:?} {asked:?} {changed:?}", ledger.digest())
}

#[test]
fn what_does_not_belong_together_is_not_restored() {
    let mut ledger = with_queue();
    let gang = |id| Some(Gang { id: "g".to_owned(), cardinality: id, uniformity: "rack".to_owned() });
    let member = |job: u128, size| {
        let (spec, shape) = (Digest(9), digest("spare"));
        Event::Submitted(Submitted { job: JobId(job), spec, shape, priority: 3, gang: gang(size), fail_fast: true })
    };
    let entry = request("s", vec![member(1, 2), member(2, 2), member(3, 1)]);
    ledger.fold(&entry);
    decide(&mut ledger, lease(1, "one"));
    let mut tables = Tables::default();
    tables.submit(&entry);
    tables.follow(&mut ledger);
    let restored = tables.restored();
    assert_eq!(restored.digest(), ledger.digest());
    let job = restored.job(JobId(2)).unwrap();
    let gang = restored.gang(job).map(|gang| (gang.id, gang.cardinality, gang.uniformity, gang.members.len()));
    assert_eq!(gang, Some(("g", 2, "rack", 2)));
    assert_eq!(restored.saved(JobId(3)).unwrap().gang, None);
    let saved = |jobs: Vec<SavedJob>, runs| Saved { jobs, runs, ..Saved::default() };
    let job = ledger.saved(JobId(2)).unwrap();
    let shapeless = Ledger::restore(classes(), saved(vec![job.clone()], vec![]));
    assert_eq!(shapeless.unwrap_err(), RestoreError::NoShape(digest("spare")));
    let shapes: BTreeMap<_, _> = [(digest("spare"), shape("spare"))].into();
    let twice = Saved { shapes: shapes.clone(), ..saved(vec![job.clone(), job], vec![]) };
    assert_eq!(Ledger::restore(classes(), twice).unwrap_err(), RestoreError::Twice(JobId(2)));
    let job = ledger.saved(JobId(1)).unwrap();
    let runless = Saved { shapes, ..saved(vec![job], vec![]) };
    assert_eq!(Ledger::restore(classes(), runless).unwrap_err(), RestoreError::NoRun(JobId(1)));
}

proptest! {
    // INV-30
    /// The log folded anew gives the same ledger, as does one restored and one that followed; each job ends at most once; the
    /// ledger holds only what is active.
    #[test]
    fn the_log_is_the_truth(steps in proptest::collection::vec(step(), 1..120), rerun in any::<bool>()) {
        let mut ledger = Ledger::new(classes()).in_parts_of(JOBS_PER_DECISION);
        let mut log = Vec::new();
        let queue = Queue { rerun_after_ms: if rerun { 5 } else { 0 }, ..Queue::default() };
        let first = Entry { events: vec![Event::QueueSet(Box::new(queue))], ..Entry::new(TimeMs(0), "q", "") };
        ledger.fold(&first);
        log.push(first);
        let mut saved = Tables::default();
        let mut ever = BTreeSet::new();
        let (mut follower, mut followed) = (Ledger::new(classes()).in_parts_of(JOBS_PER_DECISION), 0);
        for (now, step) in (5..).map(TimeMs).zip(&steps) {
            if let Step::Request(kind, job) | Step::Failover(kind, job) = step {
                let entry = Entry { at: now, shapes: known_shapes(), ..request("s", vec![requested(*kind, *job)]) };
                // The id of a job that has ended is never given again.
                let again = *kind <= 2 && !ever.insert(*job);
                if !again {
                    saved.submit(&entry);
                    ledger.fold(&entry);
                    log.push(entry);
                }
            }
            if let Step::Stale(place) = step {
                // What was decided before, told again: nothing may come of a decision that does not fit any more.
                let entry: &Entry = &log[usize::from(*place) % log.len()];
                let decided = entry.events.iter().all(Event::is_decision);
                if decided && entry.events.iter().any(|event| event.ends().is_some()) {
                    let before = ledger.digest();
                    let entry = entry.clone();
                    prop_assert!(!ledger.fold(&entry).is_empty());
                    prop_assert_eq!(before, ledger.digest());
                }
            }
            if let Step::Failover(..) = step {
                // Nobody will know of this.
                ledger.decide(now, Inbox::default(), Retries::default());
                ledger = follower.clone();
                log[followed..].iter().for_each(|entry| drop(ledger.fold(entry)));
            }
            let decided = ledger.decide(now, inbox(step), Retries::default());
            for event in decided.iter().flat_map(|entry| &entry.events) {
                let Event::Leased { run, at, places, .. } = event else { continue };
                prop_assert!(!ledger.is_cordoned(&at.cluster), "{:?}", event);
                let pods: Vec<u32> = places.iter().flat_map(|place| place.pods.clone()).collect();
                let wanted = if is_whole(run.job.0) { vec![0, 1, 2] } else { vec![] };
                prop_assert_eq!(pods, wanted, "{:?}", event);
            }
            log.extend(decided);
            prop_assert_eq!(ledger.lint(), Vec::<String>::new());
            saved.follow(&mut ledger);
            let restored = saved.restored();
            prop_assert_eq!(restored.digest(), ledger.digest());
            prop_assert_eq!(restored.lint(), Vec::<String>::new());
            prop_assert_eq!(&restored.requested, &ledger.requested);
            prop_assert_eq!(restored.next_part(now), ledger.next_part(now));
            prop_assert_eq!(restored.first("q", 2, 9), ledger.first("q", 2, 9));
            for entry in &log[followed..] {
                let refused = follower.fold(entry);
                prop_assert!(refused.is_empty() || !entry.events.iter().any(Event::is_decision), "{:?}", refused);
            }
            followed = log.len();
            follower.set_saved();
            prop_assert_eq!(follower.lint(), Vec::<String>::new());
            prop_assert_eq!(everything(&follower, now), everything(&restored, now));
        }
        let mut again = Ledger::new(classes()).in_parts_of(JOBS_PER_DECISION);
        let mut ends: BTreeMap<JobId, usize> = BTreeMap::new();
        for entry in &log {
            let text = serde_json::to_string(entry).unwrap();
            let entry: Entry = serde_json::from_str(&text).unwrap();
            let refused = again.fold(&entry);
            prop_assert!(refused.is_empty() || !entry.events.iter().any(Event::is_decision), "{:?}", refused);
            for job in entry.events.iter().filter_map(Event::ends) {
                *ends.entry(job).or_default() += 1;
            }
        }
        prop_assert_eq!(again.digest(), ledger.digest());
        prop_assert!(ends.values().all(|count| *count == 1), "{:?}", ends);
        prop_assert_eq!(ever.len(), ends.len() + ledger.jobs().count());
        if ledger.jobs().next().is_none() && ledger.runs().next().is_none() {
            let shares = ledger.queues().map(|queue| queue.queued.len() + queue.usage.len());
            prop_assert_eq!(shares.sum::<usize>(), 0, "nobody has a share of anything");
        }
    }
}
