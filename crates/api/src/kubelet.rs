//! What kubelets say of pods.
//!
//! Invariant: each reason is written here once. Read by the scheduler, for the room of such pods, and by the Job machine, which
//! makes them again.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

/// Reasons of pods that a kubelet refused and never started, beside `OutOf` and a resource.
const REFUSALS: &[&str] = &[
    "NodeAffinity",
    "NodePorts",
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "UnexpectedAdmissionError",
    "AdmissionFailed",
    "TopologyAffinityError",
    "PodOSNotSupported",
];

/// Reasons of pods that failed because their node went away, or wanted them to go for its own sake. `Evicted` is none of them: a
/// pod that took more than its own share of a disk is evicted, too.
const DISRUPTIONS: &[&str] = &["NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting"];
/// Condition of pods that are ended for reasons that are not their own.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Reason of a container that was killed because it, or its node, was out of memory.
pub const OOM_KILLED: &str = "OOMKilled";

/// Whether a pod that failed did so by no fault of its own: its node was lost, or it was evicted.
pub fn is_disrupted(status: &PodStatus) -> bool {
    let is_target = |one: &PodCondition| one.type_ == DISRUPTION_TARGET && one.status == "True";
    status.conditions.iter().flatten().any(is_target)
        || status.reason.as_deref().is_some_and(|reason| DISRUPTIONS.contains(&reason))
}

/// Whether a pod that failed for this reason was refused: it never started, and is to be replaced.
pub fn is_refusal(reason: &str) -> bool {
    reason.starts_with("OutOf") || REFUSALS.contains(&reason)
}
