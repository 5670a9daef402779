//! What may change in a Job: the size of the gang, the numbers of pods, how many of them there are at once, the priority
//! class. Nothing else of its spec.

use pumice_api::batch::{Job, JobSpec};

use super::{BOTH_TIERS, annotations, names_tier_twice, parallel, partition, plugins, replicas};
use crate::Findings;

/// Judges a changed job.
pub fn validate_update(job: &Job, old: &Job, findings: &mut Findings) {
    for task in &job.spec.tasks {
        if task.replicas < 0 {
            findings.refuse(format!("'replicas' must be >= 0 in task: {};", task.name));
        }
        if task.min_available.is_some_and(|least| least < 0) {
            findings.refuse(format!("'minAvailable' must be >= 0 in task: {};", task.name));
        }
        if task.min_available.is_some_and(|least| least > task.replicas) {
            findings.refuse(format!("'minAvailable' must be <= 'replicas' in task: {};", task.name));
        }
        partition::validate(job, task, findings);
    }
    if replicas(&job.spec.tasks) < i64::from(job.spec.min_available) {
        findings.refuse("job 'minAvailable' must not be greater than total replicas");
    }
    if job.spec.min_available < 0 {
        findings.refuse("job 'minAvailable' must be >= 0");
    }
    if names_tier_twice(job.spec.network_topology.as_ref()) {
        findings.refuse(BOTH_TIERS);
    }
    if job.spec.tasks.iter().zip(&old.spec.tasks).any(|(new, old)| new.replicas > old.replicas) {
        plugins::validate(job, findings);
    }
    parallel::validate(job, findings);
    annotations::validate_change(job, old, findings);
    if job.spec.tasks.len() != old.spec.tasks.len() {
        findings.refuse("job updates may not add or remove tasks");
    } else if without_variable(&job.spec) != without_variable(&old.spec) {
        findings.refuse(
            "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`",
        );
    }
}

/// The spec with everything blanked that may change, or that the controller writes.
fn without_variable(spec: &JobSpec) -> JobSpec {
    let mut spec = spec.clone();
    spec.min_available = 0;
    spec.priority_class_name.clear();
    for task in &mut spec.tasks {
        task.replicas = 0;
        task.min_available = None;
        task.max_parallel = None;
    }
    for volume in spec.volumes.iter_mut().filter(|volume| volume.volume_claim.is_some()) {
        volume.volume_claim_name.clear();
    }
    spec
}
