//! The parts of a Queue.

use super::ResourceList;
use crate::wire;

/// Shares, limits and place in the tree.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueSpec {
    /// Weight among siblings; 0 reads as absent.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 1, max = 65535), extend("default" = 1))]
    pub weight: i32,
    /// Hard upper limit.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub capability: ResourceList,
    /// Whether others may take back what this queue holds above its share. Absent = yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaimable: Option<bool>,
    /// Other clusters its jobs go to.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub extend_clusters: Vec<ExtendCluster>,
    /// What is kept free for it.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub guarantee: Guarantee,
    /// Node groups its pods go to or stay away from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Free text.
    #[serde(rename = "type", default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub type_: String,
    /// Parent in the tree; empty = `root`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253), regex(pattern = wire::DNS_SUBDOMAIN))]
    pub parent: String,
    /// Fair share; what it holds above may be taken back.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub deserved: ResourceList,
    /// Higher goes first, and is reclaimed from later.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub priority: i32,
    /// What a blocked head of the line does to those behind it. Absent = traverse.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "traverse"))]
    pub dequeue_strategy: Option<DequeueStrategy>,
    /// Jobs of this queue, and of those below it, that run at a time; further ones wait. Absent = no limit. Not in Volcano.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_running_jobs: Option<i32>,
}

/// A cluster jobs are forwarded to.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtendCluster {
    /// Its name.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub name: String,
    /// Its weight.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub weight: i32,
    /// Its room.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub capacity: ResourceList,
}

/// What is kept free for a queue.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Guarantee {
    /// Amounts.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub resource: ResourceList,
}

/// Node groups of a queue.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Affinity {
    /// Groups to go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_group_affinity: Option<NodeGroupAffinity>,
    /// Groups to stay away from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_group_anti_affinity: Option<NodeGroupAffinity>,
}

/// Names of node groups, by strength.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroupAffinity {
    /// Must hold.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub required_during_scheduling_ignored_during_execution: Vec<String>,
    /// Should hold.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub preferred_during_scheduling_ignored_during_execution: Vec<String>,
}

/// State and use of a queue.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Whether it takes jobs.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    pub state: Option<QueueState>,
    /// Groups in phase Unknown.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub unknown: i32,
    /// Groups in phase Pending.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub pending: i32,
    /// Groups in phase Running.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub running: i32,
    /// Groups in phase Inqueue.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub inqueue: i32,
    /// Groups in phase Completed.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub completed: i32,
    /// What is set aside for it.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub reservation: Reservation,
    /// What its pods hold; written by the scheduler.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub allocated: ResourceList,
}

/// Nodes and amounts set aside for a queue.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// Names of nodes.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub nodes: Vec<String>,
    /// Their sum.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub resource: ResourceList,
}

word_enum! {
    /// States of a queue.
    closed pub enum QueueState {
        /// Takes jobs.
        Open = "Open",
        /// Takes none, and holds none.
        Closed = "Closed",
        /// Takes none; what it holds goes on.
        Closing = "Closing",
        /// Not known.
        Unknown = "Unknown",
    }
}

word_enum! {
    /// What a blocked head of a queue does to those behind it.
    closed pub enum DequeueStrategy {
        /// They wait.
        Fifo = "fifo",
        /// They are tried.
        Traverse = "traverse",
    }
}
