//! Rows of the kinds that limit (quotas, limit ranges, disruption budgets, network policies), and of endpoint slices.

use pumice_objects::table::{Column, ColumnType, Table};
use serde_json::{Value, json};

use super::{created_at, or_empty, text};

pub(crate) fn resource_quota() -> Table {
    Table::new(vec![
        Column::name(),
        text("Request", |object, _| json!(used(object, false))),
        text("Limit", |object, _| json!(used(object, true))),
        Column::age(),
    ])
}

/// `requests.cpu: 1/4, ...` of the amounts that limit limits, or of the others.
fn used(quota: &Value, of_limits: bool) -> String {
    let status = &quota["status"];
    let shown = |value: &Value| value.as_str().unwrap_or("0").to_owned();
    let hard = status["hard"].as_object().into_iter().flatten();
    let parts = hard.filter(|(name, _)| name.starts_with("limits") == of_limits);
    let parts = parts.map(|(name, hard)| format!("{name}: {}/{}", shown(&status["used"][name]), shown(hard)));
    parts.collect::<Vec<_>>().join(", ")
}

/// Columns of disruption budgets.
pub(crate) fn disruption_budget() -> Table {
    Table::new(vec![
        Column::name(),
        text("Min Available", |object, _| json!(amount(&object["spec"]["minAvailable"]))),
        text("Max Unavailable", |object, _| json!(amount(&object["spec"]["maxUnavailable"]))),
        Column::builtin("Allowed Disruptions", ColumnType::Integer, |object, _| {
            json!(object["status"]["disruptionsAllowed"].as_i64().unwrap_or(0))
        }),
        Column::age(),
    ])
}

/// A number or a share.
fn amount(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => "N/A".to_owned(),
    }
}

/// Columns of endpoint slices.
pub(crate) fn endpoint_slice() -> Table {
    Table::new(vec![
        Column::name(),
        text("AddressType", |object, _| or_empty(&object["addressType"])),
        text("Ports", |object, _| json!(some(object["ports"].as_array().into_iter().flatten().map(port), "<unset>"))),
        text("Endpoints", |object, _| {
            let endpoints = object["endpoints"].as_array().into_iter().flatten();
            let addresses = endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
            json!(some(addresses.filter_map(Value::as_str).map(str::to_owned), "<unset>"))
        }),
        Column::age(),
    ])
}

fn port(port: &Value) -> String {
    port["port"].as_i64().map_or_else(|| "*".to_owned(), |number| number.to_string())
}

/// The first three of them, and how many more there are.
fn some(all: impl Iterator<Item = String>, none: &str) -> String {
    const SHOWN: usize = 3;
    let all: Vec<String> = all.collect();
    let shown = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(",");
    match all.len() {
        0 => none.to_owned(),
        1..=SHOWN => shown,
        count => format!("{shown} + {} more...", count - SHOWN),
    }
}

/// Columns of network policies.
pub(crate) fn network_policy() -> Table {
    Table::new(vec![
        Column::name(),
        text("Pod-Selector", |object, _| json!(selector(&object["spec"]["podSelector"]))),
        Column::age(),
    ])
}

/// A selector as people write it.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let terms = selector["matchExpressions"].as_array().into_iter().flatten().map(|term| {
        let key = term["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = term["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let values = values.join(",");
        match term["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        }
    });
    let all: Vec<String> = labels.chain(terms).collect();
    if all.is_empty() { "<none>".to_owned() } else { all.join(",") }
}

/// Columns of limit ranges.
pub(crate) fn limit_range() -> Table {
    Table::new(vec![Column::name(), created_at()])
}
