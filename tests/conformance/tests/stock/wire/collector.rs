//! Garbage collection by owner references.

use serde_json::{Value, json};

use super::{Answer, JOBS, MAPS, PODS, QUEUES, Wire, job, map, owned_by, pod, queue};
use crate::cluster::Cluster;

/// A job that owns a config map that owns another one, and a pod.
async fn family(wire: &Wire, blocks: bool) -> Value {
    if wire.get(&format!("{QUEUES}/default")).await.code == 404 {
        wire.post(QUEUES, &queue("default")).await.is(201);
    }
    let owner = wire.post(JOBS, &job("owner")).await.is(201).body;
    let child = wire.post(MAPS, &owned_by(map("child"), &owner, blocks)).await.is(201).body;
    wire.post(MAPS, &owned_by(map("grandchild"), &child, blocks)).await.is(201);
    wire.post(PODS, &owned_by(pod("pod"), &owner, blocks)).await.is(201);
    wire.post(MAPS, &map("stranger")).await.is(201);
    owner
}

fn child() -> String {
    format!("{MAPS}/child")
}

#[tokio::test(flavor = "multi_thread")]
async fn background_deletion_takes_dependents_after() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    family(wire, true).await;
    let gone = wire.delete(&format!("{JOBS}/owner"), &Value::Null).await.is(200).body;
    assert_eq!(gone["status"], "Success", "the owner goes at once: {gone}");
    wire.get(&format!("{JOBS}/owner")).await.is(404);
    for path in [child(), format!("{MAPS}/grandchild"), format!("{PODS}/pod")] {
        wire.until_gone(&path).await;
    }
    assert_eq!(wire.get(MAPS).await.names(), ["stranger"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_deletion_takes_dependents_first() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    family(wire, true).await;
    wire.merge(&child(), &json!({"metadata": {"finalizers": ["a.b/hold"]}})).await.is(200);
    let marked = wire.delete(&format!("{JOBS}/owner"), &json!({"propagationPolicy": "Foreground"})).await.is(200).body;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]), "{marked}");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    wire.until(&child(), |answer| answer.body["metadata"]["deletionTimestamp"].is_string()).await;
    wire.until_gone(&format!("{PODS}/pod")).await;
    wire.get(&format!("{JOBS}/owner")).await.is(200);
    let held = wire.get(&child()).await.body["metadata"]["finalizers"].clone();
    assert!(held.as_array().expect("list").contains(&json!("a.b/hold")), "{held}");
    let patch = json!([{"op": "remove", "path": "/metadata/finalizers"}]).to_string();
    wire.patch(&child(), "json-patch+json", &patch).await.is(200);
    for path in [child(), format!("{MAPS}/grandchild"), format!("{JOBS}/owner")] {
        wire.until_gone(&path).await;
    }
    assert_eq!(wire.get(MAPS).await.names(), ["stranger"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_cut_loose() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    family(wire, true).await;
    wire.delete(&format!("{JOBS}/owner"), &json!({"propagationPolicy": "Orphan"})).await.is(200);
    wire.until_gone(&format!("{JOBS}/owner")).await;
    let kept = wire.get(&child()).await.is(200).body;
    assert!(kept["metadata"].get("ownerReferences").is_none(), "{kept}");
    wire.get(&format!("{PODS}/pod")).await.is(200);
    assert!(wire.get(&format!("{MAPS}/grandchild")).await.is(200).body["metadata"]["ownerReferences"].is_array());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_owners_both_have_to_go() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let first = wire.post(MAPS, &map("first")).await.is(201).body;
    let second = wire.post(MAPS, &map("second")).await.is(201).body;
    let mut shared = owned_by(map("shared"), &first, false);
    let more = owned_by(map("x"), &second, false)["metadata"]["ownerReferences"][0].clone();
    shared["metadata"]["ownerReferences"].as_array_mut().expect("list").push(more);
    wire.post(MAPS, &shared).await.is(201);
    wire.delete(&format!("{MAPS}/first"), &Value::Null).await.is(200);
    let one_left =
        |answer: &Answer| answer.body["metadata"]["ownerReferences"].as_array().is_some_and(|list| list.len() == 1);
    let left = wire.until(&format!("{MAPS}/shared"), one_left).await;
    assert_eq!(left.body["metadata"]["ownerReferences"][0]["name"], "second");
    wire.delete(&format!("{MAPS}/second"), &Value::Null).await.is(200);
    wire.until_gone(&format!("{MAPS}/shared")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_to_nobody_is_garbage() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let owner = wire.post(MAPS, &map("owner")).await.is(201).body;
    wire.delete(&format!("{MAPS}/owner"), &Value::Null).await.is(200);
    wire.post(MAPS, &owned_by(map("late"), &owner, false)).await.is(201);
    wire.until_gone(&format!("{MAPS}/late")).await;
    // The name alone does not count: the owner that is there now is another one.
    wire.post(MAPS, &map("owner")).await.is(201);
    wire.post(MAPS, &owned_by(map("later"), &owner, false)).await.is(201);
    wire.until_gone(&format!("{MAPS}/later")).await;
    wire.get(&format!("{MAPS}/owner")).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_of_owners_ends() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let first = wire.post(MAPS, &map("first")).await.is(201).body;
    let second = wire.post(MAPS, &owned_by(map("second"), &first, true)).await.is(201).body;
    let back = owned_by(map("first"), &second, true)["metadata"]["ownerReferences"].clone();
    wire.merge(&format!("{MAPS}/first"), &json!({"metadata": {"ownerReferences": back}})).await.is(200);
    wire.delete(&format!("{MAPS}/first"), &json!({"propagationPolicy": "Foreground"})).await.is(200);
    wire.until_gone(&format!("{MAPS}/first")).await;
    wire.until_gone(&format!("{MAPS}/second")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_references_are_refused() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let owner = wire.post(MAPS, &map("owner")).await.is(201).body;
    for (field, value) in [("uid", json!("")), ("name", json!("")), ("kind", json!("")), ("apiVersion", json!(""))] {
        let mut object = owned_by(map("x"), &owner, false);
        object["metadata"]["ownerReferences"][0][field] = value;
        let refused = wire.post(MAPS, &object).await.is(422);
        let cause = refused.body["details"]["causes"][0]["field"].as_str().expect("field").to_owned();
        assert!(cause.starts_with("metadata.ownerReferences"), "{cause}");
    }
    let mut object = owned_by(map("x"), &owner, false);
    let mut twice = object["metadata"]["ownerReferences"][0].clone();
    twice["controller"] = json!(true);
    object["metadata"]["ownerReferences"] =
        json!([twice.clone(), {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]);
    wire.post(MAPS, &object).await.is(422);
}
