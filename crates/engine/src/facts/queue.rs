//! Facts of queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dims::Resources;
use crate::ids::TimeMs;

/// `status.state` of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum QueueState {
    /// Takes work. A queue without a state yet counts as open.
    #[default]
    Open,
    /// Takes no work.
    Closed,
    /// Takes no work and waits for its own to end.
    Closing,
    /// Not known.
    Unknown,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueFacts {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// When it was made.
    pub created: TimeMs,
    /// Whether it takes work.
    pub state: QueueState,
    /// `spec.capability`: a hard limit. Volcano takes cpu or memory at or below zero as no limit; so do we.
    pub capability: Resources,
    /// `spec.weight`.
    pub weight: i32,
    /// `spec.priority`.
    pub priority: i32,
    /// `spec.parent`.
    pub parent: Option<String>,
    /// `spec.reclaimable`; absent means true.
    pub reclaimable: Option<bool>,
    /// `spec.deserved`.
    pub deserved: Resources,
    /// `spec.guarantee.resource`.
    pub guarantee: Resources,
    /// Annotations, only those that a plugin reads.
    pub annotations: BTreeMap<String, String>,
    /// `spec.affinity`.
    pub affinity: Option<NodeGroupAffinity>,
    /// What its status says is allocated.
    pub allocated: Resources,
}

/// On which groups of nodes (label `volcano.sh/nodegroup-name`) a queue's pods may run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeGroupAffinity {
    /// Only on these.
    pub required: Vec<String>,
    /// Better on these, the first the best.
    pub preferred: Vec<String>,
    /// Never on these.
    pub anti_required: Vec<String>,
    /// Rather not on these.
    pub anti_preferred: Vec<String>,
}
