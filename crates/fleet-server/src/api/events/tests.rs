//! Events of the log as Armada's clients are told of them.

use pumice_ledger::{Filter, NodeRef, Scope, TimeMs};
use serde_json::{Value, json};

use super::*;
use crate::api::convert::tests::written;
use crate::database::RunState;

const NOW: i64 = 1_764_000_000_000;

fn run(job: u128, attempt: u32) -> RunId {
    RunId { job: JobId(job), attempt }
}

fn pod() -> PodRef {
    PodRef { namespace: "lab".to_owned(), name: "armada-1".to_owned(), uid: "uid".to_owned() }
}

fn row(run: RunId) -> RunRow {
    RunRow {
        run,
        state: RunState::Running,
        at: NodeRef { cluster: "east".to_owned(), node: "n1".to_owned() },
        pool: "default".to_owned(),
        leased: TimeMs(NOW),
        pending: None,
        started: None,
        finished: None,
        holds: true,
        pod: Some(pod()),
        preempted: None,
        error: None,
        ingress: BTreeMap::new(),
        away: None,
        places: Vec::new(),
    }
}

fn failure() -> Failure {
    Failure {
        message: "it ran out of memory".to_owned(),
        cause: Cause::Oom,
        category: "memory".to_owned(),
        subcategory: "oom".to_owned(),
        containers: vec![ContainerEnd {
            name: "main".to_owned(),
            exit_code: 137,
            message: "killed".to_owned(),
            reason: "OOMKilled".to_owned(),
        }],
    }
}

/// One event of each kind that is told, and of each that is not.
fn story() -> (Entry, Context) {
    let submission = written(&[json!({ "labels": { "job": "{JobId}" } })]);
    let mut job = submission.jobs[0].submitted.clone();
    job.job = JobId(1);
    let spec = JobSpec::read(&submission.specs[&submission.jobs[0].submitted.spec]).expect("reads");
    let preemption = Preemption { reason: "room".to_owned(), beneficiary: Some(JobId(9)), requestor: "eve".to_owned() };
    let (one, two) = (run(1, 1), run(1, 2));
    let mut context = Context::default();
    context.specs.insert(job.spec, Arc::new(spec));
    context.runs.extend([one, two].map(|run| (run, row(run))));
    context.last_runs.insert(JobId(1), row(two));
    let mut entry = Entry::new(TimeMs(NOW), "q", "set");
    entry.user = "ada".to_owned();
    entry.shapes = submission.shapes;
    let at = NodeRef { cluster: "east".to_owned(), node: "n1".to_owned() };
    let jobs = vec![JobId(1), JobId(2)];
    entry.events = vec![
        Event::QueueSet(Box::default()),
        Event::Submitted(job),
        Event::Reprioritised { jobs: jobs.clone(), priority: 3 },
        Event::Reprioritised { jobs: Vec::new(), priority: 3 },
        Event::SetReprioritised { jobs: vec![JobId(2)], priority: 3, requestor: "eve".to_owned() },
        Event::Leased { run: one, at, pool: "default".to_owned(), away: None, places: Vec::new() },
        Event::Pending { run: one, pod: pod() },
        Event::Returned { run: one, reason: "no image".to_owned(), attempted: true },
        Event::Running { run: two, pod: pod(), node: "n2".to_owned() },
        Event::Ingress { run: two, addresses: [(80, "host".to_owned()), (u32::MAX, "none".to_owned())].into() },
        Event::RunFailed { run: two, failure: failure(), retried: true, avoid: false, grows: None },
        Event::RunFailed { run: two, failure: failure(), retried: false, avoid: false, grows: None },
        Event::RunFailed { run: two, failure: expired(), retried: true, avoid: false, grows: None },
        Event::RunFailed { run: two, failure: expired(), retried: false, avoid: false, grows: None },
        Event::Failed { job: JobId(1), failure: failure() },
        Event::Rejected { job: JobId(2), reason: "it fits nowhere".to_owned() },
        Event::Succeeded { run: two },
        Event::RunLost { run: two },
        Event::RunGone { run: two },
        Event::RunPreempted { run: two, preemption: preemption.clone(), requeued: true },
        Event::RunPreempted { run: two, preemption, requeued: false },
        Event::CancelAsked { jobs: jobs.clone(), filter: Filter::Active, reason: "enough".to_owned() },
        Event::CancelAsked { jobs: Vec::new(), filter: Filter::Queued, reason: "enough".to_owned() },
        Event::PreemptAsked { jobs, reason: "please".to_owned() },
        Event::Cancelled { job: JobId(1), requestor: "ada".to_owned(), reason: "enough".to_owned() },
        Event::QueueRemoved,
        Event::ScopeCancelAsked { scope: Scope::default(), reason: "enough".to_owned() },
        Event::ScopePreemptAsked { scope: Scope::default(), reason: "enough".to_owned() },
        Event::ExecutorSet { executor: "east".to_owned(), cordoned: true, reason: "repair".to_owned() },
        Event::ExecutorUnset { executor: "east".to_owned() },
        Event::ExecutorForgotten { executor: "east".to_owned() },
    ];
    (entry, context)
}

