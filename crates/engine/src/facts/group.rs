//! Facts of PodGroups, and the part of their status that is ours.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::{GroupUid, Requirement};
use crate::ids::TimeMs;
use crate::resource_dims::Resources;

/// `status.phase` of a PodGroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum GroupPhase {
    /// Not admitted: no pods are made for it.
    #[default]
    Pending,
    /// Admitted: pods may be made and wait for nodes.
    Inqueue,
    /// Its minimum is placed.
    Running,
    /// Some run, and the rest can't be placed.
    Unknown,
    /// All that was placed has ended.
    Completed,
}

/// Who owns a group: the Job that `why` is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerFacts {
    /// Its kind, such as `Job`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub kind: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub uid: String,
}

/// A PodGroup: the pods that start together, or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub namespace: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub uid: GroupUid,
    /// Its queue; empty means the default queue.
    #[serde(skip_serializing_if = "super::is_default")]
    pub queue: String,
    /// `spec.minMember`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub min_member: u32,
    /// `spec.minTaskMember`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub min_task_member: BTreeMap<String, u32>,
    /// `spec.minResources`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub min_resources: Option<Resources>,
    /// `spec.priorityClassName`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub priority_class: String,
    /// When it was made.
    #[serde(skip_serializing_if = "super::is_default")]
    pub created: TimeMs,
    /// Its controller, where it has one.
    #[serde(skip_serializing_if = "super::is_default")]
    pub owner: Option<OwnerFacts>,
    /// Annotations, only those that a plugin reads.
    #[serde(skip_serializing_if = "super::is_default")]
    pub annotations: BTreeMap<String, String>,
    /// Annotation, else label, `volcano.sh/preemptable`; absent means false.
    #[serde(skip_serializing_if = "super::is_default")]
    pub preemptable: Option<bool>,
    /// `spec.networkTopology`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub topology: Option<TopologySpec>,
    /// `spec.subGroupPolicy`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub sub_groups: Vec<SubGroupPolicy>,
    /// Under which its runs are remembered, beside its namespace: jobs of one kind share it. Empty: its own name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub run_profile: String,
    /// When it is to have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<TimeMs>,
    /// What its status says now.
    #[serde(skip_serializing_if = "super::is_default")]
    pub status: GroupStatus,
}

/// Where in the network a group's pods must lie together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpec {
    /// True: a HyperNode of the allowed tier, or not at all. False: as close as can be.
    #[serde(skip_serializing_if = "super::is_default")]
    pub hard: bool,
    /// `highestTierAllowed`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub highest_tier: Option<u32>,
    /// `highestTierName`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub highest_tier_name: Option<String>,
}

/// How a group's pods fall into sub-groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubGroupPolicy {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    /// Pods with these labels; requirements on labels, all of which must hold.
    #[serde(skip_serializing_if = "super::is_default")]
    pub selector: Vec<Requirement>,
    /// The labels by whose values the pods are told apart.
    #[serde(skip_serializing_if = "super::is_default")]
    pub match_label_keys: Vec<String>,
    /// Pods of one sub-group that start together.
    #[serde(skip_serializing_if = "super::is_default")]
    pub size: Option<u32>,
    /// Sub-groups that must be ready.
    #[serde(skip_serializing_if = "super::is_default")]
    pub min_sub_groups: Option<u32>,
    /// Where each sub-group must lie together.
    #[serde(skip_serializing_if = "super::is_default")]
    pub topology: Option<TopologySpec>,
}

/// A condition of a PodGroup, without the stamps the shell adds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupCondition {
    /// `Unschedulable` or `Scheduled`.
    #[serde(rename = "type")]
    pub kind: String,
    pub status: bool,
    /// Such as `NotEnoughResources`.
    pub reason: String,
    /// For people. Not compared: it is written anew only when something else changes.
    pub message: String,
}

/// The part of a PodGroup's status that the scheduler writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupStatus {
    #[serde(skip_serializing_if = "super::is_default")]
    pub phase: GroupPhase,
    #[serde(skip_serializing_if = "super::is_default")]
    pub conditions: Vec<GroupCondition>,
    #[serde(skip_serializing_if = "super::is_default")]
    pub running: u32,
    /// Pods that ended well.
    #[serde(skip_serializing_if = "super::is_default")]
    pub succeeded: u32,
    /// Pods that ended badly.
    #[serde(skip_serializing_if = "super::is_default")]
    pub failed: u32,
}

impl GroupCondition {
    fn same_class(&self, other: &Self) -> bool {
        (&self.kind, self.status, &self.reason) == (&other.kind, other.status, &other.reason)
    }
}

impl GroupStatus {
    /// Equal in all that is worth a write: messages may differ.
    pub fn same_class(&self, other: &Self) -> bool {
        (self.phase, self.running, self.succeeded, self.failed)
            == (other.phase, other.running, other.succeeded, other.failed)
            && self.conditions.len() == other.conditions.len()
            && self.conditions.iter().zip(&other.conditions).all(|(one, other)| one.same_class(other))
    }
}
