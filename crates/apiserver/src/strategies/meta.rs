//! Rules about what may change in `metadata`, for every kind. What it may hold is checked by `pumice_objects::meta`.

use pumice_objects::field::FieldError;
use serde_json::Value;

use crate::problems::Problems;

/// What no update may change.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let (new, old) = (&new["metadata"], &old["metadata"]);
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        problems.immutable(&format!("metadata.{field}"), &new[field], &old[field]);
    }
    if old["deletionTimestamp"].is_string() {
        let before = old["finalizers"].as_array().map_or(&[][..], Vec::as_slice);
        let added: Vec<String> = new["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|finalizer| !before.contains(finalizer))
            .map(ToString::to_string)
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            problems.forbidden("metadata.finalizers", &detail);
        }
    }
    problems.into_errors()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dying_object_takes_no_finalizer() {
        let old = json!({"metadata": {"name": "a", "deletionTimestamp": "x", "finalizers": ["a.b/c"]}});
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!([]);
        assert!(validate_update(&new, &old).is_empty());
        new["metadata"]["finalizers"] = json!(["a.b/d"]);
        assert_eq!(validate_update(&new, &old).len(), 1);
    }
}
