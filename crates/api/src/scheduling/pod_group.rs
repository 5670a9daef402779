//! The parts of a PodGroup.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};

use super::ResourceList;
use crate::network_topology::NetworkTopologySpec;
use crate::wire;

/// What must hold for the group to start.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupSpec {
    /// Pods that start together.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub min_member: i32,
    /// Minimum for each task, by task name.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub min_task_member: BTreeMap<String, i32>,
    /// Queue the group is charged to.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253), regex(pattern = wire::DNS_SUBDOMAIN), extend("default" = "default"))]
    pub queue: String,
    /// Priority class.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,
    /// Resources that must be there before the group is admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_resources: Option<ResourceList>,
    /// Network constraint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopologySpec>,
    /// Second level of grouping.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub sub_group_policy: Vec<SubGroupPolicySpec>,
}

/// Groups inside a group.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubGroupPolicySpec {
    /// Name of the policy.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub name: String,
    /// Network constraint of each subgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_topology: Option<NetworkTopologySpec>,
    /// Pods in each subgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 1))]
    pub sub_group_size: Option<i32>,
    /// Subgroups that start together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 0))]
    pub min_sub_groups: Option<i32>,
    /// Pods the policy is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Pods with equal values of these labels form one subgroup.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_label_keys: Vec<String>,
}

/// What was observed of a group.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupStatus {
    /// Where the group is. Absent reads as Pending.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    pub phase: Option<PodGroupPhase>,
    /// Whether it could be scheduled, and why not.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub conditions: Vec<PodGroupCondition>,
    /// Running pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub running: i32,
    /// Succeeded pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub succeeded: i32,
    /// Failed pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub failed: i32,
}

/// One fact about a group's scheduling.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupCondition {
    /// Which fact.
    #[serde(rename = "type", default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    pub type_: Option<PodGroupConditionType>,
    /// `True`, `False` or `Unknown`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub status: String,
    /// The scheduling session that wrote it.
    #[serde(
        rename = "transitionID",
        default,
        deserialize_with = "wire::or_default",
        skip_serializing_if = "wire::is_default"
    )]
    pub transition_id: String,
    /// When it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// One CamelCase word.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub reason: String,
    /// A sentence for people.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub message: String,
}

word_enum! {
    /// Kinds of conditions of a group.
    open pub enum PodGroupConditionType {
        /// It cannot start now.
        Unschedulable = "Unschedulable",
        /// It is ready.
        Scheduled = "Scheduled",
    }
}

word_enum! {
    /// Phases of a group.
    closed pub enum PodGroupPhase {
        /// Accepted, not admitted; a Job has no pods yet.
        Pending = "Pending",
        /// At least the minimum runs.
        Running = "Running",
        /// A part runs and the rest cannot be placed.
        Unknown = "Unknown",
        /// Admitted: pods may be made.
        Inqueue = "Inqueue",
        /// Ended.
        Completed = "Completed",
    }
}
