//! What the shell tells the engine: plain facts about cluster objects, and the deltas that carry them.
//!
//! Facts hold only what scheduling reads. Deltas are idempotent and may come in any order (a pod before its group,
//! a group before its queue, a pod before its node). They serialise, so that a recording can be run again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dims::Resources;
use crate::ids::TimeMs;

/// One change of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Delta {
    /// A node as it is now.
    NodeUpsert(NodeFacts),
    /// A node is gone, by name. What runs on it stays counted for its groups.
    NodeRemove(String),
    /// A pod as it is now, ours or of another scheduler.
    TaskUpsert(Box<PodFacts>),
    /// A pod is gone, by uid.
    TaskRemove(String),
    /// A PodGroup as it is now.
    GroupUpsert(Box<GroupFacts>),
    /// A PodGroup is gone. Ignored when the stored one has another uid.
    GroupRemove {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its uid; empty matches any.
        uid: String,
    },
    /// The tasks that an owner (a Job) will make pods from, known before any pod is.
    ShapeUpsert {
        /// The owner's uid, as in the PodGroup's owner reference.
        owner_uid: String,
        /// Its tasks.
        tasks: Vec<ShapeTask>,
        /// The owner has ended: its groups want nothing more.
        ended: bool,
    },
    /// The owner is gone.
    ShapeRemove {
        /// The owner's uid.
        owner_uid: String,
    },
    /// A queue as it is now.
    QueueUpsert(QueueFacts),
    /// A queue is gone, by name.
    QueueRemove(String),
    /// A priority class as it is now.
    PriorityClassUpsert {
        /// Its name.
        name: String,
        /// Its value.
        value: i32,
        /// Whether it applies where no class is named.
        global_default: bool,
    },
    /// A priority class is gone, by name.
    PriorityClassRemove(String),
}

/// A node, as far as scheduling reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    /// `status.allocatable`.
    pub allocatable: Resources,
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, may be empty.
    #[serde(default)]
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

/// What a taint does to pods that don't tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// They are not placed there.
    NoSchedule,
    /// They are placed there only where nothing better is free.
    PreferNoSchedule,
    /// They are not placed there, and leave.
    NoExecute,
}

/// A toleration of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// The key; empty with `exists` tolerates every key.
    pub key: String,
    /// Operator Exists: the value is not compared.
    pub exists: bool,
    /// The value for operator Equal.
    pub value: String,
    /// The effect; absent tolerates every effect.
    pub effect: Option<TaintEffect>,
}

/// A port of the host that a pod takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPort {
    /// The host address; empty or `0.0.0.0` means all.
    #[serde(default)]
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The port.
    pub port: u16,
}

/// How a requirement compares a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label, as an integer, is above the value.
    Gt,
    /// The label, as an integer, is below the value.
    Lt,
}

/// One requirement on a node's labels or fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Label key, or field name for a field requirement.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// What it compares with.
    #[serde(default)]
    pub values: Vec<String>,
}

/// Requirements that must all hold; a term without any matches no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTerm {
    /// On labels.
    pub expressions: Vec<Requirement>,
    /// On fields; only `metadata.name` exists.
    pub fields: Vec<Requirement>,
}

/// A preferred term and its weight, 1 to 100.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreferredTerm {
    /// Its weight.
    pub weight: i32,
    /// The term.
    pub term: NodeTerm,
}

/// Everything about a pod that placing it reads. Pods with equal templates share a class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    /// The effective requests, without `pods`.
    pub requests: Resources,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: any term suffices. `Some` of nothing matches no node.
    pub required_terms: Option<Vec<NodeTerm>>,
    /// Preferred node affinity.
    pub preferred_terms: Vec<PreferredTerm>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Host ports, sorted.
    pub host_ports: Vec<HostPort>,
    /// Task priority: annotation `volcano.sh/task-priority`, else `spec.priority`, else 1.
    pub priority: i32,
    /// Constraints that this version can't honour, such as `podAntiAffinity`. Such a pod is not placed, and says so.
    pub unsupported: Vec<String>,
}

/// `status.phase` of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PodPhase {
    /// Not running yet.
    #[default]
    Pending,
    /// Running.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Its node does not answer.
    Unknown,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFacts {
    /// Its uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// True if its scheduler name is one of ours.
    pub mine: bool,
    /// The PodGroup's name (annotation `scheduling.k8s.io/group-name`); a pod of ours without it is a group of one.
    pub group: Option<String>,
    /// The queue of a group of one.
    pub queue: Option<String>,
    /// The priority class of a group of one.
    pub priority_class: String,
    /// Its task's name (annotation `volcano.sh/task-spec`).
    pub role: String,
    /// `spec.nodeName`.
    pub node: Option<String>,
    /// Its phase.
    pub phase: PodPhase,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// It carries scheduling gates.
    pub gated: bool,
    /// When it was made.
    pub created: TimeMs,
    /// What placing it reads.
    pub template: PodTemplate,
}

/// One task of a group that has no pods yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShapeTask {
    /// The task's name.
    pub role: String,
    /// Its replicas.
    pub count: u32,
    /// Its pods.
    pub template: PodTemplate,
}

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
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A PodGroup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its queue; empty means the default queue.
    pub queue: String,
    /// `spec.minMember`.
    pub min_member: u32,
    /// `spec.minTaskMember`.
    pub min_task_member: BTreeMap<String, u32>,
    /// `spec.minResources`.
    pub min_resources: Option<Resources>,
    /// `spec.priorityClassName`.
    pub priority_class: String,
    /// When it was made.
    pub created: TimeMs,
    /// Its controller, where it has one.
    pub owner: Option<OwnerFacts>,
    /// What its status says now.
    pub status: GroupStatus,
}

/// A condition of a PodGroup, without the stamps the shell adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupCondition {
    /// `Unschedulable` or `Scheduled`.
    #[serde(rename = "type")]
    pub kind: String,
    /// True or False.
    pub status: bool,
    /// Such as `NotEnoughResources`.
    pub reason: String,
    /// For people. Not compared: it is written anew only when something else changes.
    pub message: String,
}

/// The part of a PodGroup's status that the scheduler writes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupStatus {
    /// Its phase.
    pub phase: GroupPhase,
    /// Its conditions.
    pub conditions: Vec<GroupCondition>,
    /// Pods running.
    pub running: u32,
    /// Pods that ended well.
    pub succeeded: u32,
    /// Pods that ended badly.
    pub failed: u32,
}

impl GroupStatus {
    /// Equal in all that is worth a write: messages may differ.
    pub fn same_class(&self, other: &Self) -> bool {
        let classes = |status: &Self| -> Vec<(String, bool, String)> {
            status.conditions.iter().map(|c| (c.kind.clone(), c.status, c.reason.clone())).collect()
        };
        (self.phase, self.running, self.succeeded, self.failed)
            == (other.phase, other.running, other.succeeded, other.failed)
            && classes(self) == classes(other)
    }
}

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
    /// What its status says is allocated.
    pub allocated: Resources,
}
