//! Events of `events.k8s.io/v1`, which are stored as those of the core.
//!
//! Invariant: both conversions together give the event they were given, but for nulls. Pure.

use std::borrow::Cow;

use serde_json::{Value, json};

/// Fields with two names: that of `events.k8s.io`, and that of the core.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// An event of the core becomes one of `events.k8s.io`.
pub(super) fn served(event: &mut Value) {
    rename(event, "events.k8s.io/v1", NAMES.map(|(served, stored)| (stored, served)));
}

/// An event of `events.k8s.io` becomes one of the core.
pub(crate) fn stored(event: &mut Value) {
    rename(event, "v1", NAMES);
    if let Some(fields) = event.as_object_mut() {
        // The core knows no event that is about nothing.
        fields.entry("involvedObject").or_insert_with(|| json!({}));
    }
}

/// The path of a field in an event of the core.
pub(super) fn stored_path(path: &str) -> Cow<'_, str> {
    let (first, rest) = path.split_at(path.find('.').unwrap_or(path.len()));
    match NAMES.iter().find(|(served, _)| *served == first) {
        Some((_, stored)) => Cow::Owned(format!("{stored}{rest}")),
        None => Cow::Borrowed(path),
    }
}

fn rename(event: &mut Value, api_version: &str, names: [(&str, &str); NAMES.len()]) {
    let Some(fields) = event.as_object_mut() else { return };
    fields.insert("apiVersion".to_owned(), json!(api_version));
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_goes_there_and_back() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "involvedObject": {"name": "p"},
            "message": "m", "reportingComponent": "c", "reportingInstance": "i", "source": {"component": "x"},
            "firstTimestamp": "f", "lastTimestamp": "l", "count": 3, "series": {"count": 4}, "action": "a",
            "reason": "r", "type": "Normal", "eventTime": "t", "related": {"name": "q"},
        });
        let mut event = core.clone();
        served(&mut event);
        assert_eq!(
            event,
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"},
                "regarding": {"name": "p"}, "note": "m", "reportingController": "c", "reportingInstance": "i",
                "deprecatedSource": {"component": "x"}, "deprecatedFirstTimestamp": "f",
                "deprecatedLastTimestamp": "l", "deprecatedCount": 3, "series": {"count": 4}, "action": "a",
                "reason": "r", "type": "Normal", "eventTime": "t", "related": {"name": "q"},
            })
        );
        stored(&mut event);
        assert_eq!(event, core);
        assert_eq!(stored_path("regarding.name"), "involvedObject.name");
        assert_eq!(stored_path("reportingController"), "reportingComponent");
        assert_eq!(stored_path("reason"), "reason");
    }
}
