//! What is made and changed in tenants' namespaces: forced before webhooks see it, judged again when they have.
//!
//! It stands before whatever else an API server has as admission, so that it holds where Volcano's rules are another program's. The rules
//! are [`crate::tenant_pods`] and [`crate::tenant_objects`]. Invariant: a write elsewhere costs one look at whose its namespace is, and
//! none where its kind has no rule.

use std::sync::Arc;

use pumice_api::names::{NAMESPACE_SYSTEM, USER};
use pumice_api::tenant::TenantSpec;
use pumice_apiserver::{Admission, AdmissionRequest, Admitted, NamespaceTenant, Operation, Tenancy};
use pumice_auth::{Identity, MASTERS, service_account_of};
use pumice_objects::field::FieldError;
use pumice_objects::meta;
use pumice_objects::status::{GroupResource, Status};
use serde_json::Value;

use crate::tenant_pods::{Judged, forged, refusals, refusals_of_added, refusals_of_change};
use crate::{LiveRules, tenant_objects, tenant_pods};

/// What the users of components begin with.
const COMPONENTS: &str = "system:";
/// Namespaces whose service accounts are components'.
const OF_COMPONENTS: [&str; 2] = ["kube-system", NAMESPACE_SYSTEM];
/// Resource name of jobs in the store.
const JOBS: &str = "batch.volcano.sh/jobs";
/// Resource name of persistent volumes in the store.
const VOLUMES: &str = "persistentvolumes";

/// Forces and judges what is in tenants' namespaces, before and after `inner`.
pub struct TenantAdmission {
    inner: Arc<dyn Admission>,
    rules: LiveRules,
}

impl TenantAdmission {
    /// Stands before `inner`; `rules` name the schedulers that place tenants' pods.
    pub fn over(inner: Arc<dyn Admission>, rules: LiveRules) -> Self {
        Self { inner, rules }
    }
}

/// The kinds there are rules for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pod,
    /// A pod to which containers are added.
    AddedContainers,
    PodStatus,
    Binding,
    Job,
    PodGroup,
    Claim,
    Service,
    Event,
    Command,
    DeviceClaim,
    DeviceClaimTemplate,
    Namespace,
    /// Any other in a namespace, for its owners.
    Other,
}

impl Kind {
    fn of(request: &AdmissionRequest<'_>) -> Option<Self> {
        let kind = match (request.group, request.resource, request.subresource) {
            ("", "pods", "") => Self::Pod,
            ("", "pods", "ephemeralcontainers") => Self::AddedContainers,
            ("", "pods", "status") => Self::PodStatus,
            ("", "pods", "binding") => Self::Binding,
            ("batch.volcano.sh", "jobs", "") => Self::Job,
            ("scheduling.volcano.sh", "podgroups", "") => Self::PodGroup,
            ("", "persistentvolumeclaims", "") => Self::Claim,
            ("", "services", "") => Self::Service,
            ("" | "events.k8s.io", "events", "") => Self::Event,
            ("bus.volcano.sh", "commands", "") => Self::Command,
            ("resource.k8s.io", "resourceclaims", "") => Self::DeviceClaim,
            ("resource.k8s.io", "resourceclaimtemplates", "") => Self::DeviceClaimTemplate,
            ("", "namespaces", _) => Self::Namespace,
            (_, _, "") if !request.namespace.is_empty() => Self::Other,
            _ => return None,
        };
        Some(kind)
    }
}

impl Admission for TenantAdmission {
    fn admit(&self, request: &AdmissionRequest<'_>, object: Option<&mut Value>) -> Result<Admitted, Status> {
        let Some(kind) = Kind::of(request) else { return self.inner.admit(request, object) };
        let Some(object) = object else {
            if kind == Kind::Namespace {
                namespace(request, None)?;
            }
            return self.inner.admit(request, None);
        };
        let Some(tenant) = tenant_of(kind, request, object)? else { return self.inner.admit(request, Some(object)) };
        let created = request.operation == Operation::Create;
        let queued =
            created && matches!(kind, Kind::Job | Kind::PodGroup) && tenant_objects::choose_queue(object, &tenant.spec);
        let mut admitted = self.inner.admit(request, Some(object))?;
        let changed = match kind {
            Kind::Pod if created => {
                is_working(request, &tenant)?;
                tenant_pods::force(object, &tenant.spec, &mut admitted.warnings);
                meta::set_annotation(object, USER, &creator(request, object, &tenant));
                self.judge(kind, request, object, &tenant)?;
                true
            }
            Kind::AddedContainers => {
                is_working(request, &tenant)?;
                let old = request.old.unwrap_or(&Value::Null);
                tenant_pods::force_added(object, old, &tenant.spec, &mut admitted.warnings);
                true
            }
            Kind::Job if created => is_working(request, &tenant).map(|()| queued)?,
            Kind::Event if !is_component(request.identity) => {
                tenant_objects::sign_event(object, &request.identity.user)
            }
            _ => queued,
        };
        admitted.untouched &= !changed;
        Ok(admitted)
    }

