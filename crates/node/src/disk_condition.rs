//! The Node says that its disk is nearly full of what pods use: by the condition `DiskPressure`, and by the taint that keeps pods
//! away, as a kubelet and its cluster write them.
//!
//! Invariant: other conditions and taints stay as they are. Called by the agent when it registers and when the pressure changes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

const TAINT: &str = "node.kubernetes.io/disk-pressure";
const NO_SCHEDULE: &str = "NoSchedule";

/// The condition as a patch has it; both times are `now`.
pub(crate) fn condition(pressure: bool, now: Timestamp) -> Value {
    let (status, reason, message) = match pressure {
        true => (
            "True",
            "KubeletHasDiskPressure",
            "pods use much of a disk that is nearly full: none starts until there is room",
        ),
        false => ("False", "KubeletHasNoDiskPressure", "the node has disk space"),
    };
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"type": "DiskPressure", "status": status, "reason": reason, "message": message,
           "lastHeartbeatTime": now, "lastTransitionTime": now})
}

/// Writes the condition, and then the taint.
pub(crate) async fn write(client: &Client, name: &str, pressure: bool, now: Timestamp) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = json!({"status": {"conditions": [condition(pressure, now)]}});
    let node = nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await?;
    set_taint(&nodes, name, node, pressure).await
}

/// Adds the taint to a node, or takes it away.
pub(crate) async fn set_taint(nodes: &Api<Node>, name: &str, node: Node, pressure: bool) -> Result<(), kube::Error> {
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let Some(taints) = changed(taints, pressure) else { return Ok(()) };
    // Refused when somebody else has changed the node since, and then tried again.
    let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
}

/// The taints with ours, or without; none where they are so already.
fn changed(mut taints: Vec<Taint>, pressure: bool) -> Option<Vec<Taint>> {
    let before = taints.len();
    let is_ours = |taint: &Taint| taint.key == TAINT && taint.effect == NO_SCHEDULE;
    match (pressure, taints.iter().any(is_ours)) {
        (true, false) => {
            taints.push(Taint { key: TAINT.to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() })
        }
        (false, true) => taints.retain(|taint| !is_ours(taint)),
        _ => {}
    }
    (taints.len() != before).then_some(taints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taint_comes_and_goes_beside_others() {
        let other = Taint { key: "gpu".to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() };
        assert_eq!(changed(vec![other.clone()], false), None);
        let with = changed(vec![other.clone()], true).unwrap();
        assert_eq!(with.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["gpu", TAINT]);
        assert_eq!(changed(with.clone(), true), None);
        assert_eq!(changed(with, false), Some(vec![other]));
    }
}
