//! Devices by Dynamic Resource Allocation: what pods claim, of which classes, and what drivers publish.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{NodeName, NodeTerm};

/// A device, told from all others by its driver, the driver's pool, and its name there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceName {
    #[serde(skip_serializing_if = "super::is_default")]
    pub driver: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub pool: String,
    /// Its name in the pool.
    #[serde(skip_serializing_if = "super::is_default")]
    pub device: String,
}

/// Devices of one class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// Its name in the claim.
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub class: String,
    /// How many; 0 means all that match.
    #[serde(skip_serializing_if = "super::is_default")]
    pub count: u32,
    /// Expressions that a device must fulfil.
    #[serde(skip_serializing_if = "super::is_default")]
    pub selectors: Vec<String>,
}

/// A ResourceClaim: which devices a pod asks for, and which it got.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClaimFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub namespace: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub uid: String,
    /// What it asks for.
    #[serde(skip_serializing_if = "super::is_default")]
    pub requests: Vec<DeviceRequest>,
    /// A part of it that the scheduler can't honour; empty if it can.
    #[serde(skip_serializing_if = "super::is_default")]
    pub unsupported: String,
    /// Its devices, once it has them.
    #[serde(skip_serializing_if = "super::is_default")]
    pub allocated: Option<Vec<DeviceName>>,
    /// Where they can be used: any term suffices.
    #[serde(skip_serializing_if = "super::is_default")]
    pub node_terms: Option<Vec<NodeTerm>>,
    /// It has a deletion timestamp.
    #[serde(skip_serializing_if = "super::is_default")]
    pub terminating: bool,
}

/// A DeviceClass: what a device must fulfil to be one of the class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    /// Expressions that a device must fulfil.
    #[serde(skip_serializing_if = "super::is_default")]
    pub selectors: Vec<String>,
}

/// An attribute of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Attribute {
    /// A string, or a version.
    Text(String),
    Int(i64),
    Bool(bool),
}

/// A device as its driver publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceFacts {
    /// Its name in the pool.
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    /// Its attributes by name, with a domain and a slash where that is not the driver's.
    #[serde(skip_serializing_if = "super::is_default")]
    pub attributes: BTreeMap<String, Attribute>,
}

/// A ResourceSlice: devices that a driver publishes, and the nodes that reach them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSliceFacts {
    #[serde(skip_serializing_if = "super::is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub driver: String,
    #[serde(skip_serializing_if = "super::is_default")]
    pub pool: String,
    /// The pool's generation: only slices of the newest count.
    #[serde(skip_serializing_if = "super::is_default")]
    pub generation: i64,
    /// The node that the devices are on; `None` where `node_terms` say it.
    #[serde(skip_serializing_if = "super::is_default")]
    pub node: Option<NodeName>,
    /// Nodes that can use the devices: any term suffices; `None` together with no node means every node.
    #[serde(skip_serializing_if = "super::is_default")]
    pub node_terms: Option<Vec<NodeTerm>>,
    /// The devices that can be given to pods.
    #[serde(skip_serializing_if = "super::is_default")]
    pub devices: Vec<DeviceFacts>,
}
