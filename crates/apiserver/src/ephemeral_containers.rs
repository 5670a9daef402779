//! Ephemeral containers: what they may say, and how they may change.
//!
//! Messages and paths are upstream's. Invariant: one that is there stays as it is; it comes by its own path, to a pod that exists. Called by
//! the strategy of pods.

use std::collections::BTreeSet;

use pumice_objects::field::FieldError;
use serde_json::{Map, Value};

use crate::problems::Problems;

/// The field of a pod's spec that lists them.
pub(crate) const EPHEMERAL_CONTAINERS: &str = "ephemeralContainers";
const PATH: &str = "spec.ephemeralContainers";
const NOT_ALLOWED: &str = "cannot be set for an Ephemeral Container";
/// Fields that they may have: nothing relies on such a container, so the others mean nothing.
const ALLOWED: [&str; 17] = [
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "envFrom",
    "env",
    "volumeMounts",
    "volumeDevices",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    "targetContainerName",
];

/// What ephemeral containers have to keep to beyond the rules of every container. `others` are the names of those that are none.
pub(crate) fn validate(spec: &Value, others: &BTreeSet<&str>, problems: &mut Problems) {
    for (index, container) in spec[EPHEMERAL_CONTAINERS].as_array().into_iter().flatten().enumerate() {
        let Some(container) = container.as_object() else { continue };
        let path = format!("{PATH}[{index}]");
        let target = container.get("targetContainerName").and_then(Value::as_str).unwrap_or_default();
        if !target.is_empty() && !others.contains(target) {
            problems.not_found(&format!("{path}.targetContainerName"), target);
        }
        let mut fields: Vec<&String> = container.keys().filter(|field| !ALLOWED.contains(&field.as_str())).collect();
        fields.retain(|field| !is_zero(&container[*field]));
        for field in fields {
            problems.forbidden(&format!("{path}.{field}"), NOT_ALLOWED);
        }
        sub_paths(&path, container, problems);
    }
}

fn sub_paths(path: &str, container: &Map<String, Value>, problems: &mut Problems) {
    let mounts = container.get("volumeMounts").and_then(Value::as_array).into_iter().flatten();
    for (index, mount) in mounts.enumerate() {
        for field in ["subPath", "subPathExpr"].into_iter().filter(|field| !is_zero(&mount[*field])) {
            problems.forbidden(&format!("{path}.volumeMounts[{index}].{field}"), NOT_ALLOWED);
        }
    }
}

/// Whether a field counts as one that nobody gave.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(given) => !given,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Why a pod that is made can't have any, or a template of pods.
pub(crate) fn refuse(spec: &Value, detail: &str) -> Vec<FieldError> {
    let mut problems = Problems::default();
    if spec[EPHEMERAL_CONTAINERS].as_array().is_some_and(|list| !list.is_empty()) {
        problems.forbidden(PATH, detail);
    }
    problems.into_errors()
}

/// Compares those of a pod, of which nothing else has changed.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let list = |pod: &Value| pod["spec"][EPHEMERAL_CONTAINERS].as_array().cloned().unwrap_or_default();
    let after = list(new);
    for before in list(old) {
        let name = before["name"].as_str().unwrap_or_default();
        match after.iter().find(|one| one["name"] == name) {
            None => problems.forbidden(PATH, &format!("existing ephemeral containers {name:?} may not be removed")),
            Some(after) if *after != before => {
                problems.forbidden(PATH, &format!("existing ephemeral containers {name:?} may not be changed"));
            }
            Some(_) => {}
        }
    }
    problems.into_errors()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_rule_names_its_field() {
        let found = |container: Value| {
            let mut problems = Problems::default();
            validate(&json!({"ephemeralContainers": [container]}), &BTreeSet::from(["main"]), &mut problems);
            texts(problems.into_errors())
        };
        let forbidden = |field: &str| {
            format!("spec.ephemeralContainers[0].{field}: Forbidden: cannot be set for an Ephemeral Container")
        };
        for (field, value) in [
            ("ports", json!([{"containerPort": 1}])),
            ("livenessProbe", json!({"exec": {}})),
            ("lifecycle", json!({"preStop": {}})),
            ("resources", json!({"limits": {"cpu": "1"}})),
            ("restartPolicy", json!("Always")),
        ] {
            let mut container = json!({"name": "e", "targetContainerName": "main"});
            container[field] = value;
            assert_eq!(found(container), [forbidden(field)]);
        }
        let mounts = json!([{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/w", "subPath": "a"}]);
        assert_eq!(found(json!({"name": "e", "volumeMounts": mounts})), [forbidden("volumeMounts[1].subPath")]);
        let unknown = "spec.ephemeralContainers[0].targetContainerName: Not found: \"other\"";
        assert_eq!(found(json!({"name": "e", "targetContainerName": "other"})), [unknown]);
        let all = json!({"name": "e", "image": "i", "stdin": true, "tty": true, "env": [{"name": "A"}], "resources": {},
            "ports": [], "securityContext": {"privileged": true}, "targetContainerName": "main"});
        assert_eq!(found(all), [""; 0]);
    }

    #[test]
    fn what_is_there_stays() {
        let pod = |list: Value| json!({"spec": {"ephemeralContainers": list}});
        let (a, b) = (json!({"name": "a", "image": "i"}), json!({"name": "b", "image": "i"}));
        let old = pod(json!([a]));
        for (list, wanted) in [
            (json!([a, b]), vec![]),
            (json!([b, a]), vec![]),
            (
                json!([b]),
                vec!["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"a\" may not be removed"],
            ),
            (
                json!([{"name": "a", "image": "j"}]),
                vec!["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"a\" may not be changed"],
            ),
        ] {
            assert_eq!(texts(validate_update(&pod(list), &old)), wanted);
        }
    }
}
