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

fn take(watched: &mut WatchedObjects, input: WatchedChange) -> Vec<String> {
    let mut deltas = Vec::new();
    watched.take(input, &mut deltas);
    told(&deltas)
}

#[test]
fn a_new_list_removes_what_is_not_in_it() {
    let mut watched = WatchedObjects::new(Vec::new());
    let all = |uids: &[&str]| Change::Replace(uids.iter().map(|uid| pod(uid, None, Value::Null)).collect());
    assert_eq!(take(&mut watched, WatchedChange::Pod(all(&["a", "b"]))), ["+pod a", "+pod b"]);
    assert_eq!(take(&mut watched, WatchedChange::Pod(Change::Applied(pod("c", None, Value::Null)))), ["+pod c"]);
    assert_eq!(take(&mut watched, WatchedChange::Pod(Change::Deleted(pod("a", None, Value::Null)))), ["-pod a"]);
    assert_eq!(take(&mut watched, WatchedChange::Pod(all(&["c", "d"]))), ["-pod b", "+pod c", "+pod d"]);
}

#[test]
fn a_group_that_was_made_again_is_another() {
    let mut watched = WatchedObjects::new(Vec::new());
    take(&mut watched, WatchedChange::Group(Change::Replace(vec![group("g", "1")])));
    let deltas = take(&mut watched, WatchedChange::Group(Change::Replace(vec![group("g", "2")])));
    assert_eq!(deltas, ["-group ns g 1", "+group g 2"]);
    assert_eq!((watched.groups(), watched.group_uids().contains("2")), (1, true));
}

#[test]
fn nothing_is_complete_before_every_kind_was_listed() {
    let mut watched = WatchedObjects::new(Vec::new());
    let lists = [
        WatchedChange::Node(Change::Replace(vec![])),
        WatchedChange::Pod(Change::Replace(vec![])),
        WatchedChange::Group(Change::Replace(vec![])),
        WatchedChange::Queue(Change::Replace(vec![])),
        WatchedChange::Job(Change::Replace(vec![])),
        WatchedChange::HyperNode(Change::Replace(vec![])),
        WatchedChange::Numa(Change::Replace(vec![])),
        WatchedChange::Shard(Change::Replace(vec![])),
        WatchedChange::Reservation(Change::Replace(vec![])),
        WatchedChange::Budget(Change::Replace(vec![])),
        WatchedChange::Quota(Change::Replace(vec![])),
        WatchedChange::Namespace(Change::Replace(vec![])),
        WatchedChange::VolumeClaim(Change::Replace(vec![])),
        WatchedChange::Volume(Change::Replace(vec![])),
        WatchedChange::StorageClass(Change::Replace(vec![])),
        WatchedChange::CsiNode(Change::Replace(vec![])),
        WatchedChange::DeviceClaim(Change::Replace(vec![])),
        WatchedChange::DeviceClass(Change::Replace(vec![])),
        WatchedChange::DeviceSlice(Change::Replace(vec![])),
    ];
    for list in lists {
        take(&mut watched, list);
        assert!(!watched.complete());
    }
    take(&mut watched, WatchedChange::Priority(Change::Applied(PriorityClass::default())));
    assert!(!watched.complete(), "one object is no list");
    take(&mut watched, WatchedChange::Priority(Change::Replace(vec![])));
    assert!(watched.complete());
}

#[test]
fn conditions_of_others_are_kept_while_a_pod_waits() {
    let mut watched = WatchedObjects::new(Vec::new());
    let conditions = json!([{"type": "PodScheduled", "status": "False"}, {"type": "Mine", "status": "True"}]);
    take(&mut watched, WatchedChange::Pod(Change::Applied(pod("a", None, conditions.clone()))));
    let unbound = watched.unbound(&"a".into()).expect("it has no node");
    let kinds: Vec<&str> = unbound.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!((kinds, unbound.version.as_deref()), (vec!["Mine"], Some("7")));
    take(&mut watched, WatchedChange::Pod(Change::Applied(pod("a", Some("n"), conditions))));
    assert_eq!(watched.unbound(&"a".into()), None);
    for gone in [Change::Deleted(pod("b", None, Value::Null)), Change::Replace(vec![])] {
        take(&mut watched, WatchedChange::Pod(Change::Applied(pod("b", None, Value::Null))));
        assert!(watched.unbound(&"b".into()).is_some());
        take(&mut watched, WatchedChange::Pod(gone));
        assert_eq!(watched.unbound(&"b".into()), None);
    }
}

#[test]
fn what_a_queue_said_it_held_before_a_restart_is_known() {
    let mut watched = WatchedObjects::new(Vec::new());
    let queue: Queue = serde_json::from_value(json!({
        "metadata": {"name": "q"}, "spec": {}, "status": {"allocated": {"cpu": "1", "nvidia.com/gpu": "2"}},
    }))
    .unwrap();
    take(&mut watched, WatchedChange::Queue(Change::Replace(vec![queue.clone()])));
    assert_eq!(watched.allocated("q").collect::<Vec<_>>(), ["cpu", "nvidia.com/gpu"]);
    take(&mut watched, WatchedChange::Queue(Change::Deleted(queue)));
    assert_eq!(watched.allocated("q").count(), 0);
}

