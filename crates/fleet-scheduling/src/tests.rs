//! Rounds over a ledger and small clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::{NodeFacts, TimeMs};
use pumice_fleet_model::names::CLUSTER_LABEL;
use pumice_ledger::{
    Digest, Entry, Event, Gang, Inbox, JobId, Ledger, PodRef, PriorityClass, PriorityClasses, Proposal, Queue, Report,
    ReportKind, Retries, RunId, Shape, Submitted,
};

use super::*;

/// A ledger and one pool over it.
struct Fixture {
    ledger: Ledger,
    view: PoolView,
    pool: Pool,
    rates: Rates,
    penalties: Penalties,
    cutoffs: BTreeMap<String, i64>,
    now: i64,
    next: u128,
}

impl Fixture {
    fn new(nodes: &[(&str, &str, i64)], queues: &[(&str, f64)]) -> Self {
        Self::within(nodes, queues, Constraints::default())
    }

    fn within(nodes: &[(&str, &str, i64)], queues: &[(&str, f64)], constraints: Constraints) -> Self {
        let (rates, cutoffs) = (Rates::new(constraints.rates), constraints.short_jobs.clone());
        let (penalties, constraints) = (Penalties::default(), Arc::new(constraints));
        let class = |value, preemptible| PriorityClass { value, preemptible };
        let classes = [("default", class(0, true)), ("high", class(5, true)), ("urgent", class(9, false))];
        let classes: PriorityClasses = classes.map(|(name, class)| (name.to_owned(), class)).into();
        let mut pool = Pool::within("p", &classes, constraints.clone());
        let mut ledger = Ledger::new(classes);
        for (name, factor) in queues {
            let queue = Queue { name: (*name).to_owned(), priority_factor: *factor, ..Queue::default() };
            pool.apply(&[queue_delta(&queue)]);
            ledger.fold(&Entry {
                events: vec![Event::QueueSet(Box::new(queue))],
                ..Entry::new(pumice_ledger::TimeMs(0), name, "")
            });
        }
        for (cluster, node, cores) in nodes {
            let allocatable = [("cpu".to_owned(), cores * 1000), ("pods".to_owned(), 110)].into();
            pool.apply(&[node_delta(cluster, NodeFacts { name: (*node).into(), allocatable, ..NodeFacts::default() })]);
        }
        let view = PoolView::within("p", ViewLimits::default(), constraints);
        Self { ledger, view, pool, rates, penalties, cutoffs, now: 0, next: 1 }
    }

    fn submit(&mut self, queue: &str, class: &str, cores: i64, priority: u32, gang: Option<Gang>) -> JobId {
        self.submit_asking(queue, class, &[("cpu", cores * 1000)], priority, gang)
    }

    fn submit_asking(
        &mut self,
        queue: &str,
        class: &str,
        asked: &[(&str, i64)],
        priority: u32,
        gang: Option<Gang>,
    ) -> JobId {
        let job = JobId(self.next);
        self.next += 1;
        let requests: BTreeMap<String, i64> =
            asked.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
        // Few enough in a test to number them by what they are.
        let number = asked.iter().fold(0, |number, (name, amount)| number * 100_000 + amount + name.len() as i64);
        let of_class = ["default", "urgent", "high"].iter().position(|known| *known == class).expect("a class");
        let shape = Digest(u128::from(number.unsigned_abs()) * 10 + of_class as u128);
        let body = Shape {
            priority_class: class.to_owned(),
            requests,
            template: serde_json::Value::Null,
            volcano_job: None,
            price_band: None,
            retries: None,
        };
        let submitted = Submitted { job, spec: Digest(1), shape, priority, gang, fail_fast: false };
        let at = pumice_ledger::TimeMs(self.now);
        let entry = Entry {
            shapes: [(shape, body)].into(),
            events: vec![Event::Submitted(submitted)],
            ..Entry::new(at, queue, "set")
        };
        assert_eq!(self.ledger.fold(&entry), []);
        job
    }

