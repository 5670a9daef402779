//! What a node has and what a pod asks for, as sharding counts it: the CPUs of containers, nothing else.

use k8s_openapi::api::core::v1::{Node, Pod};
use pumice_units::Quantity;

/// On pods that a kubelet made of files of its own.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The CPUs of a node, in thousandths.
pub fn capacity_milli(node: &Node) -> i64 {
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    capacity.and_then(|all| all.get("cpu")).map_or(0, |cpu| milli(&cpu.0))
}

/// The node of a pod and what it asks of it, in thousandths of a CPU; nothing for pods that have no node, have ended, or are
/// a kubelet's own.
pub fn requested(pod: &Pod) -> Option<(&str, i64)> {
    let spec = pod.spec.as_ref()?;
    let node = spec.node_name.as_deref().filter(|node| !node.is_empty())?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_mirror = pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR));
    if is_mirror || matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let requests = spec.containers.iter().filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    let cpus = requests.filter_map(|requests| requests.get("cpu"));
    Some((node, cpus.fold(0, |sum: i64, cpu| sum.saturating_add(milli(&cpu.0)))))
}

fn milli(text: &str) -> i64 {
    text.parse::<Quantity>().map_or(0, Quantity::cpu_milli).max(0)
}
