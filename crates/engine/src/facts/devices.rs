//! Devices by Dynamic Resource Allocation: what pods claim, of which classes, and what drivers publish.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::NodeTerm;

/// One device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceName {
    /// Its driver.
    pub driver: String,
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
}

/// Devices of one class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// Its name in the claim.
    pub name: String,
    /// The DeviceClass.
    pub class: String,
    /// How many; 0 means all that match.
    pub count: u32,
    /// Expressions that a device must fulfil.
    pub selectors: Vec<String>,
}

/// A ResourceClaim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClaimFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// What it asks for.
    pub requests: Vec<DeviceRequest>,
    /// A part of it that the scheduler can't honour; empty if it can.
    pub unsupported: String,
    /// Its devices, once it has them.
    pub allocated: Option<Vec<DeviceName>>,
    /// Where they can be used: any term suffices.
    pub node_terms: Option<Vec<NodeTerm>>,
    /// It has a deletion timestamp.
    pub terminating: bool,
}

/// A DeviceClass.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassFacts {
    /// Its name.
    pub name: String,
    /// Expressions that a device must fulfil.
    pub selectors: Vec<String>,
}

/// An attribute of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Attribute {
    /// A string, or a version.
    Text(String),
    /// A number.
    Int(i64),
    /// A truth.
    Bool(bool),
}

/// A device as its driver publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceFacts {
    /// Its name in the pool.
    pub name: String,
    /// Its attributes by name, with a domain and a slash where that is not the driver's.
    pub attributes: BTreeMap<String, Attribute>,
}

/// A ResourceSlice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSliceFacts {
    /// Its name.
    pub name: String,
    /// The driver.
    pub driver: String,
    /// The pool.
    pub pool: String,
    /// The pool's generation: only slices of the newest count.
    pub generation: i64,
    /// The node that the devices are on; `None` where `node_terms` say it.
    pub node: Option<String>,
    /// Nodes that can use the devices: any term suffices; `None` together with no node means every node.
    pub node_terms: Option<Vec<NodeTerm>>,
    /// The devices that can be given to pods.
    pub devices: Vec<DeviceFacts>,
}
