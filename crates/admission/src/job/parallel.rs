//! `maxParallel` against what must run together: a gang that needs more pods than may be there at once would never start.

use pumice_api::batch::Job;
use pumice_machines::job::{MAX_PARALLEL, at_once};

use super::name_of;
use crate::Findings;

/// Judges a job whose defaults are filled in.
pub(super) fn validate(job: &Job, findings: &mut Findings) {
    let mut limited = false;
    for task in &job.spec.tasks {
        let Some(most) = MAX_PARALLEL.of(task) else { continue };
        limited = true;
        let place = format!("in task: {}, job: {};", task.name, name_of(job));
        if let Some(least) = task.min_available.filter(|least| *least > most) {
            findings.refuse(format!(
                "'minAvailable' {least} is greater than 'maxParallel' {most}, so that the gang would never start; lower it, or leave maxParallel out {place}"
            ));
        }
        if let Some(policy) = task.partition_policy.as_ref().filter(|policy| policy.partition_size > most) {
            findings.refuse(format!(
                "'PartitionSize' {} is greater than 'maxParallel' {most}, so that no partition would be complete {place}",
                policy.partition_size
            ));
        }
    }
    let most: i64 = job.spec.tasks.iter().map(|task| i64::from(at_once(task).max(0))).sum();
    let least = i64::from(job.spec.min_available);
    let replicas: i64 = super::replicas(&job.spec.tasks);
    // What is more than there is at all is refused in Volcano's words.
    if limited && (most + 1..=replicas).contains(&least) {
        findings.refuse(format!(
            "job 'minAvailable' {least} is greater than the {most} pods that 'maxParallel' lets its tasks have at once, so that the gang would never start; lower it;"
        ));
    }
}
