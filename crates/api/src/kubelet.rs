//! What kubelets say of pods.
//!
//! Invariant: each reason is written here once. Read by the scheduler, for the room of such pods, and by the Job machine, which
//! makes them again.

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

/// Reason of a container that was killed because it, or its node, was out of memory.
pub const OOM_KILLED: &str = "OOMKilled";

/// Whether a pod that failed for this reason was refused: it never started, and is to be replaced.
pub fn is_refusal(reason: &str) -> bool {
    reason.starts_with("OutOf") || REFUSALS.contains(&reason)
}
