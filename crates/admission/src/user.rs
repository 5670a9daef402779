//! Who submitted a job, or what jobs are made from: an annotation that only the platform writes.
//!
//! Invariant: after [`stamp`] the annotation is the user of the request that created the object, whatever the request said.
//! Controllers that make a job on someone's behalf pass that user on.

use pumice_api::names::USER;
use pumice_objects::field::FieldError;
use serde_json::{Map, Value};

use crate::{Findings, Rules};

/// Writes the annotation on a new object, or keeps it on a changed one; trying to change it is refused.
pub fn stamp(job: &mut Value, old: Option<&Value>, user: &str, rules: &Rules, findings: &mut Findings) {
    let asked = annotation(job).map(str::to_owned);
    let kept = old.and_then(annotation);
    match (old, &asked) {
        (None, Some(_)) if rules.controller_users.iter().any(|trusted| trusted == user) => {}
        (None, asked) => {
            if asked.as_deref().is_some_and(|asked| asked != user) {
                findings.warn(format!("annotation {USER} is written by the platform: set to {user}"));
            }
            write(job, user);
        }
        (Some(_), Some(asked)) if kept != Some(asked.as_str()) => {
            let path = format!("metadata.annotations[{USER}]");
            findings.refuse(
                FieldError::forbidden(path, "is written by the platform; remove it from the manifest").to_string(),
            );
        }
        (Some(_), _) => {
            if let Some(kept) = kept {
                write(job, kept);
            }
        }
    }
}

fn annotation(job: &Value) -> Option<&str> {
    job.get("metadata")?.get("annotations")?.get(USER)?.as_str()
}

/// Members of the wrong type are left for the schema to refuse.
fn write(job: &mut Value, user: &str) {
    let Some(job) = job.as_object_mut() else { return };
    let Some(metadata) = member(job, "metadata") else { return };
    let Some(annotations) = member(metadata, "annotations") else { return };
    annotations.insert(USER.to_owned(), user.into());
}

fn member<'a>(object: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    let value = object.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}
