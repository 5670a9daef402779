//! Tasks split into partitions: the numbers must agree.

use pumice_api::batch::{Job, TaskSpec};

use super::{BOTH_TIERS, name_of, names_tier_twice};
use crate::Findings;

/// Judges a task's partition policy, where it has one.
pub(super) fn validate(job: &Job, task: &TaskSpec, findings: &mut Findings) {
    let Some(policy) = &task.partition_policy else { return };
    let place = format!("in task: {}, job: {};", task.name, name_of(job));
    if policy.total_partitions <= 0 {
        findings.refuse(format!("'TotalPartitions' must be greater than 0 {place}"));
    }
    if policy.partition_size <= 0 {
        findings.refuse(format!("'PartitionSize' must be greater than 0 {place}"));
    }
    let size = i64::from(policy.partition_size);
    if i64::from(task.replicas) != i64::from(policy.total_partitions) * size {
        findings.refuse(format!("'Replicas' are not equal to TotalPartitions*PartitionSize {place}"));
    }
    let least = i64::from(policy.min_partitions) * size;
    if policy.min_partitions > 0 && task.min_available.is_some_and(|given| i64::from(given) != least) {
        findings.refuse(format!("'MinAvailable' is not equal to MinPartitions*PartitionSize {place}"));
    }
    if names_tier_twice(policy.network_topology.as_ref()) {
        findings.refuse(format!("{BOTH_TIERS} {place}"));
    }
}
