//! Volumes: what pods claim, what there is, and what nodes can attach.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{LabelSelector, NodeName, NodeTerm, ObjectName};

/// A PersistentVolumeClaim: which volume it has, or which it would take.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeClaimFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub namespace: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub uid: String,
    /// `spec.volumeName`, empty while it has none.
    #[serde(skip_serializing_if = "super::is_default")]
    pub volume: String,
    /// Volume and claim have found each other for good.
    #[serde(skip_serializing_if = "super::is_default")]
    pub bound: bool,
    /// Its volume is gone.
    #[serde(skip_serializing_if = "super::is_default")]
    pub lost: bool,
    /// It has a deletion timestamp.
    #[serde(skip_serializing_if = "super::is_default")]
    pub terminating: bool,
    /// Its storage class; empty means none.
    #[serde(skip_serializing_if = "super::is_default")]
    pub class: String,
    /// Access modes, such as `ReadWriteOnce`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub access_modes: Vec<String>,
    /// `volumeMode: Block`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub block: bool,
    /// Bytes asked for.
    #[serde(skip_serializing_if = "super::is_default")]
    pub bytes: i64,
    /// Which volumes it takes, by their labels.
    #[serde(skip_serializing_if = "super::is_default")]
    pub selector: Option<LabelSelector>,
    /// The node that its provisioner was told (annotation `volume.kubernetes.io/selected-node`).
    #[serde(skip_serializing_if = "super::is_default")]
    pub selected_node: Option<NodeName>,
}

/// A PersistentVolume: how large it is, whose, and which nodes reach it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub labels: BTreeMap<String, String>,
    /// Its storage class; empty means none.
    #[serde(skip_serializing_if = "super::is_default")]
    pub class: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub access_modes: Vec<String>,
    /// `volumeMode: Block`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub block: bool,
    /// Its size in bytes.
    #[serde(skip_serializing_if = "super::is_default")]
    pub bytes: i64,
    /// Nodes that can reach it: any term suffices.
    #[serde(skip_serializing_if = "super::is_default")]
    pub node_terms: Option<Vec<NodeTerm>>,
    /// The claim that it belongs to, as `namespace/name`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub claim: Option<ObjectName>,
    /// Its phase is Available (or not told yet).
    #[serde(skip_serializing_if = "super::is_default")]
    pub available: bool,
    /// Its CSI driver, empty for other kinds.
    #[serde(skip_serializing_if = "super::is_default")]
    pub driver: String,
    /// The driver's name of it.
    #[serde(skip_serializing_if = "super::is_default")]
    pub handle: String,
}

/// A StorageClass: who makes its volumes, where, and whether the node is chosen first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClassFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    /// Who makes volumes; empty or `kubernetes.io/no-provisioner`: nobody.
    #[serde(skip_serializing_if = "super::is_default")]
    pub provisioner: String,
    /// `WaitForFirstConsumer`: the node is chosen first.
    #[serde(skip_serializing_if = "super::is_default")]
    pub waits: bool,
    /// Where volumes can be made: any term suffices; none means everywhere.
    #[serde(skip_serializing_if = "super::is_default")]
    pub topologies: Vec<NodeTerm>,
}

/// A CSINode: how many volumes of each driver a node takes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub node: NodeName,
    /// Limits by driver; drivers without one are not listed.
    #[serde(skip_serializing_if = "super::is_default")]
    pub limits: BTreeMap<String, i64>,
}

/// What a pod claims by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaims {
    /// PersistentVolumeClaims of its namespace.
    #[serde(skip_serializing_if = "super::is_default")]
    pub volumes: Vec<String>,
    /// ResourceClaims of its namespace.
    #[serde(skip_serializing_if = "super::is_default")]
    pub devices: Vec<String>,
    /// Claims that a controller has yet to make for it.
    #[serde(skip_serializing_if = "super::is_default")]
    pub unmade: Vec<String>,
}

impl PodClaims {
    /// True for a pod that names no claim, not even one that is yet to be made.
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.devices.is_empty() && self.unmade.is_empty()
    }
}
