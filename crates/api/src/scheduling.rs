//! Volcano's `scheduling.volcano.sh/v1beta1`: the PodGroup, which is a gang, and the Queue.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

mod pod_group;
mod queue;

pub use crate::network_topology::{NetworkTopologyMode, NetworkTopologySpec};
pub use pod_group::{
    PodGroupCondition, PodGroupConditionType, PodGroupPhase, PodGroupSpec, PodGroupStatus, SubGroupPolicySpec,
};
pub use queue::{
    Affinity, DequeueStrategy, ExtendCluster, Guarantee, NodeGroupAffinity, QueueSpec, QueueState, QueueStatus,
    Reservation,
};

/// Amounts by resource name, as on the wire.
pub type ResourceList = BTreeMap<String, Quantity>;

custom_resource! {
    /// Pods that are scheduled together.
    pub struct PodGroup {
        /// What must hold for the group to start.
        pub spec: PodGroupSpec = "spec",
        /// What was observed. There is no status subresource: it is written with the object.
        pub status: PodGroupStatus = "status",
    }
    group: "scheduling.volcano.sh", version: "v1beta1", plural: "podgroups", singular: "podgroup",
    short_names: ["pg", "podgroup-v1beta1"], scope: NamespaceResourceScope, cluster_scoped: false
}

custom_resource! {
    /// A share of the cluster that jobs wait in line for.
    pub struct Queue {
        /// Shares, limits and place in the tree.
        pub spec: QueueSpec = "spec",
        /// State and use.
        pub status: QueueStatus = "status",
    }
    group: "scheduling.volcano.sh", version: "v1beta1", plural: "queues", singular: "queue",
    short_names: ["q", "queue-v1beta1"], scope: ClusterResourceScope, cluster_scoped: true
}
