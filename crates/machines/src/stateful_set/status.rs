//! What a StatefulSet's status says.

use k8s_openapi::api::apps::v1::StatefulSetStatus;

use super::{REVISION, StepContext};
use crate::workload::{OwnedPod, some_count};

/// The next status. When every pod is of the wanted template and ready, that is the current one.
pub(super) fn next(context: &StepContext<'_>) -> StatefulSetStatus {
    let before = context.set.status.clone().unwrap_or_default();
    let count = |wanted: &dyn Fn(&OwnedPod) -> bool| some_count(context.pods().filter(|pod| wanted(pod)).count());
    let is_of = |pod: &OwnedPod, revision: &str| {
        !pod.is_leaving && pod.labels.get(REVISION).is_some_and(|label| label == revision)
    };
    let replicas = count(&|_| true).unwrap_or(0);
    let ready = count(&|pod| pod.is_ready() && !pod.has_ended());
    let updated = count(&|pod| is_of(pod, &context.revisions.update));
    let is_done = context.updates_itself() && updated.unwrap_or(0) == replicas && ready.unwrap_or(0) == replicas;
    let current = if is_done { &context.revisions.update } else { &context.revisions.current };
    StatefulSetStatus {
        observed_generation: context.set.metadata.generation,
        replicas,
        ready_replicas: ready,
        available_replicas: Some(count(&|pod| context.is_available(pod)).unwrap_or(0)),
        current_replicas: count(&|pod| is_of(pod, current)),
        updated_replicas: updated,
        current_revision: Some(current.clone()),
        update_revision: Some(context.revisions.update.clone()),
        collision_count: before.collision_count.or(Some(0)),
        conditions: before.conditions,
    }
}
