//! PodGroups: the queue of their namespace, and which are refused.

use pumice_api::names::{DEFAULT_QUEUE, SCHEDULING_QUEUE_NAME};
use pumice_api::scheduling::{PodGroup, QueueState};
use serde_json::Value;

use crate::job::names_tier_twice;
use crate::{Findings, View};

/// Sends a new group that asks for the default queue to the queue of its namespace.
pub fn mutate(group: &mut Value, namespace: &str, view: &dyn View) {
    let Some(spec) = group.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let asked = spec.get("queue").filter(|queue| !queue.is_null());
    if asked.is_some_and(|queue| queue.as_str() != Some(DEFAULT_QUEUE)) {
        return;
    }
    if let Some(queue) = view.namespace_annotation(namespace, SCHEDULING_QUEUE_NAME) {
        spec.insert("queue".to_owned(), queue.into());
    }
}

/// Judges a new group. A queue without a state is new: its controller opens it.
pub fn validate(group: &PodGroup, view: &dyn View, findings: &mut Findings) {
    let name = if group.spec.queue.is_empty() { DEFAULT_QUEUE } else { &group.spec.queue };
    match view.queue(name).map(|queue| queue.status.state.unwrap_or(QueueState::Open)) {
        None => findings.refuse(format!("unable to find queue: queue.scheduling.volcano.sh \"{name}\" not found")),
        Some(QueueState::Open) => {}
        Some(state) => findings
            .refuse(format!("can only submit PodGroup to queue with state `Open`, queue `{name}` status is `{state}`")),
    }
    if names_tier_twice(group.spec.network_topology.as_ref()) {
        findings
            .refuse("must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously");
    }
    for policy in group.spec.sub_group_policy.iter().filter(|policy| names_tier_twice(policy.network_topology.as_ref()))
    {
        let name = &policy.name;
        findings.refuse(format!(
            "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology of subGroupPolicy {name} simultaneously"
        ));
    }
}
