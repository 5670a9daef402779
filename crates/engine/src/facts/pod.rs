//! Facts of pods, and of the tasks that will become pods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::{PodClaims, PodTemplate};
use crate::ids::TimeMs;

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
    /// `spec.terminationGracePeriodSeconds`, in milliseconds.
    pub grace_ms: Option<i64>,
    /// The kubelet refused it (OutOfcpu and the like): it never started, and is to be replaced.
    pub refused: bool,
    /// It carries scheduling gates.
    pub gated: bool,
    /// Its only gate is `scheduling.volcano.sh/queue-allocation-gate`: it waits for its queue to take it.
    pub queue_gated: bool,
    /// When it was made.
    pub created: TimeMs,
    /// When its containers started running.
    pub started: Option<TimeMs>,
    /// When its last container ended, where it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<TimeMs>,
    /// When its PodScheduled condition became true.
    pub scheduled: Option<TimeMs>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations, only those that a plugin reads.
    pub annotations: BTreeMap<String, String>,
    /// Annotation, else label, `volcano.sh/preemptable`; absent means true.
    pub preemptable: Option<bool>,
    /// `spec.preemptionPolicy` is Never.
    pub never_preempts: bool,
    /// `spec.priorityClassName` of the pod itself.
    pub pod_priority_class: String,
    /// `status.nominatedNodeName`.
    pub nominated: Option<String>,
    /// Owned by a DaemonSet.
    pub of_daemon_set: bool,
    /// What it claims by name.
    pub claims: PodClaims,
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
