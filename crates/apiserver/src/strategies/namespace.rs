//! Namespaces: phase, the finalizer that empties them, those that stay, how long finished work stays in them, and the
//! profiles of Pod Security that their labels name.

use std::collections::BTreeMap;

use pumice_api::retention::Retention;
use pumice_objects::field::FieldError;
use pumice_objects::names::NameRule;
use pumice_objects::pod_security::{Policy, Profile};
use pumice_objects::status::{GroupResource, Status};
use serde_json::{Value, json};

use super::{Hook, Strategy};
use crate::problems::Problems;

/// The namespace of who names none.
const DEFAULT: &str = "default";
/// Namespaces that can't be deleted: that one, and those of the system.
pub(crate) const PERMANENT: [&str; 4] = [DEFAULT, "kube-node-lease", "kube-system", "pumice-system"];
/// The entry of `spec.finalizers` that the collector removes once the namespace is empty.
pub(crate) const FINALIZER: &str = "kubernetes";
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(crate) struct Namespace;

impl Strategy for Namespace {
    fn prepare_create(&self, object: &mut Value, _hook: &mut Hook<'_>) -> Result<(), Status> {
        object["spec"] = json!({ "finalizers": [FINALIZER] });
        object["status"] = json!({ "phase": "Active" });
        label(object);
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _hook: &mut Hook<'_>) -> Result<(), Status> {
        new["spec"] = old["spec"].clone();
        label(new);
        Ok(())
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        [bounds(object, &Value::Null), profiles(object, &Value::Null)].concat()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        [bounds(new, old), profiles(new, old)].concat()
    }

    fn may_delete(&self, object: &Value) -> Result<(), Status> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if PERMANENT.contains(&name) {
            return Err(Status::forbidden(
                GroupResource { group: "", resource: "namespaces" },
                name,
                "this namespace may not be deleted",
            ));
        }
        Ok(())
    }

    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }
}

/// Bounds of finished work that can't be read. One that stood there before may stay, so that the rest can be changed.
fn bounds(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let annotations = |object: &Value| object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let before = annotations(old);
    let changed = annotations(new).into_iter().filter(|(key, text)| before.get(key) != Some(text));
    let changed: BTreeMap<String, String> =
        changed.filter_map(|(key, text)| Some((key, text.as_str()?.to_owned()))).collect();
    for error in Retention::default().of_namespace(&changed).1 {
        let path = format!("metadata.annotations[{}]", error.annotation);
        problems.invalid(&path, &json!(changed.get(error.annotation)), &error.error.to_string());
    }
    problems.into_errors()
}

/// Labels of Pod Security that can't be read, unless they stood there before, each as it is.
fn profiles(new: &Value, old: &Value) -> Vec<FieldError> {
    let unreadable = |object: &Value| Policy::of_labels(&object["metadata"]["labels"], Profile::Privileged).1;
    let errors = unreadable(new);
    if errors == unreadable(old) { Vec::new() } else { errors }
}

fn label(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if !object["metadata"]["labels"].is_object() {
        object["metadata"]["labels"] = json!({});
    }
    object["metadata"]["labels"][NAME_LABEL] = name;
}

#[cfg(test)]
mod tests {
    use pumice_objects::pod_security::{ENFORCE, WARN};

    use super::*;

    #[test]
    fn profiles_that_do_not_exist_are_refused_where_they_are_new() {
        let labelled = |labels: Value| json!({"metadata": {"name": "n", "labels": labels}});
        let count = |errors: Vec<FieldError>| errors.len();
        let good = labelled(json!({ENFORCE: "restricted", WARN: "baseline"}));
        assert_eq!(count(Namespace.validate_create(&good)), 0);
        let bad = labelled(json!({ENFORCE: "strict", WARN: "baseline"}));
        let errors = Namespace.validate_create(&bad);
        assert_eq!(
            errors[0].to_string(),
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, baseline, \
             restricted"
        );
        assert_eq!(count(Namespace.validate_update(&bad, &good)), 1);
        assert_eq!(count(Namespace.validate_update(&bad, &bad)), 0, "it stood there before");
        let worse = labelled(json!({ENFORCE: "strict", WARN: "strict"}));
        assert_eq!(count(Namespace.validate_update(&worse, &bad)), 2);
        assert_eq!(count(Namespace.validate_update(&good, &bad)), 0);
    }

    #[test]
    fn the_systems_namespaces_have_no_default_profile() {
        for name in PERMANENT.into_iter().chain(["team"]) {
            let enforced = Policy::of_namespace(name, &json!({}), Profile::Baseline).enforce.profile;
            assert_eq!(enforced == Profile::Baseline, ["default", "team"].contains(&name), "{name}");
        }
    }

    #[test]
    fn bounds_that_cannot_be_read_are_refused_where_they_are_new() {
        let object = |annotations: Value| json!({"metadata": {"name": "n", "annotations": annotations}});
        let texts = |errors: Vec<FieldError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        let good =
            object(json!({"pumice.sh/finished-ttl": "12h", "pumice.sh/finished-jobs-max": "off", "else": "lots"}));
        assert_eq!(texts(Namespace.validate_create(&good)), [""; 0]);
        let bad = object(json!({"pumice.sh/finished-ttl": "soon", "pumice.sh/finished-pods-max": "-1"}));
        assert_eq!(
            texts(Namespace.validate_create(&bad)),
            [
                "metadata.annotations[pumice.sh/finished-ttl]: Invalid value: \"soon\": \"soon\" is no time; try 7d, 12h or off",
                "metadata.annotations[pumice.sh/finished-pods-max]: Invalid value: \"-1\": \"-1\" is no number; try 1000 or off",
            ]
        );
        assert_eq!(Namespace.validate_update(&bad, &good).len(), 2);
        assert_eq!(texts(Namespace.validate_update(&bad, &bad)), [""; 0], "it stood there before");
        assert_eq!(texts(Namespace.validate_update(&good, &bad)), [""; 0]);
    }
}
