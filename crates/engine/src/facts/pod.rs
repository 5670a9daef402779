//! Facts of pods, and of the tasks that will become pods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::{NodeName, PodClaims, PodTemplate, PodUid, Shared};
use crate::ids::TimeMs;

/// `status.phase` of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PodPhase {
    /// Not running yet.
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    /// Its node does not answer.
    Unknown,
}

/// A pod, be it one that is to be scheduled or another's that takes room.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub uid: PodUid,
    #[serde(skip_serializing_if = "super::is_default")]
    pub namespace: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    /// True if its scheduler name is one of ours.
    #[serde(skip_serializing_if = "super::is_default")]
    pub mine: bool,
    /// The PodGroup's name (annotation `scheduling.k8s.io/group-name`); a pod of ours without it is a group of one.
    #[serde(skip_serializing_if = "super::is_default")]
    pub group: Option<String>,
    /// The queue of a group of one.
    #[serde(skip_serializing_if = "super::is_default")]
    pub queue: Option<String>,
    /// The priority class of a group of one.
    #[serde(skip_serializing_if = "super::is_default")]
    pub priority_class: String,
    /// Its task's name (annotation `volcano.sh/task-spec`).
    #[serde(skip_serializing_if = "super::is_default")]
    pub role: String,
    /// `spec.nodeName`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub node: Option<NodeName>,
    #[serde(skip_serializing_if = "super::is_default")]
    pub phase: PodPhase,
    /// It has a deletion timestamp.
    #[serde(skip_serializing_if = "super::is_default")]
    pub terminating: bool,
    /// `spec.terminationGracePeriodSeconds`, in milliseconds.
    #[serde(skip_serializing_if = "super::is_default")]
    pub grace_ms: Option<i64>,
    /// The kubelet refused it (OutOfcpu and the like): it never started, and is to be replaced.
    #[serde(skip_serializing_if = "super::is_default")]
    pub refused: bool,
    /// It carries scheduling gates.
    #[serde(skip_serializing_if = "super::is_default")]
    pub gated: bool,
    /// Its only gate is `scheduling.volcano.sh/queue-allocation-gate`: it waits for its queue to take it.
    #[serde(skip_serializing_if = "super::is_default")]
    pub queue_gated: bool,
    /// When it was made.
    #[serde(skip_serializing_if = "super::is_default")]
    pub created: TimeMs,
    /// When its containers started running.
    #[serde(skip_serializing_if = "super::is_default")]
    pub started: Option<TimeMs>,
    /// When its last container ended, where it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<TimeMs>,
    /// When its PodScheduled condition became true.
    #[serde(skip_serializing_if = "super::is_default")]
    pub scheduled: Option<TimeMs>,
    #[serde(skip_serializing_if = "super::is_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, only those that a plugin reads.
    #[serde(skip_serializing_if = "super::is_default")]
    pub annotations: BTreeMap<String, String>,
    /// Annotation, else label, `volcano.sh/preemptable`; absent means true.
    #[serde(skip_serializing_if = "super::is_default")]
    pub preemptable: Option<bool>,
    /// `spec.preemptionPolicy` is Never.
    #[serde(skip_serializing_if = "super::is_default")]
    pub never_preempts: bool,
    /// `spec.priorityClassName` of the pod itself.
    #[serde(skip_serializing_if = "super::is_default")]
    pub pod_priority_class: String,
    /// `status.nominatedNodeName`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub nominated: Option<NodeName>,
    /// Owned by a DaemonSet.
    #[serde(skip_serializing_if = "super::is_default")]
    pub of_daemon_set: bool,
    /// What it claims by name.
    #[serde(skip_serializing_if = "super::is_default")]
    pub claims: PodClaims,
    /// What placing it reads.
    #[serde(skip_serializing_if = "super::is_default")]
    pub template: Shared<PodTemplate>,
}

/// One task of a group that has no pods yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShapeTask {
    #[serde(skip_serializing_if = "super::is_default")]
    pub role: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub count: u32,
    #[serde(skip_serializing_if = "super::is_default")]
    pub template: Shared<PodTemplate>,
    /// Its pods are made only when those of these tasks run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<DependsOn>,
}

/// Tasks that have to run before another has pods: `dependsOn`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DependsOn {
    pub tasks: Vec<String>,
    /// One of them is enough.
    #[serde(skip_serializing_if = "super::is_default")]
    pub any: bool,
}
