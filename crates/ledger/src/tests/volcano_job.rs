//! Jobs that are several pods of one cluster.

use super::*;

/// The digest under which tests submit [`whole_shape`].
pub(super) const DIGEST: Digest = Digest(3);

pub(super) fn whole_shape() -> Shape {
    let part =
        |pods, cpu| VolcanoTask { pods, requests: [("cpu".to_owned(), cpu)].into(), template: serde_json::Value::Null };
    let whole = VolcanoJob { least: 2, parts: vec![part(1, 500), part(2, 1000)] };
    Shape { requests: [("cpu".to_owned(), 2500)].into(), volcano_job: Some(whole), ..shape("spare") }
}

fn with_whole() -> (Ledger, Vec<Entry>) {
    let queue = Entry { events: vec![Event::QueueSet(Box::default())], ..Entry::new(TimeMs(0), "q", "") };
    let submitted =
        Submitted { job: JobId(1), spec: Digest(9), shape: DIGEST, priority: 0, gang: None, fail_fast: false };
    let mut submission = request("s", vec![Event::Submitted(submitted)]);
    submission.shapes.insert(DIGEST, whole_shape());
    let mut ledger = Ledger::new(classes());
    ledger.fold(&queue);
    assert_eq!(ledger.fold(&submission), []);
    (ledger, vec![queue, submission])
}

fn node(cluster: &str, node: &str) -> NodeRef {
    NodeRef { cluster: cluster.to_owned(), node: node.to_owned() }
}

fn lease_whole(places: &[(&str, &str, &[u32])]) -> Inbox {
    let places = places.iter().map(|(cluster, name, pods)| (node(cluster, name), pods.to_vec())).collect();
    let proposal = Proposal::LeaseVolcanoJob { job: JobId(1), places, pool: "p".to_owned() };
    Inbox { proposals: vec![proposal], ..Inbox::default() }
}

const ROOM: &[(&str, &str, &[u32])] = &[("one", "a", &[0, 2]), ("one", "b", &[1])];

// INV-35
#[test]
fn a_whole_job_is_leased_to_one_cluster_and_as_a_whole() {
    let (mut ledger, _) = with_whole();
    assert_eq!(decide(&mut ledger, lease(1, "one")), Vec::<&str>::new(), "it needs more than a node");
    let apart: &[(&str, &str, &[u32])] = &[("one", "a", &[0]), ("two", "a", &[1, 2])];
    assert_eq!(decide(&mut ledger, lease_whole(apart)), Vec::<&str>::new());
    assert_eq!(decide(&mut ledger, lease_whole(&[])), Vec::<&str>::new());
    assert_eq!(decide(&mut ledger, lease_whole(ROOM)), ["leased"]);
    assert_eq!(decide(&mut ledger, lease_whole(ROOM)), Vec::<&str>::new());
    let (_, run) = ledger.runs().next().unwrap();
    assert_eq!((run.at.clone(), run.places.len()), (node("one", ""), 2));
    assert!(run.is_on("b") && !run.is_on("c") && !run.is_on(""));
    assert_eq!(ledger.queue("q").unwrap().usage.values().next().unwrap().requests()["cpu"], 2500, "all of it counts");
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Succeeded)), ["succeeded"]);
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Succeeded)), Vec::<&str>::new());
}

#[test]
fn what_it_held_when_it_ended_is_what_had_room() {
    for (places, cpu) in [(ROOM, 2500), (&[("one", "a", &[0, 2][..])][..], 1500)] {
        let (mut ledger, _) = with_whole();
        decide(&mut ledger, lease_whole(places));
        decide(&mut ledger, report(1, 1, ReportKind::Running(PodRef::default(), String::new())));
        decide(&mut ledger, report(1, 1, ReportKind::Succeeded));
        let held: Vec<i64> = ledger.take_ended().iter().map(|ended| ended.requests["cpu"]).collect();
        assert_eq!(held, [cpu]);
    }
}

#[test]
fn a_job_of_one_pod_is_never_leased_as_a_whole() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "spare")]));
    assert_eq!(decide(&mut ledger, lease_whole(ROOM)), Vec::<&str>::new());
}

#[test]
fn who_asks_for_a_node_means_whole_jobs_with_pods_there() {
    for (name, cancelled) in [("b", vec!["cancelled"]), ("c", vec![])] {
        let (mut ledger, _) = with_whole();
        decide(&mut ledger, lease_whole(ROOM));
        let scope = Scope { cluster: "one".to_owned(), node: name.to_owned(), ..Scope::default() };
        ledger.fold(&request("", vec![Event::ScopeCancelAsked { scope, reason: String::new() }]));
        assert_eq!(decide(&mut ledger, Inbox::default()), cancelled, "{name}");
    }
}

