//! Stories of jobs; the laws that hold for any story are in `laws`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;

mod bulk_operations;
mod heartbeat_timeout;
mod laws;
mod retries;
mod volcano_job;

fn classes() -> PriorityClasses {
    let class = |value, preemptible| PriorityClass { value, preemptible };
    [("urgent".to_owned(), class(10, false)), ("spare".to_owned(), class(0, true))].into()
}

fn shape(class: &str) -> Shape {
    let requests = [("cpu".to_owned(), 1000)].into();
    Shape {
        priority_class: class.to_owned(),
        requests,
        template: serde_json::Value::Null,
        volcano_job: None,
        price_band: None,
        retries: None,
    }
}

fn digest(class: &str) -> Digest {
    Digest(if class == "urgent" { 1 } else { 2 })
}

fn submitted(job: u128, class: &str) -> Event {
    let (spec, shape) = (Digest(9), digest(class));
    Event::Submitted(Submitted { job: JobId(job), spec, shape, priority: 0, gang: None, fail_fast: false })
}

fn request(set: &str, events: Vec<Event>) -> Entry {
    let shapes = ["urgent", "spare"].map(|class| (digest(class), shape(class))).into();
    Entry { user: "ada".to_owned(), shapes, events, ..Entry::new(TimeMs(1), "q", set) }
}

fn at(cluster: &str) -> NodeRef {
    NodeRef { cluster: cluster.to_owned(), node: "n".to_owned() }
}

fn lease(job: u128, cluster: &str) -> Inbox {
    let jobs = vec![(JobId(job), at(cluster))];
    Inbox { proposals: vec![Proposal::Lease { jobs, pool: "p".to_owned(), away: None }], ..Inbox::default() }
}

fn report(job: u128, attempt: u32, kind: ReportKind) -> Inbox {
    let run = RunId { job: JobId(job), attempt };
    Inbox { reports: vec![Report { cluster: "one".to_owned(), run, kind }], ..Inbox::default() }
}

fn with_queue() -> Ledger {
    let mut ledger = Ledger::new(classes());
    ledger.fold(&Entry { events: vec![Event::QueueSet(Box::default())], ..Entry::new(TimeMs(0), "q", "") });
    ledger
}

/// What a decision says, without ids.
fn words(entries: &[Entry]) -> Vec<&'static str> {
    let word = |event: &Event| match event {
        Event::Leased { .. } => "leased",
        Event::Pending { .. } => "pending",
        Event::Running { .. } => "running",
        Event::Returned { .. } => "returned",
        Event::RunFailed { .. } => "run failed",
        Event::RunPreempted { requeued: true, .. } => "preempted and queued",
        Event::RunPreempted { .. } => "preempted",
        Event::RunLost { .. } => "lost",
        Event::RunGone { .. } => "gone",
        Event::Succeeded { .. } => "succeeded",
        Event::Failed { .. } => "failed",
        Event::Rejected { .. } => "rejected",
        Event::Cancelled { .. } => "cancelled",
        Event::SetReprioritised { .. } => "moved",
        Event::CarriedOut { .. } => "part",
        _ => "request",
    };
    entries.iter().flat_map(|entry| entry.events.iter().map(word)).collect()
}

fn decide(ledger: &mut Ledger, inbox: Inbox) -> Vec<&'static str> {
    decide_at(TimeMs(2), ledger, inbox)
}

fn decide_at(now: TimeMs, ledger: &mut Ledger, inbox: Inbox) -> Vec<&'static str> {
    let entries = ledger.decide(now, inbox, Retries::default());
    assert_eq!(ledger.lint(), Vec::<String>::new());
    words(&entries)
}

// INV-31
#[test]
fn a_job_runs_and_ends_once() {
    let mut ledger = with_queue();
    assert_eq!(ledger.fold(&request("s", vec![submitted(1, "spare")])), []);
    assert_eq!(ledger.fold(&request("s", vec![submitted(1, "spare")])), [Refusal::Twice(JobId(1))]);
    assert_eq!(decide(&mut ledger, lease(1, "one")), ["leased"]);
    assert_eq!(decide(&mut ledger, lease(1, "one")), Vec::<&str>::new());
    let pod = PodRef::default;
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Running(pod(), "n".to_owned()))), ["pending", "running"]);
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Pending(pod()))), Vec::<&str>::new());
    assert_eq!(decide(&mut ledger, report(1, 2, ReportKind::Succeeded)), Vec::<&str>::new());
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Succeeded)), ["succeeded"]);
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Failed(Failure::default()))), Vec::<&str>::new());
    assert_eq!((ledger.jobs().count(), ledger.runs().count(), ledger.clusters().count()), (0, 0, 0));
}

