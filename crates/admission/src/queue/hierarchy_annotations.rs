//! The old form of the queue tree: a path and weights in annotations.

use pumice_api::names::{HIERARCHY, HIERARCHY_WEIGHTS};
use pumice_api::scheduling::Queue;
use pumice_objects::field::FieldError;

use crate::Findings;
use crate::view::name_of;

/// Judges the path and weights of a queue; `others` are the queues there are.
pub(super) fn validate(queue: &Queue, others: &[Queue], findings: &mut Findings) {
    let path = annotation(queue, HIERARCHY);
    let weights = annotation(queue, HIERARCHY_WEIGHTS);
    if path.is_empty() && weights.is_empty() {
        return;
    }
    if path.split('/').count() != weights.split('/').count() {
        let detail = format!("{HIERARCHY} must have the same length with {HIERARCHY_WEIGHTS}");
        findings.refuse(FieldError::invalid(field(HIERARCHY), path, detail).to_string());
        return;
    }
    for weight in weights.split('/') {
        if !weight.parse::<f64>().is_ok_and(|number| number > 0.0 && number.is_finite()) {
            let detail = format!("{weight} in the {weights} is invalid number: must be larger than 0");
            findings.refuse(FieldError::invalid(field(HIERARCHY_WEIGHTS), weights, detail).to_string());
            return;
        }
    }
    let below = format!("{path}/");
    for other in others.iter().filter(|other| name_of(other) != name_of(queue)) {
        let longer = annotation(other, HIERARCHY);
        if !path.is_empty() && longer.starts_with(&below) {
            let detail = format!("{path} is not allowed to be in the sub path of {longer} of queue {}", name_of(other));
            findings.refuse(FieldError::invalid(field(HIERARCHY), path, detail).to_string());
            return;
        }
    }
}

fn annotation<'a>(queue: &'a Queue, key: &str) -> &'a str {
    queue.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key)).map_or("", String::as_str)
}

fn field(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}
