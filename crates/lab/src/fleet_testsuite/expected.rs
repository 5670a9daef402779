//! An event that a specification expects, and whether one that came is it.
//!
//! Invariant: fields are compared as the API's JSON has them: a field of its default value is one that is not there.

use pumice_wire::api::EventMessage;
use regex::Regex;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::events::{Kind, json_name};

/// The field of a failure that is a pattern.
const REASON: &str = "reason";
/// The field of a failure that counts where it is not given, too: a failure is the end of its job unless it says otherwise.
const RETRYABLE: &str = "retryable";

/// An event that is expected.
#[derive(Debug, Clone)]
pub struct Expected {
    kind: Kind,
    /// Nothing where the default is expected.
    fields: Map<String, Value>,
    reason: Option<Regex>,
}

impl PartialEq for Expected {
    fn eq(&self, other: &Self) -> bool {
        let pattern = |expected: &Self| expected.reason.as_ref().map(|reason| reason.as_str().to_owned());
        (self.kind, &self.fields, pattern(self)) == (other.kind, &other.fields, pattern(other))
    }
}

/// Why an event is none that can be expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExpectedError {
    /// There is no such kind.
    #[error("there are no events {0:?}")]
    Kind(String),
    /// A field is not one of the kind's, or has no such value.
    #[error("{kind}: {problem}")]
    Fields { kind: Kind, problem: String },
}

/// A field that is not as expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} is {actual} instead of {expected}")]
pub struct Difference {
    pub field: String,
    /// What was expected, in JSON.
    pub expected: String,
    /// What came, in JSON.
    pub actual: String,
}

impl Expected {
    /// Reads the event of that kind with these fields.
    ///
    /// # Errors
    /// A kind or a field that there is not, or a value that the field can't have.
    pub fn read(kind: &str, fields: &Map<String, Value>) -> Result<Self, ExpectedError> {
        let kind = Kind::parse(kind).ok_or_else(|| ExpectedError::Kind(kind.to_owned()))?;
        let wrong = |problem: String| ExpectedError::Fields { kind, problem };
        let unknown = |name: &&String| {
            serde_json::from_value::<EventMessage>(json!({ kind.word(): { *name: no_value() } })).is_ok()
        };
        if let Some(name) = fields.keys().find(unknown) {
            return Err(wrong(format!("it has no field {name:?}")));
        }
        let message =
            serde_json::from_value(json!({ kind.word(): fields })).map_err(|error| wrong(error.to_string()))?;
        let spelled = fields_of(kind, &message);
        let mut expected = Self { kind, fields: Map::new(), reason: None };
        for name in fields.keys().map(|name| json_name(name)) {
            let value = spelled.get(&name).cloned().unwrap_or_default();
            expected.fields.insert(name, value);
        }
        if kind == Kind::Failed {
            // No reason in particular is expected by an empty one.
            if let Some(Value::String(pattern)) = expected.fields.remove(REASON) {
                expected.reason = Some(Regex::new(&pattern).map_err(|error| wrong(format!("{REASON}: {error}")))?);
            }
            expected.fields.entry(RETRYABLE).or_insert(Value::Null);
        }
        Ok(expected)
    }

    /// The kind of event that is expected.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Compares an event of its kind with it.
    ///
    /// # Errors
    /// The first field that differs.
    pub fn compare(&self, message: &EventMessage) -> Result<(), Difference> {
        if self.fields.is_empty() && self.reason.is_none() {
            return Ok(());
        }
        let actual = fields_of(self.kind, message);
        let field = |name: &str| actual.get(name).unwrap_or(&Value::Null);
        if let Some(reason) = &self.reason {
            let text = field(REASON).as_str().unwrap_or_default();
            if !reason.is_match(text) {
                let expected = format!("one that matches {:?}", reason.as_str());
                return Err(Difference { field: REASON.to_owned(), expected, actual: format!("{text:?}") });
            }
        }
        match self.fields.iter().find(|(name, expected)| field(name) != *expected) {
            None => Ok(()),
            Some((name, expected)) => {
                Err(Difference { field: name.clone(), expected: text_of(expected), actual: text_of(field(name)) })
            }
        }
    }
}

/// The fields of a message of that kind that do not have their default.
fn fields_of(kind: Kind, message: &EventMessage) -> Map<String, Value> {
    // A pod that JSON can't say has no field that somebody expects.
    let mut message = serde_json::to_value(message).unwrap_or_default();
    match message[kind.word()].take() {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// What no field of the API takes: with it a field that there is makes the message unreadable, and another is passed over.
pub fn no_value() -> Value {
    json!([[[]]])
}

fn text_of(value: &Value) -> String {
    if value.is_null() { "unset".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(kind: &str, fields: Value) -> Result<Expected, ExpectedError> {
        Expected::read(kind, fields.as_object().expect("fields"))
    }

    fn message(message: Value) -> EventMessage {
        serde_json::from_value(message).expect("an event")
    }

    #[test]
    fn given_fields_count_and_others_do_not() {
        let failed = message(json!({ "failed": { "jobId": "a", "reason": "exit code 3 of main", "podNumber": 1,
            "failureCategory": "oom", "cause": "OOM", "containerStatuses": [{ "name": "main", "exitCode": 3 }] } }));
        for (fields, difference) in [
            (json!({}), None),
            (json!({ "failureCategory": "oom", "retryable": false }), None),
            (json!({ "failure_category": "oom", "pod_number": 1, "cause": 2 }), None),
            (json!({ "cause": "Error" }), Some("cause is \"OOM\" instead of unset")),
            (json!({ "containerStatuses": [{ "name": "main", "exitCode": 3 }] }), None),
            (json!({ "reason": "^exit code [0-9]+ of" }), None),
            (json!({ "reason": "" }), None),
            (
                json!({ "reason": "code 4" }),
                Some(r#"reason is "exit code 3 of main" instead of one that matches "code 4""#),
            ),
            (json!({ "failureCategory": "error" }), Some(r#"failureCategory is "oom" instead of "error""#)),
            (json!({ "failureCategory": "" }), Some(r#"failureCategory is "oom" instead of unset"#)),
            (json!({ "failureSubcategory": "x" }), Some(r#"failureSubcategory is unset instead of "x""#)),
            (json!({ "retryable": true }), Some("retryable is unset instead of true")),
        ] {
            let compared = expected("failed", fields.clone()).expect("it can be").compare(&failed);
            assert_eq!(compared.err().map(|error| error.to_string()).as_deref(), difference, "{fields}");
        }
    }

    #[test]
    fn a_failure_is_the_end_unless_it_is_said_otherwise() {
        let retried = message(json!({ "failed": { "jobId": "a", "retryable": true } }));
        assert!(expected("failed", json!({})).expect("it can be").compare(&retried).is_err());
        assert!(expected("failed", json!({ "retryable": true })).expect("it can be").compare(&retried).is_ok());
    }

    #[test]
    fn what_no_event_can_be_is_refused() {
        for (kind, fields, problem) in [
            ("finished", json!({}), "there are no events \"finished\""),
            ("failed", json!({ "failureCategry": "oom" }), "failed: it has no field \"failureCategry\""),
            ("failed", json!({ "reason": "(" }), "failed: reason: regex parse error"),
            ("running", json!({ "podNumber": "many" }), "running: "),
        ] {
            let error = expected(kind, fields).expect_err("refused").to_string();
            assert!(error.starts_with(problem), "{error}");
        }
        assert_eq!(expected("lease_returned", json!({})).expect("it can be").kind(), Kind::LeaseReturned);
    }
}
