//! What a pod of a tenant's namespace is: the tenant's uid, gid and groups, whoever made it, and only what the tenant may use.
//!
//! [`force`] writes who the pod is, its home and its volumes; [`refusals`] names what no pod of a tenant may say, and whatever of the
//! forced fields was changed since. Pure functions over the pod's JSON, so that the API server, its webhook and the policies of clusters
//! say the same. Invariant: forcing twice is forcing once, and what [`force`] leaves has no refusal of a forced field.

mod containers;
mod force;
mod host_paths;
mod metadata;
mod volumes;

use std::collections::BTreeSet;

use pumice_api::tenant::TenantSpec;
use pumice_objects::field::FieldError;
use serde_json::{Value, json};

pub(crate) use containers::may_have;
pub use force::{force, force_added};
pub(crate) use metadata::{forged, moved_queue};
pub(crate) use volumes::claim_refusals;
use volumes::volume_refusals;

/// The lists of containers of a pod.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// What the names of classes begin with that are for the platform's own pods.
const SYSTEM_CLASSES: &str = "system-";
/// The highest priority that people's classes may have.
const PRIORITY_MAX: i64 = 1_000_000_000;
/// Taints that keep pods away from nodes which are closed, or for the platform's own pods.
const PLATFORM_TAINTS: [&str; 5] = [
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/out-of-service",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
];
const ROLE_TAINTS: &str = "node-role.kubernetes.io/";

/// A pod on its way to a tenant's namespace, besides the pod itself.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    pub tenant: &'a TenantSpec,
    /// The schedulers that place its pods.
    pub schedulers: &'a [String],
    /// Whether it is made now; nobody has placed it then.
    pub is_new: bool,
}

/// A path of a pod's specification, and what is there.
type At<'a> = (String, &'a Value);

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Every container with its path.
fn containers_of(spec: &Value) -> impl Iterator<Item = At<'_>> {
    LISTS.into_iter().flat_map(|list| {
        let all = spec[list].as_array().into_iter().flatten().enumerate();
        all.map(move |(index, container)| (format!("spec.{list}[{index}]"), container))
    })
}

fn forbid(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
    FieldError::forbidden(path, detail)
}

/// Who the tenant's pods are, as the field of a pod says it.
fn identity(tenant: &TenantSpec) -> [(&'static str, Value); 7] {
    [
        ("runAsUser", json!(tenant.uid)),
        ("runAsGroup", json!(tenant.gid)),
        ("supplementalGroups", json!(tenant.groups)),
        ("supplementalGroupsPolicy", json!("Strict")),
        ("fsGroup", json!(tenant.gid)),
        ("runAsNonRoot", json!(true)),
        ("seccompProfile", json!({"type": "RuntimeDefault"})),
    ]
}

/// Everything for which a pod is refused, in the order of its fields.
pub fn refusals(pod: &Value, judged: &Judged<'_>) -> Vec<FieldError> {
    let (spec, tenant) = (&pod["spec"], judged.tenant);
    let mut found = metadata::refusals(&pod["metadata"], tenant);
    who(&spec["securityContext"], tenant, &mut found);
    if judged.is_new {
        placed(spec, judged.schedulers, &mut found);
    }
    shared(spec, &mut found);
    rank(spec, &mut found);
    tolerations(spec, &mut found);
    found.extend(volume_refusals(spec, tenant));
    found.extend(containers::refusals(spec, tenant));
    found
}

/// What an update of a pod may have brought that is refused: only its metadata and its tolerations can change. What the pod had before
/// holds nothing up.
pub fn refusals_of_change(new: &Value, old: &Value, tenant: &TenantSpec) -> Vec<FieldError> {
    let found = |pod: &Value| {
        let mut found = metadata::refusals(&pod["metadata"], tenant);
        tolerations(&pod["spec"], &mut found);
        found
    };
    let (mut new, old) = (found(new), found(old));
    new.retain(|error| !old.contains(error));
    new
}

/// What added containers are refused for: their own fields, and a pod that is not the tenant's user.
pub fn refusals_of_added(new: &Value, old: &Value, tenant: &TenantSpec) -> Vec<FieldError> {
    let mut found = Vec::new();
    who(&new["spec"]["securityContext"], tenant, &mut found);
    for error in &mut found {
        error.detail.push_str("; the pod was made before that: delete it, and make it again");
    }
    found.extend(containers::refusals(&new["spec"], tenant));
    let before = containers::refusals(&old["spec"], tenant);
    found.retain(|error| !before.contains(error));
    found
}

fn who(context: &Value, tenant: &TenantSpec, found: &mut Vec<FieldError>) {
    const PATH: &str = "spec.securityContext";
    for (field, wanted) in identity(tenant) {
        if context[field] != wanted && !(is_empty(&context[field]) && is_empty(&wanted)) {
            found.push(forbid(format!("{PATH}.{field}"), format!("must be {wanted}, which is the tenant's")));
        }
    }
    if !is_empty(&context["sysctls"]) {
        found.push(forbid(format!("{PATH}.sysctls"), "a tenant's pods set none; remove the field"));
    }
    containers::profiles(PATH, context, found);
}

/// Whoever places a pod himself goes round queues, quotas and the scheduler's rules.
fn placed(spec: &Value, schedulers: &[String], found: &mut Vec<FieldError>) {
    if !is_empty(&spec["nodeName"]) {
        let detail = "the scheduler places a tenant's pods; name the node by a nodeSelector (kubernetes.io/hostname)";
        found.push(forbid("spec.nodeName", detail));
    }
    let scheduler = text(&spec["schedulerName"]);
    if !schedulers.iter().any(|ours| ours == scheduler) {
        let ours = schedulers.join(" or ");
        found.push(forbid(
            "spec.schedulerName",
            format!("{scheduler:?} places no pods of tenants; say {ours}, or nothing"),
        ));
    }
}

/// What of the machine a pod would share.
fn shared(spec: &Value, found: &mut Vec<FieldError>) {
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if !matches!(&spec[field], Value::Null | Value::Bool(false)) {
            let detail = "a tenant's pods share nothing of the machine; remove the field";
            found.push(forbid(format!("spec.{field}"), detail));
        }
    }
    if !matches!(&spec["hostUsers"], Value::Null | Value::Bool(true)) {
        let detail = "a tenant's pods have the tenant's uid on the machine, too; remove the field";
        found.push(forbid("spec.hostUsers", detail));
    }
    if !matches!(text(&spec["os"]["name"]), "" | "linux") {
        found.push(forbid(
            "spec.os.name",
            format!("no node of tenants runs {}; remove the field", text(&spec["os"]["name"])),
        ));
    }
    if !is_empty(&spec["runtimeClassName"]) {
        found.push(forbid("spec.runtimeClassName", "no runtime class is a tenant's to choose; remove the field"));
    }
}

