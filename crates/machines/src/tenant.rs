//! The machine of a Tenant: what is to be in its namespace, and what is to be written so that it is.
//!
//! Invariant: nothing that may hold data is ever deleted: of what was made only RoleBindings go. A Tenant that is refused or
//! suspended has no RoleBindings, and its namespace says that it is closed. A namespace that is not labelled as the tenant's is not
//! taken over. A step from a state in which all is as wanted writes nothing. Called by the controller of Tenants.
//!
//! ```text
//!   Tenant ──> refusal? ──> objects wanted ──> those that differ ──> TenantEffect
//!   others ──> claims ──┘   what exists ─────┘
//! ```

mod claims;
mod objects;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ResourceQuota};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::names::TENANT;
use pumice_api::tenant::{ACTIVE, REFUSED, STOP_RUNNING_PODS, SUSPENDED, Tenant, TenantStatus};
use serde_json::Value;

use crate::tenant_annotations::TENANT_CLOSED;

pub use claims::Claims;
pub use objects::{claim_name, closed_annotations};
pub use refusal::{Forbidden, ID_MIN, POWERFUL_GROUPS, Refusal, change_refusal, refusal};

/// What a step looks at.
pub struct TenantView<'a> {
    pub tenant: &'a Tenant,
    /// Why nothing may be made of it, if that is so.
    pub refused: Option<&'a Refusal>,
    /// Its namespace, as far as it exists.
    pub namespace: Option<&'a ObjectMeta>,
    /// RoleBindings with the tenant's label, by namespace and name.
    pub bindings: Vec<&'a RoleBinding>,
    /// The ResourceQuota with the tenant's label.
    pub quota: Option<&'a ResourceQuota>,
    /// Claims in its namespace with the tenant's label.
    pub claims: Vec<&'a PersistentVolumeClaim>,
    /// The NetworkPolicy with the tenant's label.
    pub network_policy: Option<&'a NetworkPolicy>,
    /// Whether the API server is our own: its Pod Security leaves out the folders of nodes that a Tenant allows, and its nodes keep
    /// tenants apart whatever NetworkPolicies say.
    pub is_own_cluster: bool,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum TenantEffect {
    /// Make the namespace, or put its labels and annotations right.
    ApplyNamespace(Value),
    ApplyBinding(Value),
    /// Delete a RoleBinding; the uid guards a namesake.
    DeleteBinding {
        namespace: String,
        name: String,
        uid: String,
    },
    ApplyQuota(Value),
    ApplyNetworkPolicy(Value),
    /// Make a claim. It is never changed nor deleted.
    CreateClaim(Box<PersistentVolumeClaim>),
    /// Say in a namespace why it takes no new pods.
    CloseNamespace {
        namespace: String,
        message: String,
    },
    WriteStatus(TenantStatus),
    /// Suspend the Jobs of the namespace and delete its pods, until there are none; then [`STOPPED`] is true.
    StopPods {
        namespace: String,
    },
    /// Let the Jobs go on that were suspended so; then [`STOPPED`] is false.
    ResumeJobs {
        namespace: String,
    },
}

/// The condition of a Tenant whose pods were stopped, and whose Jobs are suspended.
pub const STOPPED: &str = "Stopped";

/// What is to be done about a Tenant, in this order: rights go first, and come after the namespace says what its pods are.
pub fn step(view: &TenantView<'_>) -> Vec<TenantEffect> {
    let foreign = view.namespace.and_then(|namespace| foreign(view.tenant, namespace));
    let refused = view.refused.or(foreign.as_ref());
    let closed = closed(view.tenant, refused);
    let mut wanted: BTreeMap<String, Value> = BTreeMap::new();
    if closed.is_none() {
        wanted = objects::bindings(view.tenant).into_iter().collect();
    }
    // First of all, so that nothing that fails leaves rights behind.
    let mut effects = superfluous(view, &mut wanted);
    if foreign.is_none() {
        let labels_of = |name: &str| view.namespace.and_then(|namespace| namespace.labels.as_ref()?.get(name));
        let is_its_own = labels_of(TENANT) == view.tenant.metadata.name.as_ref();
        // What is refused gets no namespace; one that it had is closed.
        if view.refused.is_none() || is_its_own {
            let wanted = objects::namespace(view.tenant, closed.as_deref(), view.is_own_cluster);
            let is_there = view.namespace.is_some_and(|namespace| objects::has(namespace, &wanted));
            if !is_there {
                effects.push(TenantEffect::ApplyNamespace(wanted));
            }
        }
    }
    if closed.is_none() {
        effects.extend(objects::missing_claims(view.tenant, &view.claims));
        effects.extend(objects::quota(view.tenant, view.quota).map(TenantEffect::ApplyQuota));
        if !view.is_own_cluster {
            let policy = objects::network_policy(view.tenant, view.network_policy);
            effects.extend(policy.map(TenantEffect::ApplyNetworkPolicy));
        }
    }
    effects.extend(wanted.into_values().map(TenantEffect::ApplyBinding));
    let status = status(view.tenant, refused);
    if status != view.tenant.status {
        effects.push(TenantEffect::WriteStatus(status));
    }
    let namespace = view.tenant.spec.namespace.clone();
    match (refused.is_some(), stops(view.tenant), is_stopped(view.tenant)) {
        (false, true, false) => effects.push(TenantEffect::StopPods { namespace }),
        (false, false, true) if !view.tenant.spec.suspended => effects.push(TenantEffect::ResumeJobs { namespace }),
        _ => {}
    }
    effects
}

