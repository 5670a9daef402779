//! Facts of the cluster's smaller objects: HyperNodes, NodeShards, PodDisruptionBudgets, ResourceQuotas.

use serde::{Deserialize, Serialize};

use crate::facts::{NodeName, Requirement};
use crate::resource_dims::Resources;

/// A HyperNode: a part of the network in which nodes are close to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HyperNodeFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    /// `spec.tier`; lower is closer.
    #[serde(skip_serializing_if = "super::is_default")]
    pub tier: u32,
    /// `spec.tierName`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub tier_name: String,
    /// `spec.members`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub members: Vec<HyperNodeMember>,
}

/// One member, or many by pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HyperNodeMember {
    /// Of nodes, or of HyperNodes.
    pub hyper_node: bool,
    pub which: MemberKind,
}

/// How a member is named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MemberKind {
    /// By its name.
    Exact(String),
    /// By a regular expression over names.
    Pattern(String),
    /// By labels (nodes only); all must hold.
    Labels(Vec<Requirement>),
}

/// A NodeShard: the nodes that one scheduler may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShardFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    /// `spec.nodesDesired`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub desired: Vec<NodeName>,
    /// `status.nodesInUse`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub in_use: Vec<NodeName>,
}

/// A PodDisruptionBudget: how many of the pods that it selects may still be evicted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub namespace: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    /// `spec.selector`; `None` selects nothing, an empty one all pods of the namespace.
    #[serde(skip_serializing_if = "super::is_default")]
    pub selector: Option<Vec<Requirement>>,
    /// `status.disruptionsAllowed`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub allowed: u32,
}

/// A ResourceQuota: what pods of its namespace may ask for in all, and what they do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub namespace: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    /// `spec.hard`; cpu in milli-cores, all else in whole units, `requests.` kept in the names.
    #[serde(skip_serializing_if = "super::is_default")]
    pub hard: Resources,
    /// `status.used`, alike.
    #[serde(skip_serializing_if = "super::is_default")]
    pub used: Resources,
}
