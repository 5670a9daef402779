//! Which stored objects a label and field selector names.
//!
//! Invariant: an object's body is parsed only as far as its selector needs: not at all for names, up to the labels for
//! label selectors. Called by list, watch and deletecollection.

use std::borrow::Cow;
use std::collections::BTreeMap;

use pumice_objects::selector::{FieldSelector, LabelSelector};
use pumice_objects::status::Status;
use pumice_store::Object;
use serde::Deserialize;
use serde_json::Value;

use crate::http::query::ReadOptions;
use crate::json_scan::field;
use crate::json_scan::value_at;
use crate::kinds::Descriptor;
use crate::kinds::conversion::Conversion;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// A checked pair of selectors.
#[derive(Clone)]
pub(crate) struct Matcher {
    labels: LabelSelector,
    fields: FieldSelector,
    conversion: Conversion,
}

#[derive(Default, Deserialize)]
struct PeekMetadata<'a> {
    #[serde(borrow, default)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

impl Matcher {
    /// Refuses fields that the resource can't be selected by.
    pub(crate) fn new(descriptor: &Descriptor, options: &ReadOptions) -> Result<Self, Status> {
        for requirement in options.fields.requirements() {
            let path = requirement.path.as_str();
            let built_in = path == NAME || path == NAMESPACE;
            if !built_in && !descriptor.selectable.iter().any(|one| one == path) {
                return Err(Status::bad_request(format!(
                    "Unable to find {:?} that match the field selector: field label not supported: {path}",
                    descriptor.qualified(),
                )));
            }
        }
        Ok(Self {
            labels: options.labels.clone(),
            fields: options.fields.clone(),
            conversion: descriptor.conversion.clone(),
        })
    }

    /// Whether every object matches, so that none has to be looked at.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether this version of an object matches.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.labels_match(object) && self.fields_match(object)
    }

    fn labels_match(&self, object: &Object) -> bool {
        if self.labels.is_everything() {
            return true;
        }
        let Some(metadata) = field(&object.body, "metadata") else { return false };
        if let Some(labels) = field(metadata, "labels")
            && !labels.contains(&b'\\')
        {
            return self.labels.matches(|key| field(labels, key).and_then(unquoted));
        }
        let Ok(peek) = serde_json::from_slice::<PeekMetadata<'_>>(metadata) else { return false };
        let labels = peek.labels.unwrap_or_default();
        self.labels.matches(|key| labels.get(key).map(AsRef::as_ref))
    }

    fn fields_match(&self, object: &Object) -> bool {
        if self.fields.is_everything() {
            return true;
        }
        self.fields.matches(|path| match path {
            NAME => Some(Cow::Borrowed(&*object.key.name)),
            NAMESPACE => Some(Cow::Borrowed(&*object.key.namespace)),
            other => field_text(value_at(&object.body, &self.conversion.stored_path(other)), other),
        })
    }
}

/// The content of a string without escapes.
fn unquoted(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text.strip_prefix(b"\"")?.strip_suffix(b"\"")?).ok()
}

/// A field as selectors compare it. A boolean that is not set counts as false.
fn field_text(field: Option<Value>, path: &str) -> Option<Cow<'static, str>> {
    match field {
        None | Some(Value::Null) if path == "spec.unschedulable" => Some(Cow::Borrowed("false")),
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(Cow::Owned(text)),
        Some(other) => Some(Cow::Owned(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use pumice_store::Key;
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_found_however_the_text_around_them_is() {
        let with = |labels: Value, annotation: &str| {
            let object = json!({"kind": "A", "metadata": {"annotations": {"labels": annotation}, "labels": labels, "name": "n"},
                "spec": {"labels": {"a": "wrong"}}});
            Object { key: Key::new("as", "ns", "n"), revision: 1, body: object.to_string().into() }
        };
        let selects = |selector: &str, object: &Object| {
            let matcher = Matcher {
                labels: LabelSelector::parse(selector).unwrap(),
                fields: FieldSelector::default(),
                conversion: Conversion::Same,
            };
            matcher.matches(object)
        };
        let cases = [
            (json!({"a": "b", "c": ""}), "a=b", true),
            (json!({"a": "b", "c": ""}), "c=", true),
            (json!({"a": "b", "c": ""}), "c,!d", true),
            (json!({"a": "b", "c": ""}), "a=wrong", false),
            (json!({"a": "x\"y"}), "a", true),
            (json!({"a": "x\"y"}), "a=x", false),
            (json!({}), "a", false),
            (Value::Null, "!a", true),
        ];
        for (labels, selector, expected) in cases {
            for annotation in ["plain", "\"labels\":{\"a\":\"wrong\"}"] {
                assert_eq!(selects(selector, &with(labels.clone(), annotation)), expected, "{labels} {selector}");
            }
        }
    }
}
