//! What operators ask of executors, nodes and whole queues, as it is written.

use futures::FutureExt as _;
use pumice_ledger::{ExecutorSettings, PriorityClass};
use pumice_wire::api::executor_server::Executor as _;
use pumice_wire::api::node_server::Node as _;
use pumice_wire::api::queue_service_server::QueueService as _;
use serde_json::{Value, json};
use tonic::Code;

use super::*;
use crate::api::tests::{Home, by, code, home, queue, who};
use crate::database::Seq;

/// The last event of the log, and who asked.
async fn last(home: &Home) -> (String, Event) {
    let entries = home.log.tail(Seq(0), 1_000).await.unwrap();
    let (_, mut entry) = entries.into_iter().next_back().unwrap();
    assert_eq!((entry.queue.as_str(), entry.job_set.as_str()), ("", ""));
    (entry.user, entry.events.pop().unwrap())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn executors_are_cordoned_with_a_reason_and_no_more() {
    let home = home().await;
    let api = &home.api;
    let operator = who("op", &[Permission::UpdateExecutorSettings]);
    let cordon = |reason: &str| json!({ "name": "east", "cordoned": true, "cordonReason": reason });
    assert_eq!(code(api.upsert_executor_settings(by(&operator, cordon(""))).await), Code::InvalidArgument);
    assert_eq!(code(api.upsert_executor_settings(by(&operator, json!({}))).await), Code::InvalidArgument);
    let long = cordon(&"x".repeat(REASON_BYTES_MAX + 1));
    assert_eq!(code(api.upsert_executor_settings(by(&operator, long)).await), Code::InvalidArgument);
    let odd = json!({ "name": "a/b", "cordoned": true, "cordonReason": "repair" });
    assert_eq!(code(api.upsert_executor_settings(by(&operator, odd)).await), Code::InvalidArgument);
    let other = who("ada", &[Permission::CordonQueue, Permission::CancelAnyJobs]);
    assert_eq!(code(api.upsert_executor_settings(by(&other, cordon("repair"))).await), Code::PermissionDenied);
    assert_eq!(code(api.delete_executor_settings(by(&other, json!({ "name": "east" }))).await), Code::PermissionDenied);
    assert_eq!(code(api.delete_executor(by(&other, json!({ "name": "east" }))).await), Code::PermissionDenied);

    api.upsert_executor_settings(by(&operator, cordon("repair"))).await.unwrap();
    let set = Event::ExecutorSet { executor: "east".to_owned(), cordoned: true, reason: "repair".to_owned() };
    assert_eq!(last(&home).await, ("op".to_owned(), set));
    let known = home.log.load().await.unwrap().executors;
    let settings = ExecutorSettings {
        cordoned: true,
        cordon_reason: "repair".to_owned(),
        set_by: "op".to_owned(),
        set_at: known["east"].set_at,
    };
    assert_eq!(known, [("east".to_owned(), settings)].into());
    api.delete_executor(by(&operator, json!({ "name": "east" }))).await.unwrap();
    assert_eq!(last(&home).await.1, Event::ExecutorForgotten { executor: "east".to_owned() });
    api.delete_executor_settings(by(&operator, json!({ "name": "east" }))).await.unwrap();
    assert_eq!(last(&home).await.1, Event::ExecutorUnset { executor: "east".to_owned() });
    assert_eq!(home.log.load().await.unwrap().executors, [].into());
}

/// What nobody has is told, and one that lives is not forgotten.
#[tokio::test]
async fn executors_that_are_not_there_or_live_are_told() {
    let home = home().await;
    let known = |names: Option<&[(&str, bool)]>| {
        let known = names.map(|names| names.iter().map(|(name, gone)| ((*name).to_owned(), *gone)).collect());
        home.api.clone().asking(move || std::future::ready(known.clone()).boxed())
    };
    let operator = who("op", Permission::ALL);
    let named = json!({ "name": "east" });
    let node = json!({ "name": "n1", "executor": "east" });
    for (known, cancelled, deleted) in [
        (known(Some(&[("west", false)])), Err(Code::NotFound), Err(Code::NotFound)),
        (known(Some(&[("east", false)])), Ok(()), Err(Code::FailedPrecondition)),
        (known(Some(&[("east", true)])), Ok(()), Ok(())),
        (known(None), Err(Code::Unavailable), Err(Code::Unavailable)),
    ] {
        let code = |answer: Result<_, tonic::Status>| answer.map(drop).map_err(|status| status.code());
        assert_eq!(code(known.cancel_on_executor(by(&operator, named.clone())).await), cancelled);
        assert_eq!(code(known.preempt_on_node(by(&operator, node.clone())).await), cancelled);
        assert_eq!(code(known.delete_executor(by(&operator, named.clone())).await), deleted);
    }
    let said = known(Some(&[("west", false)])).cancel_on_executor(by(&operator, named)).await.expect_err("refused");
    assert_eq!(said.message(), "there is no executor east: there are west");
}

/// A priority class that is none, or whose runs make no room, would do nothing.
#[tokio::test]
async fn classes_that_would_do_nothing_are_told() {
    let home = home().await;
    let class = |preemptible| PriorityClass { value: 1, preemptible };
    let classes = [("stays".to_owned(), class(false)), ("leaves".to_owned(), class(true))];
    let api = home.api.clone().with_classes(classes.into());
    let operator = who("op", Permission::ALL);
    let of = |class: &str| json!({ "name": "east", "priorityClasses": [class] });
    for (class, cancelled, preempted) in [
        ("leaves", None, None),
        ("stays", None, Some("priorityClasses: \"stays\": runs of the priority class stays are not preemptible")),
        ("none", Some("priorityClasses: \"none\": there is none: try one of leaves, stays"), Some("there is none")),
    ] {
        for (said, wanted) in [
            (api.cancel_on_executor(by(&operator, of(class))).await, cancelled),
            (api.preempt_on_executor(by(&operator, of(class))).await, preempted),
        ] {
            match (said, wanted) {
                (Ok(_), None) => {}
                (Err(said), Some(wanted)) => assert!(said.message().contains(wanted), "{said}"),
                (said, wanted) => panic!("{class}: {said:?}, not {wanted:?}"),
            }
        }
    }
}

#[tokio::test]
async fn who_may_cancel_and_preempt_everywhere_may_do_it_by_place() {
    let home = home().await;
    let api = &home.api;
    let (_, ada) = queue(api).await;
    let (cancels, preempts) = (who("op", &[Permission::CancelAnyJobs]), who("op", &[Permission::PreemptAnyJobs]));
    let on = |executor: &str| Scope {
        cluster: executor.to_owned(),
        queues: names(&["q"]),
        priority_classes: names(&["armada-default"]),
        pools: names(&["gpu"]),
        ..Scope::default()
    };
    let of_executor =
        json!({ "name": "east", "queues": ["q"], "priorityClasses": ["armada-default"], "pools": ["gpu"] });
    let of_node = json!({ "name": "n1", "executor": "east", "queues": ["q"], "priorityClasses": ["armada-default"] });
    let of_queue = json!({ "name": "q", "priorityClasses": ["armada-default"], "pools": ["gpu"] });
    let node = Scope { node: "n1".to_owned(), pools: vec![], ..on("east") };
    macro_rules! check {
        ($call:ident, $may:expr, $other:expr, $request:expr, $expected:expr) => {{
            // The owner of the queue may not, nor who may only do the other.
            for who in [&ada, $other] {
                assert_eq!(code(api.$call(by(who, $request)).await), Code::PermissionDenied);
            }
            assert_eq!(code(api.$call(by($may, json!({}))).await), Code::InvalidArgument, "without a name");
            api.$call(by($may, $request)).await.unwrap();
            assert_eq!(last(&home).await, ("op".to_owned(), $expected));
        }};
    }
    let cancelled =
        |scope: Scope, call: &str| Event::ScopeCancelAsked { scope, reason: format!("cancelled by {call}") };
    let preempted =
        |scope: Scope, call: &str| Event::ScopePreemptAsked { scope, reason: format!("preempted by {call}") };
    let request = || of_executor.clone();
    check!(cancel_on_executor, &cancels, &preempts, request(), cancelled(on("east"), "CancelOnExecutor"));
    check!(preempt_on_executor, &preempts, &cancels, request(), preempted(on("east"), "PreemptOnExecutor"));
    let request = || of_node.clone();
    check!(cancel_on_node, &cancels, &preempts, request(), cancelled(node.clone(), "CancelOnNode"));
    check!(preempt_on_node, &preempts, &cancels, request(), preempted(node.clone(), "PreemptOnNode"));
    let request = || of_queue.clone();
    check!(cancel_on_queue, &cancels, &preempts, request(), cancelled(on(""), "CancelOnQueue"));
    check!(preempt_on_queue, &preempts, &cancels, request(), preempted(on(""), "PreemptOnQueue"));
    for (request, expected) in [
        (json!({ "name": "n1" }), Code::InvalidArgument),
        (json!({ "name": "n1", "executor": "east", "queues": ["nobodys"] }), Code::NotFound),
        (json!({ "name": "n1", "executor": "east", "priorityClasses": [""] }), Code::InvalidArgument),
        (json!({ "name": "n1", "executor": "east", "priorityClasses": vec!["a"; 1_001] }), Code::InvalidArgument),
        (json!({ "name": "n1", "executor": "x".repeat(10_000) }), Code::InvalidArgument),
        (json!({ "name": "n1", "executor": "a\0b" }), Code::InvalidArgument),
    ] {
        assert_eq!(code(api.cancel_on_node(by(&cancels, request)).await), expected);
    }
}

#[test]
fn states_are_where_jobs_stand() {
    let states = |states: &[JobState]| phases(&states.iter().map(|state| i32::from(*state)).collect::<Vec<_>>());
    for (given, expected) in [
        (&[][..], &[][..]),
        (&[JobState::Queued], &[Phase::Queued, Phase::Leaving]),
        (&[JobState::Running, JobState::Leased, JobState::Running], &[Phase::Leased, Phase::Running]),
        (&[JobState::Pending], &[Phase::Pending]),
    ] {
        assert_eq!(states(given).unwrap(), expected);
    }
    for ended in [JobState::Succeeded, JobState::Failed, JobState::Cancelled, JobState::Preempted, JobState::Unknown] {
        assert!(states(&[JobState::Queued, ended]).is_err());
    }
    assert!(phases(&[99]).is_err());
}

/// Whatever is not named is not restricted.
#[tokio::test]
async fn empty_lists_restrict_nothing() {
    let home = home().await;
    let operator = who("op", Permission::ALL);
    home.api.cancel_on_executor(by(&operator, json!({ "name": "east" }))).await.unwrap();
    let (_, event) = last(&home).await;
    let Event::ScopeCancelAsked { scope, .. } = event else { panic!("{event:?}") };
    assert_eq!(scope, Scope { cluster: "east".to_owned(), ..Scope::default() });
    let told: Value = serde_json::to_value(&scope).unwrap();
    assert_eq!(told, json!({ "cluster": "east" }), "nor is it written");
}
