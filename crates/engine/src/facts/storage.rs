//! Volumes: what pods claim, what there is, and what nodes can attach.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{LabelSelector, NodeTerm};

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeClaimFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// `spec.volumeName`, empty while it has none.
    pub volume: String,
    /// Volume and claim have found each other for good.
    pub bound: bool,
    /// Its volume is gone.
    pub lost: bool,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// Its storage class; empty means none.
    pub class: String,
    /// Access modes, such as `ReadWriteOnce`.
    pub access_modes: Vec<String>,
    /// `volumeMode: Block`.
    pub block: bool,
    /// Bytes asked for.
    pub bytes: i64,
    /// Which volumes it takes, by their labels.
    pub selector: Option<LabelSelector>,
    /// The node that its provisioner was told (annotation `volume.kubernetes.io/selected-node`).
    pub selected_node: Option<String>,
}

/// A PersistentVolume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its storage class; empty means none.
    pub class: String,
    /// Access modes.
    pub access_modes: Vec<String>,
    /// `volumeMode: Block`.
    pub block: bool,
    /// Its size in bytes.
    pub bytes: i64,
    /// Nodes that can reach it: any term suffices.
    pub node_terms: Option<Vec<NodeTerm>>,
    /// The claim that it belongs to, as `namespace/name`.
    pub claim: Option<String>,
    /// Its phase is Available (or not told yet).
    pub available: bool,
    /// Its CSI driver, empty for other kinds.
    pub driver: String,
    /// The driver's name of it.
    pub handle: String,
}

/// A StorageClass.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClassFacts {
    /// Its name.
    pub name: String,
    /// Who makes volumes; empty or `kubernetes.io/no-provisioner`: nobody.
    pub provisioner: String,
    /// `WaitForFirstConsumer`: the node is chosen first.
    pub waits: bool,
    /// Where volumes can be made: any term suffices; none means everywhere.
    pub topologies: Vec<NodeTerm>,
}

/// A CSINode: how many volumes of each driver a node takes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeFacts {
    /// The node.
    pub node: String,
    /// Limits by driver; drivers without one are not listed.
    pub limits: BTreeMap<String, i64>,
}

/// What a pod claims by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaims {
    /// PersistentVolumeClaims of its namespace.
    pub volumes: Vec<String>,
    /// ResourceClaims of its namespace.
    pub devices: Vec<String>,
    /// Claims that a controller has yet to make for it.
    pub unmade: Vec<String>,
}

impl PodClaims {
    /// Claims nothing.
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.devices.is_empty() && self.unmade.is_empty()
    }
}
