//! Scalars that are meant as texts.
//!
//! Armada's own reader knows the type of every field, so a specification may say `- 0` where an argument is meant. In JSON
//! that is a number, which the API refuses.

use serde_json::{Map, Value};

/// Names of fields that are lists of texts.
const LISTS: [&str; 3] = ["args", "command", "values"];
/// Names of fields that are maps to texts.
const MAPS: [&str; 4] = ["annotations", "labels", "matchLabels", "nodeSelector"];
/// Names of fields that are one text.
const TEXTS: [&str; 1] = ["value"];

/// Leaves out what is null anywhere in it, which says nothing.
pub fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Makes texts of numbers and booleans in the fields of jobs and pods that take texts only.
pub fn with_texts(fields: &mut Map<String, Value>) {
    for (name, value) in fields {
        let name = name.as_str();
        match value {
            Value::Array(items) if LISTS.contains(&name) => items.iter_mut().for_each(to_text),
            Value::Object(texts) if MAPS.contains(&name) => texts.values_mut().for_each(to_text),
            value if TEXTS.contains(&name) => to_text(value),
            Value::Object(fields) => with_texts(fields),
            Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(with_texts),
            _ => {}
        }
    }
}

fn to_text(value: &mut Value) {
    if value.is_number() || value.is_boolean() {
        *value = Value::String(value.to_string());
    }
}
