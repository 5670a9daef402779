//! Nodes and pods of clusters, as the ledger names them.

use serde::{Deserialize, Serialize};

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRef {
    /// The cluster, which is the name of its executor.
    pub cluster: String,
    /// The node's name in it.
    pub node: String,
}

/// The pod of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}
