//! The row of an event of either group.

use pumice_objects::table::{Column, Table};
use serde_json::{Value, json};

use super::{age_of, or_empty, text};

pub(crate) fn table() -> Table {
    Table::new(vec![
        text("Last Seen", |event, now| json!(age_of(last_seen(event), now))),
        text("Type", |event, _| or_empty(&event["type"])),
        text("Reason", |event, _| or_empty(&event["reason"])),
        text("Object", |event, _| json!(target(event))),
        text("Subobject", |event, _| or_empty(&about(event)["fieldPath"])).wide(),
        text("Source", |event, _| json!(source(event))).wide(),
        text("Message", |event, _| json!(either(event, "message", "note").as_str().unwrap_or_default().trim())),
        text("First Seen", |event, now| json!(age_of(first_seen(event), now))).wide(),
        text("Count", |event, _| json!(count(event))).wide(),
        Column::name().wide(),
    ])
}

/// A field by its name in the core, or by that in `events.k8s.io`.
fn either<'e>(event: &'e Value, core: &str, newer: &str) -> &'e Value {
    event.get(core).unwrap_or(&event[newer])
}

/// The first of these that is a text with letters.
fn first_of<'a>(fields: &[&'a Value]) -> &'a str {
    fields.iter().filter_map(|field| field.as_str()).find(|text| !text.is_empty()).unwrap_or_default()
}

fn last_seen(event: &Value) -> &str {
    first_of(&[
        &event["series"]["lastObservedTime"],
        either(event, "lastTimestamp", "deprecatedLastTimestamp"),
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ])
}

fn first_seen(event: &Value) -> &str {
    first_of(&[
        either(event, "firstTimestamp", "deprecatedFirstTimestamp"),
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ])
}

fn about(event: &Value) -> &Value {
    either(event, "involvedObject", "regarding")
}

fn target(event: &Value) -> String {
    let text = |field: &str| about(event)[field].as_str().unwrap_or_default();
    format!("{}/{}", text("kind").to_lowercase(), text("name"))
}

fn source(event: &Value) -> String {
    let source = either(event, "source", "deprecatedSource");
    let component = first_of(&[&source["component"], either(event, "reportingComponent", "reportingController")]);
    let host = first_of(&[&source["host"], &event["reportingInstance"]]);
    let parts: Vec<&str> = [component, host].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}

fn count(event: &Value) -> i64 {
    event["series"]["count"].as_i64().or(either(event, "count", "deprecatedCount").as_i64()).unwrap_or(1)
}
