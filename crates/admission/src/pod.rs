//! Pods: what the cluster's configuration and their annotations add to new ones, and which are refused.
//!
//! Works on the JSON, since every pod of the cluster passes here: a pod that no rule is about costs a few look-ups and no
//! copy. Invariant: filling in twice is filling in once. Called by the seam, and for budgets by the rules of Jobs.

mod budget;
mod gate;

use serde_json::Value;

pub use crate::resource_groups::{ResourceGroups, ResourceGroupsError};
use crate::view::annotations;
use crate::{Findings, Rules};
pub(crate) use budget::refusal as budget_refusal;

/// Fills in a new pod, and says whether it changed.
pub fn mutate(pod: &mut Value, namespace: &str, rules: &Rules) -> bool {
    let grouped = rules.resource_groups.apply(pod, namespace);
    gate::close(pod, rules) | grouped
}

/// Judges a new pod.
pub fn validate(pod: &Value, rules: &Rules, findings: &mut Findings) {
    if let Some(annotations) = annotations(pod)
        && is_ours(pod, rules)
        && let Some(reason) = budget_refusal(|key| annotations.get(key).and_then(Value::as_str))
    {
        findings.refuse(reason);
    }
}

/// Whether one of our schedulers is to place the pod.
fn is_ours(pod: &Value, rules: &Rules) -> bool {
    let name = pod.get("spec").and_then(|spec| spec.get("schedulerName")).and_then(Value::as_str);
    name.is_some_and(|name| rules.scheduler_names.iter().any(|ours| ours == name))
}