#[test]
fn nodes_without_the_label_are_not_ours() {
    let node = |name: &str, pool: &str| -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"pool": pool}}})).unwrap()
    };
    let nodes = vec![("pool".to_owned(), "a".to_owned()), ("pool".to_owned(), "b".to_owned())];
    let mut watched = WatchedObjects::of(Ours { nodes, ..Ours::default() }, Metrics::default());
    let mut take = |input| {
        let mut deltas = Vec::new();
        watched.take(input, &mut deltas);
        let word = |delta: &Delta| match delta {
            Delta::NodeUpsert(facts) => format!("+{}", facts.name),
            Delta::NodeRemove(name) => format!("-{name}"),
            other => format!("{other:?}"),
        };
        deltas.iter().map(word).collect::<Vec<_>>()
    };
    let all = vec![node("1", "a"), node("2", "c"), node("3", "b")];
    assert_eq!(take(WatchedChange::Node(Change::Replace(all))), ["+1", "+3"]);
    assert_eq!(take(WatchedChange::Node(Change::Applied(node("2", "c")))), Vec::<String>::new());
    assert_eq!(take(WatchedChange::Node(Change::Applied(node("1", "c")))), ["-1"], "it was moved away");
    assert_eq!(take(WatchedChange::Node(Change::Applied(node("2", "a")))), ["+2"]);
    assert_eq!(take(WatchedChange::Node(Change::Deleted(node("1", "c")))), Vec::<String>::new());
}

#[test]
fn jobs_of_other_schedulers_have_no_group_here() {
    let job = |name: &str, uid: &str, scheduler: &str| -> Job {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": uid}, "spec": {"schedulerName": scheduler},
        }))
        .unwrap()
    };
    let owned = |job: &str, uid: &str| -> PodGroup {
        serde_json::from_value(json!({"metadata": {
            "name": format!("{job}-{uid}"), "namespace": "ns", "uid": format!("g{uid}"),
            "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job, "uid": uid}],
        }}))
        .unwrap()
    };
    let mut watched = WatchedObjects::new(vec!["volcano".into()]);
    take(&mut watched, WatchedChange::Job(Change::Applied(job("a", "1", "other"))));
    assert_eq!(take(&mut watched, WatchedChange::Group(Change::Applied(owned("a", "1")))), Vec::<String>::new());
    assert_eq!(take(&mut watched, WatchedChange::Group(Change::Applied(owned("b", "2")))), ["+group b-2 g2"]);
    let deltas = take(&mut watched, WatchedChange::Job(Change::Applied(job("b", "2", "other"))));
    assert_eq!(deltas, ["-group ns b-2 g2"], "its group came first");
    assert_eq!((watched.groups(), watched.waiting()), (0, 0));
    take(&mut watched, WatchedChange::Job(Change::Applied(job("c", "3", "volcano"))));
    assert_eq!(take(&mut watched, WatchedChange::Group(Change::Applied(owned("c", "3")))), ["+group c-3 g3"]);
    assert_eq!(watched.group_uid("ns", "c-3").as_deref(), Some("g3"));
    assert_eq!(watched.group_uid("ns", "c"), None);
}

#[test]
fn a_zone_takes_the_pods_that_name_it() {
    let mine = |zone: Option<&str>, selector: Value| {
        let ours = Ours { names: vec!["volcano".into()], zone: zone.map(str::to_owned), ..Ours::default() };
        let mut watched = WatchedObjects::of(ours, Metrics::default());
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "schedulerName": "volcano", "nodeSelector": selector},
        }));
        let mut deltas = Vec::new();
        watched.take(WatchedChange::Pod(Change::Applied(pod.unwrap())), &mut deltas);
        matches!(&deltas[0], Delta::TaskUpsert(facts) if facts.mine)
    };
    let here = json!({"topology.kubernetes.io/zone": "a"});
    assert!(mine(None, Value::Null) && mine(None, here.clone()) && mine(Some("a"), here.clone()));
    assert!(!mine(Some("b"), here) && !mine(Some("a"), Value::Null));
}

#[test]
fn a_refusal_is_told_from_a_failure_and_counted_once() {
    let failed = |reason: &str| -> Pod {
        let status = json!({"phase": "Failed", "reason": reason});
        serde_json::from_value(json!({"metadata": {"uid": reason}, "status": status})).unwrap()
    };
    for (reason, refused) in [("OutOfcpu", true), ("OutOfpods", true), ("NodeAffinity", true), ("Evicted", false)] {
        assert_eq!(failed(reason).status.as_ref().and_then(translate::refusal).is_some(), refused, "{reason}");
    }
    let metrics = Metrics::default();
    let mut watched = WatchedObjects::of(Ours::default(), metrics.clone());
    for _ in 0..2 {
        watched.take(WatchedChange::Pod(Change::Applied(failed("OutOfcpu"))), &mut Vec::new());
    }
    assert!(metrics.render(&[]).contains("refusals_total{reason=\"OutOfcpu\"} 1"));
}
