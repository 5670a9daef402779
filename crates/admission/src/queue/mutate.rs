//! What a new Queue gets filled in, on its JSON so that nothing else changes. Idempotent.

use pumice_api::names::{HIERARCHY, HIERARCHY_WEIGHTS, ROOT_QUEUE};
use serde_json::Value;

/// Fills in what a new queue leaves out.
pub fn mutate(queue: &mut Value) {
    root_the_path(queue);
    let Some(queue) = queue.as_object_mut() else { return };
    let spec = queue.entry("spec").or_insert(Value::Null);
    if spec.is_null() {
        *spec = Value::Object(serde_json::Map::new());
    }
    let Some(spec) = spec.as_object_mut() else { return };
    if spec.get("reclaimable").is_none_or(Value::is_null) {
        spec.insert("reclaimable".to_owned(), true.into());
    }
    if spec.get("weight").is_none_or(|weight| weight.is_null() || weight.as_i64() == Some(0)) {
        spec.insert("weight".to_owned(), 1.into());
    }
}

/// The old form of the tree: a path without `root` gets it, and a weight for it.
fn root_the_path(queue: &mut Value) {
    let Some(annotations) = queue.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    let text =
        |key: &str| annotations.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let (Some(path), Some(weights)) = (text(HIERARCHY), text(HIERARCHY_WEIGHTS)) else { return };
    if !path.starts_with(ROOT_QUEUE) {
        annotations.insert(HIERARCHY.to_owned(), format!("{ROOT_QUEUE}/{path}").into());
        annotations.insert(HIERARCHY_WEIGHTS.to_owned(), format!("1/{weights}").into());
    }
}
