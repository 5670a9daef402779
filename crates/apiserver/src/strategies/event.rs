//! Events of `events.k8s.io/v1`, whose rules are stricter than those of the core's.
//!
//! Invariant: fields are named in errors as upstream names them: by their names in the core.

use pumice_objects::field::FieldError;
use pumice_objects::meta::parse_time;
use pumice_objects::names;
use serde_json::Value;

use super::Strategy;
use crate::problems::Problems;

pub(crate) struct Event;

/// Longest of the short texts, and of the note, in bytes.
const TEXT_BYTES_MAX: usize = 128;
const NOTE_BYTES_MAX: usize = 1024;
/// Namespaces that have the events of what belongs to the cluster.
const OF_CLUSTER: [&str; 2] = ["default", "kube-system"];
/// What never changes once it is told, and its name in errors.
const FINAL: [(&str, &str); 12] = [
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("type", "type"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

impl Strategy for Event {
    fn validate(&self, event: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if is_zero(&event["eventTime"]) {
            of_old_form(event, &mut problems);
        } else {
            of_new_form(event, &mut problems);
        }
        problems.into_errors()
    }

    fn validate_create(&self, event: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        series(event, &mut problems);
        if is_zero(&event["eventTime"]) {
            problems.required("eventTime", "");
        }
        let kind = event["type"].as_str().unwrap_or_default();
        if !["Normal", "Warning"].contains(&kind) {
            problems.invalid("type", &"".into(), &format!("has invalid value: {kind}"));
        }
        for (field, name) in [
            ("deprecatedFirstTimestamp", "firstTimestamp"),
            ("deprecatedLastTimestamp", "lastTimestamp"),
            ("deprecatedCount", "count"),
        ] {
            if !is_zero(&event[field]) {
                problems.invalid(name, &"".into(), "needs to be unset");
            }
        }
        let source = &event["deprecatedSource"];
        if !is_zero(&source["component"]) || !is_zero(&source["host"]) {
            problems.invalid("source", &"".into(), "needs to be unset");
        }
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if new["series"] != old["series"] {
            series(new, &mut problems);
        }
        for (field, name) in FINAL {
            if !(is_zero(&new[field]) && is_zero(&old[field])) {
                problems.immutable(name, &new[field], &old[field]);
            }
        }
        if micros(&new["eventTime"]) != micros(&old["eventTime"]) {
            problems.immutable("eventTime", &new["eventTime"], &old["eventTime"]);
        }
        problems.into_errors()
    }
}

/// A time as clients keep it: some know no finer ones.
fn micros(time: &Value) -> Option<i64> {
    parse_time(time.as_str()?).map(|time| time.as_microsecond())
}

/// Whether a field is as if it were not given.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Object(fields) => fields.values().all(is_zero),
        _ => false,
    }
}

/// Rules for an event without a time of its own: as the core's, which it came from.
fn of_old_form(event: &Value, problems: &mut Problems) {
    let (own, of) = namespaces(event);
    let fits = if of.is_empty() { own == "default" } else { own == of };
    if !fits {
        problems.invalid("involvedObject.namespace", &of.into(), "does not match event.namespace");
    }
}

fn of_new_form(event: &Value, problems: &mut Problems) {
    let (own, of) = namespaces(event);
    if of.is_empty() && !OF_CLUSTER.contains(&own) {
        problems.invalid("involvedObject.namespace", &of.into(), "does not match event.namespace");
    }
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let controller = text("reportingController");
    if controller.is_empty() {
        problems.required("reportingController", "");
    }
    if let Err(error) = names::check_qualified_name(controller) {
        problems.invalid("reportingController", &controller.into(), &error.to_string());
    }
    for field in ["reportingInstance", "action", "reason"] {
        if text(field).is_empty() {
            problems.required(field, "");
        }
        short(field, text(field), TEXT_BYTES_MAX, problems);
    }
    short("message", text("note"), NOTE_BYTES_MAX, problems);
}

fn short(name: &str, text: &str, bytes_max: usize, problems: &mut Problems) {
    if text.len() > bytes_max {
        problems.invalid(name, &"".into(), &format!("can have at most {bytes_max} characters"));
    }
}

fn series(event: &Value, problems: &mut Problems) {
    let series = &event["series"];
    if series.is_null() {
        return;
    }
    if series["count"].as_i64().is_none_or(|count| count < 2) {
        problems.invalid("series.count", &"".into(), "should be at least 2");
    }
    if is_zero(&series["lastObservedTime"]) {
        problems.required("series.lastObservedTime", "");
    }
}

/// The event's namespace, and that of what it is about.
fn namespaces(event: &Value) -> (&str, &str) {
    let of = |field: &str| event[field]["namespace"].as_str().unwrap_or_default();
    (of("metadata"), of("regarding"))
}
