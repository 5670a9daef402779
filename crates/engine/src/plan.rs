//! What a cycle decided, as data: the shell carries it out and reports back. Names and uids, no ids of the World.

use serde::{Deserialize, Serialize};

use crate::dims::Resources;
use crate::facts::GroupStatus;
use crate::ids::TimeMs;

/// The outcome of one cycle. All of it already counts in the World.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plan {
    /// Pods to bind. Each wants a `World::bind_result`.
    pub binds: Vec<Bind>,
    /// Groups that were admitted (Pending to Inqueue), as `namespace/name`.
    pub admitted: Vec<String>,
    /// PodGroup statuses to write. Each wants a `World::status_result`.
    pub groups: Vec<GroupUpdate>,
    /// Pods whose PodScheduled condition is to be written.
    pub pods: Vec<PodNotice>,
    /// Queues whose `status.allocated` is to be written.
    pub queues: Vec<QueueUpdate>,
    /// A cycle is wanted at this time even if nothing happens before.
    pub next_wakeup: Option<TimeMs>,
}

/// One pod to bind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bind {
    /// The pod's uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node.
    pub node: String,
    /// Its group, `namespace/name`.
    pub group: String,
}

/// A PodGroup's new status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupUpdate {
    /// Namespace of the PodGroup.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// What its status is to say.
    pub status: GroupStatus,
}

/// A pod that can't be placed now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNotice {
    /// The pod's uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The condition's reason: `Unschedulable` or `SchedulerError`.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// What a queue's pods hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueUpdate {
    /// The queue.
    pub name: String,
    /// cpu in milli-cores, all else in whole units.
    pub allocated: Resources,
}

impl Plan {
    /// Nothing to carry out.
    pub fn is_empty(&self) -> bool {
        self.binds.is_empty() && self.groups.is_empty() && self.pods.is_empty() && self.queues.is_empty()
    }
}
