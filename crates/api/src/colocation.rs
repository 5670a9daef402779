//! Volcano's `config.volcano.sh/v1alpha1`: the ColocationConfiguration, memory limits of pods that share a node with services.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::condition::Condition;
use crate::wire;

custom_resource! {
    /// How the memory of pods is protected and throttled.
    pub struct ColocationConfiguration {
        /// Which pods, and how.
        pub spec: ColocationConfigurationSpec = "spec",
        /// What was observed.
        pub status: ColocationConfigurationStatus = "status",
    }
    group: "config.volcano.sh", version: "v1alpha1", plural: "colocationconfigurations",
    singular: "colocationconfiguration",
    short_names: [], scope: NamespaceResourceScope, cluster_scoped: false,
    required: ["spec"]
}

/// Which pods, and how their memory is treated.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ColocationConfigurationSpec {
    /// The pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// What their cgroups are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_qos: Option<MemoryQos>,
}

/// Per cent of a pod's memory request or limit.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryQos {
    /// Of the limit: from here on the pod is throttled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "throttled")]
    pub high_ratio: Option<i64>,
    /// Of the request: taken last when memory is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "protected")]
    pub low_ratio: Option<i64>,
    /// Of the request: never taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "protected")]
    pub min_ratio: Option<i64>,
}

fn throttled(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "integer", "minimum": 0, "maximum": 100, "default": 100 })
}

fn protected(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "integer", "minimum": 0, "maximum": 100, "default": 0 })
}

/// What was observed of it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ColocationConfigurationStatus {
    /// Facts about it.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
