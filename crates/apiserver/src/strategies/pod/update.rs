//! What may change of a pod that exists.

use pumice_objects::field::FieldError;
use serde_json::Value;

use super::CONTAINER_LISTS;
use crate::problems::Problems;

const ALLOWED: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

const GRACE: &str = "terminationGracePeriodSeconds";

/// Compares the specs after taking the new values of the fields that may change.
pub(super) fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let (mut wanted, stored) = (new["spec"].clone(), &old["spec"]);
    for list in CONTAINER_LISTS {
        let (Some(items), Some(before)) = (wanted.get_mut(list).and_then(Value::as_array_mut), stored[list].as_array())
        else {
            continue;
        };
        for (item, before) in items.iter_mut().zip(before) {
            take(item, before, "image");
        }
    }
    take(&mut wanted, stored, "schedulingGates");
    let grace = |spec: &Value| spec[GRACE].as_i64();
    if grace(&wanted) == Some(1) && grace(stored).is_some_and(|seconds| seconds < 0) {
        take(&mut wanted, stored, GRACE);
    }
    tolerations(&mut wanted, stored);
    deadline(&mut wanted, stored, &mut problems);
    if wanted != *stored {
        problems.forbidden("spec", ALLOWED);
    }
    problems.into_errors()
}

/// Makes `field` of `item` what it was, so that a difference in it does not count.
fn take(item: &mut Value, before: &Value, field: &str) {
    let Some(object) = item.as_object_mut() else { return };
    match before.get(field) {
        Some(value) => object.insert(field.to_owned(), value.clone()),
        None => object.remove(field),
    };
}

fn tolerations(wanted: &mut Value, stored: &Value) {
    let list = |spec: &Value| spec["tolerations"].as_array().cloned().unwrap_or_default();
    let (new, old) = (list(wanted), list(stored));
    if old.iter().all(|toleration| new.contains(toleration)) {
        take(wanted, stored, "tolerations");
    }
}

fn deadline(wanted: &mut Value, stored: &Value, problems: &mut Problems) {
    let (new, old) = (wanted["activeDeadlineSeconds"].as_i64(), stored["activeDeadlineSeconds"].as_i64());
    match (new, old) {
        (Some(new), Some(old)) if new > old => {
            problems.invalid("spec.activeDeadlineSeconds", &new.into(), "must be less than or equal to previous value")
        }
        (None, Some(_)) => problems.invalid(
            "spec.activeDeadlineSeconds",
            &Value::Null,
            "must not update from a positive integer to nil value",
        ),
        _ => {}
    }
    take(wanted, stored, "activeDeadlineSeconds");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_some_fields_may_change() {
        let old = json!({"spec": {"containers": [{"name": "a", "image": "x"}], "activeDeadlineSeconds": 10}});
        for (pointer, value, refused) in [
            ("/spec/containers/0/image", json!("y"), 0),
            ("/spec/containers/0/name", json!("b"), 1),
            ("/spec/activeDeadlineSeconds", json!(5), 0),
            ("/spec/activeDeadlineSeconds", json!(50), 1),
            ("/spec/containers", json!([]), 1),
        ] {
            let mut new = old.clone();
            *new.pointer_mut(pointer).expect("field") = value;
            assert_eq!(validate(&new, &old).len(), refused, "{pointer}");
        }
        let graceful = |seconds: i64| {
            let mut pod = old.clone();
            pod["spec"]["terminationGracePeriodSeconds"] = json!(seconds);
            pod
        };
        assert_eq!(validate(&graceful(1), &graceful(-5)), []);
        assert_eq!((validate(&graceful(2), &graceful(-5)).len(), validate(&graceful(1), &graceful(5)).len()), (1, 1));
        let mut tolerant = old.clone();
        tolerant["spec"]["tolerations"] = json!([{"key": "k"}]);
        assert!(validate(&tolerant, &old).is_empty());
        assert_eq!(validate(&old, &tolerant).len(), 1);
    }
}