#[test]
fn a_cluster_that_gave_it_back_is_avoided_and_the_log_gives_the_same_again() {
    let (mut ledger, mut log) = with_whole();
    let steps = [
        lease_whole(ROOM),
        report(1, 1, ReportKind::Pending(PodRef::default())),
        report(1, 1, ReportKind::Returned("no room".to_owned(), true)),
        lease_whole(&[("two", "x", &[0, 1, 2])]),
    ];
    for (now, inbox) in (5..).map(TimeMs).zip(steps) {
        log.extend(ledger.decide(now, inbox, Retries::default()));
    }
    assert_eq!(ledger.job(JobId(1)).unwrap().avoid, [node("one", "")]);
    let mut again = Ledger::new(classes());
    for entry in &log {
        let text = serde_json::to_string(entry).unwrap();
        assert_eq!(again.fold(&serde_json::from_str(&text).unwrap()), []);
    }
    assert_eq!(again.digest(), ledger.digest());
    let run = RunId { job: JobId(1), attempt: 2 };
    let saved = Saved {
        queues: [("q".to_owned(), Queue::default())].into(),
        shapes: [(DIGEST, whole_shape())].into(),
        jobs: ledger.saved(JobId(1)).into_iter().collect(),
        runs: ledger.saved_run(run).into_iter().collect(),
        ..Saved::default()
    };
    assert_eq!(Ledger::restore(classes(), saved).unwrap().digest(), ledger.digest());
}

#[test]
fn a_retry_keeps_its_memory_and_goes_to_another_cluster() {
    let policy = serde_json::json!({"name": "r", "retryLimit": 2, "defaultAction": "Fail", "rules": [
        {"action": "Retry", "onCategory": "oom",
            "mutate": {"affinity": {"avoidSameNode": true}, "resources": {"memory": {"factor": 2}}}},
    ]});
    let (mut ledger, mut log) = with_whole();
    let set = Event::RetryPolicySet(Box::new(serde_json::from_value(policy).unwrap()));
    let queue = Queue { retry_policies: vec!["r".to_owned()], ..Queue::default() };
    log.push(Entry { events: vec![set], ..Entry::new(TimeMs(1), "", "") });
    log.push(Entry { events: vec![Event::QueueSet(Box::new(queue))], ..Entry::new(TimeMs(1), "q", "") });
    assert!(log[2..].iter().all(|entry| ledger.fold(entry).is_empty()));
    let failed = |attempt| {
        let failure = Failure { category: "oom".to_owned(), ..Failure::default() };
        report(1, attempt, ReportKind::Failed(failure))
    };
    log.extend(ledger.decide(TimeMs(5), lease_whole(ROOM), Retries::default()));
    log.extend(ledger.decide(TimeMs(6), failed(1), Retries::default()));
    let job = ledger.job(JobId(1)).unwrap();
    assert_eq!((job.phase, job.failed, job.grown.as_deref()), (Phase::Queued, 1, None));
    assert_eq!((job.avoid.clone(), ledger.shape(job)), (vec![node("one", "")], &whole_shape()));
    let elsewhere = lease_whole(&[("two", "x", &[0, 1, 2])]);
    log.extend(ledger.decide(TimeMs(7), elsewhere, Retries::default()));
    // There is no third cluster.
    let could_hold = |shape: &Shape, off: &[NodeRef]| shape.volcano_job.is_some() && off.len() < 2;
    let inbox = Inbox {
        reports: vec![Report { cluster: "two".to_owned(), ..failed(2).reports.remove(0) }],
        ..Inbox::default()
    };
    log.extend(ledger.decide_where(TimeMs(8), inbox, Retries::default(), &could_hold));
    let last = log.last().and_then(|entry| entry.events.last());
    let Some(Event::Failed { failure, .. }) = last else { panic!("{last:?}") };
    assert_eq!(failure.message, "not tried again: no cluster could hold it, clusters it keeps off: 2");
    assert_eq!((ledger.jobs().count(), ledger.runs().count()), (0, 0));
    let mut again = Ledger::new(classes());
    assert!(log.iter().all(|entry| again.fold(entry).is_empty()));
    assert_eq!(again.digest(), ledger.digest());
}

#[test]
fn logs_of_before_there_were_whole_jobs_are_read() {
    let leased = r#"{"leased":{"run":"00000000000000000000000001-1","at":{"cluster":"one","node":"a"},"pool":"p"}}"#;
    let event: Event = serde_json::from_str(leased).unwrap();
    assert_eq!(serde_json::to_string(&event).unwrap(), leased);
    let before = r#"{"priorityClass":"spare","requests":{"cpu":1000},"template":null}"#;
    assert_eq!(serde_json::from_str::<Shape>(before).unwrap(), shape("spare"));
    assert_eq!(serde_json::to_string(&shape("spare")).unwrap(), before, "digests stay what they were");
}
