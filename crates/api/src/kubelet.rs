//! What kubelets say of pods.
//!
//! Invariant: each reason is written here once. Read by the scheduler, for the room of such pods, and by the Job machine, which
//! makes them again.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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

/// Reason of a pod that was ended because it ran longer than its `activeDeadlineSeconds`.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// Whether a pod that failed did so by no fault of its own: its node was lost, or it was evicted.
pub fn is_disrupted(status: &PodStatus) -> bool {
    disruption(status).is_some() || status.reason.as_deref().is_some_and(|reason| DISRUPTIONS.contains(&reason))
}

/// When it was told that it has to end for reasons that are not its own.
pub fn disrupted_at(status: &PodStatus) -> Option<&Time> {
    disruption(status)?.last_transition_time.as_ref()
}

fn disruption(status: &PodStatus) -> Option<&PodCondition> {
    let is_target = |one: &&PodCondition| one.type_ == DISRUPTION_TARGET && one.status == "True";
    status.conditions.iter().flatten().find(is_target)
}

/// Whether a pod that failed for this reason was refused: it never started, and is to be replaced.
pub fn is_refusal(reason: &str) -> bool {
    reason.starts_with("OutOf") || REFUSALS.contains(&reason)
}
