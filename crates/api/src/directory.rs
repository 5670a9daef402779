//! `pumice.sh/v1alpha1`: the Directory, where tenants come from: LDAP, Active Directory, or the machine's own users. Not in Volcano.

use crate::condition::Condition;
use crate::tenant::{SubmissionRate, TenantSpec};
use crate::wire;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

custom_resource! {
    /// Where tenants come from. Each user of it is a Tenant; one who is gone from it is suspended and never deleted.
    pub struct Directory {
        /// Where it is, and what is made of its users.
        pub spec: DirectorySpec = "spec",
        /// What came of the last reading.
        pub status: DirectoryStatus = "status",
    }
    group: "pumice.sh", version: "v1alpha1", plural: "directories", singular: "directory",
    short_names: [], scope: ClusterResourceScope, cluster_scoped: true,
    required: ["spec"]
}

/// Where a directory is, and what is made of its users.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "message": "name one of ldap and system",
    "rule": "has(self.ldap) != has(self.system)",
}]))]
pub struct DirectorySpec {
    /// An LDAP server or Active Directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ldap: Option<LdapDirectory>,
    /// The users of the machine that `pumice up` runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<SystemDirectory>,
    /// What each Tenant has that is made of an entry.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub template: TenantTemplate,
    /// Seconds between two readings; 30 where nothing is said.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0, max = 86400))]
    pub interval_seconds: i32,
    /// Most of its tenants, in percent, that one reading may suspend; 20 where nothing is said. More is taken for a directory that
    /// is broken: nothing is changed, and the status says so. Ten are always allowed.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0, max = 100))]
    pub suspended_percent_max: i32,
}

/// An LDAP server or Active Directory, and how its entries are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["url", "userBase"]))]
pub struct LdapDirectory {
    /// `ldaps://HOST` or `ldap://HOST`; the second one uses StartTLS.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^ldaps?://"))]
    pub url: String,
    /// Certificates of the authorities that are trusted, as PEM; the machine's where there are none.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 65536))]
    pub ca: String,
    /// Whom to read as; nobody where it is empty.
    #[serde(
        rename = "bindDN",
        default,
        deserialize_with = "wire::or_default",
        skip_serializing_if = "wire::is_default"
    )]
    #[schemars(length(max = 1024))]
    pub bind_dn: String,
    /// The Secret that has its password under `password`, in the namespace of the components.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub bind_secret: String,
    /// Below which entry users are.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1, max = 1024))]
    pub user_base: String,
    /// Which entries are users; those of its kind where nothing is said.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 4096))]
    pub user_filter: String,
    /// Below which entry groups are; as users where nothing is said.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 1024))]
    pub group_base: String,
    /// Which entries are groups; those of its kind where nothing is said.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 4096))]
    pub group_filter: String,
    /// Only members of these groups are tenants; all users where there are none. Nested groups count.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub groups: Vec<String>,
    /// How entries look: `posix` (where nothing is said) or `activeDirectory`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(extend("enum" = ["posix", "activeDirectory"]))]
    pub schema: String,
    /// Names of attributes that are not as its schema has them.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub attributes: LdapAttributes,
}

/// Names of attributes that are not as the schema of a directory has them; empty ones are.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LdapAttributes {
    /// What never changes about an entry: `entryUUID`, `objectGUID`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub id: String,
    /// The user's name: `uid`, `sAMAccountName`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub user: String,
    /// His user id: `uidNumber`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub uid: String,
    /// His first group, or the id of a group: `gidNumber`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub gid: String,
    /// His home: `homeDirectory`, `unixHomeDirectory`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub home: String,
    /// A group's name: `cn`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub group: String,
    /// A group's members: `memberUid`, `member`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub member: String,
}

/// The users of the machine that `pumice up` runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["groups"]))]
pub struct SystemDirectory {
    /// Members of these groups are tenants.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 253)))]
    pub groups: Vec<String>,
}

/// What each Tenant has that is made of an entry of a directory.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantTemplate {
    /// What namespaces begin with, before the user's name.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 32), regex(pattern = r"^([a-z0-9][-a-z0-9]*)?$"))]
    pub namespace_prefix: String,
    /// The folder of nodes that homes are in, which are mounted where the directory says; no homes where it is empty.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 1024), regex(pattern = r"^(/.*)?$"))]
    pub homes: String,
    /// As [`TenantSpec::queues`].
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub queues: Vec<String>,
    /// As [`TenantSpec::roles`].
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub roles: Vec<String>,
    /// As [`TenantSpec::devices`].
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 317)))]
    pub devices: Vec<String>,
    /// As [`TenantSpec::limits`].
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(extend("maxProperties" = 64))]
    pub limits: BTreeMap<String, Quantity>,
    /// As [`TenantSpec::submission_rate`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_rate: Option<SubmissionRate>,
    /// As [`TenantSpec::running_pods`].
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(extend("enum" = ["keep", "stop"]))]
    pub running_pods: String,
}

impl TenantTemplate {
    /// Puts into a new tenant what each of the directory has.
    pub fn fill(&self, spec: &mut TenantSpec) {
        spec.queues.clone_from(&self.queues);
        spec.roles.clone_from(&self.roles);
        spec.devices.clone_from(&self.devices);
        spec.limits.clone_from(&self.limits);
        spec.submission_rate.clone_from(&self.submission_rate);
        spec.running_pods.clone_from(&self.running_pods);
    }
}

/// What came of the last reading of a directory.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryStatus {
    /// When it was last read whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Time>,
    /// Entries that are users.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub users: i64,
    /// Of those, the ones that no Tenant is made of, since they ask for what no tenant may be.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub refused: i64,
    /// What is wrong with it, for people; with the names of the first that were refused.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 4096))]
    pub message: String,
    /// More facts about it, by type.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

/// The schema of Active Directory: [`LdapDirectory::schema`].
pub const ACTIVE_DIRECTORY: &str = "activeDirectory";
/// The Directory of the machine's own users, which `pumice up --tenants system` makes.
pub const SYSTEM: &str = "system";
