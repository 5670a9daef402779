//! What a cycle decided, as data: the shell carries it out and reports back. Names and uids, no ids of the World.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::facts::{DeviceName, GroupStatus, GroupUid, NodeName, ObjectName, PodUid};
use crate::ids::TimeMs;
use crate::reasons::{plural, time_text};
use crate::resource_dims::Resources;

/// The outcome of one cycle. All of it already counts in the World.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plan {
    /// Pods to bind. Each wants a `World::bind_result`.
    pub binds: Vec<Bind>,
    /// Pods to evict. Each wants a `World::evict_result`.
    pub evictions: Vec<Eviction>,
    /// Pods for which room was promised in this cycle that others are leaving.
    pub pipelined: Vec<Pipelined>,
    /// Pods that their queue takes: a gate is to be removed. Failures want a `World::ungate_failed`.
    pub ungates: Vec<Ungate>,
    /// Groups that were admitted (Pending to Inqueue), as `namespace/name`.
    pub admitted: Vec<ObjectName>,
    /// PodGroup statuses to write. Each wants a `World::status_result`.
    pub groups: Vec<GroupUpdate>,
    /// Pods whose PodScheduled condition is to be written.
    pub pods: Vec<PodNotice>,
    /// Queues whose `status.allocated` is to be written.
    pub queues: Vec<QueueUpdate>,
    /// Groups that are expected to miss their deadline, and were not told so before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<Late>,
    /// What became of room that others were evicted from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<FreedRoom>,
    /// A cycle is wanted at this time even if nothing happens before.
    pub next_wakeup: Option<TimeMs>,
}

/// One pod to bind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bind {
    pub uid: PodUid,
    pub namespace: String,
    pub name: String,
    pub node: NodeName,
    /// Its group, `namespace/name`.
    pub group: ObjectName,
    /// Annotations that the pod gets with the bind, such as the devices it may use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What is to be written before, in order; where one fails the pod is not bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prebind: Vec<Prebind>,
}

/// A write that must precede a bind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Prebind {
    /// Tell the provisioner of a volume claim where the volume is wanted, and wait until it is bound.
    SelectNode {
        /// Namespace of the claim.
        namespace: String,
        claim: String,
        node: NodeName,
    },
    /// Give a volume to a claim, and wait until they are bound.
    BindVolume {
        /// Namespace of the claim.
        namespace: String,
        claim: String,
        uid: String,
        volume: String,
    },
    /// Reserve a resource claim for the pod, with these devices if it has none yet.
    Reserve {
        /// Namespace of the claim.
        namespace: String,
        claim: String,
        /// Name of the request, and device.
        devices: Vec<(String, DeviceName)>,
        node: NodeName,
    },
}

/// One gate to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ungate {
    /// The pod's uid: only this very pod.
    pub uid: PodUid,
    pub namespace: String,
    pub name: String,
    /// The scheduling gate's name.
    pub gate: String,
    /// Its group, `namespace/name`.
    pub group: ObjectName,
}

/// One pod to evict: by whom, why, and what is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// The pod's uid: only this very pod.
    pub uid: PodUid,
    pub namespace: String,
    pub name: String,
    pub node: NodeName,
    /// Its group, `namespace/name`.
    pub group: ObjectName,
    /// `preempt`, `reclaim`, `gangpreempt`, `gangreclaim`, `shuffle`, `gangtakeback`, `reservation` or `overrun`.
    pub action: String,
    /// The group that gets the room, `namespace/name`.
    pub beneficiary: Option<ObjectName>,
    /// It runs; otherwise it has a node and does not run yet.
    pub running: bool,
    /// Milli-cores asked for times milliseconds run, in core-milliseconds.
    pub lost_core_ms: i64,
    /// For people.
    pub message: String,
}

/// One pod that waits for room on a node that others are leaving.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pipelined {
    pub uid: PodUid,
    pub namespace: String,
    pub name: String,
    pub node: NodeName,
    /// Its group, `namespace/name`.
    pub group: ObjectName,
    /// The room is kept past this cycle: `status.nominatedNodeName` is to say so.
    pub fenced: bool,
}

/// A PodGroup's new status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupUpdate {
    /// Namespace of the PodGroup.
    pub namespace: String,
    pub name: String,
    pub uid: GroupUid,
    /// Annotations that it gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What its status is to say.
    pub status: GroupStatus,
}

/// A pod that can't be placed now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNotice {
    pub uid: PodUid,
    pub namespace: String,
    pub name: String,
    /// The condition's reason: `Unschedulable` or `SchedulerError`.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// A group that is expected to miss its deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Late {
    /// Namespace of the PodGroup.
    pub namespace: String,
    pub name: String,
    pub uid: GroupUid,
    /// When it is to have ended.
    pub deadline: TimeMs,
    /// When it is expected to.
    pub expected: TimeMs,
}

/// What became of room that was freed for a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FreedRoom {
    /// The group, `namespace/name`.
    pub beneficiary: ObjectName,
    pub uid: GroupUid,
    /// The action that chose the victims.
    pub action: String,
    /// Whether it started there.
    pub room: Ending,
    /// How many pods had to leave.
    pub evictions: u32,
}

/// What a queue's pods hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueUpdate {
    pub name: String,
    /// cpu in milli-cores, all else in whole units.
    pub allocated: Resources,
}

impl Plan {
    /// Nothing to carry out.
    pub fn is_empty(&self) -> bool {
        self.binds.is_empty()
            && self.ungates.is_empty()
            && self.evictions.is_empty()
            && self.groups.is_empty()
            && self.pods.is_empty()
            && self.queues.is_empty()
            && self.late.is_empty()
            && self.settled.is_empty()
    }
}

/// What became of the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Ending {
    /// It is being freed.
    #[default]
    Open,
    /// The group that it was freed for has started there.
    Used,
    /// That group is gone.
    Gone,
    /// It did not become free in time, or something else took it.
    NotFreed,
    /// The API server refused the eviction: the pod stayed.
    Refused,
}

impl Ending {
    /// In one word, for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Used => "used",
            Self::Gone => "gone",
            Self::NotFreed => "not-freed",
            Self::Refused => "refused",
        }
    }
}

impl Display for Late {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let late = time_text(self.expected.0.saturating_sub(self.deadline.0));
        write!(
            f,
            "expected to miss its deadline by {late}, as far as can be told now: raise its priority, or ask for less"
        )
    }
}

impl Display for FreedRoom {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let pods = plural(self.evictions, "pod");
        let was = if self.evictions == 1 { "was" } else { "were" };
        write!(f, "{pods} {was} evicted for it by {}: ", self.action)?;
        f.write_str(match self.room {
            Ending::Open => "the room is being freed",
            Ending::Used => "it has started in the room",
            Ending::Gone => "the room was not used, it is gone",
            Ending::NotFreed => "the room was not used, it did not become free in time",
            Ending::Refused => "they stayed, the API server refused",
        })
    }
}

crate::save::saved_enum!(Ending { Open, Used, Gone, NotFreed, Refused });
