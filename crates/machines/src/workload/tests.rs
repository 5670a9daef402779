//! What the machines of workloads share.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pumice_objects::selector::LabelSelector;
use serde_json::json;

use super::*;

fn pod(name: &str, owner: Option<&str>, labels: &str) -> OwnedPod {
    let labels = labels.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    OwnedPod {
        name: name.to_owned(),
        uid: name.to_owned(),
        owner_uid: owner.map(str::to_owned),
        labels: labels.into_iter().collect(),
        ..OwnedPod::default()
    }
}

#[test]
fn pods_are_taken_in_and_let_go_by_their_labels() {
    let selector = LabelSelector::parse("a=b").unwrap();
    let owner = OwnerReference { uid: "me".to_owned(), ..OwnerReference::default() };
    let leaving = OwnedPod { is_leaving: true, ..pod("leaving", None, "a=b") };
    let ended = OwnedPod { phase: PodPhase::Succeeded, ..pod("ended", None, "a=b") };
    let all = [
        pod("mine", Some("me"), "a=b"),
        pod("free", None, "a=b"),
        pod("strange", None, "a=c"),
        pod("changed", Some("me"), "a=c"),
        pod("theirs", Some("them"), "a=b"),
        leaving,
        ended,
    ];
    let all: Vec<&OwnedPod> = all.iter().collect();
    let told = |takes_in: bool| {
        let claimed = claim(&all, &selector, &owner, takes_in, true);
        let names: Vec<&str> = claimed.own.iter().map(|pod| pod.name.as_str()).collect();
        (names.join(" "), claimed.effects)
    };
    let id = |name: &str| PodName { name: name.to_owned(), uid: name.to_owned() };
    let wanted = vec![
        PodEffect::Adopt(id("free"), Box::new(owner.clone()), true),
        PodEffect::Release(id("changed"), "me".to_owned()),
    ];
    assert_eq!(told(true), ("mine free".to_owned(), wanted));
    assert_eq!(told(false), ("mine changed".to_owned(), vec![]), "who leaves changes nothing");
}

#[test]
fn what_goes_first_serves_least() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let running = |name: &str, ready: Option<i64>, cost: i32| OwnedPod {
        name: name.to_owned(),
        node: Some("n".to_owned()),
        phase: PodPhase::Running,
        ready_since: ready.map(at),
        deletion_cost: cost,
        ..OwnedPod::default()
    };
    let mut pods = [
        running("old", Some(1), 0),
        running("young", Some(9), 0),
        running("dear", Some(9), 5),
        running("unready", None, 9),
        OwnedPod { phase: PodPhase::Pending, ..running("pending", None, 0) },
        OwnedPod { node: None, phase: PodPhase::Pending, ..running("unplaced", None, 0) },
    ];
    pods.sort_by_cached_key(|pod| pod.rank(1));
    let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["unplaced", "pending", "unready", "young", "old", "dear"]);
}

#[test]
fn templates_are_told_apart_by_what_they_say() {
    let template = |hash: &str, image: &str| -> PodTemplateSpec {
        serde_json::from_value(json!({"metadata": {"labels": {"a": "b", "h": hash}},
            "spec": {"containers": [{"name": "c", "image": image}]}}))
        .unwrap()
    };
    assert!(is_same_template(&template("1", "x"), &template("2", "x"), "h"));
    assert!(!is_same_template(&template("1", "x"), &template("1", "y"), "h"));
    let hash = |image: &str, collisions| template_hash(&template("1", image), "h", collisions);
    assert_eq!(hash("x", None), hash("x", Some(0)));
    assert_ne!(hash("x", None), hash("x", Some(1)));
    assert_ne!(hash("x", None), hash("y", None));
    assert_eq!(hash("x", None).len(), 10);
}

#[test]
fn shares_are_rounded_as_asked() {
    let percent = |text: &str| Some(IntOrString::String(text.to_owned()));
    for (value, total, up, wanted) in [
        (percent("25%"), 10, true, 3),
        (percent("25%"), 10, false, 2),
        (percent("25%"), 1, false, 0),
        (percent("x"), 10, true, 0),
        (Some(IntOrString::Int(4)), 1, true, 4),
        (Some(IntOrString::Int(-4)), 1, true, 0),
        (None, 10, true, 0),
    ] {
        assert_eq!(resolve(value.as_ref(), total, up), wanted, "{value:?}");
    }
}
