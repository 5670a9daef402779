//! Queues.

use pumice_api::names;
use pumice_api::scheduling::{Affinity, Queue, QueueState as WireState};
use pumice_engine::{NodeGroupAffinity, QueueFacts, QueueState};

use super::{annotation, created, resources, text, volcano_annotations};

/// What the engine reads of a queue.
pub fn queue_facts(queue: &Queue) -> QueueFacts {
    QueueFacts {
        name: text(queue.metadata.name.as_ref()),
        uid: text(queue.metadata.uid.as_ref()),
        created: created(&queue.metadata),
        state: match queue.status.state {
            None | Some(WireState::Open) => QueueState::Open,
            Some(WireState::Closed) => QueueState::Closed,
            Some(WireState::Closing) => QueueState::Closing,
            Some(WireState::Unknown | WireState::Other(_)) => QueueState::Unknown,
        },
        capability: resources(&queue.spec.capability),
        max_running_jobs: max_running_jobs(queue),
        weight: queue.spec.weight,
        priority: queue.spec.priority,
        parent: Some(queue.spec.parent.clone()).filter(|parent| !parent.is_empty()),
        reclaimable: queue.spec.reclaimable,
        deserved: resources(&queue.spec.deserved),
        guarantee: resources(&queue.spec.guarantee.resource),
        annotations: volcano_annotations(&queue.metadata),
        affinity: queue.spec.affinity.as_ref().map(node_groups),
        allocated: resources(&queue.status.allocated),
    }
}

/// The field counts before the annotation; what can't be read is none, admission refuses it.
fn max_running_jobs(queue: &Queue) -> Option<u32> {
    let annotated = || annotation(&queue.metadata, names::MAX_RUNNING_JOBS)?.parse().ok();
    queue.spec.max_running_jobs.map(|most| u32::try_from(most).unwrap_or(0)).or_else(annotated)
}

fn node_groups(affinity: &Affinity) -> NodeGroupAffinity {
    let near = affinity.node_group_affinity.clone().unwrap_or_default();
    let far = affinity.node_group_anti_affinity.clone().unwrap_or_default();
    NodeGroupAffinity {
        required: near.required_during_scheduling_ignored_during_execution,
        preferred: near.preferred_during_scheduling_ignored_during_execution,
        anti_required: far.required_during_scheduling_ignored_during_execution,
        anti_preferred: far.preferred_during_scheduling_ignored_during_execution,
    }
}
