//! Clusters of which nothing is heard.

use super::*;

// INV-33
#[test]
fn a_silent_cluster_loses_runs_only_where_the_queue_wants_it() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "spare")]));
    decide(&mut ledger, lease(1, "one"));
    let silent = |ms| Inbox { silent: vec![("one".to_owned(), ms)], ..Inbox::default() };
    let decide_late = |ledger: &mut Ledger, inbox| decide_at(TimeMs(1_000_000), ledger, inbox);
    assert_eq!(decide_late(&mut ledger, silent(i64::MAX)), Vec::<&str>::new());
    let queue = Queue { rerun_after_ms: 1000, ..Queue::default() };
    ledger.fold(&Entry { events: vec![Event::QueueSet(Box::new(queue))], ..Entry::new(TimeMs(0), "q", "") });
    assert_eq!(decide_late(&mut ledger, silent(999)), Vec::<&str>::new());
    assert_eq!(decide_late(&mut ledger, silent(1000)), ["lost"]);
    assert_eq!(decide(&mut ledger, lease(1, "two")), ["leased"]);
    assert_eq!(decide(&mut ledger, report(1, 1, ReportKind::Succeeded)), Vec::<&str>::new(), "it was given up");
}

/// What is said for all queues counts where the queue says nothing. A policy may try such failures again.
#[test]
fn runs_of_a_silent_cluster_fail_after_what_is_said_for_all() {
    let policy = serde_json::json!({"name": "again", "retryLimit": 1, "defaultAction": "Fail",
        "rules": [{"action": "Retry", "onCategory": "internal", "onSubcategory": "lease-expired"}]});
    let policies: RetryPolicies = serde_json::from_value(serde_json::json!({"policies": [policy]})).unwrap();
    let retries = Retries { heartbeat_timeout_ms: 2000, policies: Arc::new(policies), ..Retries::default() };
    let silent = |ms| Inbox { silent: vec![("one".to_owned(), ms)], ..Inbox::default() };
    let (own, named) = (Queue { rerun_after_ms: 1000, ..Queue::default() }, vec!["again".to_owned()]);
    for (queue, ms, wanted) in [
        (Queue::default(), 1999, vec![]),
        (Queue::default(), 2000, vec!["run failed", "failed"]),
        (own, 1000, vec!["lost"]),
        (Queue { retry_policies: named, ..Queue::default() }, 2000, vec!["run failed"]),
    ] {
        let mut ledger = Ledger::new(classes());
        ledger.fold(&Entry { events: vec![Event::QueueSet(Box::new(queue))], ..Entry::new(TimeMs(0), "q", "") });
        ledger.fold(&request("s", vec![submitted(1, "spare")]));
        decide(&mut ledger, lease(1, "one"));
        let entries = ledger.decide(TimeMs(1_000_000), silent(ms), retries.clone());
        assert_eq!(words(&entries), wanted, "after {ms} ms");
        let is_left = ledger.run(RunId { job: JobId(1), attempt: 1 }).is_some();
        assert_eq!(is_left, wanted.is_empty());
    }
}

/// Its job waits already, and goes on once the cluster is given up.
#[test]
fn a_run_that_was_stopped_on_a_silent_cluster_is_lost() {
    let mut ledger = with_queue();
    ledger.fold(&request("s", vec![submitted(1, "spare")]));
    decide(&mut ledger, lease(1, "one"));
    let run = RunId { job: JobId(1), attempt: 1 };
    let preempt = Proposal::Preempt { run, preemption: Preemption::default() };
    decide(&mut ledger, Inbox { proposals: vec![preempt], ..Inbox::default() });
    let silent = Inbox { silent: vec![("one".to_owned(), 2000)], ..Inbox::default() };
    let retries = Retries { heartbeat_timeout_ms: 2000, ..Retries::default() };
    assert_eq!(words(&ledger.decide(TimeMs(1_000_000), silent, retries)), ["lost"]);
    assert_eq!(decide(&mut ledger, lease(1, "two")), ["leased"]);
}

// INV-39
#[test]
fn a_silent_cluster_loses_its_runs_a_part_at_a_time() {
    let mut ledger = with_queue().in_parts_of(2);
    ledger.fold(&request("s", (1..=5).map(|job| submitted(job, "spare")).collect()));
    for job in 1..=5 {
        decide(&mut ledger, lease(job, if job < 4 { "one" } else { "two" }));
    }
    let queue = Queue { rerun_after_ms: 1000, ..Queue::default() };
    ledger.fold(&Entry { events: vec![Event::QueueSet(Box::new(queue))], ..Entry::new(TimeMs(0), "q", "") });
    let silent = || Inbox { silent: ["one", "two"].map(|name| (name.to_owned(), i64::MAX)).into(), ..Inbox::default() };
    for lost in [2, 2, 1, 0] {
        assert_eq!(decide_at(TimeMs(5_000), &mut ledger, silent()), vec!["lost"; lost]);
    }
    assert!(ledger.jobs().all(|(_, job)| job.phase == Phase::Queued));
}

#[test]
fn a_run_has_its_time_even_where_the_cluster_was_silent_before() {
    let mut ledger = Ledger::new(classes());
    let queue = Queue { rerun_after_ms: 1000, ..Queue::default() };
    ledger.fold(&Entry { events: vec![Event::QueueSet(Box::new(queue))], ..Entry::new(TimeMs(0), "q", "") });
    ledger.fold(&request("s", vec![submitted(1, "spare")]));
    let silent = || Inbox { silent: vec![("one".to_owned(), i64::MAX)], ..Inbox::default() };
    assert_eq!(decide_at(TimeMs(500), &mut ledger, Inbox { silent: silent().silent, ..lease(1, "one") }), ["leased"]);
    assert_eq!(decide_at(TimeMs(1499), &mut ledger, silent()), Vec::<&str>::new());
    assert_eq!(decide_at(TimeMs(1500), &mut ledger, silent()), ["lost"]);
}
