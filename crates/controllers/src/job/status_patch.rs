//! A status as a merge patch.
//!
//! Invariant: applied to the old status it gives exactly the new one; fields that are zero now are removed by null. It holds
//! only for the version of the job it was made from.

use pumice_api::batch::JobStatus;
use serde_json::{Map, Value, json};

/// The patch from `old` to `new`, refused by the API server if the job has changed since `resource_version`.
pub(crate) fn status_patch(old: &JobStatus, new: &JobStatus, resource_version: Option<&str>) -> Value {
    let object = |status: &JobStatus| serde_json::to_value(status).unwrap_or_default();
    let status = difference(&object(old), &object(new)).unwrap_or_else(|| json!({}));
    match resource_version {
        Some(version) => json!({"metadata": {"resourceVersion": version}, "status": status}),
        None => json!({"status": status}),
    }
}

fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let mut patch: Map<String, Value> = gone.collect();
    for (key, value) in new {
        let changed = match old.get(key) {
            Some(before) => difference(before, value),
            None => Some(value.clone()),
        };
        patch.extend(changed.map(|value| (key.clone(), value)));
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_zero_is_removed() {
        let status = |value: Value| serde_json::from_value::<JobStatus>(value).unwrap();
        let old = status(json!({"running": 2, "pending": 1, "taskStatusCount": {"a": {"phase": {"Running": 2}}},
            "state": {"phase": "Running"}, "conditions": [{"status": "Pending"}]}));
        let new = status(json!({"succeeded": 2, "pending": 1, "taskStatusCount": {"a": {"phase": {"Succeeded": 2}}},
            "state": {"phase": "Completed"}, "conditions": [{"status": "Pending"}, {"status": "Completed"}]}));
        assert_eq!(
            status_patch(&old, &new, Some("7")),
            json!({"metadata": {"resourceVersion": "7"}, "status": {
                "running": null, "succeeded": 2, "state": {"phase": "Completed"},
                "taskStatusCount": {"a": {"phase": {"Running": null, "Succeeded": 2}}},
                "conditions": [{"status": "Pending"}, {"status": "Completed"}],
            }})
        );
        assert_eq!(status_patch(&old, &old, None), json!({"status": {}}));
    }
}
