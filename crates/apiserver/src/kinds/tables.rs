//! Columns of the built-in kinds: what `kubectl get` prints of them.
//!
//! The Table itself, and columns that definitions declare, are `pumice_objects::table`. Called by the registry.

use pumice_objects::meta;
use pumice_objects::table::{Column, ColumnType};
use serde_json::{Value, json};

pub(crate) mod admission;
pub(crate) mod core;
pub(crate) mod devices;
pub(crate) mod events;
pub(crate) mod limits;
pub(crate) mod nodes;
pub(crate) mod pods;
pub(crate) mod rbac;
pub(crate) mod storage;
pub(crate) mod workloads;

type Cell = fn(&Value, jiff::Timestamp) -> Value;

/// A column of text.
fn text(name: &str, cell: Cell) -> Column {
    Column::builtin(name, ColumnType::String, cell)
}

/// How long ago a timestamp was; `<unknown>` where there is none.
fn age_of(time: &str, now: jiff::Timestamp) -> String {
    pumice_objects::table::age(meta::parse_time(time), now)
}

/// A text, or what stands for none.
fn or_none(value: &Value) -> Value {
    match value.as_str() {
        Some(text) if !text.is_empty() => json!(text),
        _ => json!("<none>"),
    }
}

/// A text; empty where there is none.
fn or_empty(value: &Value) -> Value {
    json!(value.as_str().unwrap_or_default())
}

/// A column of yes or no.
fn flag(name: &str, cell: Cell) -> Column {
    Column::builtin(name, ColumnType::Boolean, cell)
}

/// When an object was made, of kinds for which upstream has no columns of their own.
fn created_at() -> Column {
    Column::builtin("Created At", ColumnType::Date, |object, _| or_empty(&object["metadata"]["creationTimestamp"]))
}

/// The metadata of an object alone.
pub(crate) fn partial(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}
