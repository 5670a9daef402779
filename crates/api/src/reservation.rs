//! `pumice.sh/v1alpha1`: the Reservation, nodes that an administrator keeps for some or from everybody. Not in Volcano.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::wire;

custom_resource! {
    /// From one time to another its nodes are for those that it names; for nobody where it names nobody.
    pub struct Reservation {
        /// Which nodes, when, and for whom.
        pub spec: ReservationSpec = "spec",
    }
    group: "pumice.sh", version: "v1alpha1", plural: "reservations", singular: "reservation",
    short_names: ["resv"], scope: ClusterResourceScope, cluster_scoped: true,
    required: ["spec"]
}

/// Which nodes, when, and for whom.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["from"]))]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "message": "name nodes, or labels of nodes",
        "rule": "(has(self.nodes) && size(self.nodes) > 0) || (has(self.nodeSelector) && size(self.nodeSelector) > 0)",
    },
    {
        "message": "it must begin before it ends: from must be before to",
        "rule": "!has(self.to) || self.from < self.to",
    },
]))]
pub struct ReservationSpec {
    /// Nodes by name; such as will join count once they have.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 4096), inner(length(min = 1, max = 253)))]
    pub nodes: Vec<String>,
    /// Nodes that have all of these labels, beside those that are named.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,
    /// When it begins. What is not sure to have ended by then does not start on its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    /// When it is over; without it, when it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
    /// Queues whose jobs may use the nodes meanwhile.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub queues: Vec<String>,
    /// Namespaces whose jobs may.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 63)))]
    pub namespaces: Vec<String>,
    /// Why, for people.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 1024))]
    pub reason: String,
}
