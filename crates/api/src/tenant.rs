//! `pumice.sh/v1alpha1`: the Tenant, a user or team, its namespace, and what its pods are on the machine. Not in Volcano.
//!
//! The schema limits sizes and shapes only. Which uids and groups are refused is admission's and the controller's to say.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::condition::Condition;
use crate::wire;

custom_resource! {
    /// A user or team: its namespace, and the uid, gid and groups that each pod of that namespace is forced to have.
    pub struct Tenant {
        /// Who it is, and what it may use.
        pub spec: TenantSpec = "spec",
        /// What the controller has made of it.
        pub status: TenantStatus = "status",
    }
    group: "pumice.sh", version: "v1alpha1", plural: "tenants", singular: "tenant",
    short_names: ["tn"], scope: ClusterResourceScope, cluster_scoped: true,
    required: ["spec"]
}

/// Who a tenant is, and what it may use.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["uid", "gid", "namespace"]))]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "message": "name a user, members, or groups of members",
        "rule": "(has(self.user) && self.user != '') || (has(self.members) && size(self.members) > 0) || (has(self.memberGroups) && size(self.memberGroups) > 0)",
    },
    {
        "message": "the namespace of a tenant can't be changed: make another tenant",
        "rule": "self.__namespace__ == oldSelf.__namespace__",
    },
]))]
pub struct TenantSpec {
    /// The user, as certificates, tokens, the directory and the machine call him. A team may have members only.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub user: String,
    /// More users who work in the namespace; their pods run as the tenant, too.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 1024), inner(length(min = 1, max = 253)))]
    pub members: Vec<String>,
    /// Groups whose users work in the namespace, as tokens and the directory call them.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub member_groups: Vec<String>,
    /// User id of each process of its pods, on the machine.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(range(min = 1, max = 4_294_967_294_i64))]
    pub uid: i64,
    /// Its first group.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(range(min = 1, max = 4_294_967_294_i64))]
    pub gid: i64,
    /// Its other groups.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 256), inner(range(min = 1, max = 4_294_967_294_i64)))]
    pub groups: Vec<i64>,
    /// The namespace that is its own. The controller makes it.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// The home that each of its containers has. HOME is where it is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<TenantVolume>,
    /// Volumes that it shares with others, such as its team; each of its containers has them.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 32))]
    pub volumes: Vec<TenantVolume>,
    /// Folders of nodes that its pods may mount. None where there are none.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 64))]
    pub host_paths: Vec<AllowedHostPath>,
    /// Resources of devices that its pods may ask for, such as `nvidia.com/gpu`; `*` is all. None where there are none.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 317)))]
    pub devices: Vec<String>,
    /// Queues that it may use; `default` where there are none.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub queues: Vec<String>,
    /// Cluster roles that its users have in the namespace; `edit` where there are none.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub roles: Vec<String>,
    /// What all of its pods may use together, as a ResourceQuota says it: `requests.cpu`, `pods`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(extend("maxProperties" = 64))]
    pub limits: BTreeMap<String, Quantity>,
    /// How fast it may submit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_rate: Option<SubmissionRate>,
    /// Whether nothing of it may be submitted or asked for. Nothing is deleted.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub suspended: bool,
    /// What becomes of its running pods when it is suspended: `keep` (where nothing is said) or `stop`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(extend("enum" = ["keep", "stop"]))]
    pub running_pods: String,
    /// The entry of a directory that it follows; nothing for a tenant that people look after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<DirectoryEntry>,
}

/// A folder that each container of a tenant has: of the node, or of a persistent volume (NFS, CephFS).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["mountPath"]))]
#[schemars(extend("x-kubernetes-validations" = [{
    "message": "name one of hostPath and persistentVolume",
    "rule": "(has(self.hostPath) && self.hostPath != '') != (has(self.persistentVolume) && self.persistentVolume != '')",
}]))]
pub struct TenantVolume {
    /// Where containers find it.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/"))]
    pub mount_path: String,
    /// A folder of each node.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 1024), regex(pattern = r"^(/.*)?$"))]
    pub host_path: String,
    /// A PersistentVolume by name; the controller makes the claim. One that several tenants use can be claimed by one only: give
    /// each a PersistentVolume of its own that leads to the same place.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub persistent_volume: String,
    /// Whether it can't be written.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub read_only: bool,
}

/// A folder of nodes, with all that is in it, that a tenant's pods may mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["path"]))]
pub struct AllowedHostPath {
    /// The folder.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/"))]
    pub path: String,
    /// Whether it may be mounted for reading only.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub read_only: bool,
}

/// How fast a tenant may submit Jobs and pods, all its users together.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["perMinute"]))]
pub struct SubmissionRate {
    /// Jobs and bare pods a minute, over time.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub per_minute: i32,
    /// How many may come at once; as many as in a minute where nothing is said.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub burst: i32,
}

/// The entry of a directory that a tenant follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "id"]))]
pub struct DirectoryEntry {
    /// The Directory's name.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// What the entry keeps when its user is renamed, such as `entryUUID`, `objectGUID`, or a local user's name.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1, max = 512))]
    pub id: String,
    /// Whether the tenant was suspended because the entry is gone or disabled: it is resumed when the entry is back.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub suspended: bool,
}

/// What the controller has made of a Tenant.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// `Active`, `Suspended`, or `Refused` where nothing was made of it.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 32))]
    pub phase: String,
    /// Why it is so, for people.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 4096))]
    pub message: String,
    /// The generation that it is about.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// More facts about it, by type.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

/// What becomes of the running pods of a suspended tenant: [`TenantSpec::running_pods`].
pub const STOP_RUNNING_PODS: &str = "stop";
/// Phase of a Tenant in use: [`TenantStatus::phase`].
pub const ACTIVE: &str = "Active";
/// Phase of a Tenant that may submit nothing.
pub const SUSPENDED: &str = "Suspended";
/// Phase of a Tenant that nothing was made of, since it asks for what no tenant may be.
pub const REFUSED: &str = "Refused";
/// All resources: [`TenantSpec::devices`].
pub const ALL_DEVICES: &str = "*";
