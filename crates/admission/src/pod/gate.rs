//! The gate of pods that are to be seen by nothing else before their queue takes them.
//!
//! Invariant: only pods that our scheduler will place get it, since nobody else takes it away.

use pumice_api::names::QUEUE_ALLOCATION_GATE;
use serde_json::{Value, json};

use super::{annotations, is_ours};
use crate::Rules;

/// Puts the gate on a pod that asks for it by annotation; says whether it was put.
pub(super) fn close(pod: &mut Value, rules: &Rules) -> bool {
    let asked = annotations(pod).and_then(|all| all.get(QUEUE_ALLOCATION_GATE)).and_then(Value::as_str);
    if asked != Some("true") || !is_ours(pod, rules) {
        return false;
    }
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return false };
    // A pod that has its node can have no gate.
    if spec.get("nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty()) {
        return false;
    }
    let gates = spec.entry("schedulingGates").or_insert(Value::Null);
    if gates.is_null() {
        *gates = Value::Array(Vec::new());
    }
    let Some(gates) = gates.as_array_mut() else { return false };
    if gates.iter().any(|gate| gate["name"] == QUEUE_ALLOCATION_GATE) {
        return false;
    }
    gates.push(json!({ "name": QUEUE_ALLOCATION_GATE }));
    true
}
