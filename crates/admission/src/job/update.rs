//! What may change in a Job: the size of the gang, the numbers of pods, how many of them there are at once, the priority
//! class, and what needs no other pods: retries, policies, how long it may run and is kept, whether it is suspended; and its
//! queue, while none of its pods runs. Nothing else of its spec.

use pumice_api::batch::{Job, JobPhase, JobSpec};

use super::create::queue;
use super::{BOTH_TIERS, annotations, names_tier_twice, parallel, partition, plugins, policies, replicas};
use crate::Findings;
use crate::view::View;

/// Judges a changed job.
pub fn validate_update(job: &Job, old: &Job, view: &dyn View, findings: &mut Findings) {
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
    changed_policies(job, old, findings);
    if job.spec.queue != old.spec.queue {
        if has_run(old) {
            findings.refuse("the queue of a job may only change while none of its pods runs;");
        }
        queue(job, view, findings);
    }
    if job.spec.tasks.len() != old.spec.tasks.len() {
        findings.refuse("job updates may not add or remove tasks");
    } else if without_variable(&job.spec) != without_variable(&old.spec) {
        findings.refuse(
            "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`",
        );
    }
}

fn changed_policies(job: &Job, old: &Job, findings: &mut Findings) {
    if job.spec.policies != old.spec.policies {
        policies::validate(&job.spec.policies, "spec.policies", findings);
        policies::doubt(&job.spec.policies, findings);
    }
    for (task, _) in job.spec.tasks.iter().zip(&old.spec.tasks).filter(|(new, old)| new.policies != old.policies) {
        policies::validate(&task.policies, "spec.tasks.policies", findings);
        policies::doubt(&task.policies, findings);
    }
}

/// Whether pods of the job run, or may: its place among those who wait says nothing any more.
fn has_run(job: &Job) -> bool {
    let status = &job.status;
    let waits = matches!(status.state.phase, None | Some(JobPhase::Pending | JobPhase::Aborted));
    !waits || status.running > 0 || status.terminating > 0 || status.unknown > 0
}

/// The spec with everything blanked that may change, or that the controller writes.
fn without_variable(spec: &JobSpec) -> JobSpec {
    let mut spec = spec.clone();
    spec.min_available = 0;
    spec.priority_class_name.clear();
    spec.max_retry = 0;
    spec.ttl_seconds_after_finished = None;
    spec.suspend = None;
    spec.active_deadline_seconds = None;
    spec.policies.clear();
    spec.queue.clear();
    for task in &mut spec.tasks {
        task.replicas = 0;
        task.min_available = None;
        task.max_parallel = None;
        task.max_retry = 0;
        task.policies.clear();
    }
    for volume in spec.volumes.iter_mut().filter(|volume| volume.volume_claim.is_some()) {
        volume.volume_claim_name.clear();
    }
    spec
}
