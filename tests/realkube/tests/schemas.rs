//! What our schemas say about merging is what kube-apiserver publishes.

use std::path::Path;

use pumice_testkit::RealKube;
use serde_json::{Map, Value};

const MERGING: [&str; 5] = [
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
];

#[test]
fn merge_keys_and_list_types_are_those_of_kubernetes() {
    let kube = RealKube::new();
    let mut theirs = Map::new();
    let read =
        |path: &str| -> Value { serde_json::from_str(&kube.kubectl(["get", "--raw", path]).ok()).expect("a document") };
    // All that it serves, so that no group can be forgotten.
    for path in read("/openapi/v3")["paths"].as_object().expect("an index").keys() {
        let document = read(&format!("/openapi/v3/{path}"));
        theirs.extend(document["components"]["schemas"].as_object().cloned().unwrap_or_default());
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/apiserver/schemas/builtin.json");
    let ours: Value = serde_json::from_str(&std::fs::read_to_string(file).expect("our schemas")).expect("JSON");
    let mut compared = 0;
    for (name, schema) in ours["components"]["schemas"].as_object().expect("components") {
        // Kinds of groups that are not served by both have nothing to compare with.
        let Some(published) = theirs.get(name) else { continue };
        assert_eq!(merging(schema), merging(published), "{name}");
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            let published = &published["properties"][field];
            assert_eq!(merging(schema), merging(published), "{name}.{field}");
            compared += merging(schema).len();
        }
    }
    assert!(compared > 150, "{compared} markers");
}

fn merging(schema: &Value) -> Vec<(&'static str, Value)> {
    MERGING.into_iter().filter_map(|keyword| Some((keyword, schema.get(keyword)?.clone()))).collect()
}
