//! Why a group waits: structured, with stable codes, and rendered for people.
//!
//! Invariant: a reason states the very check that failed, with the numbers it failed on. Made by the actions and by
//! `cycle_end`; read by `World::reasons`, the plan's conditions, and `jobctl why`.

use serde::{Deserialize, Serialize};

use crate::facts::{NodeName, ObjectName};
use crate::ids::TimeMs;

mod class;
mod text;

pub(crate) use class::{class_of, is_class};
pub(crate) use text::{Branch, forest, plural, time_text, tree};

/// Where in its way a group waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Stage {
    /// Its PodGroup is not there: nothing is known of it but its pods.
    NoGroup,
    /// Not admitted yet: no pods are made for it.
    #[default]
    Enqueue,
    /// Admitted, but it has fewer pods than its minimum.
    NoPods,
    /// Its pods wait for nodes.
    Allocate,
    /// Nodes were chosen, and the API server refused a bind.
    Binding,
    /// Nowhere: it has what it needs.
    Started,
}

/// All the reasons of one waiting group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reasons {
    pub stage: Stage,
    /// Since when it waits at this stage.
    pub since: TimeMs,
    pub queue: String,
    /// What has to be placed together, and how much of it is.
    pub minimum: Minimum,
    /// What it asks for is known only as a sum (`minResources`): the answer is an estimate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approximate: bool,
    /// When it is expected to start, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    /// Each reason, the deciding one first.
    pub reasons: Vec<Reason>,
}

/// When a group is expected to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    #[serde(rename = "asked")]
    pub as_of: TimeMs,
    /// Half of those like it started by then.
    pub at: TimeMs,
    /// One of ten before this.
    pub early: TimeMs,
    /// One of ten after this.
    pub late: TimeMs,
    /// No later, whatever comes after it: all that runs there is ended by a limit by then.
    pub promised: bool,
}

/// What a gang has to have together before it starts, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Minimum {
    /// `minMember`.
    pub min_member: u32,
    /// Pods that count for it already.
    pub ready: u32,
    /// Pods without a node.
    pub pending: u32,
    /// Task minima that are not met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleMinimum>,
}

/// A task's minimum inside a gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleMinimum {
    pub role: String,
    pub min: u32,
    /// Pods that count for it already.
    pub ready: u32,
}

