//! Rows of the small built-in kinds.

use pumice_objects::table::{Column, ColumnType, Table};
use serde_json::{Map, Value, json};

use super::{created_at, or_empty, or_none, text};

fn count(value: &Value) -> usize {
    value.as_object().map_or(0, Map::len)
}

pub(crate) fn namespace() -> Table {
    Table::new(vec![Column::name(), text("Status", |object, _| or_empty(&object["status"]["phase"])), Column::age()])
}

/// Columns of config maps.
pub(crate) fn config_map() -> Table {
    Table::new(vec![
        Column::name(),
        text("Data", |object, _| json!(count(&object["data"]) + count(&object["binaryData"]))),
        Column::age(),
    ])
}

pub(crate) fn secret() -> Table {
    Table::new(vec![
        Column::name(),
        text("Type", |object, _| or_empty(&object["type"])),
        text("Data", |object, _| json!(count(&object["data"]))),
        Column::age(),
    ])
}

/// Columns of service accounts.
pub(crate) fn service_account() -> Table {
    Table::new(vec![Column::name(), Column::age()])
}

pub(crate) fn service() -> Table {
    Table::new(vec![
        Column::name(),
        text("Type", |object, _| or_empty(&object["spec"]["type"])),
        text("Cluster-IP", |object, _| or_none(&object["spec"]["clusterIP"])),
        text("External-IP", |object, _| or_none(&object["spec"]["externalName"])),
        text("Port(s)", |object, _| json!(ports(object))),
        Column::age(),
        text("Selector", |object, _| json!(selector(object))).wide(),
    ])
}

fn ports(service: &Value) -> String {
    let ports: Vec<String> = service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| format!("{}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP")))
        .collect();
    if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }
}

fn selector(service: &Value) -> String {
    let terms: Vec<String> = service["spec"]["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if terms.is_empty() { "<none>".to_owned() } else { terms.join(",") }
}

pub(crate) fn lease() -> Table {
    Table::new(vec![
        Column::name(),
        text("Holder", |object, _| or_empty(&object["spec"]["holderIdentity"])),
        Column::age(),
    ])
}

/// Columns of priority classes.
pub(crate) fn priority_class() -> Table {
    Table::new(vec![
        Column::name(),
        Column::builtin("Value", ColumnType::Integer, |object, _| object["value"].clone()),
        Column::builtin("Global-Default", ColumnType::Boolean, |object, _| json!(object["globalDefault"] == true)),
        Column::age(),
        text("PreemptionPolicy", |object, _| or_empty(&object["preemptionPolicy"])),
    ])
}

pub(crate) fn definition() -> Table {
    Table::new(vec![Column::name(), created_at()])
}