    /// A round, whose proposals the ledger takes; what was leased, as job and `cluster/node`.
    fn round(&mut self) -> BTreeMap<JobId, String> {
        self.now += 1000;
        let now = TimeMs(self.now);
        let changed = self.ledger.take_changed();
        let told = self.view.sync(&self.ledger, &changed);
        self.pool.take_in(told);
        let grant = self.rates.grant(pumice_ledger::TimeMs(self.now), 1);
        self.penalties.take(self.ledger.take_ended(), &self.cutoffs);
        let penalties = self.penalties.of("p", pumice_ledger::TimeMs(self.now));
        self.pool.allow(self.view.allowance(&self.ledger, grant).with_penalties(penalties));
        let proposals = self.pool.round(now);
        let inbox = Inbox { proposals: proposals.clone(), ..Inbox::default() };
        let entries = self.ledger.decide(pumice_ledger::TimeMs(self.now), inbox, Retries::default());
        let mut leased: BTreeMap<JobId, String> = BTreeMap::new();
        for event in entries.iter().flat_map(|entry| &entry.events) {
            if let Event::Leased { run, at, .. } = event {
                leased.insert(run.job, node_name(&at.cluster, &at.node).into());
            }
        }
        for proposal in &proposals {
            let taken = match proposal {
                Proposal::Preempt { .. } | Proposal::Reject { .. } => true,
                lease => lease.starts().iter().all(|(job, _)| leased.contains_key(job)),
            };
            self.pool.settle(proposal, taken, now);
        }
        for job in leased.keys() {
            let queue = self.ledger.owner(self.ledger.job(*job).expect("a job")).0.to_owned();
            self.rates.take(&queue, 1, pumice_ledger::TimeMs(self.now));
        }
        assert_eq!(self.ledger.lint(), Vec::<String>::new());
        leased
    }

    fn report(&mut self, job: JobId, kind: ReportKind) {
        let run = RunId { job, attempt: self.attempt(job) };
        let cluster = self.ledger.run(run).expect("a run").at.cluster.clone();
        let reports = vec![Report { cluster, run, kind }];
        self.ledger.decide(pumice_ledger::TimeMs(self.now), Inbox { reports, ..Inbox::default() }, Retries::default());
    }

    /// Why a job waits, in the pool's words.
    fn why(&mut self, job: JobId) -> String {
        let (namespace, group) = group_of(&self.ledger, job, self.ledger.job(job).expect("a job"));
        self.pool.why(&namespace, &group).unwrap_or_default()
    }

    fn attempt(&self, job: JobId) -> u32 {
        let last = self.ledger.runs().filter(|(run, _)| run.job == job).map(|(run, _)| run.attempt).max();
        last.expect("a run")
    }
}

mod away;
mod constraints;
mod gang_uniformity;
mod gangs;
mod market;
mod placement;
mod pool_view;
mod shares;
mod volcano_jobs;

#[test]
fn jobs_go_to_nodes_of_all_clusters_in_turn() {
    let mut scene = Fixture::new(&[("one", "a", 2), ("two", "a", 1)], &[("q", 1.0)]);
    let late = scene.submit("q", "default", 1, 7, None);
    let jobs: Vec<JobId> = (0..3).map(|_| scene.submit("q", "default", 1, 0, None)).collect();
    let leased = scene.round();
    assert_eq!(leased.keys().copied().collect::<Vec<_>>(), jobs, "the lower priority goes first");
    assert_eq!(leased.values().filter(|node| *node == "one/a").count(), 2);
    assert_eq!(scene.round(), BTreeMap::new());
    scene.report(jobs[1], ReportKind::Succeeded);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [late]);
}

#[test]
fn queues_share_by_their_factor() {
    let mut scene = Fixture::new(&[("one", "a", 30)], &[("small", 2.0), ("large", 1.0)]);
    for _ in 0..40 {
        scene.submit("small", "default", 1, 0, None);
        scene.submit("large", "default", 1, 0, None);
    }
    let leased = scene.round();
    let of = |name: &str| {
        let owner = |job: &&JobId| scene.ledger.owner(scene.ledger.job(**job).expect("a job")).0 == name;
        leased.keys().filter(owner).count()
    };
    assert_eq!((of("small"), of("large")), (10, 20));
}

#[test]
fn a_gang_starts_together_or_not_at_all() {
    let mut scene = Fixture::new(&[("one", "a", 2), ("two", "b", 1)], &[("q", 1.0)]);
    let gang = |cardinality| Some(Gang { id: "g".to_owned(), cardinality, uniformity: String::new() });
    let first = scene.submit("q", "default", 1, 0, gang(3));
    scene.submit("q", "default", 1, 0, gang(3));
    assert_eq!(scene.round(), BTreeMap::new(), "one is missing");
    let single = scene.submit("q", "default", 1, 0, None);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [single]);
    scene.submit("q", "default", 1, 0, gang(3));
    assert_eq!(scene.round(), BTreeMap::new(), "there is room for two");
    scene.report(single, ReportKind::Succeeded);
    let leased = scene.round();
    assert_eq!(leased.len(), 3);
    assert!(leased.contains_key(&first));
}