/// One reason to wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Reason {
    /// Pods name a PodGroup that does not exist.
    GroupNotFound {
        group: ObjectName,
        /// It is one that controllers make for the pods' owner.
        made: bool,
    },
    /// The queue does not exist.
    QueueNotFound { queue: String },
    /// The queue takes no work.
    QueueClosed { queue: String, state: String },
    /// What the queue may hold at most, by its `capability` or because there is no more, leaves too little.
    QueueLimit {
        queue: String,
        /// The dimension that binds.
        resource: String,
        limit: i64,
        /// What the queue's pods hold, with what is promised to admitted groups.
        used: i64,
        /// What this group asks for.
        requested: i64,
        /// By how much it is too little.
        short: i64,
        /// True if it would not fit an empty queue either.
        never: bool,
        /// True if the limit is all that the cluster has, so that it is the cluster that is full.
        of_cluster: bool,
    },
    /// The queue holds its share; others deserve the rest.
    QueueShare {
        queue: String,
        /// The dimension that binds.
        resource: String,
        deserved: i64,
        /// What it holds, with what is promised to it.
        used: i64,
        /// What one more pod asks for.
        requested: i64,
    },
    /// The queue takes no work because of where it stands among the others.
    QueueUnusable {
        queue: String,
        /// What is wrong: `its parent team-a does not exist`.
        fault: String,
    },
    /// More was admitted already than the cluster will have room for soon.
    Overcommitted {
        /// The dimension that binds.
        resource: String,
        /// What may be promised.
        budget: i64,
        promised: i64,
        /// What this group asks for.
        requested: i64,
    },
    /// A ResourceQuota of the namespace leaves too little.
    Quota {
        quota: String,
        /// Its key that binds.
        resource: String,
        hard: i64,
        /// What is used, with what admitted groups will ask for.
        used: i64,
        /// What this group asks for.
        requested: i64,
    },
    /// The queue runs as many jobs as it may at a time.
    QueueJobs {
        /// The queue, or one above it.
        queue: String,
        /// `maxRunningJobs`.
        limit: u32,
        /// How many were admitted and have not ended.
        running: u32,
    },
    /// No node can take the pods that are needed.
    NodesUnfit(NodesUnfit),
    /// No present node fits it, and its pods are there for an autoscaler to see.
    AwaitsNodes,
    /// The minimum does not fit the cluster even when it is empty.
    ExceedsCluster(NodesUnfit),
    /// Fewer pods than the minimum exist.
    NotEnoughTasks {
        min: u32,
        /// Pods that could count.
        valid: u32,
    },
    /// It has begun, and room is kept for pods of it that are not there yet.
    ResourcesPromised {
        /// How much, as `2 cpu`.
        amounts: Vec<String>,
        /// For how many milliseconds longer, unless a pod of it is made or waits.
        left_ms: i64,
    },
    /// A task has no pods yet, as it depends on others; the rest starts without it.
    WaitsForTasks {
        role: String,
        /// Those that it depends on.
        tasks: Vec<String>,
        /// One of them is enough.
        any: bool,
    },
    /// Fewer pods of one task than its minimum exist.
    NotEnoughTasksOfRole {
        role: String,
        min: u32,
        /// Pods that could count.
        valid: u32,
    },
    /// A sub-group policy has fewer parts than it needs.
    NotEnoughParts {
        policy: String,
        /// Its `minSubGroups`.
        min: u32,
        /// Parts that its pods make.
        found: u32,
    },
    /// No part of the network that is close enough has room.
    NoDomain(NoDomain),
    /// The highest tier is given by a name that no HyperNode has.
    UnknownTier { name: String },
    /// Pods are held by scheduling gates.
    Gated { pods: u32 },
    /// The API server refused to bind; it is tried again.
    BindFailed {
        pods: u32,
        /// The last error.
        error: String,
        /// When the next one is tried.
        retry_at: TimeMs,
    },
    /// Others are leaving nodes so that it can start there; the room is kept for it.
    RoomIsFreed {
        /// How many of its pods wait for that.
        pods: u32,
        /// Where; at most five.
        nodes: Vec<NodeName>,
        /// When it is no longer kept.
        until: TimeMs,
    },
    /// Room was kept for it and did not become free in time.
    #[serde(rename = "fenceFell")]
    NominationExpired {
        /// For how many of its pods.
        pods: u32,
    },
    /// No action of the configuration admits or places such a group.
    NotConfigured {
        /// The action that would.
        action: String,
    },
    /// A plugin of a third party says no.
    Refused {
        plugin: String,
        /// Why, in its words.
        message: String,
    },
    /// The queue keeps strict order, and this group does not fit yet.
    StrictOrder {
        queue: String,
        /// The group that is next, `namespace/name`.
        next: ObjectName,
    },
    /// It is next in its queue, and room is reserved for it.
    Reserved {
        /// In how many milliseconds it is expected to start; absent where something has no known end.
        in_ms: Option<i64>,
        /// Its nodes are fixed.
        hard: bool,
        /// It starts no later.
        promised: bool,
        /// Its nodes; at most five.
        nodes: Vec<NodeName>,
        /// How many in all.
        count: u32,
    },
    /// Nodes have room for it, which is kept for others that are next.
    KeptForOthers {
        /// For whom, `namespace/name`; at most five.
        groups: Vec<ObjectName>,
        nodes: u32,
        /// In how many milliseconds the first of them is expected to start: what has ended by then may have the room.
        in_ms: i64,
    },
    /// Nodes have room for it, which a Reservation of an administrator closes to it.
    Closed {
        window: String,
        nodes: u32,
        /// In how many milliseconds it begins: what is certain to have ended by then may start there. At most 0 where it
        /// has begun.
        begins_ms: i64,
        /// In how many milliseconds it is over; absent, when it is deleted.
        ends_ms: Option<i64>,
        /// For whom the nodes are; empty for nobody.
        for_whom: String,
    },
    /// It is expected to miss its deadline.
    DeadlineMiss {
        /// By so many milliseconds.
        late_ms: i64,
    },
    /// Groups of the same queue that were admitted earlier and still wait for room.
    WaitsBehind {
        /// Their `namespace/name`, at most five.
        groups: Vec<ObjectName>,
        /// How many in all.
        count: u32,
    },
}

/// What the nodes said to one kind of pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodesUnfit {
    pub role: String,
    /// Pods of it that are needed together.
    pub needed: u32,
    /// Of these, how many found room before one did not.
    pub found_room: u32,
    pub nodes: u32,
    /// How many nodes failed each check. A node short of two resources is in two counts.
    pub checks: Vec<CheckCount>,
    pub short: Vec<Shortage>,
}

/// What the HyperNodes said to pods that must lie together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NoDomain {
    /// The part of the group, where it has parts.
    pub part: String,
    /// The highest tier that is allowed.
    pub tier_max: u32,
    /// Pods that need room together.
    pub needed: u32,
    /// HyperNodes of an allowed tier.
    pub hyper_nodes: u32,
    /// The one that comes nearest; empty if there is none.
    pub nearest: String,
    /// How many pods have room there, at most.
    pub room_for: u32,
    /// Where the pods that run already keep the others.
    pub inside: String,
}