#[test]
fn a_cancelled_run_holds_its_room_until_it_is_gone() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "urgent")]));
    decide(&mut ledger, lease(1, "one"));
    let ask = Event::CancelAsked { jobs: vec![], filter: Filter::Active, reason: "enough".to_owned() };
    ledger.fold(&request("s", vec![ask]));
    assert_eq!(decide(&mut ledger, Inbox::default()), ["cancelled"]);
    assert_eq!((ledger.jobs().count(), ledger.runs_of("one").count()), (0, 1));
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Succeeded)), ["gone"]);
    assert_eq!(ledger.runs().count(), 0);
}

#[test]
fn a_preempted_job_waits_until_its_run_has_left() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "spare"), submitted(2, "urgent")]));
    decide(&mut ledger, lease(1, "one"));
    decide(&mut ledger, lease(2, "one"));
    let preempt = |job| {
        let run = RunId { job: JobId(job), attempt: 1 };
        Inbox { proposals: vec![Proposal::Preempt { run, preemption: Preemption::default() }], ..Inbox::default() }
    };
    assert_eq!(decide(&mut ledger, preempt(2)), Vec::<&str>::new(), "its class makes no room");
    assert_eq!(decide(&mut ledger, preempt(1)), ["preempted and queued"]);
    assert_eq!(decide(&mut ledger, lease(1, "two")), Vec::<&str>::new(), "the first run has not left");
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Gone)), ["gone"]);
    assert_eq!(decide(&mut ledger, lease(1, "two")), ["leased"]);
    assert_eq!(ledger.current(JobId(1)), Some(RunId { job: JobId(1), attempt: 2 }));
}

#[test]
fn a_run_given_back_too_often_fails_its_job() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "spare")]));
    for attempt in 1..=3 {
        decide(&mut ledger, lease(1, "one"));
        let said = decide(&mut ledger, report(1, attempt, ReportKind::Returned("no image".to_owned(), true)));
        assert_eq!(said, if attempt < 3 { vec!["returned"] } else { vec!["returned", "failed"] });
    }
    ledger.fold(&request("s", vec![submitted(2, "spare")]));
    for attempt in 1..=10 {
        decide(&mut ledger, lease(2, "one"));
        let said = decide(&mut ledger, report(2, attempt, ReportKind::Returned("not tried".to_owned(), false)));
        assert_eq!(said, ["returned"], "it was never tried");
    }
}

// INV-34
#[test]
fn nobody_speaks_for_another_cluster() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "spare")]));
    decide(&mut ledger, lease(1, "two"));
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Succeeded)), Vec::<&str>::new());
}

#[test]
fn a_gang_gets_all_or_nothing() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "spare"), submitted(2, "spare")]));
    ledger.fold(&request(
        "s",
        vec![Event::CancelAsked { jobs: vec![JobId(2)], filter: Filter::Active, reason: String::new() }],
    ));
    let jobs = vec![(JobId(1), at("one")), (JobId(2), at("one"))];
    let both =
        Inbox { proposals: vec![Proposal::Lease { jobs, pool: "p".to_owned(), away: None }], ..Inbox::default() };
    assert_eq!(decide(&mut ledger, both), ["cancelled"]);
    assert_eq!(ledger.first("q", 9, 9), [JobId(1)]);
}

#[test]
fn what_only_came_is_not_named_and_what_changed_is() {
    let mut ledger = with_queue();
    ledger.take_changed();
    ledger.fold(&request("set", vec![submitted(1, "spare"), submitted(2, "spare")]));
    assert_eq!(ledger.take_changed(), Changes { jobs: BTreeSet::new(), came: true });
    assert!(ledger.take_changed().is_empty());
    decide(&mut ledger, lease(1, "one"));
    let mut changed = ledger.take_changed();
    assert_eq!(changed, Changes { jobs: [JobId(1)].into(), came: false });
    let gang = Gang { id: "g".to_owned(), cardinality: 2, uniformity: String::new() };
    let of_gang = |event| match event {
        Event::Submitted(submitted) => Event::Submitted(Submitted { gang: Some(gang.clone()), ..submitted }),
        other => other,
    };
    ledger.fold(&request("set", vec![of_gang(submitted(3, "spare")), submitted(4, "spare")]));
    changed.extend(&ledger.take_changed());
    assert_eq!(changed, Changes { jobs: [JobId(1), JobId(3)].into(), came: true });
}

