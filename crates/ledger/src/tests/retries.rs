//! Failures that are tried again.

use serde_json::json;

use super::*;

/// Failures that are transient are tried again `limit` times, on other nodes.
fn retries(limit: u32) -> Retries {
    let policies = json!({"enabled": true, "defaultPolicyName": "p", "policies": [
        {"name": "p", "retryLimit": limit, "defaultAction": "Fail", "rules": [
            {"action": "Retry", "onCategory": "transient", "mutate": {"affinity": {"avoidSameNode": true}}},
        ]},
    ]});
    Retries { policies: Arc::new(serde_json::from_value(policies).unwrap()), ..Retries::default() }
}

fn failed(category: &str) -> ReportKind {
    ReportKind::Failed(Failure { message: "it broke".to_owned(), category: category.to_owned(), ..Failure::default() })
}

/// A ledger and the log that it is made of.
struct Story {
    ledger: Ledger,
    log: Vec<Entry>,
    limit: u32,
}

impl Story {
    fn new(limit: u32, jobs: Vec<Event>) -> Self {
        let queue = Entry { events: vec![Event::QueueSet(Box::default())], ..Entry::new(TimeMs(0), "q", "") };
        let log = vec![queue, request("s", jobs)];
        let mut ledger = Ledger::new(classes());
        assert!(log.iter().all(|entry| ledger.fold(entry).is_empty()));
        Self { ledger, log, limit }
    }

    fn decide(&mut self, inbox: Inbox) -> Vec<&'static str> {
        let entries = self.ledger.decide(TimeMs(2), inbox, retries(self.limit));
        assert_eq!(self.ledger.lint(), Vec::<String>::new());
        let words = words(&entries);
        self.log.extend(entries);
        words
    }

    /// What the log gives when it is folded anew is what there is.
    fn check(&self) {
        let mut again = Ledger::new(classes());
        assert!(self.log.iter().all(|entry| again.fold(entry).is_empty()));
        assert_eq!(again.digest(), self.ledger.digest());
    }

    fn last_failure(&self) -> &Failure {
        let events = self.log.iter().rev().flat_map(|entry| entry.events.iter().rev());
        let mut failures = events.filter_map(|event| match event {
            Event::Failed { failure, .. } => Some(failure),
            _ => None,
        });
        failures.next().expect("a job failed")
    }
}

#[test]
fn a_failure_is_tried_again_elsewhere_as_often_as_it_may_be() {
    let mut story = Story::new(1, vec![submitted(1, "spare")]);
    story.decide(lease(1, "one"));
    assert_eq!(story.decide(report(1, 1, failed("transient"))), ["run failed"]);
    let job = story.ledger.job(JobId(1)).unwrap();
    assert_eq!((job.phase, job.failed, &job.avoid), (Phase::Queued, 1, &vec![at("one")]));
    story.decide(lease(1, "one"));
    assert_eq!(story.decide(report(1, 2, failed("transient"))), ["run failed", "failed"]);
    let failure = story.last_failure();
    assert_eq!(
        failure.message,
        "it broke; tried again 1 times, which is as often as it may be (retryLimit of policy p)"
    );
    assert_eq!(failure.category, "transient");
    story.check();
}

#[test]
fn what_no_policy_wants_fails_at_once() {
    let fail_fast = match submitted(2, "spare") {
        Event::Submitted(job) => Event::Submitted(Submitted { fail_fast: true, ..job }),
        other => other,
    };
    let mut story = Story::new(9, vec![submitted(1, "spare"), fail_fast, submitted(3, "spare")]);
    (1..=3).for_each(|job| drop(story.decide(lease(job, "one"))));
    assert_eq!(story.decide(report(1, 1, failed("user"))), ["run failed", "failed"]);
    assert_eq!(story.decide(report(2, 1, failed("transient"))), ["run failed", "failed"]);
    // Its end and that somebody wants it come together: it ends, one way or the other.
    let ask = Event::CancelAsked { jobs: vec![JobId(3)], filter: Filter::Active, reason: String::new() };
    let ask = request("s", vec![ask]);
    story.ledger.fold(&ask);
    story.log.push(ask);
    assert_eq!(story.decide(report(3, 1, failed("transient"))), ["run failed", "failed"]);
    story.check();
}

#[test]
fn a_gang_starts_anew_as_a_whole_and_shares_its_tries() {
    let member = |job| match submitted(job, "urgent") {
        Event::Submitted(job) => {
            let gang = Some(Gang { id: "g".to_owned(), cardinality: 3, uniformity: String::new() });
            Event::Submitted(Submitted { gang, fail_fast: true, ..job })
        }
        other => other,
    };
    let mut story = Story::new(1, (1..=3).map(member).collect());
    let together = || {
        let jobs = (1..=3).map(|job| (JobId(job), at("one"))).collect();
        Inbox { proposals: vec![Proposal::Lease { jobs, pool: "p".to_owned(), away: None }], ..Inbox::default() }
    };
    story.decide(together());
    let anew = ["run failed", "preempted and queued", "preempted and queued"];
    assert_eq!(story.decide(report(2, 1, failed("transient"))), anew);
    let phases = |story: &Story| [1, 2, 3].map(|job| story.ledger.job(JobId(job)).unwrap().phase);
    assert_eq!(phases(&story), [Phase::Leaving, Phase::Queued, Phase::Leaving]);
    // One more fails on its way out: that counts for nothing.
    assert_eq!(story.decide(report(1, 1, failed("transient"))), ["gone"]);
    assert_eq!(story.decide(report(3, 1, ReportKind::Gone)), ["gone"]);
    assert_eq!(phases(&story), [Phase::Queued; 3]);
    assert_eq!(story.decide(together()), ["leased"; 3]);
    assert_eq!(story.decide(report(3, 2, failed("transient"))), ["run failed", "failed"]);
    assert!(story.last_failure().message.contains("tried again 1 times"), "{:?}", story.last_failure());
    story.check();
}

