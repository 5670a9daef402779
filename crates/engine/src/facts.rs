//! What the shell tells the engine: plain facts about cluster objects, and the deltas that carry them.
//!
//! Facts hold only what scheduling reads. Deltas are idempotent and may come in any order (a pod before its group,
//! a group before its queue, a pod before its node). They serialise, so that a recording can be run again.

use serde::{Deserialize, Serialize};

mod cluster;
mod devices;
mod group;
mod inter_pod;
mod names;
mod node;
mod numa;
mod pod;
mod queue;
mod saved;
mod shared;
mod storage;
mod template;
mod window;

pub use cluster::{BudgetFacts, HyperNodeFacts, HyperNodeMember, MemberKind, QuotaFacts, ShardFacts};
pub use devices::{
    Attribute, DeviceClaimFacts, DeviceClassFacts, DeviceFacts, DeviceName, DeviceRequest, DeviceSliceFacts,
};
pub use group::{GroupCondition, GroupFacts, GroupPhase, GroupStatus, OwnerFacts, SubGroupPolicy, TopologySpec};
pub use inter_pod::{InterPodConstraints, LabelSelector, PodSelector, PodTerm, PreferredPodTerm, SpreadConstraint};
pub use names::{GroupUid, NodeName, ObjectName, PodUid};
pub use node::{NodeFacts, NodeUsage, Taint, TaintEffect};
pub use numa::{CpuPlace, NumaFacts};
pub use pod::{DependsOn, PodFacts, PodPhase, ShapeTask};
pub use queue::{NodeGroupAffinity, QueueFacts, QueueState};
pub use shared::Shared;
pub use storage::{CsiNodeFacts, PodClaims, StorageClassFacts, VolumeClaimFacts, VolumeFacts};
pub use template::{ContainerFacts, HostPort, NodeTerm, Operator, PodTemplate, PreferredTerm, Requirement, Toleration};
pub(crate) use template::{VGPU_MEMORY, VGPU_NUMBER};
pub use window::WindowFacts;

/// What facts need not say: reading gives the default again, and recordings are a third as long.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One change of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Delta {
    /// A node as it is now.
    NodeUpsert(NodeFacts),
    /// What is in use on a node, as measured.
    NodeUsage { name: NodeName, usage: NodeUsage },
    /// Whether something is there that adds nodes for pods that wait.
    AutoscalerSeen(bool),
    /// A node is gone, by name. What runs on it stays counted for its groups.
    NodeRemove(NodeName),
    /// A pod as it is now, ours or of another scheduler.
    TaskUpsert(Box<PodFacts>),
    /// A pod is gone, by uid.
    TaskRemove(PodUid),
    /// A PodGroup as it is now.
    GroupUpsert(Box<GroupFacts>),
    /// A PodGroup is gone. Ignored when the stored one has another uid.
    GroupRemove {
        namespace: String,
        name: String,
        /// Its uid; empty matches any.
        uid: GroupUid,
    },
    /// The tasks that an owner (a Job) will make pods from, known before any pod is.
    ShapeUpsert {
        /// The owner's uid, as in the PodGroup's owner reference.
        owner_uid: String,
        tasks: Vec<ShapeTask>,
        /// The owner has ended: its groups want nothing more.
        ended: bool,
    },
    /// The owner is gone.
    ShapeRemove { owner_uid: String },
    /// A queue as it is now.
    QueueUpsert(QueueFacts),
    /// A queue is gone, by name.
    QueueRemove(String),
    /// A priority class as it is now.
    PriorityClassUpsert {
        name: String,
        value: i32,
        /// Whether it applies where no class is named.
        global_default: bool,
    },
    /// A priority class is gone, by name.
    PriorityClassRemove(String),
    /// A HyperNode as it is now.
    HyperNodeUpsert(HyperNodeFacts),
    /// A HyperNode is gone, by name.
    HyperNodeRemove(String),
    /// A Numatopology as it is now.
    NumaUpsert(NumaFacts),
    /// A Numatopology is gone, by its node's name.
    NumaRemove(NodeName),
    /// A NodeShard as it is now.
    ShardUpsert(ShardFacts),
    /// A NodeShard is gone, by name.
    ShardRemove(String),
    /// A PodDisruptionBudget as it is now.
    BudgetUpsert(BudgetFacts),
    /// A PodDisruptionBudget is gone.
    BudgetRemove { namespace: String, name: String },
    /// A ResourceQuota as it is now.
    QuotaUpsert(QuotaFacts),
    /// A ResourceQuota is gone.
    QuotaRemove { namespace: String, name: String },
    /// A PersistentVolumeClaim as it is now.
    VolumeClaimUpsert(VolumeClaimFacts),
    /// A PersistentVolumeClaim is gone.
    VolumeClaimRemove { namespace: String, name: String },
    /// A PersistentVolume as it is now.
    VolumeUpsert(VolumeFacts),
    /// A PersistentVolume is gone, by name.
    VolumeRemove(String),
    /// A StorageClass as it is now.
    StorageClassUpsert(StorageClassFacts),
    /// A StorageClass is gone, by name.
    StorageClassRemove(String),
    /// A CSINode as it is now.
    CsiNodeUpsert(CsiNodeFacts),
    /// A CSINode is gone, by its node's name.
    CsiNodeRemove(NodeName),
    /// A ResourceClaim as it is now.
    DeviceClaimUpsert(DeviceClaimFacts),
    /// A ResourceClaim is gone.
    DeviceClaimRemove { namespace: String, name: String },
    /// A DeviceClass as it is now.
    DeviceClassUpsert(DeviceClassFacts),
    /// A DeviceClass is gone, by name.
    DeviceClassRemove(String),
    /// A ResourceSlice as it is now.
    DeviceSliceUpsert(DeviceSliceFacts),
    /// A ResourceSlice is gone, by name.
    DeviceSliceRemove(String),
    /// A namespace and its weight among the namespaces of a queue (annotation `pumice.sh/weight`).
    NamespaceUpsert {
        name: String,
        /// Its weight, at least 1.
        weight: i64,
        labels: std::collections::BTreeMap<String, String>,
        /// The queue of its pods that name none (annotation `scheduling.volcano.sh/queue-name`).
        #[serde(default)]
        queue: Option<String>,
    },
    /// A namespace is gone, by name.
    NamespaceRemove(String),
    /// A Reservation of an administrator as it is now.
    WindowUpsert(WindowFacts),
    /// A Reservation is gone, by name.
    WindowRemove(String),
    /// How long pods of one kind ran before this world began, the oldest first.
    RunsLearned {
        namespace: String,
        /// Their `run_profile`.
        profile: String,
        /// Each in milliseconds.
        runs_ms: Vec<i64>,
    },
}