#[test]
fn jobs_that_move_with_their_set_are_told_once() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "spare"), submitted(2, "spare")]));
    ledger.fold(&request("other", vec![submitted(3, "spare")]));
    decide(&mut ledger, lease(2, "one"));
    let all = || request("s", vec![Event::Reprioritised { jobs: vec![], priority: 7 }]);
    ledger.fold(&request("s", vec![Event::Reprioritised { jobs: vec![JobId(1)], priority: 9 }]));
    assert_eq!(decide(&mut ledger, Inbox::default()), Vec::<&str>::new(), "the request itself tells those it names");
    ledger.fold(&all());
    let priorities = [1, 2, 3].map(|job| ledger.job(JobId(job)).unwrap().priority);
    assert_eq!(priorities, [7, 7, 0]);
    let decided = ledger.decide(TimeMs(2), report(2, 1, ReportKind::Succeeded), Retries::default());
    let told = Event::SetReprioritised { jobs: vec![JobId(1), JobId(2)], priority: 7, requestor: "ada".to_owned() };
    assert_eq!((&*decided[0].job_set, &decided[0].events[0]), ("s", &told), "before the end of one of them");
    assert_eq!(decide(&mut ledger, Inbox::default()), Vec::<&str>::new());
    let refusal = Refusal::NotAsked { queue: "q".to_owned(), job_set: "s".to_owned() };
    assert_eq!(ledger.fold(&decided[0])[0], refusal, "told again it is nothing new");
    ledger.fold(&request("empty", vec![Event::Reprioritised { jobs: vec![], priority: 7 }]));
    assert_eq!(decide(&mut ledger, Inbox::default()), Vec::<&str>::new());
}

fn set(executor: &str, cordoned: bool) -> Event {
    Event::ExecutorSet { executor: executor.to_owned(), cordoned, reason: "new kernel".to_owned() }
}

#[test]
fn nothing_new_starts_on_a_cordoned_cluster() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "spare"), submitted(2, "spare")]));
    decide(&mut ledger, lease(1, "one"));
    ledger.fold(&request("", vec![set("one", true)]));
    let settings = ExecutorSettings {
        cordoned: true,
        cordon_reason: "new kernel".into(),
        set_by: "ada".into(),
        set_at: TimeMs(1),
    };
    assert_eq!(ledger.executors(), &[("one".to_owned(), settings)].into());
    assert_eq!(decide(&mut ledger, lease(2, "one")), Vec::<&str>::new());
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Succeeded)), ["succeeded"], "what runs goes on");
    let both = vec![(JobId(2), at("two"))];
    let elsewhere =
        Inbox { proposals: vec![Proposal::Lease { jobs: both, pool: "p".to_owned(), away: None }], ..Inbox::default() };
    assert_eq!(decide(&mut ledger, elsewhere), ["leased"]);
    ledger.fold(&request("s", vec![submitted(3, "spare")]));
    ledger.fold(&request("", vec![Event::ExecutorUnset { executor: "one".to_owned() }]));
    assert_eq!(decide(&mut ledger, lease(3, "one")), ["leased"]);
    ledger.fold(&request("", vec![set("two", true), set("two", false)]));
    assert!(!ledger.is_cordoned("two"), "settings without a cordon");
}

/// Jobs 1 and 2 run on a node of cluster `one`, 3 has its pod on `two`, 4 is leased on `one`, 5 waits; even ones are urgent.
/// The last is of another queue.
fn scattered() -> Ledger {
    let mut ledger = with_queue();
    let job = |job: u128| submitted(job, if job.is_multiple_of(2) { "urgent" } else { "spare" });
    ledger.fold(&request("s", vec![job(1), job(2), job(3)]));
    ledger.fold(&request("t", vec![job(4)]));
    ledger.fold(&Entry { queue: "r".to_owned(), ..request("t", vec![Event::QueueSet(Box::default()), job(5)]) });
    for (job, cluster, node, pool) in
        [(1, "one", "a", "p"), (2, "one", "b", "p"), (3, "two", "a", "p"), (4, "one", "a", "gpu")]
    {
        let jobs = vec![(JobId(job), NodeRef { cluster: cluster.to_owned(), node: node.to_owned() })];
        let proposals = vec![Proposal::Lease { jobs, pool: pool.to_owned(), away: None }];
        assert_eq!(decide(&mut ledger, Inbox { proposals, ..Inbox::default() }), ["leased"]);
    }
    for (job, cluster, kind) in [
        (1, "one", ReportKind::Running(PodRef::default(), "a".to_owned())),
        (2, "one", ReportKind::Running(PodRef::default(), "b".to_owned())),
        (3, "two", ReportKind::Pending(PodRef::default())),
    ] {
        let report = Report { cluster: cluster.to_owned(), run: RunId { job: JobId(job), attempt: 1 }, kind };
        ledger.decide(TimeMs(2), Inbox { reports: vec![report], ..Inbox::default() }, Retries::default());
    }
    ledger
}

