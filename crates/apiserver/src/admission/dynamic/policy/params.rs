//! The parameters of a binding.
//!
//! Invariant: those in the namespace that the binding names, or that of the request, are found, each as it is stored now.

use pumice_objects::meta;
use pumice_objects::selector::LabelSelector;
use serde_json::Value;

use super::Subject;
use crate::stored::parse;

/// Most parameters of one binding.
const PARAMS_MAX: usize = 100;

/// The objects that a binding names. None at all counts as its `parameterNotFoundAction` says.
pub(super) fn find(kind: &(String, String), wanted: &Value, subject: &Subject<'_>) -> Result<Vec<Value>, String> {
    let registry = subject.registry.load(subject.store);
    let (api_version, kind) = (kind.0.as_str(), kind.1.as_str());
    let Some(descriptor) = registry.find_kind(api_version, kind) else {
        return Err(format!("failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'"));
    };
    let namespace = match (descriptor.namespaced, wanted["namespace"].as_str().filter(|name| !name.is_empty())) {
        (false, Some(_)) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (false, None) => "",
        (true, Some(namespace)) => namespace,
        (true, None) if subject.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()
            );
        }
        (true, None) => subject.namespace,
    };
    let store = subject.store;
    let mut found: Vec<Value> = match wanted["name"].as_str() {
        Some(name) => store.find(&descriptor.storage, namespace, name).iter().map(|object| parse(object)).collect(),
        None => {
            let selector = LabelSelector::from_json(&wanted["selector"]).map_err(|error| error.to_string())?;
            let listed = store.list(&descriptor.storage, descriptor.namespaced.then_some(namespace));
            let all = listed.items.iter().map(|object| parse(object));
            all.filter(|object| selector.matches(|key| meta::label(object, key))).take(PARAMS_MAX).collect()
        }
    };
    for object in &mut found {
        object["apiVersion"] = api_version.into();
    }
    if found.is_empty() && wanted["parameterNotFoundAction"] != "Allow" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}
