//! CustomResourceDefinitions: served as soon as they are stored.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Server, server};

pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub fn definition() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "default": 3},
                    "color": {"type": "string", "enum": ["red", "blue"]},
                },
            },
            "status": {"type": "object", "properties": {"size": {"type": "integer"}, "phase": {"type": "string"}}},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                 "subresources": {"status": {}, "scale": {
                     "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                 "selectableFields": [{"jsonPath": ".spec.color"}],
                 "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]},
                {"name": "v1alpha1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    })
}

pub fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"color": "red"}})
}

pub async fn with_widgets() -> Server {
    let server = server().await;
    server.post(DEFINITIONS, &definition()).await.is(201);
    server
}

#[tokio::test]
async fn a_definition_serves_at_once() {
    let server = server().await;
    server.get(WIDGETS).await.is(404);
    let made = server.post(DEFINITIONS, &definition()).await.is(201).body;
    let established = &made["status"]["conditions"][1];
    assert_eq!((&established["type"], &established["status"]), (&json!("Established"), &json!("True")));
    let widget = server.post(WIDGETS, &widget("a")).await.is(201).body;
    assert_eq!((&widget["spec"]["size"], &widget["metadata"]["generation"]), (&json!(3), &json!(1)));
    let mut bad = definition();
    bad["metadata"]["name"] = json!("gadgets.example.com");
    server.post(DEFINITIONS, &bad).await.is(422);
}

#[tokio::test]
async fn its_schema_holds() {
    let server = with_widgets().await;
    let mut object = widget("a");
    object["spec"]["size"] = json!(0);
    let refused = server.post(WIDGETS, &object).await.is(422);
    assert_eq!(
        refused.message(),
        "Widget.example.com \"a\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or \
         equal to 1"
    );
    object["spec"] = json!({"color": "green"});
    server.post(WIDGETS, &object).await.is(422);
    object["spec"] = json!({"size": "big"});
    server.post(WIDGETS, &object).await.is(422);
    object["spec"] = json!({"odd": 1});
    let warned = server.post(WIDGETS, &object).await.is(201);
    assert!(warned.warnings[0].contains("spec.odd"), "{:?}", warned.warnings);
    assert_eq!(warned.body["spec"], json!({"size": 3}));
    let strategic = [("content-type", "application/strategic-merge-patch+json")];
    server.raw(Method::PATCH, &format!("{WIDGETS}/a"), &strategic, "{}").await.is(415);
}

#[tokio::test]
async fn generation_counts_the_specification() {
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a")).await.is(201);
    let path = format!("{WIDGETS}/a");
    let labelled = server.merge(&path, &json!({"metadata": {"labels": {"x": "y"}}})).await.is(200).body;
    assert_eq!(labelled["metadata"]["generation"], 1);
    let resized = server.merge(&path, &json!({"spec": {"size": 5}, "status": {"size": 9}})).await.is(200).body;
    assert_eq!((&resized["metadata"]["generation"], &resized["status"]), (&json!(2), &Value::Null));
    let status = server.merge(&format!("{path}/status"), &json!({"status": {"size": 4}, "spec": null})).await.is(200);
    assert_eq!((&status.body["metadata"]["generation"], &status.body["spec"]["size"]), (&json!(2), &json!(5)));
}

#[tokio::test]
async fn scale_is_one_shape_for_all() {
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a")).await.is(201);
    let path = format!("{WIDGETS}/a/scale");
    let mut scale = server.get(&path).await.is(200).body;
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    scale["spec"]["replicas"] = json!(7);
    assert_eq!(server.put(&path, &scale).await.is(200).body["spec"]["replicas"], 7);
    server.put(&path, &scale).await.is(409);
    let patched = server.merge(&path, &json!({"spec": {"replicas": 8}})).await.is(200).body;
    assert_eq!(patched["spec"]["replicas"], 8);
    server.merge(&path, &json!({"spec": {"replicas": -1}})).await.is(400);
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.body["spec"]["size"], 8);
}

#[tokio::test]
async fn versions_and_columns_are_served() {
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a")).await.is(201);
    let old = "/apis/example.com/v1alpha1/namespaces/default/widgets";
    assert_eq!(server.get(&format!("{old}/a")).await.is(200).body["apiVersion"], "example.com/v1alpha1");
    let mut other = widget("b");
    other["apiVersion"] = json!("example.com/v1alpha1");
    other["spec"]["color"] = json!("blue");
    assert_eq!(server.post(old, &other).await.is(201).body["apiVersion"], "example.com/v1alpha1");
    let list = server.get(WIDGETS).await.is(200).body;
    assert_eq!(list["items"][1]["apiVersion"], "example.com/v1");
    let blue = server.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dblue")).await.is(200).body;
    assert_eq!(blue["items"].as_array().map(Vec::len), Some(1));
    let accept = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let table = server.raw(Method::GET, WIDGETS, &accept, "").await.is(200).body;
    assert_eq!(table["columnDefinitions"][1]["name"], "Size");
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn the_products_own_definitions_are_served() {
    let server = server().await;
    for definition in pumice_api::crds::all() {
        let made = server.post(&format!("{DEFINITIONS}?fieldValidation=Strict"), &definition).await.is(201);
        assert!(made.warnings.is_empty(), "{:?}", made.warnings);
    }
    let job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "a"},
        "spec": {"minAvailable": 1, "tasks": [{"replicas": 1, "name": "t", "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": 1}}}]}}}]},
    });
    let path = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs?fieldValidation=Strict";
    server.post(path, &job).await.is(201);
}