/// Deletes RoleBindings that are not wanted, and leaves of `wanted` those that are to be applied.
fn superfluous(view: &TenantView<'_>, wanted: &mut BTreeMap<String, Value>) -> Vec<TenantEffect> {
    let mut effects = Vec::new();
    for binding in &view.bindings {
        let name = binding.metadata.name.as_deref().unwrap_or_default();
        // A namesake in another namespace says nothing of the one here.
        if binding.metadata.namespace.as_ref() != Some(&view.tenant.spec.namespace) {
            effects.push(delete(binding));
            continue;
        }
        match wanted.get(name) {
            Some(same) if objects::same_binding(binding, same) => drop(wanted.remove(name)),
            // Subjects can be changed, the role can't.
            Some(same) if objects::same_role(binding, same) => {}
            _ => {
                effects.push(delete(binding));
                // It is made anew when it is gone.
                wanted.remove(name);
            }
        }
    }
    effects
}

/// What is to be done when the Tenant `name` is gone: its users lose their rights, and its namespaces take no new pods. They, their
/// claims and their data stay.
pub fn gone(name: &str, namespaces: &[&ObjectMeta], bindings: &[&RoleBinding]) -> Vec<TenantEffect> {
    let message = format!("the Tenant {name} is gone; make it again, or take the label {TENANT} from the namespace");
    let is_open = |namespace: &&&ObjectMeta| {
        let says = namespace.annotations.as_ref().and_then(|all| all.get(TENANT_CLOSED));
        says.is_none_or(|says| *says != message)
    };
    let close = |namespace: &&ObjectMeta| TenantEffect::CloseNamespace {
        namespace: namespace.name.clone().unwrap_or_default(),
        message: message.clone(),
    };
    let closed = namespaces.iter().filter(is_open).map(close);
    bindings.iter().map(|binding| delete(binding)).chain(closed).collect()
}

fn delete(binding: &RoleBinding) -> TenantEffect {
    let metadata = &binding.metadata;
    TenantEffect::DeleteBinding {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
    }
}

/// Whether its pods were stopped, and its Jobs not let go on since.
fn is_stopped(tenant: &Tenant) -> bool {
    tenant.status.conditions.iter().any(|condition| condition.type_ == STOPPED && condition.status == "True")
}

/// Whether running pods of the tenant are to end.
fn stops(tenant: &Tenant) -> bool {
    tenant.spec.suspended && tenant.spec.running_pods == STOP_RUNNING_PODS
}

/// Why the tenant may submit nothing, if that is so.
fn closed(tenant: &Tenant, refused: Option<&Refusal>) -> Option<String> {
    let name = tenant.metadata.name.as_deref().unwrap_or_default();
    match refused {
        Some(refusal) => Some(format!("the Tenant {name} is refused: {refusal}")),
        None => tenant.spec.suspended.then(|| format!("the Tenant {name} is suspended")),
    }
}

/// Why a namespace that exists is not taken over, if it is not the tenant's.
fn foreign(tenant: &Tenant, namespace: &ObjectMeta) -> Option<Refusal> {
    let name = tenant.metadata.name.as_deref().unwrap_or_default();
    let owner = namespace.labels.as_ref().and_then(|labels| labels.get(TENANT));
    let was_made = matches!(tenant.status.phase.as_str(), ACTIVE | SUSPENDED);
    match owner {
        Some(owner) if owner == name => None,
        // The label was taken away.
        None if was_made => None,
        owner => Some(Refusal::foreign(&tenant.spec.namespace, name, owner.map(String::as_str))),
    }
}

/// What the status says. Conditions are of others.
fn status(tenant: &Tenant, refused: Option<&Refusal>) -> TenantStatus {
    let (phase, message) = match refused {
        Some(refusal) => (REFUSED, refusal.to_string()),
        None if tenant.spec.suspended => {
            let vanished = tenant.spec.directory.as_ref().filter(|entry| entry.suspended);
            let why = vanished.map_or(String::new(), |entry| {
                format!(": {} is gone from the directory {}, or disabled there", entry.id, entry.name)
            });
            (SUSPENDED, format!("nothing can be submitted, and nobody logs in{why}"))
        }
        None => (ACTIVE, String::new()),
    };
    TenantStatus {
        phase: phase.to_owned(),
        message,
        observed_generation: tenant.metadata.generation.unwrap_or_default(),
        conditions: tenant.status.conditions.clone(),
    }
}
