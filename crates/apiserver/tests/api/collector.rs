//! Owner references, namespaces and definitions: what goes with what.

use serde_json::{Value, json};

use crate::definitions::{WIDGETS, widget, with_widgets};
use crate::harness::{MAPS, Server, config_map, server};

async fn owned(server: &Server, name: &str, owners: &[&Value], blocks: bool) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({
                "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
            })
        })
        .collect();
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = json!(references);
    server.post(MAPS, &object).await.is(201).body
}

#[tokio::test]
async fn dependents_follow_their_owner() {
    let server = server().await;
    let owner = server.post(MAPS, &config_map("owner")).await.is(201).body;
    let child = owned(&server, "child", &[&owner], false).await;
    owned(&server, "grandchild", &[&child], false).await;
    server.delete(&format!("{MAPS}/owner"), &Value::Null).await.is(200);
    server.until(&format!("{MAPS}/child"), 404).await;
    server.until(&format!("{MAPS}/grandchild"), 404).await;
}

#[tokio::test]
async fn one_owner_is_enough_to_stay() {
    let server = server().await;
    let first = server.post(MAPS, &config_map("first")).await.is(201).body;
    let second = server.post(MAPS, &config_map("second")).await.is(201).body;
    owned(&server, "child", &[&first, &second], false).await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dchild")).await;
    assert_eq!(events.change().await, "ADDED child");
    server.delete(&format!("{MAPS}/first"), &Value::Null).await.is(200);
    assert_eq!(events.change().await, "MODIFIED child");
    let child = server.get(&format!("{MAPS}/child")).await.is(200).body;
    assert_eq!(child["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1));
    server.delete(&format!("{MAPS}/second"), &Value::Null).await.is(200);
    assert_eq!(events.change().await, "DELETED child");
}

#[tokio::test]
async fn an_owner_that_never_was_is_gone() {
    let server = server().await;
    let ghost = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "u"}});
    owned(&server, "child", &[&ghost], false).await;
    server.until(&format!("{MAPS}/child"), 404).await;
    let unknown = json!({"apiVersion": "none.io/v1", "kind": "Thing", "metadata": {"name": "x", "uid": "u"}});
    owned(&server, "kept", &[&unknown], false).await;
    let owner = server.post(MAPS, &config_map("marker")).await.is(201).body;
    owned(&server, "marked", &[&owner], false).await;
    server.delete(&format!("{MAPS}/marker"), &Value::Null).await.is(200);
    server.until(&format!("{MAPS}/marked"), 404).await;
    server.get(&format!("{MAPS}/kept")).await.is(200);
}

#[tokio::test]
async fn foreground_waits_for_what_blocks() {
    let server = server().await;
    let owner = server.post(MAPS, &config_map("owner")).await.is(201).body;
    let mut child = owned(&server, "child", &[&owner], true).await;
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.put(&format!("{MAPS}/child"), &child).await.is(200);
    let mut events = server.watch(&format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dchild")).await;
    assert_eq!(events.change().await, "ADDED child");
    let marked =
        server.delete(&format!("{MAPS}/owner"), &json!({"propagationPolicy": "Foreground"})).await.is(200).body;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(events.change().await, "MODIFIED child");
    server.get(&format!("{MAPS}/owner")).await.is(200);
    server.merge(&format!("{MAPS}/child"), &json!({"metadata": {"finalizers": null}})).await.is(200);
    server.until(&format!("{MAPS}/owner"), 404).await;
}

#[tokio::test]
async fn orphans_are_cut_loose() {
    let server = server().await;
    let owner = server.post(MAPS, &config_map("owner")).await.is(201).body;
    owned(&server, "child", &[&owner], true).await;
    server.delete(&format!("{MAPS}/owner"), &json!({"propagationPolicy": "Orphan"})).await.is(200);
    server.until(&format!("{MAPS}/owner"), 404).await;
    let child = server.get(&format!("{MAPS}/child")).await.is(200).body;
    assert_eq!(child["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test]
async fn a_namespace_takes_everything_with_it() {
    let server = server().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    let made = server.post("/api/v1/namespaces", &namespace).await.is(201).body;
    assert_eq!(made["status"]["phase"], "Active");
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post("/api/v1/namespaces/team/configmaps", &held).await.is(201);
    server.post("/api/v1/namespaces/team/configmaps", &config_map("free")).await.is(201);
    let marked = server.delete("/api/v1/namespaces/team", &Value::Null).await.is(200).body;
    assert_eq!(marked["status"]["phase"], "Terminating");
    let late = server.post("/api/v1/namespaces/team/configmaps", &config_map("late")).await.is(403);
    assert!(late.message().contains("because it is being terminated"), "{}", late.message());
    server.until("/api/v1/namespaces/team/configmaps/free", 404).await;
    server.get("/api/v1/namespaces/team").await.is(200);
    server.merge("/api/v1/namespaces/team/configmaps/held", &json!({"metadata": {"finalizers": null}})).await.is(200);
    server.until("/api/v1/namespaces/team", 404).await;
}

#[tokio::test]
async fn a_definition_takes_its_objects_with_it() {
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a")).await.is(201);
    server
        .delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", &Value::Null)
        .await
        .is(200);
    server.until("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", 404).await;
    server.get(WIDGETS).await.is(404);
    assert_eq!(server.api.store().count("example.com/widgets", None), 0);
}

#[tokio::test]
async fn what_was_left_half_done_is_finished_by_the_next_start() {
    use std::sync::Arc;

    use pumice_apiserver::{AdmitAll, NoNodes};
    use pumice_store::{Options, Store};

    let store = Store::in_memory(Options::default()).expect("store");
    let first = crate::harness::over(store.clone(), Arc::new(AdmitAll), Arc::new(NoNodes)).await;
    let owner = first.post(MAPS, &config_map("owner")).await.is(201).body;
    let cut = first.post(MAPS, &config_map("cut")).await.is(201).body;
    owned(&first, "child", &[&owner], false).await;
    owned(&first, "orphan", &[&cut], false).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    first.post("/api/v1/namespaces", &namespace).await.is(201);
    first.post("/api/v1/namespaces/team/configmaps", &config_map("inner")).await.is(201);
    first.api.stop().await;
    first.delete(&format!("{MAPS}/owner"), &Value::Null).await.is(200);
    first.delete(&format!("{MAPS}/cut"), &json!({"propagationPolicy": "Orphan"})).await.is(200);
    first.delete("/api/v1/namespaces/team", &Value::Null).await.is(200);
    first.get(&format!("{MAPS}/child")).await.is(200);

    let second = crate::harness::over(store, Arc::new(AdmitAll), Arc::new(NoNodes)).await;
    second.until(&format!("{MAPS}/child"), 404).await;
    second.until(&format!("{MAPS}/cut"), 404).await;
    second.until("/api/v1/namespaces/team", 404).await;
    let orphan = second.get(&format!("{MAPS}/orphan")).await.is(200).body;
    assert_eq!(orphan["metadata"]["ownerReferences"], Value::Null);
}