#[test]
fn a_scope_means_the_jobs_that_stand_in_it() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let on = |cluster: &str, node: &str| Scope { cluster: cluster.into(), node: node.into(), ..Scope::default() };
    let of = |queues: &[&str]| Scope { queues: names(queues), ..Scope::default() };
    for (scope, cancelled, preempted) in [
        (Scope::default(), vec![1, 2, 3, 4, 5], vec![1, 3]),
        (on("one", ""), vec![1, 2, 4], vec![1]),
        (on("one", "a"), vec![1, 4], vec![1]),
        (on("", "a"), vec![1, 3, 4], vec![1, 3]),
        (on("three", ""), vec![], vec![]),
        (of(&["q"]), vec![1, 2, 3, 4], vec![1, 3]),
        (of(&["r", "q"]), vec![1, 2, 3, 4, 5], vec![1, 3]),
        (of(&["none"]), vec![], vec![]),
        (Scope { queues: names(&["r"]), ..on("one", "") }, vec![], vec![]),
        (Scope { priority_classes: names(&["urgent"]), ..on("one", "") }, vec![2, 4], vec![]),
        (Scope { priority_classes: names(&["spare"]), ..of(&[]) }, vec![1, 3, 5], vec![1, 3]),
        (Scope { pools: names(&["gpu"]), ..of(&[]) }, vec![4], vec![]),
        (Scope { pools: names(&["gpu", "p"]), ..of(&["q", "r"]) }, vec![1, 2, 3, 4], vec![1, 3]),
        (Scope { phases: vec![Phase::Queued, Phase::Leaving], ..of(&[]) }, vec![5], vec![]),
        (Scope { phases: vec![Phase::Leased], ..of(&[]) }, vec![4], vec![]),
        (Scope { phases: vec![Phase::Pending, Phase::Running], ..of(&["q"]) }, vec![1, 2, 3], vec![1, 3]),
    ] {
        for (jobs, event) in [
            (cancelled, Event::ScopeCancelAsked { scope: scope.clone(), reason: "enough".to_owned() }),
            (preempted, Event::ScopePreemptAsked { scope: scope.clone(), reason: "enough".to_owned() }),
        ] {
            let mut ledger = scattered();
            ledger.fold(&Entry { queue: String::new(), ..request("", vec![event.clone()]) });
            let decided = ledger.decide(TimeMs(3), Inbox::default(), Retries::default());
            let mut ended: Vec<u128> =
                decided.iter().flat_map(|entry| &entry.events).filter_map(|event| Some(event.ends()?.0)).collect();
            ended.sort_unstable();
            assert_eq!(ended, jobs, "{event:?}");
            for event in decided.iter().flat_map(|entry| &entry.events) {
                match event {
                    Event::Cancelled { requestor, reason, .. } => {
                        assert_eq!((&**requestor, &**reason), ("ada", "enough"))
                    }
                    Event::RunPreempted { preemption, .. } => assert_eq!(&*preemption.requestor, "ada"),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_queue_with_jobs_stays() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "spare")]));
    let removed = Entry { events: vec![Event::QueueRemoved], ..Entry::new(TimeMs(3), "q", "") };
    assert_eq!(ledger.fold(&removed), [Refusal::QueueInUse("q".to_owned())]);
    ledger
        .fold(&request("s", vec![Event::CancelAsked { jobs: vec![], filter: Filter::Queued, reason: String::new() }]));
    assert_eq!(decide(&mut ledger, Inbox::default()), ["cancelled"]);
    assert_eq!(ledger.fold(&removed), []);
    assert_eq!(ledger.digest(), "");
}
