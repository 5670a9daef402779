//! A page of a fleet whose story is known, and laws that hold for any page.

use pumice_ledger::{
    Digest, Event, Failure, Inbox, JobId, NodeRef, PriorityClass, Proposal, Queue, Report, ReportKind, Retries, RunId,
    Shape, Submitted,
};
use pumice_ledger::{Entry, Ledger};

use super::*;

const NOW: TimeMs = TimeMs(7_200_000);

struct Fleet {
    ledger: Ledger,
    lifecycles: Lifecycles,
    told: Vec<lifecycle::LifecycleEvent>,
}

impl Fleet {
    fn new() -> Self {
        let class = PriorityClass { value: 0, preemptible: true };
        let ledger = Ledger::new([("armada-default".to_owned(), class)].into());
        Self { ledger, lifecycles: Lifecycles::default(), told: Vec::new() }
    }

    fn fold(&mut self, at: i64, queue: &str, events: Vec<Event>) {
        let requests = [("cpu".to_owned(), 1_500), ("memory".to_owned(), 1 << 30)].into();
        let shape = Shape {
            priority_class: "armada-default".into(),
            requests,
            template: serde_json::Value::Null,
            volcano_job: None,
            price_band: None,
            retries: None,
        };
        let shapes = [(Digest(2), shape)].into();
        let entry = Entry { shapes, events, ..Entry::new(TimeMs(at), queue, "set") };
        assert_eq!(self.ledger.fold(&entry), []);
        self.lifecycles.tell(&self.ledger, &entry, &mut self.told);
    }

    fn queue(&mut self, name: &str, priority_factor: f64) {
        let queue = Queue { name: name.to_owned(), priority_factor, ..Queue::default() };
        self.fold(0, name, vec![Event::QueueSet(Box::new(queue))]);
    }

    fn submit(&mut self, at: i64, queue: &str, jobs: std::ops::Range<u128>) {
        let submitted = |job| {
            let (spec, shape) = (Digest(1), Digest(2));
            Event::Submitted(Submitted { job: JobId(job), spec, shape, priority: 0, gang: None, fail_fast: false })
        };
        self.fold(at, queue, jobs.map(submitted).collect());
    }

    fn decide(&mut self, inbox: Inbox) {
        for entry in self.ledger.decide(TimeMs(3_600_000), inbox, Retries::default()) {
            self.lifecycles.tell(&self.ledger, &entry, &mut self.told);
        }
        assert_eq!(self.ledger.lint(), Vec::<String>::new());
    }

    fn lease(&mut self, job: u128, pool: &str) {
        let at = NodeRef { cluster: "east".to_owned(), node: "n".to_owned() };
        let lease = Proposal::Lease { jobs: vec![(JobId(job), at)], pool: pool.to_owned(), away: None };
        self.decide(Inbox { proposals: vec![lease], ..Inbox::default() });
    }

    fn report(&mut self, job: u128, kind: ReportKind) {
        let report = Report { cluster: "east".to_owned(), run: RunId { job: JobId(job), attempt: 1 }, kind };
        self.decide(Inbox { reports: vec![report], ..Inbox::default() });
    }
}

fn east() -> ClusterCounts {
    let amounts = |cpu, memory| Amounts::from([("cpu".into(), cpu), ("memory".into(), memory)]);
    let nodes =
        NodeCounts { nodes: 2, open: 1, capacity: amounts(8_000, 16 << 30), available: amounts(4_000, 8 << 30) };
    ClusterCounts {
        name: "east".to_owned(),
        heard: TimeMs(7_199_500),
        connected: true,
        release: "0.1.0".to_owned(),
        ahead_ms: Some(-250),
        pools: [("default".to_owned(), nodes.clone()), ("gpu".to_owned(), nodes)].into(),
        used: [(("fast".to_owned(), "default".to_owned()), amounts(700, 1 << 20))].into(),
    }
}

use shares::Amounts;

