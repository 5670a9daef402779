//! Volcano's `topology.volcano.sh/v1alpha1`: the HyperNode, a part of the network whose nodes are close to each other.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub use crate::condition::Condition;
use crate::wire;

custom_resource! {
    /// Nodes, or smaller HyperNodes, between which the network is as fast as its tier says.
    pub struct HyperNode {
        /// What belongs to it.
        pub spec: HyperNodeSpec = "spec",
        /// What was observed.
        pub status: HyperNodeStatus = "status",
    }
    group: "topology.volcano.sh", version: "v1alpha1", plural: "hypernodes", singular: "hypernode",
    short_names: ["hn"], scope: ClusterResourceScope, cluster_scoped: true
}

/// Tier and members.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["tier"]))]
pub struct HyperNodeSpec {
    /// How far apart its members are: lower is closer.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(schema_with = "wire::plain_integer")]
    pub tier: i64,
    /// Name of the tier.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub tier_name: String,
    /// What belongs to it.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(min = 1))]
    pub members: Vec<Member>,
}

/// One member, or many by pattern or label.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["type"]))]
pub struct Member {
    /// Nodes or HyperNodes.
    #[serde(rename = "type", default, deserialize_with = "wire::word")]
    pub type_: Option<MemberType>,
    /// Which.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub selector: MemberSelector,
}

word_enum! {
    /// What a member is.
    closed pub enum MemberType {
        /// A node.
        Node = "Node",
        /// A HyperNode of a lower tier.
        HyperNode = "HyperNode",
    }
}

/// Which members; exactly one of the three.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "message": "Either ExactMatch or RegexMatch or LabelMatch must be specified",
        "rule": "has(self.exactMatch) || has(self.regexMatch) || has(self.labelMatch)",
    },
    {
        "message": "Only one of ExactMatch, RegexMatch, or LabelMatch can be specified",
        "rule": "(has(self.exactMatch) ? 1 : 0) + (has(self.regexMatch) ? 1 : 0) + (has(self.labelMatch) ? 1 : 0) <= 1",
    },
]))]
pub struct MemberSelector {
    /// The one of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_match: Option<ExactMatch>,
    /// All whose names match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex_match: Option<RegexMatch>,
    /// All nodes with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_match: Option<LabelSelector>,
}

/// A name.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[schemars(extend("required" = ["name"]))]
pub struct ExactMatch {
    /// The name.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1, max = 253), regex(pattern = wire::DNS_SUBDOMAIN))]
    pub name: String,
}

/// A pattern of names.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[schemars(extend("required" = ["pattern"]))]
pub struct RegexMatch {
    /// A regular expression.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1))]
    pub pattern: String,
}

/// What was observed of a HyperNode.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HyperNodeStatus {
    /// Facts about it.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub conditions: Vec<Condition>,
    /// Nodes in it.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub node_count: i64,
}
