//! Specifications of our own, and Armada's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

const JOBS: &str = r#"
numBatches: 2
batchSize: 3
interval: 1500ms
queue: tests
jobSetId: set
randomClientId: true
jobs:
  - priority: 5
    namespace: default
    labels: { number: 1 }
    podSpec:
      nodeSelector: { big: true }
      tolerations: [{ key: a, value: 2 }]
      containers:
        - name: main
          args: [sleep, 30, 1.5, "0"]
          env: [{ name: A, value: 1 }]
          resources: { limits: { cpu: 1, memory: 25Mi } }
"#;

const EVENTS: &str = r#"
---
timeout: "100s"
triggerEvent: leased
reprioritize:
  byJobSet: true
  request: { newPriority: 7 }
expectedEvents:
  - submitted:
  - lease_returned: {}
  - failed:
      failureCategory: oom
      reason:
"#;

fn read(parts: &[&str]) -> Result<Spec, SpecError> {
    Spec::read(&parts.concat())
}

fn some(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not zero")
}

#[test]
fn both_documents_are_one_specification() {
    let spec = read(&[JOBS, EVENTS]).expect("it reads");
    assert_eq!((spec.queue.as_str(), spec.job_set.as_deref(), spec.name), ("tests", Some("set"), None));
    assert_eq!(spec.timeout, Duration::from_secs(100));
    let kinds: Vec<Kind> = spec.expected.iter().map(Expected::kind).collect();
    assert_eq!(kinds, [Kind::Submitted, Kind::LeaseReturned, Kind::Failed]);
    let planned = spec.planned.expect("something is done");
    assert_eq!(planned.trigger, Kind::Leased);
    let request = JobReprioritizeRequest { new_priority: 7.0, ..JobReprioritizeRequest::default() };
    assert_eq!(planned.action, Action::Reprioritize { request, by_job_set: true });
    let submission = spec.submission.expect("jobs are submitted");
    assert_eq!((submission.batches, submission.batch_size), (Some(some(2)), some(3)));
    assert_eq!((submission.interval, submission.random_client_id), (Duration::from_millis(1_500), true));
}

#[test]
fn scalars_are_texts_where_the_api_has_texts() {
    let submission = read(&[JOBS]).expect("it reads").submission.expect("jobs are submitted");
    let job = serde_json::to_value(&submission.jobs[0]).expect("JSON");
    let container = &job["podSpec"]["containers"][0];
    assert_eq!(container["args"], json!(["sleep", "30", "1.5", "0"]));
    assert_eq!(container["env"][0]["value"], "1");
    assert_eq!(container["resources"]["limits"], json!({ "cpu": "1", "memory": "25Mi" }));
    let spec = &job["podSpec"];
    assert_eq!((&spec["nodeSelector"]["big"], &spec["tolerations"][0]["value"]), (&json!("true"), &json!("2")));
    assert_eq!((&job["labels"], &job["priority"]), (&json!({ "number": "1" }), &json!(5.0)));
}

#[test]
fn what_is_left_out_has_its_default() {
    let spec = read(&["queue: q\njobs: [{}]\nbatchSize: 1\ncancelJobSet:\n  request:\n"]).expect("it reads");
    let submission = spec.submission.expect("jobs are submitted");
    assert_eq!((submission.batches, submission.interval), (None, Duration::ZERO));
    assert_eq!((spec.timeout, spec.expected, spec.queues), (TIMEOUT_DEFAULT, Vec::new(), None));
    let action = Action::CancelJobSet(JobSetCancelRequest::default());
    assert_eq!(spec.planned, Some(PlannedAction { trigger: Kind::Queued, action }));
    let preempts = read(&["queue: q\njobs: [{}]\nbatchSize: 1\npreempt: {}\n"]).expect("it reads").planned;
    assert_eq!(preempts.map(|planned| planned.trigger), Some(Kind::Running));
}