/// One that waits, one that runs, one that failed, one that had to make room, and a queue that nobody made.
fn fleet() -> Fleet {
    let mut fleet = Fleet::new();
    fleet.queue("fast", 1.0);
    fleet.queue("slow", 2.0);
    fleet.submit(0, "fast", 1..4);
    fleet.submit(7_170_000, "slow", 10..12);
    fleet.submit(7_000_000, "nobody's", 20..21);
    (1..4).for_each(|job| fleet.lease(job, "default"));
    fleet.report(1, ReportKind::Running(pumice_ledger::PodRef::default(), "n".to_owned()));
    let failure = Failure { message: "no".into(), ..Failure::default() };
    fleet.report(2, ReportKind::Failed(failure));
    let run = RunId { job: JobId(3), attempt: 1 };
    let preemption = pumice_ledger::Preemption { beneficiary: Some(JobId(10)), ..pumice_ledger::Preemption::default() };
    fleet.decide(Inbox { proposals: vec![Proposal::Preempt { run, preemption }], ..Inbox::default() });
    fleet
}

#[test]
fn a_page_has_armadas_names_and_adds_up() {
    let fleet = fleet();
    let metrics = Metrics::default();
    metrics.leads(Some(TimeMs(5_000)));
    metrics.count_events(fleet.told.clone());
    metrics.round("default", Duration::from_millis(7));
    metrics.committed(Duration::from_micros(1_500));
    metrics.answered(CallKey::of(true, "POST", "/api.Submit/SubmitJobs"), tonic::Code::Ok, Duration::from_millis(3));
    metrics.answered(CallKey::of(false, "POST", "/v1/job/submit"), tonic::Code::Ok, Duration::from_millis(30));
    let page = metrics.page(Seq(17), Some(&Snapshot::of(NOW, &fleet.ledger, vec![east()], 0)));
    assert_eq!(pumice_metrics::lint(&page), Vec::<String>::new());
    insta::assert_snapshot!(page);
}

#[test]
fn a_server_that_does_not_lead_says_what_it_counted_and_no_more() {
    let metrics = Metrics::default();
    assert!(!metrics.page(Seq(17), None).contains("followed"), "it has read nothing yet");
    metrics.follows(Some(Seq(15)));
    let page = metrics.page(Seq(17), None);
    assert_eq!(pumice_metrics::lint(&page), Vec::<String>::new());
    assert!(page.contains("pumice_fleet_leader 0\n") && page.contains("pumice_fleet_log_position 17\n"));
    assert!(page.contains("pumice_fleet_followed_position 15\n"));
    assert!(!page.contains("armada_queue_size"), "another server knows better");
}

// INV-38
#[test]
fn a_longer_queue_makes_no_longer_page() {
    let mut fleet = fleet();
    let lines = |fleet: &Fleet| {
        let snapshot = Snapshot::of(NOW, &fleet.ledger, vec![east()], 0);
        Metrics::default().page(Seq(0), Some(&snapshot)).lines().count()
    };
    let before = lines(&fleet);
    fleet.submit(6_000_000, "slow", 1_000..21_000);
    assert_eq!(lines(&fleet), before);
}

#[test]
fn paths_of_strangers_make_no_lines() {
    let metrics = Metrics::default();
    for number in 0..100 {
        let path = format!("/api.Submit/Call{number}");
        metrics.answered(CallKey::of(true, "POST", &path), tonic::Code::Unimplemented, Duration::ZERO);
        metrics.answered(CallKey::of(false, "GET", &path), tonic::Code::NotFound, Duration::ZERO);
        let path = format!("/odd.Service{number}/Call");
        metrics.answered(CallKey::of(true, "POST", &path), tonic::Code::Unauthenticated, Duration::ZERO);
    }
    let page = metrics.page(Seq(0), None);
    assert_eq!(page.lines().filter(|line| line.starts_with("grpc_server_handled_total{")).count(), 3);
}

#[test]
fn a_new_leader_knows_from_where_its_runs_come() {
    let mut fleet = fleet();
    fleet.lifecycles = Lifecycles::of(&fleet.ledger);
    fleet.told.clear();
    fleet.report(1, ReportKind::Succeeded);
    let kind = lifecycle::Kind::State { state: "succeeded", prior: "running" };
    let told = lifecycle::LifecycleEvent { queue: "fast".to_owned(), pool: "default".to_owned(), kind };
    assert_eq!(fleet.told, [told]);
}
