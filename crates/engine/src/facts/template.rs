//! What placing a pod reads of it: equal templates make one class. Made from pods, and from the tasks of Jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::{InterPodConstraints, TaintEffect};
use crate::resource_dims::Resources;

/// A toleration of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// The key; empty with `exists` tolerates every key.
    #[serde(skip_serializing_if = "super::is_default")]
    pub key: String,
    /// Operator Exists: the value is not compared.
    #[serde(skip_serializing_if = "super::is_default")]
    pub exists: bool,
    /// The value for operator Equal.
    #[serde(skip_serializing_if = "super::is_default")]
    pub value: String,
    /// The effect; absent tolerates every effect.
    #[serde(skip_serializing_if = "super::is_default")]
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
    pub operator: Operator,
    /// What it compares with.
    #[serde(default)]
    pub values: Vec<String>,
}

/// Requirements that must all hold; a term without any matches no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTerm {
    #[serde(skip_serializing_if = "super::is_default")]
    pub expressions: Vec<Requirement>,
    /// On fields; only `metadata.name` exists.
    #[serde(skip_serializing_if = "super::is_default")]
    pub fields: Vec<Requirement>,
}

/// A preferred term and its weight, 1 to 100.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreferredTerm {
    pub weight: i32,
    pub term: NodeTerm,
}

/// A container, as far as placing its pod reads it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerFacts {
    /// It runs before the others and ends.
    #[serde(skip_serializing_if = "super::is_default")]
    pub init: bool,
    /// `resources.requests`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub requests: Resources,
    /// `resources.limits`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub limits: Resources,
}

/// Everything about a pod that placing it reads. Pods with equal templates share a class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    /// The effective requests, without `pods`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub requests: Resources,
    /// The sums of cpu and memory limits; a resource that some container does not limit is absent.
    #[serde(skip_serializing_if = "super::is_default")]
    pub limits: Resources,
    /// Containers in order, where the pod is Guaranteed or asks for shared devices; else none.
    #[serde(skip_serializing_if = "super::is_default")]
    pub containers: Vec<ContainerFacts>,
    /// Its QoS class is Guaranteed.
    #[serde(skip_serializing_if = "super::is_default")]
    pub guaranteed: bool,
    /// Annotations that say where it may run or likes to, only those that a plugin reads.
    #[serde(skip_serializing_if = "super::is_default")]
    pub annotations: BTreeMap<String, String>,
    /// `spec.nodeSelector`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: any term suffices. `Some` of nothing matches no node.
    #[serde(skip_serializing_if = "super::is_default")]
    pub required_terms: Option<Vec<NodeTerm>>,
    #[serde(skip_serializing_if = "super::is_default")]
    pub preferred_terms: Vec<PreferredTerm>,
    #[serde(skip_serializing_if = "super::is_default")]
    pub tolerations: Vec<Toleration>,
    /// Host ports, sorted.
    #[serde(skip_serializing_if = "super::is_default")]
    pub host_ports: Vec<HostPort>,
    /// Images of its containers, with their tags.
    #[serde(skip_serializing_if = "super::is_default")]
    pub images: Vec<String>,
    /// What it says of other pods.
    #[serde(rename = "couplings", skip_serializing_if = "super::is_default")]
    pub inter_pod: InterPodConstraints,
    /// Task priority: annotation `volcano.sh/task-priority`, else `spec.priority`, else 1.
    #[serde(skip_serializing_if = "super::is_default")]
    pub priority: i32,
    /// How long it may run at most, from its start: `spec.activeDeadlineSeconds`. It is ended then, whatever it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<i64>,
    /// Constraints that this version can't honour, such as `podAntiAffinity`. Such a pod is not placed, and says so.
    #[serde(skip_serializing_if = "super::is_default")]
    pub unsupported: Vec<String>,
}

/// The resource that is a number of virtual cards.
pub(crate) const VGPU_NUMBER: &str = "volcano.sh/vgpu-number";
/// The resource that is memory of virtual cards.
pub(crate) const VGPU_MEMORY: &str = "volcano.sh/vgpu-memory";

impl PodTemplate {
    /// Whether it asks for parts of devices, whatever plugins are configured.
    pub(crate) fn shares_devices(&self) -> bool {
        let limits = self.containers.iter().filter(|container| !container.init).map(|container| &container.limits);
        limits.into_iter().any(|limits| [VGPU_NUMBER, VGPU_MEMORY].iter().any(|name| limits.contains_key(*name)))
    }
}
