//! Facts of queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::TimeMs;
use crate::resource_dims::Resources;

/// `status.state` of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum QueueState {
    /// Takes work. A queue without a state yet counts as open.
    #[default]
    Open,
    Closed,
    /// Takes no work and waits for its own to end.
    Closing,
    /// Not known.
    Unknown,
}

/// A queue: its limits, its place in the tree, and what it deserves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub uid: String,
    /// When it was made.
    #[serde(skip_serializing_if = "super::is_default")]
    pub created: TimeMs,
    /// Whether it takes work.
    #[serde(skip_serializing_if = "super::is_default")]
    pub state: QueueState,
    /// `spec.capability`: a hard limit. Volcano takes cpu or memory at or below zero as no limit; so do we.
    #[serde(skip_serializing_if = "super::is_default")]
    pub capability: Resources,
    /// How many of its groups, and of those of queues below it, are admitted at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running_jobs: Option<u32>,
    /// `spec.weight`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub weight: i32,
    /// `spec.priority`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub priority: i32,
    /// `spec.parent`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub parent: Option<String>,
    /// `spec.reclaimable`; absent means true.
    #[serde(skip_serializing_if = "super::is_default")]
    pub reclaimable: Option<bool>,
    /// `spec.deserved`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub deserved: Resources,
    /// `spec.guarantee.resource`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub guarantee: Resources,
    /// Annotations, only those that a plugin reads.
    #[serde(skip_serializing_if = "super::is_default")]
    pub annotations: BTreeMap<String, String>,
    /// `spec.affinity`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub affinity: Option<NodeGroupAffinity>,
    /// What its status says is allocated.
    #[serde(skip_serializing_if = "super::is_default")]
    pub allocated: Resources,
}

/// On which groups of nodes (label `volcano.sh/nodegroup-name`) a queue's pods may run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeGroupAffinity {
    /// Only on these.
    #[serde(skip_serializing_if = "super::is_default")]
    pub required: Vec<String>,
    /// Better on these, the first the best.
    #[serde(skip_serializing_if = "super::is_default")]
    pub preferred: Vec<String>,
    /// Never on these.
    #[serde(skip_serializing_if = "super::is_default")]
    pub anti_required: Vec<String>,
    /// Rather not on these.
    #[serde(skip_serializing_if = "super::is_default")]
    pub anti_preferred: Vec<String>,
}
