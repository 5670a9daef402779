//! Admission: what changes and refuses objects before they are stored.
//!
//! In the order of a write: what LimitRanges fill in, what other crates of this process say ([`in_process`]), the webhooks
//! and policies that people configured ([`dynamic`]), LimitRanges' bounds, Pod Security, and quotas last.

pub(crate) mod dynamic;
mod in_process;
pub(crate) mod limit_ranges;
pub(crate) mod node_restriction;
pub(crate) mod pod_resources;
pub(crate) mod pod_security;
pub(crate) mod quota;
pub(crate) mod security_fields;
pub(crate) mod submission_rate;
pub(crate) mod tenants;

use pumice_objects::pod_security::Profile;
use pumice_objects::status::GroupResource;
use pumice_store::Store;

use crate::audit::Annotations;
use crate::kinds::Descriptor;

pub use in_process::{Admission, AdmissionRequest, AdmitAll, Admitted, Operation};
pub use tenants::{NamespaceTenant, NoTenants, Tenancy, TenantReader};

/// What a write is of, as the checks of this server look at it.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a> {
    pub(crate) store: &'a Store,
    pub(crate) descriptor: &'a Descriptor,
    pub(crate) operation: Operation,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// Empty for resources of the cluster.
    pub(crate) namespace: &'a str,
    /// What namespaces enforce that say nothing about it.
    pub(crate) default_pod_security: Profile,
    /// Whose namespaces are, where admission judges what tenants' pods mount.
    pub(crate) tenants: Option<&'a dyn TenantReader>,
    /// Notes of the audit log on the request, where that tells it.
    pub(crate) annotations: Option<&'a Annotations>,
}

impl Attributes<'_> {
    /// How messages name the resource.
    pub(crate) fn resource(&self) -> GroupResource<'_> {
        GroupResource { group: &self.descriptor.group, resource: &self.descriptor.plural }
    }
}
