//! The rule of its queue, for a new job that does not say what happens when its pods run out of memory.
//!
//! Idempotent; done on create only, so that a job keeps the rule that it began with. What can't be read is left alone: the queue
//! was refused for it, the job will be for its own.

use pumice_api::names::DEFAULT_QUEUE;
use pumice_api::names::ON_OOM;
use pumice_machines::job::ScaleUp;
use serde_json::{Map, Value};

use crate::View;

/// Writes the queue's rule on a job that says nothing itself.
pub fn inherit_queue_rule(job: &mut Value, view: &dyn View) {
    let Some(spec) = job.get("spec").and_then(Value::as_object) else { return };
    let policies = spec.get("policies").and_then(Value::as_array);
    let annotated = job.pointer("/metadata/annotations").is_some_and(|all| all.get(ON_OOM).is_some());
    if annotated || policies.is_some_and(|policies| policies.iter().any(answers_oom)) {
        return;
    }
    let queue = spec.get("queue").and_then(Value::as_str).filter(|queue| !queue.is_empty()).unwrap_or(DEFAULT_QUEUE);
    let annotations = view.queue(queue).and_then(|queue| queue.metadata.annotations).unwrap_or_default();
    let Some(text) = annotations.get(ON_OOM).filter(|text| ScaleUp::of_annotation(text).is_ok()) else { return };
    let Some(metadata) = job.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(ON_OOM.to_owned(), text.as_str().into());
    }
}

fn answers_oom(policy: &Value) -> bool {
    let events = policy.get("events").and_then(Value::as_array).into_iter().flatten();
    policy.get("event").into_iter().chain(events).any(|event| event == "OOMKilled")
}
