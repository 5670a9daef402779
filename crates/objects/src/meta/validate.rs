//! The checks every object's metadata passes, whatever its kind.
//!
//! Called by the API server on create and update, before the kind's own validation.

use serde_json::Value;

use super::{generation, name, namespace, owner_references};
use crate::field::FieldError;
use crate::names::{self, NameRule};

/// Most bytes of all annotation keys and values of one object.
const ANNOTATIONS_LEN_MAX: usize = 256 * 1024;

/// Whether objects of a kind live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectScope {
    /// Each in one namespace.
    Namespaced,
    /// One for the whole cluster.
    Cluster,
}

/// Every rule that `metadata` of `object` breaks, by upstream's words. The name must be final.
pub fn validate(object: &Value, scope: ObjectScope, rule: NameRule) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = name(object);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if let Err(error) = rule.check(name) {
        errors.push(FieldError::invalid("metadata.name", name, error.to_string()));
    }
    validate_namespace(object, scope, &mut errors);
    if generation(object) < 0 {
        errors.push(FieldError::invalid(
            "metadata.generation",
            generation(object),
            "must be greater than or equal to 0",
        ));
    }
    validate_labels(object, &mut errors);
    validate_annotations(object, &mut errors);
    validate_owners(object, &mut errors);
    for (index, finalizer) in super::finalizers(object).enumerate() {
        if let Err(error) = names::check_qualified_name(finalizer) {
            let path = format!("metadata.finalizers[{index}]");
            errors.push(FieldError::invalid(path, finalizer, error.to_string()));
        }
    }
    errors
}

fn validate_namespace(object: &Value, scope: ObjectScope, errors: &mut Vec<FieldError>) {
    let path = "metadata.namespace";
    match (scope, namespace(object)) {
        (ObjectScope::Namespaced, None) => errors.push(FieldError::required(path, "")),
        (ObjectScope::Namespaced, Some(namespace)) => {
            if let Err(error) = names::check_dns1123_label(namespace) {
                errors.push(FieldError::invalid(path, namespace, error.to_string()));
            }
        }
        (ObjectScope::Cluster, Some(_)) => {
            errors.push(FieldError::forbidden(path, "not allowed on this type"));
        }
        (ObjectScope::Cluster, None) => {}
    }
}

fn validate_labels(object: &Value, errors: &mut Vec<FieldError>) {
    let path = "metadata.labels";
    let Some(labels) = object["metadata"]["labels"].as_object() else {
        return;
    };
    for (key, value) in labels {
        if let Err(error) = names::check_qualified_name(key) {
            errors.push(FieldError::invalid(path, key.as_str(), error.to_string()));
        }
        match value.as_str() {
            Some(text) => {
                if let Err(error) = names::check_label_value(text) {
                    errors.push(FieldError::invalid(path, text, error.to_string()));
                }
            }
            None => errors.push(FieldError::type_invalid(format!("{path}.{key}"), value.clone(), "must be a string")),
        }
    }
}

fn validate_annotations(object: &Value, errors: &mut Vec<FieldError>) {
    let path = "metadata.annotations";
    let Some(annotations) = object["metadata"]["annotations"].as_object() else {
        return;
    };
    let mut len = 0;
    for (key, value) in annotations {
        // Upstream looks at the lower case of the key: prefixes with capitals are legal here.
        if let Err(error) = names::check_qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, key.as_str(), error.to_string()));
        }
        match value.as_str() {
            Some(text) => len += key.len() + text.len(),
            None => errors.push(FieldError::type_invalid(format!("{path}.{key}"), value.clone(), "must be a string")),
        }
    }
    if len > ANNOTATIONS_LEN_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_LEN_MAX as u64));
    }
}

fn validate_owners(object: &Value, errors: &mut Vec<FieldError>) {
    let path = "metadata.ownerReferences";
    let owners = owner_references(object);
    for (index, owner) in owners.iter().enumerate() {
        for (member, text) in
            [("apiVersion", &owner.api_version), ("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)]
        {
            if text.is_empty() {
                let path = format!("{path}[{index}].{member}");
                errors.push(FieldError::invalid(path, "", "must not be empty"));
            }
        }
    }
    let mut controllers = owners.iter().filter(|owner| owner.controller);
    if let (Some(first), Some(second)) = (controllers.next(), controllers.next()) {
        errors.push(FieldError::invalid(
            path,
            object["metadata"]["ownerReferences"].clone(),
            format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
                first.kind, first.name, second.kind, second.name
            ),
        ));
    }
}
