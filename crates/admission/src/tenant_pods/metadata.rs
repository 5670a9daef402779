//! Labels and annotations that would make a pod something else than the tenant's.

use pumice_api::names::{
    PUMICE_PREFIX, QUEUE_NAME, SCHEDULING_QUEUE_NAME, TENANT, TENANT_GID, TENANT_GROUPS, TENANT_UID, USER,
};
use pumice_api::tenant::TenantSpec;
use pumice_objects::field::FieldError;
use serde_json::Value;

use super::{forbid, queues, text};

/// Annotations by which a kubelet marks pods of its own, which no scheduler has placed.
const OF_KUBELETS: &str = "kubernetes.io/config.";
/// Profiles as they were chosen before there were fields for them.
const OLD_PROFILES: [&str; 3] = [
    "seccomp.security.alpha.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "container.apparmor.security.beta.kubernetes.io/",
];
/// The profile that a pod has that says nothing.
const OLD_DEFAULT: &str = "runtime/default";
/// What the node, the scheduler and the makers of device plugins note on pods: which devices they have.
const NOTES: [&str; 12] = [
    "pumice.sh/accelerators",
    "volcano.sh/gpu-index",
    "volcano.sh/predicate-time",
    "volcano.sh/vgpu-ids-new",
    "volcano.sh/devices-to-allocate",
    "volcano.sh/vgpu-node",
    "volcano.sh/vgpu-time",
    "volcano.sh/bind-phase",
    "volcano.sh/bind-time",
    "hami.io/vgpu-devices-allocated",
    "hami.io/vgpu-devices-to-allocate",
    "nvidia.com/gpu.devices",
];

pub(super) fn refusals(metadata: &Value, tenant: &TenantSpec) -> Vec<FieldError> {
    let mut found = queue_refused(metadata, tenant);
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        let path = || format!("metadata.annotations[{key}]");
        if key.starts_with(OF_KUBELETS) {
            found.push(forbid(path(), "marks a kubelet's own pods, and a tenant has none; remove it"));
        } else if OLD_PROFILES.iter().any(|prefix| key.starts_with(prefix)) && value != OLD_DEFAULT {
            found.push(forbid(path(), "chooses another confinement; remove it"));
        }
    }
    found
}

/// Annotations and labels of people that only the platform writes, as they are new or changed.
pub(crate) fn forged(metadata: &Value, old: &Value) -> Vec<FieldError> {
    let is_ours =
        |key: &str| NOTES.contains(&key) || [USER, TENANT, TENANT_UID, TENANT_GID, TENANT_GROUPS].contains(&key);
    let mut found = Vec::new();
    for map in ["annotations", "labels"] {
        let changed = |key: &String| metadata[map].get(key) != old[map].get(key);
        let keys = |metadata: &Value| -> Vec<String> {
            metadata[map].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
        };
        let mut all = keys(metadata);
        all.extend(keys(old));
        all.sort_unstable();
        all.dedup();
        for key in all.iter().filter(|key| is_ours(key) && changed(key)) {
            let who = if key.starts_with(PUMICE_PREFIX) { "the platform" } else { "the scheduler" };
            found.push(forbid(format!("metadata.{map}[{key}]"), format!("is written by {who}; leave it as it is")));
        }
    }
    found
}

/// Queues that labels and annotations name and the tenant may not use.
fn queue_refused(metadata: &Value, tenant: &TenantSpec) -> Vec<FieldError> {
    let mut found = Vec::new();
    for (map, key) in
        ["annotations", "labels"].into_iter().flat_map(|map| [(map, QUEUE_NAME), (map, SCHEDULING_QUEUE_NAME)])
    {
        let path = format!("metadata.{map}[{key}]");
        found.extend(moved_queue(&path, text(&metadata[map][key]), tenant));
    }
    found
}

/// Why a queue is none of the tenant's, if it is not. The empty one is the default.
pub(crate) fn moved_queue(path: &str, queue: &str, tenant: &TenantSpec) -> Option<FieldError> {
    let theirs = queues(tenant);
    if queue.is_empty() || theirs.contains(queue) {
        return None;
    }
    let theirs = theirs.into_iter().collect::<Vec<_>>().join(", ");
    Some(forbid(path, format!("queue {queue:?} is not among the tenant's queues; name one of: {theirs}")))
}