    fn validate(&self, request: &AdmissionRequest<'_>, object: Option<&Value>) -> Result<Admitted, Status> {
        let admitted = self.inner.validate(request, object)?;
        if let (Some(kind), Some(object)) = (Kind::of(request), object) {
            if kind == Kind::Namespace {
                namespace(request, Some(object))?;
            } else if let Some(tenant) = tenant_of(kind, request, object)? {
                self.judge(kind, request, object, &tenant)?;
            }
        }
        Ok(admitted)
    }

    fn judges_tenants(&self) -> bool {
        true
    }
}

impl TenantAdmission {
    /// Refuses an object that is as it would be stored.
    fn judge(
        &self,
        kind: Kind,
        request: &AdmissionRequest<'_>,
        object: &Value,
        tenant: &NamespaceTenant,
    ) -> Result<(), Status> {
        let (spec, created) = (&tenant.spec, request.operation == Operation::Create);
        let old = request.old.unwrap_or(&Value::Null);
        let mut found = match kind {
            Kind::Pod if created => {
                let rules = self.rules.get();
                let mut found =
                    refusals(object, &Judged { tenant: spec, schedulers: &rules.scheduler_names, is_new: true });
                let wanted = creator(request, object, tenant);
                if meta::annotation(object, USER) != Some(&wanted) {
                    let path = format!("metadata.annotations[{USER}]");
                    found.push(FieldError::forbidden(path, format!("must be {wanted:?}, who made the pod")));
                }
                found
            }
            Kind::Pod => refusals_of_change(object, old, spec),
            Kind::AddedContainers => refusals_of_added(object, old, spec),
            Kind::Job | Kind::PodGroup => changed(tenant_objects::work_refusals, object, old, spec),
            Kind::Claim => claim(request, object, old),
            Kind::Service => tenant_objects::service_refusals(object),
            Kind::Command => tenant_objects::command_refusals(object),
            Kind::DeviceClaim => tenant_objects::device_claim_refusals("spec", &object["spec"], spec),
            Kind::DeviceClaimTemplate => {
                tenant_objects::device_claim_refusals("spec.spec", &object["spec"]["spec"], spec)
            }
            Kind::Binding => {
                vec![FieldError::forbidden(
                    "target",
                    "the scheduler chooses the node of a tenant's pod; use a nodeSelector",
                )]
            }
            Kind::Event | Kind::Namespace | Kind::PodStatus | Kind::Other => Vec::new(),
        };
        if !is_component(request.identity) {
            found.extend(by_people(kind, request, object, old));
        }
        refuse(request, tenant, &found)
    }
}

/// What only the platform writes.
fn by_people(kind: Kind, request: &AdmissionRequest<'_>, object: &Value, old: &Value) -> Vec<FieldError> {
    let (metadata, before) = (&object["metadata"], &old["metadata"]);
    let mut found = tenant_objects::owner_refusals(metadata, before);
    if matches!(kind, Kind::Pod | Kind::PodStatus) {
        found.extend(forged(metadata, before));
        if request.operation == Operation::Create {
            // That it is the creator's was judged before.
            let path = format!("metadata.annotations[{USER}]");
            found.retain(|error| error.path != path);
        }
    }
    found
}

/// What of a changed object was not refused before.
fn changed(
    judge: impl Fn(&Value, &TenantSpec) -> Vec<FieldError>,
    object: &Value,
    old: &Value,
    tenant: &TenantSpec,
) -> Vec<FieldError> {
    let mut found = judge(object, tenant);
    if !found.is_empty() && !old.is_null() {
        let before = judge(old, tenant);
        found.retain(|error| !before.contains(error));
    }
    found
}

/// A tenant has volumes that its Tenant names, and those that an administrator has given to a claim of its namespace.
fn claim(request: &AdmissionRequest<'_>, object: &Value, old: &Value) -> Vec<FieldError> {
    let namespace = request.namespace;
    let is_theirs = |volume: &str| {
        if !old.is_null() && old["spec"]["volumeName"] == *volume {
            return true;
        }
        if let Some(theirs) = request.tenants.volume_namespaces(volume) {
            return theirs.contains(namespace);
        }
        let given = request.objects.get(VOLUMES, "", volume).map(|mut volume| volume["spec"]["claimRef"].take());
        given.is_some_and(|given| given["namespace"] == *namespace && given["name"] == *request.name)
    };
    let mut found = tenant_pods::claim_refusals(&object["spec"], &is_theirs);
    if old.is_null() {
        found.extend(tenant_objects::open_claim_refusals(&object["spec"]));
    }
    found
}

