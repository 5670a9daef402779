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
    for path in ["api/v1", "apis/coordination.k8s.io/v1", "apis/scheduling.k8s.io/v1", "apis/apiextensions.k8s.io/v1"] {
        let text = kube.kubectl(["get", "--raw", &format!("/openapi/v3/{path}")]).ok();
        let document: Value = serde_json::from_str(&text).expect("a document");
        theirs.extend(document["components"]["schemas"].as_object().expect("components").clone());
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
