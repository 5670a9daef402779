//! The objects that a tenant's namespace is to have, as they are applied.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, ResourceQuota, VolumeResourceRequirements,
};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::names::TENANT;
use pumice_api::tenant::{Tenant, TenantSpec, TenantVolume};
use serde_json::{Map, Value, json};

use super::TenantEffect;
use crate::tenant_annotations::annotations;

/// What the names of made RoleBindings and quotas begin with.
const PREFIX: &str = "pumice-tenant";
/// The cluster role of a tenant's users in their namespace, where the Tenant names none.
const ROLE: &str = "edit";
const RBAC: &str = "rbac.authorization.k8s.io";
/// Label of namespaces that says what Pod Security enforces.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// A claim names its volume, so that any size fits.
const CLAIM_SIZE: &str = "1";

/// The claim of a tenant's namespace by which it has a PersistentVolume: it has the volume's name.
pub fn claim_name(volume: &TenantVolume) -> &str {
    &volume.persistent_volume
}

/// The annotations of the namespace of a Tenant, with the claims that are made for it. `closed` is why it takes no new pods.
pub fn closed_annotations(spec: &TenantSpec, closed: Option<&str>) -> BTreeMap<&'static str, String> {
    annotations(spec, closed, |volume| claim_name(volume).to_owned())
}

/// The namespace, with what Pod Security and policies of a cluster see.
pub(super) fn namespace(tenant: &Tenant, closed: Option<&str>, is_own_cluster: bool) -> Value {
    let spec = &tenant.spec;
    let volumes = spec.home.iter().chain(&spec.volumes);
    let has_host_paths = !spec.host_paths.is_empty() || volumes.into_iter().any(|volume| !volume.host_path.is_empty());
    // Kubernetes' Pod Security refuses every folder of a node. Where a tenant may mount some, our policies alone enforce the rest
    // of the profile, and those folders.
    let profile = if has_host_paths && !is_own_cluster { "privileged" } else { "restricted" };
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": spec.namespace,
            "labels": { TENANT: tenant.metadata.name, ENFORCE: profile },
            "annotations": closed_annotations(spec, closed),
        },
    })
}

/// Whether a namespace has all labels and annotations of `wanted`.
pub(super) fn has(namespace: &ObjectMeta, wanted: &Value) -> bool {
    let all = |kind: &str, present: &Option<BTreeMap<String, String>>| {
        let wanted = wanted["metadata"][kind].as_object().into_iter().flatten();
        let of = |key: &str| present.as_ref().and_then(|present| present.get(key)).map(String::as_str);
        wanted.into_iter().all(|(key, value)| of(key) == value.as_str())
    };
    all("labels", &namespace.labels) && all("annotations", &namespace.annotations)
}

/// A RoleBinding for each role, by name.
pub(super) fn bindings(tenant: &Tenant) -> Vec<(String, Value)> {
    let spec = &tenant.spec;
    let subject = |kind: &str, name: &str| json!({ "apiGroup": RBAC, "kind": kind, "name": name });
    let users = std::iter::once(&spec.user).filter(|user| !user.is_empty()).chain(&spec.members);
    let users = users.map(|user| subject("User", user));
    let groups = spec.member_groups.iter().map(|group| subject("Group", group));
    let subjects: Vec<Value> = users.chain(groups).collect();
    let roles: Vec<&str> =
        if spec.roles.is_empty() { vec![ROLE] } else { spec.roles.iter().map(String::as_str).collect() };
    let binding = |role: &str| {
        let name = format!("{PREFIX}-{role}");
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": metadata(tenant, &name),
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
            "subjects": subjects,
        });
        (name, binding)
    };
    roles.into_iter().map(binding).collect()
}

/// Whether a RoleBinding gives the same role to the same subjects.
pub(super) fn same_binding(binding: &RoleBinding, wanted: &Value) -> bool {
    let subjects = serde_json::to_value(binding.subjects.as_deref().unwrap_or_default()).unwrap_or_default();
    same_role(binding, wanted) && subjects == wanted["subjects"]
}

