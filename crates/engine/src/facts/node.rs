//! Facts of nodes. Read by the world's nodes and by the plugins.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::NodeName;
use crate::ids::TimeMs;
use crate::resource_dims::Resources;

/// A node, as far as scheduling reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: NodeName,
    #[serde(skip_serializing_if = "super::is_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "super::is_default")]
    pub taints: Vec<Taint>,
    #[serde(skip_serializing_if = "super::is_default")]
    pub unschedulable: bool,
    /// `status.allocatable`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub allocatable: Resources,
    /// `status.capacity`; empty where it equals `allocatable`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub capacity: Resources,
    /// Annotations, only those that a plugin reads.
    #[serde(skip_serializing_if = "super::is_default")]
    pub annotations: BTreeMap<String, String>,
    /// Sizes in bytes of the images it holds, by name.
    #[serde(skip_serializing_if = "super::is_default")]
    pub images: BTreeMap<String, i64>,
    /// Its live use, where a source of metrics is configured.
    #[serde(skip_serializing_if = "super::is_default")]
    pub usage: Option<NodeUsage>,
}

/// Live use of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUsage {
    /// Cpu in use, per mille of the capacity.
    #[serde(skip_serializing_if = "super::is_default")]
    pub cpu_per_mille: i64,
    /// Memory in use, per mille of the capacity.
    #[serde(skip_serializing_if = "super::is_default")]
    pub memory_per_mille: i64,
    /// When it was measured.
    #[serde(skip_serializing_if = "super::is_default")]
    pub at: TimeMs,
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: String,
    /// Its value, may be empty.
    #[serde(default)]
    pub value: String,
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