fn rank(spec: &Value, found: &mut Vec<FieldError>) {
    const PATH: &str = "spec.priorityClassName";
    found.extend(class_refused(PATH, &spec["priorityClassName"]));
    if spec["priority"].as_i64().is_some_and(|priority| priority > PRIORITY_MAX) {
        found.push(forbid("spec.priority", "is that of the platform's own pods; name another priorityClassName"));
    }
}

/// Why a class of priority is none for a tenant, if it is not.
pub(crate) fn class_refused(path: &str, class: &Value) -> Option<FieldError> {
    let is_systems = text(class).starts_with(SYSTEM_CLASSES);
    is_systems.then(|| forbid(path, format!("{} is for the platform's own pods; name another class", text(class))))
}

fn tolerations(spec: &Value, found: &mut Vec<FieldError>) {
    for (index, toleration) in spec["tolerations"].as_array().into_iter().flatten().enumerate() {
        let key = text(&toleration["key"]);
        let path = || format!("spec.tolerations[{index}].key");
        if key.is_empty() {
            found
                .push(forbid(path(), "a tenant's pods can't tolerate every taint; name those that are meant for them"));
        } else if PLATFORM_TAINTS.contains(&key) || key.starts_with(ROLE_TAINTS) {
            found.push(forbid(path(), format!("{key} keeps nodes free of people's pods; remove the toleration")));
        }
    }
}

/// What of a template no pod that is made of it would be let through for, whatever is forced.
pub(crate) fn certain_refusals(spec: &Value, tenant: &TenantSpec) -> Vec<FieldError> {
    let mut narrowed = spec.clone();
    host_paths::narrow(&mut narrowed, tenant);
    let mut found = volume_refusals(&narrowed, tenant);
    for (path, container) in containers_of(spec) {
        containers::devices_refused(&format!("{path}.resources"), &container["resources"], tenant, &mut found);
    }
    found
}

/// The queues that a tenant may use.
pub(crate) fn queues(tenant: &TenantSpec) -> BTreeSet<&str> {
    match tenant.queues.as_slice() {
        [] => BTreeSet::from([pumice_api::names::DEFAULT_QUEUE]),
        queues => queues.iter().map(String::as_str).collect(),
    }
}

/// The queue of what names none; nothing where that is the default one.
pub(crate) fn first_queue(tenant: &TenantSpec) -> Option<&str> {
    let is_default = queues(tenant).contains(pumice_api::names::DEFAULT_QUEUE);
    tenant.queues.first().filter(|_| !is_default).map(String::as_str)
}

#[cfg(test)]
mod tests;
