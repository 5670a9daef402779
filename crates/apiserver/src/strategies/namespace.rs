//! Namespaces: phase, the finalizer that empties them, those that stay, and how long finished work stays in them.

use std::collections::BTreeMap;

use pumice_api::retention::Retention;
use pumice_objects::field::FieldError;
use pumice_objects::names::NameRule;
use pumice_objects::status::{GroupResource, Status};
use serde_json::{Value, json};

use super::{Hook, Strategy};
use crate::problems::Problems;

/// The label by which a namespace enforces a profile.
pub(crate) const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// Labels by which a namespace wants to be told of what breaks a profile: nobody looks at them.
pub(crate) const UNREAD: [&str; 2] = ["pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/warn"];
/// The profiles that have the control.
pub(crate) const PROFILES: [&str; 2] = ["baseline", "restricted"];

/// Namespaces that can't be deleted.
pub(crate) const PERMANENT: [&str; 4] = ["default", "kube-node-lease", "kube-system", "pumice-system"];
/// The entry of `spec.finalizers` that the collector removes once the namespace is empty.
pub(crate) const FINALIZER: &str = "kubernetes";
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(crate) struct Namespace;

impl Strategy for Namespace {
    fn prepare_create(&self, object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        hook.warnings.extend(profile_warnings(object, &Value::Null));
        object["spec"] = json!({ "finalizers": [FINALIZER] });
        object["status"] = json!({ "phase": "Active" });
        label(object);
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        hook.warnings.extend(profile_warnings(new, old));
        new["spec"] = old["spec"].clone();
        label(new);
        Ok(())
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        bounds(object, &Value::Null)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        bounds(new, old)
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

/// What is not done of the profiles that new labels name.
fn profile_warnings(new: &Value, old: &Value) -> Vec<String> {
    let label = |object: &Value, label: &str| object["metadata"]["labels"][label].as_str().map(str::to_owned);
    let named = |key: &str| {
        let profile = label(new, key).filter(|profile| PROFILES.contains(&profile.as_str()))?;
        (label(old, key).as_ref() != Some(&profile)).then_some(profile)
    };
    let enforced = named(ENFORCE).map(|profile| {
        format!("{ENFORCE}: of the profile {profile:?} only probes and hooks that name a host are refused here")
    });
    let unread = UNREAD.into_iter().filter(|key| named(key).is_some()).map(|key| format!("{key} has no effect here"));
    enforced.into_iter().chain(unread).collect()
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
    use super::*;

    #[test]
    fn profiles_that_are_not_kept_to_are_named_once() {
        let labelled = |labels: Value| json!({"metadata": {"labels": labels}});
        let all = labelled(json!({ENFORCE: "restricted", UNREAD[0]: "baseline", UNREAD[1]: "privileged"}));
        let warned = profile_warnings(&all, &Value::Null);
        assert_eq!(
            warned,
            [
                "pod-security.kubernetes.io/enforce: of the profile \"restricted\" only probes and hooks that name a host \
                 are refused here",
                "pod-security.kubernetes.io/audit has no effect here",
            ]
        );
        assert_eq!(profile_warnings(&all, &all), [""; 0]);
        assert_eq!(profile_warnings(&labelled(json!({ENFORCE: "privileged"})), &all), [""; 0]);
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
