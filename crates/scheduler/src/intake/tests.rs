//! What a watch may tell, and what the engine hears of it.

use serde_json::{Value, json};

use super::*;

fn pod(uid: &str, node: Option<&str>, conditions: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "ns", "uid": uid, "resourceVersion": "7"},
        "spec": {"containers": [], "nodeName": node},
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

fn group(name: &str, uid: &str) -> PodGroup {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns", "uid": uid}})).unwrap()
}

/// `+pod a` or `-pod a`.
fn told(deltas: &[Delta]) -> Vec<String> {
    let word = |delta: &Delta| match delta {
        Delta::TaskUpsert(facts) => format!("+pod {}", facts.uid),
        Delta::TaskRemove(uid) => format!("-pod {uid}"),
        Delta::GroupUpsert(facts) => format!("+group {} {}", facts.name, facts.uid),
        Delta::GroupRemove { namespace, name, uid } => format!("-group {namespace} {name} {uid}"),
        other => format!("{other:?}"),
    };
    deltas.iter().map(word).collect()
}

fn take(intake: &mut Intake, input: Input) -> Vec<String> {
    let mut deltas = Vec::new();
    intake.take(input, &mut deltas);
    told(&deltas)
}

#[test]
fn a_new_list_removes_what_is_not_in_it() {
    let mut intake = Intake::new(Vec::new());
    let all = |uids: &[&str]| Change::Replace(uids.iter().map(|uid| pod(uid, None, Value::Null)).collect());
    assert_eq!(take(&mut intake, Input::Pod(all(&["a", "b"]))), ["+pod a", "+pod b"]);
    assert_eq!(take(&mut intake, Input::Pod(Change::Applied(pod("c", None, Value::Null)))), ["+pod c"]);
    assert_eq!(take(&mut intake, Input::Pod(Change::Deleted(pod("a", None, Value::Null)))), ["-pod a"]);
    assert_eq!(take(&mut intake, Input::Pod(all(&["c", "d"]))), ["-pod b", "+pod c", "+pod d"]);
}

#[test]
fn a_group_that_was_made_again_is_another() {
    let mut intake = Intake::new(Vec::new());
    take(&mut intake, Input::Group(Change::Replace(vec![group("g", "1")])));
    let deltas = take(&mut intake, Input::Group(Change::Replace(vec![group("g", "2")])));
    assert_eq!(deltas, ["-group ns g 1", "+group g 2"]);
    assert_eq!((intake.groups(), intake.group_uids().contains("2")), (1, true));
}

#[test]
fn nothing_is_complete_before_every_kind_was_listed() {
    let mut intake = Intake::new(Vec::new());
    let lists = [
        Input::Node(Change::Replace(vec![])),
        Input::Pod(Change::Replace(vec![])),
        Input::Group(Change::Replace(vec![])),
        Input::Queue(Change::Replace(vec![])),
        Input::Job(Change::Replace(vec![])),
    ];
    for list in lists {
        take(&mut intake, list);
        assert!(!intake.complete());
    }
    take(&mut intake, Input::Priority(Change::Applied(PriorityClass::default())));
    assert!(!intake.complete(), "one object is no list");
    take(&mut intake, Input::Priority(Change::Replace(vec![])));
    assert!(intake.complete());
}

#[test]
fn conditions_of_others_are_kept_while_a_pod_waits() {
    let mut intake = Intake::new(Vec::new());
    let conditions = json!([{"type": "PodScheduled", "status": "False"}, {"type": "Mine", "status": "True"}]);
    take(&mut intake, Input::Pod(Change::Applied(pod("a", None, conditions.clone()))));
    let unbound = intake.unbound("a").expect("it has no node");
    let kinds: Vec<&str> = unbound.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!((kinds, unbound.version.as_deref()), (vec!["Mine"], Some("7")));
    take(&mut intake, Input::Pod(Change::Applied(pod("a", Some("n"), conditions))));
    assert_eq!(intake.unbound("a"), None);
    for gone in [Change::Deleted(pod("b", None, Value::Null)), Change::Replace(vec![])] {
        take(&mut intake, Input::Pod(Change::Applied(pod("b", None, Value::Null))));
        assert!(intake.unbound("b").is_some());
        take(&mut intake, Input::Pod(gone));
        assert_eq!(intake.unbound("b"), None);
    }
}

#[test]
fn what_a_queue_said_it_held_before_a_restart_is_known() {
    let mut intake = Intake::new(Vec::new());
    let queue: Queue = serde_json::from_value(json!({
        "metadata": {"name": "q"}, "spec": {}, "status": {"allocated": {"cpu": "1", "nvidia.com/gpu": "2"}},
    }))
    .unwrap();
    take(&mut intake, Input::Queue(Change::Replace(vec![queue.clone()])));
    assert_eq!(intake.held("q").collect::<Vec<_>>(), ["cpu", "nvidia.com/gpu"]);
    take(&mut intake, Input::Queue(Change::Deleted(queue)));
    assert_eq!(intake.held("q").count(), 0);
}