/// Nodes that failed one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckCount {
    pub check: Check,
    /// The resource, taint or constraint that it failed on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    pub nodes: u32,
}

/// A check of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Check {
    /// The Node object is not there.
    NodeGone,
    /// It is not of this scheduler's shard.
    OutsideShard,
    Unschedulable,
    /// Node selector or required node affinity.
    NodeAffinity,
    /// A taint that is not tolerated.
    Taint,
    /// A constraint that this version can't honour.
    Unsupported,
    /// No pod that required pod affinity asks for is in the node's domain.
    PodAffinity,
    /// A pod that required anti-affinity shuns is in the node's domain.
    PodAntiAffinity,
    /// A pod there shuns this one.
    OtherAntiAffinity,
    /// A volume claim is not as it must be.
    VolumeClaim,
    /// A volume that can't be used on the node.
    VolumeNode,
    /// A volume in another zone.
    VolumeZone,
    /// The node takes no more volumes of a driver.
    VolumeLimit,
    /// No volume suits a claim there, and none can be made.
    NoVolume,
    /// A resource claim is not as it must be.
    DeviceClaim,
    /// Too few devices of a class are free.
    Devices,
    /// The devices of a resource claim are elsewhere.
    DevicesElsewhere,
    /// The node lacks the topology key of a spread constraint.
    SpreadLabel,
    /// The node's domain would have too many of the pods that are to be spread.
    Spread,
    /// Too little of a resource is idle.
    Resource,
    /// The node's number of pods is reached.
    PodCount,
    /// It has room, which is kept for others that are next.
    Reserved,
    /// An administrator's Reservation closes it to the pod.
    Closed,
    /// A host port is taken.
    HostPort,
    /// As many binds are on their way to it as may be at a time.
    Binding,
    /// It is in a zone that is closed at this time, or that the pod is not made for.
    RevocableZone,
    /// Outside the part of the cluster that the group may use.
    OutsideDomain,
    /// The queue's rules don't allow the node's group.
    NodeGroup,
    /// The queue holds all that it may of the node's group.
    NodeGroupLimit,
    /// The machine is busier than the threshold.
    Usage,
    /// No shared device of the node can take the pod.
    Device,
    /// The node could not give the pod the cpus that its topology policy asks for.
    Numa,
    /// Cpu and memory are kept for pods that ask for the node's scarce resources.
    Proportional,
    /// A plugin refuses the node; the detail says why.
    Refused,
}

/// A resource that is short where a node could otherwise take the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortage {
    pub resource: String,
    /// What one pod asks for.
    pub requested: i64,
    /// The node that comes nearest.
    pub best_node: NodeName,
    /// What is missing there.
    pub short_on_best: i64,
    /// What all pods still without room ask for, beyond what is idle on all nodes that could take them. At least 0.
    pub short_total: i64,
}

impl Reason {
    /// Whether both tell of the same limit, share or quota, or both come from one plugin of a third party, which says one
    /// thing at a time: where two look after one thing it is told once.
    pub(crate) fn is_about_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::QueueLimit { queue, resource, .. }, Self::QueueLimit { queue: its, resource: of, .. })
            | (Self::QueueShare { queue, resource, .. }, Self::QueueShare { queue: its, resource: of, .. })
            | (Self::Quota { quota: queue, resource, .. }, Self::Quota { quota: its, resource: of, .. }) => {
                (queue, resource) == (its, of)
            }
            (Self::Refused { plugin, .. }, Self::Refused { plugin: its, .. }) => plugin == its,
            _ => self == other,
        }
    }

    /// Whether a queue's share is in the way, which it is not while queues lend.
    pub(crate) fn is_of_share(&self) -> bool {
        matches!(self, Self::QueueShare { .. })
    }
}

/// Why one group did not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) stage: Stage,
    pub(crate) approximate: bool,
    pub(crate) reasons: Vec<Reason>,
}

impl Failure {
    pub(crate) fn at(stage: Stage, reasons: Vec<Reason>) -> Self {
        Self { stage, approximate: false, reasons }
    }

    /// What kind of failure it is: objects are written anew only when this changes.
    pub(crate) fn class(&self) -> String {
        class_of(self.stage, &self.reasons)
    }

    /// Whether it is of this kind.
    pub(crate) fn is_class(&self, class: &str) -> bool {
        is_class(class, self.stage, &self.reasons)
    }
}

crate::save::saved! { Failure { stage, approximate, reasons } }
crate::save::saved_as_json!(Reason, Stage);
