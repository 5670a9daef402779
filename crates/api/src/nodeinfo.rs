//! Volcano's `nodeinfo.volcano.sh/v1alpha1`: the Numatopology, how the cpus of a node lie. An exporter on the node writes it.

use std::collections::BTreeMap;

use crate::wire;

custom_resource! {
    /// The cpus of the node of this name.
    pub struct Numatopology {
        /// How they lie, and whose they are.
        pub spec: NumatopologySpec = "spec",
    }
    group: "nodeinfo.volcano.sh", version: "v1alpha1", plural: "numatopologies", singular: "numatopology",
    short_names: ["numatopo"], scope: ClusterResourceScope, cluster_scoped: true
}

/// How the cpus of a node lie, and whose they are.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumatopologySpec {
    /// The kubelet's policies: `CPUManagerPolicy`, `TopologyManagerPolicy`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub policies: BTreeMap<String, String>,
    /// What the kubelet keeps for the system, by resource.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub res_reserved: BTreeMap<String, String>,
    /// What there is, by resource.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub numares: BTreeMap<String, NumaResource>,
    /// Where each cpu lies, by its id.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub cpu_detail: BTreeMap<String, CpuInfo>,
    /// What pods have for their own.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub pod_allocations: Vec<PodAllocation>,
}

/// One resource of a node.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaResource {
    /// Of cpus a list such as `0,2-4`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub allocatable: String,
    /// How many there are.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(schema_with = "wire::any_integer")]
    pub capacity: i64,
}

/// Where a cpu lies.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuInfo {
    /// Its NUMA node.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(schema_with = "wire::plain_integer")]
    pub numa: i64,
    /// Its socket.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(schema_with = "wire::plain_integer")]
    pub socket: i64,
    /// Its core.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(schema_with = "wire::plain_integer")]
    pub core: i64,
}

/// What a pod has for its own.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodAllocation {
    /// The pod's uid.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub uid: String,
    /// Its name.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub name: String,
    /// Its namespace.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub namespace: String,
    /// By container.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub container_allocations: Vec<ContainerAllocation>,
}

/// What a container has for its own.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerAllocation {
    /// Its name.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub name: String,
    /// By resource: of cpus a list such as `0,2-4`, of others a quantity.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub allocations: BTreeMap<String, String>,
}
