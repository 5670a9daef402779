//! Who leaves when a task shrinks: the pods of the highest indices, or, where it says so, those that don't run yet.
//!
//! Invariant: who was told to leave leaves, whatever becomes of the others meanwhile. Where plugins number pods, or partitions
//! do, indices have no holes, so that there it stays with the highest. Called by the pod_counts.

use std::cmp::Reverse;

use pumice_api::batch::{Job, TaskSpec};
use pumice_api::names::SCALE_DOWN;

use crate::job::facts::{PodFacts, PodPhase};
use crate::job_object;

/// The word of the annotation.
pub const PENDING_FIRST: &str = "pending-first";

/// What the task says of it, or else the job.
pub fn scale_down_of<'a>(job: &'a Job, task: &'a TaskSpec) -> Option<&'a str> {
    let of_task = task.template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref()?.get(SCALE_DOWN));
    of_task.map(String::as_str).or_else(|| job_object::annotation(job, SCALE_DOWN))
}

/// Whether the indices of the task's pods may have holes.
pub fn has_free_indices(job: &Job, task: &TaskSpec) -> bool {
    job.spec.plugins.is_empty() && task.partition_policy.is_none()
}

/// Whether those that don't run leave first.
pub(in crate::job) fn pending_first(job: &Job, task: &TaskSpec) -> bool {
    scale_down_of(job, task) == Some(PENDING_FIRST) && has_free_indices(job, task)
}

/// Puts those that stay before those that leave.
pub(in crate::job) fn order(pods: &mut [&PodFacts]) {
    pods.sort_by_key(|pod| {
        let goes = pod.is_leaving() || pod.mark.is_some();
        (goes, pod.phase == PodPhase::Pending, Reverse(pod.has_ended()), pod.index)
    });
}
