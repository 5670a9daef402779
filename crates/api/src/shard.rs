//! Volcano's `shard.volcano.sh/v1alpha1`: the NodeShard, the nodes that one of several schedulers may use.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::wire;

custom_resource! {
    /// The nodes of the scheduler of this name.
    pub struct NodeShard {
        /// The nodes that it is to have.
        pub spec: NodeShardSpec = "spec",
        /// The nodes that it has.
        pub status: NodeShardStatus = "status",
    }
    group: "shard.volcano.sh", version: "v1alpha1", plural: "nodeshards", singular: "nodeshard",
    short_names: ["nsh"], scope: ClusterResourceScope, cluster_scoped: true,
    required: ["spec"]
}

/// The nodes that the scheduler is to have.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["nodesDesired"]))]
pub struct NodeShardSpec {
    /// Their names.
    #[serde(default, deserialize_with = "wire::or_default")]
    pub nodes_desired: Vec<String>,
}

/// The nodes that it has; written by the scheduler, between cycles.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeShardStatus {
    /// When this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// In use.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub nodes_in_use: Vec<String>,
    /// To be given up.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub nodes_to_remove: Vec<String>,
    /// To be taken.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub nodes_to_add: Vec<String>,
}
