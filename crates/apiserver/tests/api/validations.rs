//! Rules of definitions (`x-kubernetes-validations`) as clients meet them.

use serde_json::{Value, json};

use crate::definitions::{DEFINITIONS, WIDGETS, definition, widget};
use crate::harness::{Server, server};

fn with_rules(rules: &Value) -> Value {
    let mut definition = definition();
    for version in [0, 1] {
        definition["spec"]["versions"][version]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
            rules.clone();
    }
    definition
}

async fn served(rules: &Value) -> Server {
    let server = server().await;
    server.post(DEFINITIONS, &with_rules(rules)).await.is(201);
    server
}

fn sized(size: i64) -> Value {
    let mut widget = widget("a");
    widget["spec"]["size"] = json!(size);
    widget
}

#[tokio::test]
async fn a_rule_is_asked_on_every_write() {
    let server = served(&json!([{ "rule": "self.size <= 10", "message": "too big", "fieldPath": ".size" }])).await;
    let path = format!("{WIDGETS}/a");
    let refused = server.post(WIDGETS, &sized(11)).await.is(422);
    assert_eq!(refused.message(), "Widget.example.com \"a\" is invalid: spec.size: Invalid value: \"object\": too big");
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.size");
    let made = server.post(WIDGETS, &sized(10)).await.is(201).body;
    let mut bigger = made.clone();
    bigger["spec"]["size"] = json!(11);
    server.put(&path, &bigger).await.is(422);
    server.merge(&path, &json!({ "spec": { "size": 11 } })).await.is(422);
    server.merge(&format!("{path}/scale"), &json!({ "spec": { "replicas": 11 } })).await.is(422);
    server.merge(&path, &json!({ "spec": { "size": 9 } })).await.is(200);
    // The default is filled in before.
    let mut plain = widget("b");
    plain["spec"] = json!({});
    server.post(WIDGETS, &plain).await.is(201);
}

#[tokio::test]
async fn a_new_rule_lets_what_is_there_stay() {
    let server = served(&json!([])).await;
    let path = format!("{WIDGETS}/a");
    server.post(WIDGETS, &sized(20)).await.is(201);
    let name = format!("{DEFINITIONS}/widgets.example.com");
    let rules = json!([{ "rule": "self.size <= 10", "message": "too big" }]);
    let stored = server.get(&name).await.is(200).body;
    let mut changed = with_rules(&rules);
    changed["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    server.put(&name, &changed).await.is(200);
    server.merge(&path, &json!({ "metadata": { "labels": { "a": "b" } } })).await.is(200);
    server.merge(&format!("{path}/status"), &json!({ "status": { "phase": "old" } })).await.is(200);
    server.merge(&path, &json!({ "spec": { "size": 19 } })).await.is(422);
    server.merge(&path, &json!({ "spec": { "size": 10 } })).await.is(200);
}

#[tokio::test]
async fn a_transition_rule_sees_what_was() {
    let server = served(&json!([{ "rule": "self.color == oldSelf.color", "message": "color is fixed" }])).await;
    server.post(WIDGETS, &sized(1)).await.is(201);
    let refused = server.merge(&format!("{WIDGETS}/a"), &json!({ "spec": { "color": "blue" } })).await.is(422);
    assert!(refused.message().contains("color is fixed"), "{}", refused.message());
    server.merge(&format!("{WIDGETS}/a"), &json!({ "spec": { "size": 2 } })).await.is(200);
}

#[tokio::test]
async fn a_mistake_refuses_the_definition() {
    let server = server().await;
    let refused = server.post(DEFINITIONS, &with_rules(&json!([{ "rule": "self.sise > 1" }]))).await.is(422);
    let wanted = "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: \
                  \"self.sise > 1\": compilation failed: undefined field 'sise'";
    assert!(refused.message().contains(wanted), "{}", refused.message());
    server.get(WIDGETS).await.is(404);
}