/// The tenant whose rules hold for an object, if there is one. Work in a namespace that names a tenant which is gone is refused.
fn tenant_of(
    kind: Kind,
    request: &AdmissionRequest<'_>,
    object: &Value,
) -> Result<Option<Arc<NamespaceTenant>>, Status> {
    let matters = match kind {
        Kind::Namespace => false,
        Kind::PodStatus | Kind::Binding => !is_component(request.identity),
        Kind::Other => !object["metadata"]["ownerReferences"].is_null() && !is_component(request.identity),
        _ => true,
    };
    if !matters {
        return Ok(None);
    }
    match request.tenants.tenancy(request.namespace) {
        Tenancy::None => Ok(None),
        Tenancy::Of(tenant) => Ok(Some(tenant)),
        Tenancy::Gone(name) if is_work(kind, request) => {
            let namespace = request.namespace;
            let cause = format!(
                "namespace {namespace} is labelled for tenant {name}, which is not there: an administrator makes the Tenant again, or \
                 removes the label by `kubectl label namespace {namespace} {}-`",
                pumice_api::names::TENANT
            );
            Err(forbidden(request, cause))
        }
        Tenancy::Gone(_) => Ok(None),
    }
}

/// Whether a request is for new work.
fn is_work(kind: Kind, request: &AdmissionRequest<'_>) -> bool {
    let created = request.operation == Operation::Create;
    kind == Kind::AddedContainers || created && matches!(kind, Kind::Pod | Kind::Job)
}

/// Refuses new work of a tenant that may not work.
fn is_working(request: &AdmissionRequest<'_>, tenant: &NamespaceTenant) -> Result<(), Status> {
    let name = &tenant.name;
    if let Some(why) = &tenant.refused {
        return Err(forbidden(request, format!("tenant {name} is refused: {why}; an administrator has to mend it")));
    }
    if tenant.spec.suspended {
        let cause = format!(
            "tenant {name} is suspended and gets no new work; an administrator resumes it by `pumice tenant resume {name}`"
        );
        return Err(forbidden(request, cause));
    }
    Ok(())
}

/// Who made a pod: its user, or whoever made the Job that a controller makes it for. What other controllers make is the tenant's.
fn creator(request: &AdmissionRequest<'_>, pod: &Value, tenant: &NamespaceTenant) -> String {
    if !is_component(request.identity) {
        return request.identity.user.clone();
    }
    let of_job = meta::controller(pod).and_then(|owner| {
        let is_job = owner.kind == "Job" && owner.api_version.starts_with("batch.volcano.sh/");
        let metadata = if is_job { request.objects.metadata(JOBS, request.namespace, &owner.name) } else { None }?;
        if metadata["uid"] != *owner.uid {
            return None;
        }
        metadata["annotations"][USER].as_str().map(str::to_owned)
    });
    of_job.unwrap_or_else(|| {
        let TenantSpec { user, .. } = &tenant.spec;
        if user.is_empty() { tenant.name.clone() } else { user.clone() }
    })
}

/// Judges a namespace, or its deletion: only components and administrators change what a tenant's is.
fn namespace(request: &AdmissionRequest<'_>, object: Option<&Value>) -> Result<(), Status> {
    if is_component(request.identity) {
        return Ok(());
    }
    let is_tenants = request.operation != Operation::Create && request.tenants.tenancy(request.name) != Tenancy::None;
    let Some(object) = object else {
        let cause = "it is a tenant's: an administrator suspends the Tenant, deletes that, and then the namespace";
        return if is_tenants { Err(forbidden(request, cause)) } else { Ok(()) };
    };
    let old = request.old.unwrap_or(&Value::Null);
    let found = tenant_objects::namespace_refusals(&object["metadata"], &old["metadata"], is_tenants);
    if found.is_empty() { Ok(()) } else { Err(forbidden(request, joined(&found))) }
}

/// Whether a component of the platform or an administrator asks. A tenant's service accounts are the tenant.
fn is_component(identity: &Identity) -> bool {
    match service_account_of(&identity.user) {
        Some((namespace, _)) => OF_COMPONENTS.contains(&namespace),
        None => identity.user.starts_with(COMPONENTS) || identity.is_in(MASTERS),
    }
}

fn refuse(request: &AdmissionRequest<'_>, tenant: &NamespaceTenant, found: &[FieldError]) -> Result<(), Status> {
    if found.is_empty() {
        return Ok(());
    }
    Err(forbidden(request, format!("namespace {} is tenant {}'s: {}", request.namespace, tenant.name, joined(found))))
}

fn joined(found: &[FieldError]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn forbidden(request: &AdmissionRequest<'_>, cause: impl std::fmt::Display) -> Status {
    Status::forbidden(GroupResource { group: request.group, resource: request.resource }, request.name, cause)
}
