//! ConfigMaps and Secrets: keys, encodings, size, immutability.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pumice_objects::field::FieldError;
use serde_json::{Value, json};

use super::Strategy;
use crate::problems::Problems;

/// Most bytes of all values, as upstream.
const BYTES_MAX: usize = 1024 * 1024;
/// Longest key, in bytes, as upstream.
const KEY_BYTES_MAX: usize = 253;
const KEY_RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
    'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let mut bytes = 0;
        for (key, value) in object["data"].as_object().into_iter().flatten() {
            check_key("data", key, &mut problems);
            if object["binaryData"].get(key).is_some() {
                problems.invalid(
                    &format!("data[{key}]"),
                    &key.as_str().into(),
                    "duplicate of key present in binaryData",
                );
            }
            bytes += value.as_str().map_or(0, str::len);
        }
        for (key, value) in object["binaryData"].as_object().into_iter().flatten() {
            check_key("binaryData", key, &mut problems);
            bytes += check_base64("binaryData", key, value, &mut problems);
        }
        check_size("", bytes, &mut problems);
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        immutable(new, old, &["data", "binaryData"])
    }
}

pub(crate) struct Secret;

impl Strategy for Secret {
    fn defaults(&self, object: &mut Value) {
        if object["type"].as_str().is_none_or(str::is_empty) && object.is_object() {
            object["type"] = json!("Opaque");
        }
        merge_string_data(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let mut bytes = 0;
        for (key, value) in object["data"].as_object().into_iter().flatten() {
            check_key("data", key, &mut problems);
            bytes += check_base64("data", key, value, &mut problems);
        }
        check_size("data", bytes, &mut problems);
        let wanted: &[&str] = match object["type"].as_str().unwrap_or_default() {
            "kubernetes.io/tls" => &["tls.crt", "tls.key"],
            "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
            "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
            _ => &[],
        };
        for key in wanted.iter().filter(|key| object["data"].get(**key).is_none()) {
            problems.required(&format!("data[{key}]"), "");
        }
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable("type", &new["type"], &old["type"]);
        let mut errors = problems.into_errors();
        errors.extend(immutable(new, old, &["data"]));
        errors
    }
}

/// `stringData` is write-only: its values overwrite those of `data`, encoded.
fn merge_string_data(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    let Some(plain) = fields.get("stringData").and_then(Value::as_object).cloned() else { return };
    if plain.values().any(|value| !value.is_string()) {
        return;
    }
    fields.remove("stringData");
    let data = fields.entry("data").or_insert_with(|| json!({}));
    if data.is_null() {
        *data = json!({});
    }
    if let Some(data) = data.as_object_mut() {
        for (key, value) in plain {
            data.insert(key, json!(BASE64.encode(value.as_str().unwrap_or_default())));
        }
    }
}

fn check_key(field: &str, key: &str, problems: &mut Problems) {
    let fits = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if !fits || key.is_empty() || key.len() > KEY_BYTES_MAX || key == "." || key.starts_with("..") {
        problems.invalid(&format!("{field}[{key}]"), &key.into(), KEY_RULE);
    }
}

/// Gives the decoded length.
fn check_base64(field: &str, key: &str, value: &Value, problems: &mut Problems) -> usize {
    match value.as_str().map(|text| BASE64.decode(text)) {
        Some(Ok(bytes)) => bytes.len(),
        _ => {
            problems.invalid(&format!("{field}[{key}]"), &"<value>".into(), "must be base64 encoded");
            0
        }
    }
}

fn check_size(path: &str, bytes: usize, problems: &mut Problems) {
    if bytes > BYTES_MAX {
        problems.too_long(path, BYTES_MAX);
    }
}

fn immutable(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let mut problems = Problems::default();
    if old["immutable"] == true {
        if new["immutable"] != true {
            problems.forbidden("immutable", "field is immutable when `immutable` is set");
        }
        for field in fields.iter().filter(|field| new[**field] != old[**field]) {
            problems.forbidden(field, "field is immutable when `immutable` is set");
        }
    }
    problems.into_errors()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_is_encoded_over_data() {
        let mut secret = json!({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"b": "z"}});
        Secret.defaults(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "eA==", "b": "eg=="}}));
        assert!(Secret.validate(&secret).is_empty());
    }

    #[test]
    fn bad_values_are_named() {
        for (secret, path) in [
            (json!({"data": {"a": "not base64!"}}), "data[a]"),
            (json!({"data": {"a b": "eA=="}}), "data[a b]"),
            (json!({"data": {"a": 1}}), "data[a]"),
            (json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}), "data[tls.key]"),
        ] {
            assert_eq!(Secret.validate(&secret)[0].path, path);
        }
        let big = json!({"data": {"a": "x".repeat(BYTES_MAX + 1)}});
        assert_eq!(ConfigMap.validate(&big).len(), 1);
    }

    #[test]
    fn immutable_maps_stay() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        assert_eq!(ConfigMap.validate_update(&json!({"immutable": true, "data": {"a": "2"}}), &old).len(), 1);
        assert_eq!(ConfigMap.validate_update(&json!({"data": {"a": "1"}}), &old).len(), 1);
        assert!(ConfigMap.validate_update(&old, &old).is_empty());
    }
}