/// Whether a RoleBinding is of the same role.
pub(super) fn same_role(binding: &RoleBinding, wanted: &Value) -> bool {
    let role = &binding.role_ref;
    let here = binding.metadata.namespace.as_deref() == wanted["metadata"]["namespace"].as_str();
    here && role.kind == "ClusterRole" && Some(role.name.as_str()) == wanted["roleRef"]["name"].as_str()
}

/// The quota to apply, if the one that is there differs. Without limits one that was made has none.
pub(super) fn quota(tenant: &Tenant, present: Option<&ResourceQuota>) -> Option<Value> {
    let wanted = &tenant.spec.limits;
    let hard = present.and_then(|quota| quota.spec.as_ref()?.hard.as_ref());
    let differs = match (hard, wanted.is_empty()) {
        (None, true) => false,
        (None, false) => true,
        (Some(hard), _) => !same_amounts(hard, wanted),
    };
    differs.then(|| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": metadata(tenant, PREFIX),
            "spec": { "hard": wanted },
        })
    })
}

/// Amounts may be written in several ways: `1` and `1000m`.
fn same_amounts(some: &BTreeMap<String, Quantity>, others: &BTreeMap<String, Quantity>) -> bool {
    let parsed = |one: &Quantity| one.0.parse::<pumice_units::Quantity>().ok();
    let same =
        |one: &Quantity, other: &Quantity| one == other || parsed(one).is_some_and(|one| Some(one) == parsed(other));
    some.len() == others.len()
        && some.iter().all(|(resource, one)| others.get(resource).is_some_and(|other| same(one, other)))
}

/// The NetworkPolicy to apply, if the one that is there differs: pods of the namespace are reached from it alone.
pub(super) fn network_policy(tenant: &Tenant, present: Option<&NetworkPolicy>) -> Option<Value> {
    let wanted = json!({
        "podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{ "from": [{ "podSelector": {} }] }],
    });
    let typed: Option<NetworkPolicySpec> = serde_json::from_value(wanted.clone()).ok();
    let is_there = present.is_some_and(|policy| policy.spec == typed);
    (!is_there).then(|| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": metadata(tenant, PREFIX),
            "spec": wanted,
        })
    })
}

/// Claims of PersistentVolumes that are not there yet.
pub(super) fn missing_claims(tenant: &Tenant, present: &[&PersistentVolumeClaim]) -> Vec<TenantEffect> {
    let spec = &tenant.spec;
    let is_there = |name: &str| present.iter().any(|claim| claim.metadata.name.as_deref() == Some(name));
    let mut wanted: Vec<&TenantVolume> = Vec::new();
    for volume in spec.home.iter().chain(&spec.volumes) {
        let name = claim_name(volume);
        let is_double = wanted.iter().any(|other| claim_name(other) == name);
        if !name.is_empty() && !is_there(name) && !is_double {
            wanted.push(volume);
        }
    }
    wanted.into_iter().map(|volume| TenantEffect::CreateClaim(Box::new(claim(tenant, volume)))).collect()
}

fn claim(tenant: &Tenant, volume: &TenantVolume) -> PersistentVolumeClaim {
    let name = claim_name(volume).to_owned();
    let labels = BTreeMap::from([(TENANT.to_owned(), tenant.metadata.name.clone().unwrap_or_default())]);
    let namespace = Some(tenant.spec.namespace.clone());
    let requests = BTreeMap::from([("storage".to_owned(), Quantity(CLAIM_SIZE.to_owned()))]);
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteMany".to_owned()]),
        resources: Some(VolumeResourceRequirements { requests: Some(requests), ..Default::default() }),
        // Without a class no volume is made for it.
        storage_class_name: Some(String::new()),
        volume_name: Some(volume.persistent_volume.clone()),
        ..PersistentVolumeClaimSpec::default()
    };
    let metadata = ObjectMeta { name: Some(name), namespace, labels: Some(labels), ..ObjectMeta::default() };
    PersistentVolumeClaim { metadata, spec: Some(spec), status: None }
}

fn metadata(tenant: &Tenant, name: &str) -> Map<String, Value> {
    let metadata = json!({
        "name": name, "namespace": tenant.spec.namespace, "labels": { TENANT: tenant.metadata.name },
    });
    metadata.as_object().cloned().unwrap_or_default()
}
