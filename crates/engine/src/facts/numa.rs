//! Facts of Numatopologies: how the cpus of a node lie, and which are free.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::{NodeName, PodUid};

/// A Numatopology; its name is its node's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NumaFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: NodeName,
    /// Policy `CPUManagerPolicy`; only `static` gives pods cpus of their own.
    #[serde(skip_serializing_if = "super::is_default")]
    pub cpu_manager: String,
    /// Policy `TopologyManagerPolicy`: `none`, `best-effort`, `restricted`, `single-numa-node`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub topology_manager: String,
    /// Cpus that no pod has for its own.
    #[serde(skip_serializing_if = "super::is_default")]
    pub free_cpus: Vec<u32>,
    /// Where each cpu lies.
    #[serde(skip_serializing_if = "super::is_default")]
    pub cpus: BTreeMap<u32, CpuPlace>,
    /// Uids of pods whose cpus are no longer in `free_cpus`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub shown_pods: Vec<PodUid>,
}

/// Where a cpu lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuPlace {
    #[serde(skip_serializing_if = "super::is_default")]
    pub numa: u32,
    #[serde(skip_serializing_if = "super::is_default")]
    pub socket: u32,
    /// Its core; cpus of one core are its threads.
    #[serde(skip_serializing_if = "super::is_default")]
    pub core: u32,
}
