//! Facts of nodes. Read by the world's nodes and by the plugins.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dims::Resources;
use crate::ids::TimeMs;

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
    /// `status.capacity`; empty where it equals `allocatable`.
    pub capacity: Resources,
    /// Annotations, only those that a plugin reads.
    pub annotations: BTreeMap<String, String>,
    /// Sizes in bytes of the images it holds, by name.
    pub images: BTreeMap<String, i64>,
    /// Its live use, where a source of metrics is configured.
    pub usage: Option<NodeUsage>,
}

/// Live use of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUsage {
    /// Cpu in use, per mille of the capacity.
    pub cpu_per_mille: i64,
    /// Memory in use, per mille of the capacity.
    pub memory_per_mille: i64,
    /// When it was measured.
    pub at: TimeMs,
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