/// Of a run whose cluster was silent for too long.
fn expired() -> Failure {
    let [category, subcategory] = ["internal", "lease-expired"].map(str::to_owned);
    Failure { message: "nothing was heard".to_owned(), category, subcategory, ..Failure::default() }
}

#[test]
fn a_story_is_told_as_armada_tells_it() {
    let (entry, context) = story();
    let told = entry.events.iter().map(|event| {
        let messages = messages(&entry, event, &context);
        let name = serde_json::to_value(event).expect("JSON");
        let name = name.as_object().and_then(|fields| fields.keys().next().cloned());
        let name = name.unwrap_or_else(|| format!("{event:?}"));
        json!({ name: serde_json::to_value(messages).expect("JSON") })
    });
    insta::assert_json_snapshot!(Vec::<Value>::from_iter(told));
}

#[test]
fn events_give_as_many_messages_whatever_else_is_known() {
    let (entry, context) = story();
    let mut needs = Needs::default();
    for event in &entry.events {
        needs.add(event);
        assert_eq!(
            messages(&entry, event, &context).len(),
            messages(&entry, event, &Context::default()).len(),
            "{event:?}"
        );
    }
    assert!(needs.runs.iter().eq(context.runs.keys()));
    assert!(needs.last_runs.iter().eq(context.last_runs.keys()));
    assert!(needs.specs.iter().eq(context.specs.keys()));
}

#[test]
fn ids_are_read_as_they_are_written() {
    let id = MessageId { seq: Seq(12), index: 3 };
    assert_eq!(id.to_string().parse::<MessageId>().ok(), Some(id));
    for text in ["", "12", "12:", ":3", "0:1", "-1:0", "12:-1", "a:b", "12:3:4", "99999999999999999999:0"] {
        assert!(text.parse::<MessageId>().is_err(), "{text}");
    }
}

#[test]
fn an_id_of_armadas_goes_on_from_the_start_and_one_that_is_none_nowhere() {
    assert_eq!(MessageId::to_go_on_after("12:3").ok(), Some(Some(MessageId { seq: Seq(12), index: 3 })));
    for text in ["", "1690000000000-0", "1690000000000:0:3:1", "1234:5:6:7", "1234:5:6:true", "1234:5:-1:0", "1234:5:6"]
    {
        assert_eq!(MessageId::to_go_on_after(text).ok(), Some(None), "{text}");
    }
    for text in ["yesterday", "1:2:3:4:5", "1:2:x:0", "1690000000000-", "-", "12", "0:1", "1:2:3:", "a-1"] {
        assert!(MessageId::to_go_on_after(text).is_err(), "{text}");
    }
}