#[test]
fn queues_of_its_own_have_phases() {
    let text = "queue: q\n---\nqueueConfig:\n  setup: { numBatches: 5, queueSpec: { labels: { a: b } } }\n  \
        update: { cordoned: true }\n  assertions:\n    - { appearsInStream: true, activeInPool: default }\n    \
        - matches: { priorityFactor: 2 }\n    - deleted: true\n";
    let case = read(&[text]).expect("it reads").queues.expect("it has queues");
    assert_eq!((case.batches, case.batch_size, case.template.labels.len()), (some(5), some(1), 1));
    assert!(case.update.is_some_and(|update| update.cordoned));
    let matches = Assertion::Matches(Box::new(Queue { priority_factor: 2.0, ..Queue::default() }));
    let pool = Assertion::ActiveInPool("default".to_owned());
    assert_eq!(case.assertions, [pool, Assertion::AppearsInStream, matches, Assertion::Deleted]);
    let case = read(&["queue: q\nqueueConfig:\n  setup:\n  assertions:\n  - deleted: true\n"]).expect("it reads");
    assert_eq!(case.queues.map(|case| case.batches), Some(some(1)));
}

#[test]
fn what_can_not_be_run_is_refused_by_its_field() {
    let jobs = "queue: q\nbatchSize: 1\njobs: [{}]\n";
    for (parts, problem) in [
        (&["jobs: []\n"][..], "queue: it is missing"),
        (&["queue: q\n---\nqueue: r\n"], "queue is given in two documents"),
        (&["queue: q\n---\n- a\n"], "document 2 is no mapping"),
        (&["queue: q\nqueue: r\n"], ""),
        (&["queue: [\n"], ""),
        (&["queue: q\nexpectedEvent: []\n"], "unknown field `expectedEvent`"),
        (&["queue: q\nnumBatches: 1\n"], "jobs: there are none"),
        (&["queue: q\njobs: [{}]\n"], "batchSize: it has to be at least 1"),
        (&["queue: q\ncancel: {}\n"], "jobs: there are none"),
        (&[jobs, "cancel: {}\npreempt: {}\n"], "preempt: there is cancel already"),
        (&[jobs, "cancel: { request: { ids: [a] } }\n"], "cancel.request: it has no field \"ids\""),
        (&[jobs, "cancel: { byJobSet: true }\n"], "unknown field `byJobSet`"),
        (&[jobs, "timeout: -1s\n"], "timeout: -1s is less than nothing"),
        (&[jobs, "timeout: soon\n"], "time: invalid duration \"soon\""),
        (&[jobs, "triggerEvent: lunch\n"], "triggerEvent: there are no events \"lunch\""),
        (&[jobs, "expectedEvents: [submitted]\n"], "expectedEvents[0]: it is no mapping"),
        (&[jobs, "expectedEvents: [{ queued: , failed: }]\n"], "expectedEvents[0]: it is no mapping"),
        (&[jobs, "expectedEvents: [{ done: }]\n"], "expectedEvents[0]: there are no events \"done\""),
        (&["queue: q\nbatchSize: 1\njobs: [{ priorty: 1 }]\n"], "jobs[0]: it has no field \"priorty\""),
        (
            &["queue: q\nqueueConfig: { assertions: [{ matches: { a: 1 } }] }\n"],
            "queueConfig.assertions[0].matches: it has",
        ),
    ] {
        let error = read(parts).expect_err(problem).to_string();
        assert!(error.starts_with(problem), "{error:?}, expected {problem:?}");
    }
    let long = format!("queue: {}", "q".repeat(SPEC_BYTES_MAX));
    assert!(matches!(read(&[&long]), Err(SpecError::TooLong { .. })));
}

/// All of Armada's; none where they are absent.
fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/armada/testsuite/testcases");
    if !folder.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "fixtures are missing at {}", folder.display());
        return Vec::new();
    }
    let folders = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
    let mut files: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(files.len() >= 15, "{files:?}");
    files
}

#[test]
fn all_of_armadas_are_read() {
    for file in fixtures() {
        let text = std::fs::read_to_string(&file).expect("text");
        let spec = Spec::read(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(spec.submission.is_some() || spec.queues.is_some(), "{}", file.display());
        assert!(spec.submission.is_none() || !spec.expected.is_empty(), "{}", file.display());
        // Nothing that it says is lost.
        let says = |word: &str| text.lines().any(|line| line.starts_with(word));
        let acts = ["cancel", "preempt", "reprioritize"].iter().any(|word| says(word));
        assert_eq!(spec.planned.is_some(), acts, "{}", file.display());
        assert_eq!(spec.queues.is_some(), says("queueConfig"), "{}", file.display());
        for job in spec.submission.iter().flat_map(|submission| &submission.jobs) {
            let job: Value = serde_json::to_value(job).expect("JSON");
            assert!(job["podSpec"]["containers"][0]["name"].is_string(), "{}: {job}", file.display());
        }
    }
}
