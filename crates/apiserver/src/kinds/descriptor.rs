//! All that the pipeline knows of one resource in one version.

use std::cmp::Ordering;
use std::sync::Arc;

use pumice_objects::schema::Schema;
use pumice_objects::table::Table;
use serde_json::{Value, json};

use crate::http::negotiate::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH};
use crate::kinds::conversion::Conversion;
use crate::kinds::crd::rules::Rules;
use crate::schemas::zero_values::ZeroValues;
use crate::strategies::Strategy;

/// Verbs that every stored resource has, in discovery's order.
pub(crate) const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Built-in kinds of which a replacement must name the revision it is based on.
const UPDATED_BY_REVISION: [&str; 5] = ["CSIDriver", "CSINode", "CSIStorageCapacity", "Lease", "VolumeAttachment"];

/// What lies below an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Subresource {
    Status,
    /// Replica counts at these paths of the object (dotted, without the leading dot).
    Scale {
        spec: String,
        status: String,
        selector: Option<String>,
    },
    /// Adds containers to a pod that runs.
    EphemeralContainers,
    /// Puts a pod on a node.
    Binding,
    Eviction,
    /// Reads a container's output.
    Log,
    /// Runs a command in a container.
    Exec,
    /// Connects to the streams of a container's own program.
    Attach,
    /// Connects to ports of a pod.
    PortForward,
    /// Ends a namespace's deletion.
    Finalize,
    /// Makes a token of a service account.
    Token,
}

impl Subresource {
    /// The segment of the path after the object's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale { .. } => "scale",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::Log => "log",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portforward",
            Self::Finalize => "finalize",
            Self::Token => "token",
        }
    }

    /// What can be done with it, in discovery's order.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        match self {
            Self::Status | Self::Scale { .. } | Self::EphemeralContainers => &["get", "patch", "update"],
            Self::Binding | Self::Eviction | Self::Token => &["create"],
            Self::Log => &["get"],
            Self::Exec | Self::Attach | Self::PortForward => &["create", "get"],
            Self::Finalize => &["update"],
        }
    }

    /// What is sent and answered, where it is not the object itself.
    pub(crate) fn kind(&self) -> Option<GroupVersionKind<'static>> {
        let of = |group, version, kind| Some(GroupVersionKind { group, version, kind });
        match self {
            Self::Scale { .. } => of("autoscaling", "v1", "Scale"),
            Self::Binding => of("", "v1", "Binding"),
            Self::Eviction => of("policy", "v1", "Eviction"),
            Self::Exec => of("", "v1", "PodExecOptions"),
            Self::Attach => of("", "v1", "PodAttachOptions"),
            Self::PortForward => of("", "v1", "PodPortForwardOptions"),
            Self::Token => of("authentication.k8s.io", "v1", "TokenRequest"),
            Self::Status | Self::EphemeralContainers | Self::Log | Self::Finalize => None,
        }
    }
}

/// Which kind an object is of. The group is empty for the core's.
#[derive(Clone, Copy)]
pub(crate) struct GroupVersionKind<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

impl GroupVersionKind<'_> {
    /// The three as reviews and discovery write them.
    pub(crate) fn to_json(self) -> Value {
        json!({ "group": self.group, "version": self.version, "kind": self.kind })
    }
}

/// One resource of one group and version.
pub(crate) struct Descriptor {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// The resource under which the store files its objects.
    pub(crate) storage: Arc<str>,
    /// The version in which bodies are stored.
    pub(crate) storage_version: String,
    /// How stored objects become those that it shows.
    pub(crate) conversion: Conversion,
    pub(crate) schema: Schema,
    /// What its objects have whether it was given or not.
    pub(crate) zero_values: ZeroValues,
    /// What its definition asks of objects beyond their schema.
    pub(crate) rules: Option<Rules>,
    /// Name of its schema among the components of the OpenAPI document.
    pub(crate) component: String,
    /// Its schema in OpenAPI, for kinds that are no built-in component.
    pub(crate) openapi: Option<Value>,
    pub(crate) table: Table,
    pub(crate) subresources: Vec<Subresource>,
    /// Whether `metadata.generation` counts changes of the specification.
    pub(crate) counts_generation: bool,
    /// Whether nulls mean "not given", as in typed kinds.
    pub(crate) drops_nulls: bool,
    /// Field selectors beyond name and namespace, as dotted paths.
    pub(crate) selectable: Vec<String>,
    pub(crate) strategy: &'static dyn Strategy,
    /// Whether its definition is being deleted: nothing new is taken in.
    pub(crate) terminating: bool,
    /// What a create of it asks, where nothing is stored.
    pub(crate) review: Option<Review>,
    /// Rank of the version within the group; lower is preferred.
    pub(crate) version_rank: usize,
}

impl Descriptor {
    /// What can be done with it, in discovery's order.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        if self.review.is_some() { &["create"] } else { &VERBS }
    }

    /// The `apiVersion` of its objects: `v1` for the core, else `group/version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// How messages name the resource: `pods`, `jobs.batch.volcano.sh`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The subresource of this name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|one| one.name() == name)
    }

    /// Whether the status is written apart from the rest.
    pub(crate) fn has_status(&self) -> bool {
        self.subresources.contains(&Subresource::Status)
    }

    /// Whether objects are stored as this shows them.
    pub(crate) fn is_storage(&self) -> bool {
        self.version == self.storage_version && !matches!(self.conversion, Conversion::Events)
    }

    /// Whether a part of an object can be written, and the rest left as it is stored.
    pub(crate) fn stores_as_it_shows(&self) -> bool {
        match self.conversion {
            Conversion::Same => true,
            Conversion::Events => false,
            Conversion::Versions(_) => self.is_storage(),
        }
    }

    /// The `apiVersion` in which a definition's objects are stored.
    pub(crate) fn storage_api_version(&self) -> String {
        format!("{}/{}", self.group, self.storage_version)
    }

    /// Whether a replacement must name the revision it is based on: custom resources and some kinds, as upstream.
    pub(crate) fn updates_need_revision(&self) -> bool {
        self.openapi.is_some() || UPDATED_BY_REVISION.contains(&self.kind.as_str())
    }

    /// Media types of the patches it takes.
    pub(crate) fn patches(&self) -> &'static [&'static str] {
        match self.is_builtin() {
            true => &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH, STRATEGIC_MERGE_PATCH],
            false => &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH],
        }
    }

    /// Whether no definition made it. Built-in kinds take strategic merge patches and protobuf.
    pub(crate) fn is_builtin(&self) -> bool {
        self.openapi.is_none()
    }

    /// By group, then preference of the version, then name.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let by_group = self.group.cmp(&other.group);
        by_group.then(self.version_rank.cmp(&other.version_rank)).then_with(|| self.plural.cmp(&other.plural))
    }
}

/// A question about identities and rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    Myself,
    /// Whose token is this?
    Token,
    /// May I do this?
    MyAccess,
    /// What may I do in this namespace?
    MyRules,
    /// May somebody do this?
    Access,
    /// May somebody do this in this namespace?
    LocalAccess,
}