#[test]
fn an_urgent_job_makes_room_and_the_other_comes_back() {
    let mut scene = Fixture::new(&[("one", "a", 1)], &[("q", 1.0)]);
    let spare = scene.submit("q", "default", 1, 0, None);
    scene.round();
    scene.report(spare, ReportKind::Running(PodRef::default(), "a".to_owned()));
    let urgent = scene.submit("q", "urgent", 1, 0, None);
    assert_eq!(scene.round(), BTreeMap::new(), "the room is not free yet");
    assert_eq!(scene.ledger.job(spare).map(|job| job.phase), Some(pumice_ledger::Phase::Leaving));
    scene.report(spare, ReportKind::Gone);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [urgent]);
    scene.report(urgent, ReportKind::Succeeded);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [spare]);
    assert_eq!(scene.attempt(spare), 2);
}

#[test]
fn a_node_on_which_a_run_was_given_back_is_avoided() {
    let mut scene = Fixture::new(&[("one", "a", 4), ("two", "a", 1)], &[("q", 1.0)]);
    let job = scene.submit("q", "default", 1, 0, None);
    let first = scene.round()[&job].clone();
    scene.report(job, ReportKind::Returned("no image".to_owned(), true));
    let second = scene.round()[&job].clone();
    assert_ne!(first, second);
}

#[test]
fn a_window_that_begins_knows_of_runs_whose_jobs_have_ended() {
    let mut scene = Fixture::new(&[("one", "a", 1)], &[("q", 1.0)]);
    let first = scene.submit("q", "default", 1, 0, None);
    scene.round();
    let run = RunId { job: first, attempt: 1 };
    let ask = Event::CancelAsked { jobs: vec![first], filter: pumice_ledger::Filter::Active, reason: String::new() };
    scene.ledger.fold(&Entry { events: vec![ask], ..Entry::new(pumice_ledger::TimeMs(scene.now), "q", "set") });
    scene.ledger.decide(pumice_ledger::TimeMs(scene.now), Inbox::default(), Retries::default());
    assert!(scene.ledger.job(first).is_none() && scene.ledger.run(run).is_some());
    let second = scene.submit("q", "default", 1, 0, None);
    // Another leader, whose pool and view are new.
    let fresh = Fixture::new(&[("one", "a", 1)], &[("q", 1.0)]);
    (scene.view, scene.pool) = (fresh.view, fresh.pool);
    assert_eq!(scene.round(), BTreeMap::new(), "the node is not free yet");
    let reports = vec![Report { cluster: "one".to_owned(), run, kind: ReportKind::Gone }];
    scene.ledger.decide(pumice_ledger::TimeMs(scene.now), Inbox { reports, ..Inbox::default() }, Retries::default());
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [second]);
}

#[test]
fn another_priority_is_another_turn() {
    let mut scene = Fixture::new(&[("one", "a", 1)], &[("q", 1.0)]);
    let running = scene.submit("q", "default", 1, 0, None);
    scene.round();
    let first = scene.submit("q", "default", 1, 5, None);
    let second = scene.submit("q", "default", 1, 6, None);
    scene.round();
    let ask = Event::Reprioritised { jobs: vec![second], priority: 1 };
    scene.ledger.fold(&Entry { events: vec![ask], ..Entry::new(pumice_ledger::TimeMs(scene.now), "q", "set") });
    scene.round();
    scene.report(running, ReportKind::Succeeded);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [second]);
    scene.report(second, ReportKind::Succeeded);
    assert_eq!(scene.round().keys().copied().collect::<Vec<_>>(), [first]);
}

#[test]
fn a_short_job_counts_for_its_queue_until_the_cutoff() {
    // Queue a, which is named first, has had two short jobs when both queues want the one core again.
    for (cutoff_ms, first) in [(None, "a"), (Some(60_000), "b"), (Some(1), "a")] {
        let short_jobs = cutoff_ms.map(|ms| ("p".to_owned(), ms)).into_iter().collect();
        let constraints = Constraints { short_jobs, ..Constraints::default() };
        let mut scene = Fixture::within(&[("one", "n", 1)], &[("a", 1.0), ("b", 1.0)], constraints);
        for _ in 0..2 {
            let short = scene.submit("a", "default", 1, 0, None);
            assert_eq!(scene.round().len(), 1);
            scene.report(short, ReportKind::Running(PodRef::default(), String::new()));
            scene.now += 10;
            scene.report(short, ReportKind::Succeeded);
        }
        let jobs = ["a", "b"].map(|queue| (queue, scene.submit(queue, "default", 1, 0, None)));
        let leased = scene.round();
        let won: Vec<&str> = jobs.iter().filter(|(_, job)| leased.contains_key(job)).map(|(queue, _)| *queue).collect();
        assert_eq!(won, [first], "{cutoff_ms:?}");
    }
}