/// A ledger with a policy that was set and that its queue names: failures for want of memory are tried again with more.
fn greedy(bump: serde_json::Value) -> Story {
    let memory = json!({"affinity": {"avoidSameNode": true}, "resources": {"memory": bump}});
    let policy = json!({"name": "greedy", "retryLimit": 3, "defaultAction": "Fail", "rules": [
        {"action": "Retry", "onCategory": "oom", "mutate": memory},
    ]});
    let set = Event::RetryPolicySet(Box::new(serde_json::from_value(policy).unwrap()));
    let queue = Queue { retry_policies: vec!["greedy".to_owned()], ..Queue::default() };
    let shape = Shape { requests: [("memory".to_owned(), 1000)].into(), ..shape("spare") };
    let submitted = Entry { shapes: [(digest("spare"), shape)].into(), ..request("s", vec![submitted(1, "spare")]) };
    let log = vec![
        Entry { events: vec![set], ..Entry::new(TimeMs(0), "", "") },
        Entry { events: vec![Event::QueueSet(Box::new(queue))], ..Entry::new(TimeMs(0), "q", "") },
        submitted,
    ];
    let mut ledger = Ledger::new(classes());
    assert!(log.iter().all(|entry| ledger.fold(entry).is_empty()));
    Story { ledger, log, limit: 0 }
}

#[test]
fn a_job_that_wants_memory_gets_more_each_time() {
    for (bump, grown, bytes) in [
        (json!({"factor": 1.5}), [Grown::Factor(1.5), Grown::Factor(2.25)], [1500, 2250]),
        (json!({"static": "500"}), [Grown::Static(500), Grown::Static(1000)], [1500, 2000]),
    ] {
        let mut story = greedy(bump);
        for (attempt, (grown, bytes)) in (1..).zip(grown.into_iter().zip(bytes)) {
            let cluster = ["one", "one"][attempt as usize - 1];
            story.decide(lease(1, cluster));
            assert_eq!(story.decide(report(1, attempt, failed("oom"))), ["run failed"]);
            let job = story.ledger.job(JobId(1)).unwrap();
            assert_eq!(
                (job.grown.as_deref().copied(), story.ledger.shape(job).requests["memory"]),
                (Some(grown), bytes)
            );
        }
        story.check();
        // What is saved goes on as it was.
        let job = story.ledger.saved(JobId(1)).unwrap();
        let saved = Saved {
            queues: [("q".to_owned(), story.ledger.queue("q").unwrap().definition.unwrap().clone())].into(),
            policies: story.ledger.policies().clone(),
            shapes: [(job.shape, story.ledger.shape(story.ledger.job(JobId(1)).unwrap()).clone())].into(),
            jobs: vec![job],
            ..Saved::default()
        };
        assert_eq!(Ledger::restore(classes(), saved).unwrap().digest(), story.ledger.digest());
    }
}

#[test]
fn a_try_for_which_no_node_has_room_is_not_made() {
    for (bump, largest, nodes, why) in [
        (
            json!({"factor": 2}),
            1999,
            9,
            Some("not tried again: no node could hold it with 2000 of memory, nodes it keeps off: 1"),
        ),
        (
            json!({"factor": 2}),
            2000,
            1,
            Some("not tried again: no node could hold it with 2000 of memory, nodes it keeps off: 1"),
        ),
        (json!({"factor": 2}), 2000, 2, None),
    ] {
        let mut story = greedy(bump);
        story.decide(lease(1, "one"));
        let could_hold = |shape: &Shape, off: &[NodeRef]| shape.requests["memory"] <= largest && off.len() < nodes;
        let inbox = report(1, 1, failed("oom"));
        let entries = story.ledger.decide_where(TimeMs(2), inbox, retries(0), &could_hold);
        story.log.extend(entries);
        story.check();
        let phase = story.ledger.job(JobId(1)).map(|job| job.phase);
        assert_eq!(phase, why.is_none().then_some(Phase::Queued));
        if let Some(why) = why {
            let message = &story.last_failure().message;
            assert!(message.contains(why), "{message}");
        }
    }
}

#[test]
fn a_job_that_says_how_often_is_tried_so_often_and_with_more_memory() {
    let own = OwnRetries { limit: 1, memory: vec![1500, 1700] };
    let shape = Shape { requests: [("memory".to_owned(), 1000)].into(), retries: Some(own), ..shape("spare") };
    let mut story = Story::new(0, vec![]);
    let entry = Entry { shapes: [(digest("spare"), shape)].into(), ..request("s", vec![submitted(1, "spare")]) };
    assert!(story.ledger.fold(&entry).is_empty());
    story.log.push(entry);
    let oom = || ReportKind::Failed(Failure { cause: Cause::Oom, ..Failure::default() });
    for (attempt, (said, bytes)) in (1..).zip([(oom(), 1500), (failed("user"), 1500), (oom(), 1700)]) {
        story.decide(lease(1, "one"));
        assert_eq!(story.decide(report(1, attempt, said)), ["run failed"]);
        let job = story.ledger.job(JobId(1)).unwrap();
        assert_eq!((job.phase, story.ledger.shape(job).requests["memory"]), (Phase::Queued, bytes));
    }
    story.decide(lease(1, "one"));
    assert_eq!(story.decide(report(1, 4, oom())), ["run failed", "failed"]);
    let text = "tried again 3 times, which is as often as it may be (what the job says)";
    assert_eq!(story.last_failure().message, text);
    story.check();
}
