//! `dependsOn`: which tasks may have pods.
//!
//! Invariant: a dependency that is not a task of the job is never ready; admission refuses it, and we don't crash on it.

use pumice_api::batch::{Iteration, TaskSpec};

use crate::job::facts::PodPhase;
use crate::job::pod_counts::{PodCounts, TaskCensus};

/// Whether pods of `task` may be made now.
pub(in crate::job) fn ready(task: &TaskSpec, pod_counts: &PodCounts<'_>) -> bool {
    let Some(depends_on) = task.depends_on.as_ref().filter(|depends_on| !depends_on.name.is_empty()) else {
        return true;
    };
    let mut tasks = depends_on.name.iter().map(|name| pod_counts.task(name).is_some_and(task_ready));
    if depends_on.iteration == Some(Iteration::Any) && depends_on.name.len() > 1 {
        tasks.any(|ready| ready)
    } else {
        tasks.all(|ready| ready)
    }
}

fn task_ready(task: &TaskCensus<'_>) -> bool {
    let good = task.slots.values().filter(|pod| match pod.phase {
        PodPhase::Succeeded => !pod.is_leaving(),
        PodPhase::Running => pod.ready && !pod.is_leaving(),
        _ => false,
    });
    let gone = task.ended.values().filter(|phase| **phase == PodPhase::Succeeded);
    i64::try_from(good.count() + gone.count()).is_ok_and(|good| good >= i64::from(task.min_available()))
}
