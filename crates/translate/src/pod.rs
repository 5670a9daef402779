//! Pods.

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use pumice_api::{grouping, kubelet, names};
use pumice_engine::{NodeName, PodFacts, PodPhase, TimeMs};

use super::claims::pod_claims;
use super::template::template;
use super::{annotation, at, created, label, preemptable, text, volcano_annotations};

/// What the engine reads of a pod. `schedulers` are the scheduler names we answer to.
pub fn pod_facts(pod: &Pod, schedulers: &[String]) -> PodFacts {
    let metadata = &pod.metadata;
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let scheduler = spec.scheduler_name.as_deref().unwrap_or(names::SCHEDULER_DEFAULT);
    let status = pod.status.as_ref();
    let either = |key| annotation(metadata, key).or_else(|| label(metadata, key));
    PodFacts {
        uid: text(metadata.uid.as_ref()).into(),
        namespace: text(metadata.namespace.as_ref()),
        name: text(metadata.name.as_ref()),
        mine: schedulers.iter().any(|name| name == scheduler),
        group: grouping::needed(metadata, spec),
        queue: annotation(metadata, names::SCHEDULING_QUEUE_NAME).map(str::to_owned),
        priority_class: text(spec.priority_class_name.as_ref()),
        role: either(names::TASK_SPEC).unwrap_or_default().to_owned(),
        node: node_name(spec.node_name.as_ref()),
        phase: match status.and_then(|status| status.phase.as_deref()) {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some("Unknown") => PodPhase::Unknown,
            _ => PodPhase::Pending,
        },
        terminating: metadata.deletion_timestamp.is_some(),
        grace_ms: spec.termination_grace_period_seconds.map(|seconds| seconds.saturating_mul(1_000)),
        refused: status.and_then(refusal).is_some(),
        gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
        queue_gated: spec.scheduling_gates.as_ref().is_some_and(|gates| {
            !gates.is_empty() && gates.iter().all(|gate| gate.name == names::QUEUE_ALLOCATION_GATE)
        }),
        created: created(metadata),
        started: status.and_then(|status| status.start_time.as_ref()).map(at),
        ended: status.and_then(ended),
        scheduled: status.and_then(scheduled),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: volcano_annotations(metadata),
        preemptable: preemptable(metadata),
        never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        pod_priority_class: text(spec.priority_class_name.as_ref()),
        nominated: status.and_then(|status| node_name(status.nominated_node_name.as_ref())),
        of_daemon_set: metadata.owner_references.iter().flatten().any(|owner| owner.kind == "DaemonSet"),
        claims: pod_claims(pod, spec),
        template: template(metadata.namespace.as_deref().unwrap_or_default(), metadata, spec, status).into(),
    }
}

/// An empty name is none.
fn node_name(name: Option<&String>) -> Option<NodeName> {
    name.filter(|name| !name.is_empty()).map(|name| name.as_str().into())
}

/// Why the kubelet refused the pod, if it did: it never started, and is to be replaced.
pub fn refusal(status: &PodStatus) -> Option<&str> {
    let reason = status.reason.as_deref().unwrap_or_default();
    (kubelet::is_refusal(reason) && status.phase.as_deref() == Some("Failed")).then_some(reason)
}

/// When the last of its containers ended, where it has ended as a whole.
fn ended(status: &PodStatus) -> Option<TimeMs> {
    if !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let containers = status.container_statuses.iter().flatten();
    let ends = containers.filter_map(|container| container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    ends.map(at).max()
}

/// When its PodScheduled condition became true.
fn scheduled(status: &PodStatus) -> Option<TimeMs> {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "True")?;
    condition.last_transition_time.as_ref().map(at)
}
