//! Pods.

use k8s_openapi::api::core::v1::Pod;
use pumice_api::names;
use pumice_engine::{PodFacts, PodPhase};

use super::template::template;
use super::{annotation, created, label, text};

/// What the engine reads of a pod. `schedulers` are the scheduler names we answer to.
pub(crate) fn pod_facts(pod: &Pod, schedulers: &[String]) -> PodFacts {
    let metadata = &pod.metadata;
    let spec = pod.spec.clone().unwrap_or_default();
    let scheduler = spec.scheduler_name.as_deref().unwrap_or(names::SCHEDULER_DEFAULT);
    let status = pod.status.as_ref();
    let either = |key| annotation(metadata, key).or_else(|| label(metadata, key));
    PodFacts {
        uid: text(metadata.uid.as_ref()),
        namespace: text(metadata.namespace.as_ref()),
        name: text(metadata.name.as_ref()),
        mine: schedulers.iter().any(|name| name == scheduler),
        group: annotation(metadata, names::GROUP_NAME).filter(|name| !name.is_empty()).map(str::to_owned),
        queue: annotation(metadata, names::SCHEDULING_QUEUE_NAME).map(str::to_owned),
        priority_class: text(spec.priority_class_name.as_ref()),
        role: either(names::TASK_SPEC).unwrap_or_default().to_owned(),
        node: spec.node_name.clone().filter(|name| !name.is_empty()),
        phase: match status.and_then(|status| status.phase.as_deref()) {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some("Unknown") => PodPhase::Unknown,
            _ => PodPhase::Pending,
        },
        terminating: metadata.deletion_timestamp.is_some(),
        gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
        created: created(metadata),
        template: template(metadata, &spec),
    }
}
