//! What a user asks for in a Job.
//!
//! Field by field the Go type `JobSpec`; the bounds here are those of Volcano's CRD, rules across fields are admission's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PodTemplateSpec};

use super::LifecyclePolicy;
use crate::network_topology::NetworkTopologySpec;
use crate::wire;

/// Desired behaviour of a job.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// Scheduler of the pods whose template names none.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 63))]
    pub scheduler_name: String,
    /// Pods that must run together: the gang's size, and the threshold for Running and success. Absent until admission.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub min_available: i32,
    /// Volumes mounted into every container of every pod.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub volumes: Vec<VolumeSpec>,
    /// Groups of identical pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(min = 1))]
    pub tasks: Vec<TaskSpec>,
    /// Rules for all tasks; a task's own come first.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub policies: Vec<LifecyclePolicy>,
    /// Job plugins by name, with their arguments.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub plugins: BTreeMap<String, Vec<String>>,
    /// The user's estimate of the run time, a Go duration string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_estimate: Option<String>,
    /// Queue the job belongs to; fixed once created.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253), regex(pattern = wire::DNS_SUBDOMAIN), extend("default" = "default"))]
    pub queue: String,
    /// How often the job may restart.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0), extend("default" = 3))]
    pub max_retry: i32,
    /// Seconds a finished job is kept. Absent = for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Priority of the job's group, and of pods without their own.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253), regex(pattern = wire::DNS_SUBDOMAIN))]
    pub priority_class_name: String,
    /// Succeeded pods that complete the job early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_success: Option<i32>,
    /// Network constraint of the job's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopologySpec>,
    /// The job has no pods as long as this is true: what runs is ended, what has ended is kept. Not in Volcano.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Seconds from when the job first runs until what is left of it is ended and it fails, restarts included. A suspended
    /// job starts over. Absent = no limit. Not in Volcano.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,
}

/// A group of identical pods.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    /// Part of pod names and of environment variables; unique in the job.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 63), regex(pattern = wire::DNS_LABEL))]
    pub name: String,
    /// Number of pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Pods of this task that the gang needs. Absent = all, decided by admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_available: Option<i32>,
    /// Succeeded pods of this task that complete the job early, once all tasks that say a number have theirs. Not in Volcano.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_success: Option<i32>,
    /// Pods of this task that may be unfinished at once; the others are made as those end. Absent = all. Not in Volcano.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_parallel: Option<i32>,
    /// How often a pod of this task that failed is made again, for each index. Not in Volcano.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub retries: Option<i32>,
    /// What each pod looks like.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub template: PodTemplateSpec,
    /// Rules of this task; looked at before the job's.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub policies: Vec<LifecyclePolicy>,
    /// NUMA policy asked of the node.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    pub topology_policy: Option<NumaPolicy>,
    /// Container restarts that raise the event TaskFailed; not the job's budget.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub max_retry: i32,
    /// Tasks that must be ready before pods of this one are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<DependsOn>,
    /// Splits the task into groups of fixed size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_policy: Option<PartitionPolicySpec>,
}

/// Tasks another task waits for.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependsOn {
    /// Their names.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub name: Vec<String>,
    /// Whether one or all of them must be ready. Absent = all.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    pub iteration: Option<Iteration>,
}

/// Fixed-size groups inside a task: `replicas == total_partitions * partition_size`.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionPolicySpec {
    /// Number of groups.
    #[schemars(range(min = 1))]
    pub total_partitions: i32,
    /// Pods in each.
    #[schemars(range(min = 1))]
    pub partition_size: i32,
    /// Groups the gang needs.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0), extend("default" = 0))]
    pub min_partitions: i32,
    /// Network constraint of each group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopologySpec>,
}

/// A volume of the whole job.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    /// Path in the containers; no colon.
    #[schemars(length(min = 1), regex(pattern = "^[^:]+$"))]
    pub mount_path: String,
    /// A claim that exists; the controller writes the name of a generated one here.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub volume_claim_name: String,
    /// A claim to make for this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim: Option<PersistentVolumeClaimSpec>,
}

word_enum! {
    /// How many of the listed tasks must be ready. Only `any` over more than one name differs from `all`.
    open pub enum Iteration {
        /// One of them.
        Any = "any",
        /// Each of them.
        All = "all",
    }
}

word_enum! {
    /// NUMA alignment of a task's containers, the kubelet's topology manager policies.
    closed pub enum NumaPolicy {
        /// No alignment.
        None = "none",
        /// Prefer it.
        BestEffort = "best-effort",
        /// Insist on the preferred one.
        Restricted = "restricted",
        /// Insist on a single node.
        SingleNumaNode = "single-numa-node",
    }
}
