//! What else in a tenant's namespace reaches beyond it: claims, queues, devices, commands, Services, Events, owners.
//!
//! Pure functions over an object's JSON. Invariant: templates of pods are left as they are, since the pods that are made of them are
//! judged, whoever makes these.

use pumice_api::names::TENANT;
use pumice_api::tenant::TenantSpec;
use pumice_objects::field::FieldError;
use serde_json::{Value, json};

use crate::tenant_pods::{certain_refusals, class_refused, first_queue, may_have, moved_queue};

/// Kinds of the cluster, which nothing of a tenant's belongs to.
const OF_CLUSTER: [&str; 14] = [
    "Node",
    "Namespace",
    "PersistentVolume",
    "Tenant",
    "Directory",
    "Queue",
    "HyperNode",
    "PriorityClass",
    "StorageClass",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "RuntimeClass",
    "VolumeAttachment",
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn forbid(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
    FieldError::forbidden(path, detail)
}

/// Sends what names no queue to the tenant's first one, where that is not everybody's. Says whether it did.
pub(crate) fn choose_queue(object: &mut Value, tenant: &TenantSpec) -> bool {
    let Some(queue) = first_queue(tenant) else { return false };
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object() && text(&spec["queue"]).is_empty()) else {
        return false;
    };
    spec["queue"] = json!(queue);
    true
}

/// Queue and class of a Job or PodGroup, and of the pods that a Job will surely make.
pub(crate) fn work_refusals(object: &Value, tenant: &TenantSpec) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut found: Vec<FieldError> = moved_queue("spec.queue", text(&spec["queue"]), tenant).into_iter().collect();
    found.extend(class_refused("spec.priorityClassName", &spec["priorityClassName"]));
    for (index, task) in spec["tasks"].as_array().into_iter().flatten().enumerate() {
        let pod = &task["template"]["spec"];
        let mut certain = Vec::new();
        for field in ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod[*field] == true) {
            certain.push(forbid(
                format!("spec.{field}"),
                "a tenant's pods share nothing of the machine; remove the field",
            ));
        }
        if !text(&pod["nodeName"]).is_empty() {
            certain.push(forbid("spec.nodeName", "the scheduler places a tenant's pods; use a nodeSelector"));
        }
        certain.extend(class_refused("spec.priorityClassName", &pod["priorityClassName"]));
        certain.extend(certain_refusals(pod, tenant));
        found.extend(certain.into_iter().map(|mut error| {
            error.path = format!("spec.tasks[{index}].template.{}", error.path);
            error
        }));
    }
    found
}

/// A new claim that would get whatever volume is there.
pub(crate) fn open_claim_refusals(spec: &Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    if !text(&spec["volumeName"]).is_empty() {
        return found;
    }
    if spec["storageClassName"] == "" {
        let detail = "without a class the claim could get a volume that is meant for another tenant; name a class";
        found.push(FieldError::required("spec.storageClassName", detail));
    }
    if !spec["selector"].is_null() {
        found.push(forbid("spec.selector", "a volume that is there may be another tenant's; remove the field"));
    }
    found
}

/// A Service that would take addresses which are not its pods'.
pub(crate) fn service_refusals(object: &Value) -> Vec<FieldError> {
    let addresses = object["spec"]["externalIPs"].as_array().is_some_and(|all| !all.is_empty());
    let detail = "a tenant's Services have no addresses of others; remove the field";
    addresses.then(|| forbid("spec.externalIPs", detail)).into_iter().collect()
}

/// A Command for what is not in the namespace.
pub(crate) fn command_refusals(object: &Value) -> Vec<FieldError> {
    let target = &object["target"];
    let group = text(&target["apiVersion"]).split('/').next().unwrap_or_default();
    let is_job = group == "batch.volcano.sh" && text(&target["kind"]) == "Job";
    let detail = "a tenant commands its own Jobs only; queues are an administrator's";
    (!is_job).then(|| forbid("target.kind", detail)).into_iter().collect()
}

/// Devices that a ResourceClaim asks for; `path` is that of its specification.
pub(crate) fn device_claim_refusals(path: &str, spec: &Value, tenant: &TenantSpec) -> Vec<FieldError> {
    let mut found = Vec::new();
    for (index, request) in spec["devices"]["requests"].as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}.devices.requests[{index}]");
        let further = request["firstAvailable"].as_array().into_iter().flatten().enumerate();
        let further = further.map(|(number, one)| (format!("{path}.firstAvailable[{number}]"), one));
        for (path, one) in
            [(path.clone(), request), (format!("{path}.exactly"), &request["exactly"])].into_iter().chain(further)
        {
            if one["adminAccess"] == true {
                found.push(forbid(format!("{path}.adminAccess"), "is an administrator's; remove the field"));
            }
            let class = text(&one["deviceClassName"]);
            if !class.is_empty() && !may_have(class, tenant) {
                let detail = format!("{class} is not among the tenant's devices; have an administrator add it");
                found.push(forbid(format!("{path}.deviceClassName"), detail));
            }
        }
    }
    found
}

/// Owners of the cluster: whoever names one holds up its end, or goes with it.
pub(crate) fn owner_refusals(metadata: &Value, old: &Value) -> Vec<FieldError> {
    const FIELD: &str = "ownerReferences";
    if metadata[FIELD] == old[FIELD] {
        return Vec::new();
    }
    let all = metadata[FIELD].as_array().into_iter().flatten().enumerate();
    let foreign = all.filter(|(_, owner)| OF_CLUSTER.contains(&text(&owner["kind"])));
    let refused = foreign.map(|(index, owner)| {
        let detail = format!("a {} is no tenant's; name an owner of this namespace", text(&owner["kind"]));
        forbid(format!("metadata.{FIELD}[{index}].kind"), detail)
    });
    refused.collect()
}

/// Makes an Event say who sent it, where it says that it was somebody else. Says whether it did.
pub(crate) fn sign_event(event: &mut Value, user: &str) -> bool {
    let before = event.clone();
    if !event.is_object() {
        return false;
    }
    for field in ["reportingComponent", "reportingController"] {
        if event.get(field).is_some_and(|value| !text(value).is_empty()) {
            event[field] = json!(user);
        }
    }
    for field in ["source", "deprecatedSource"] {
        if let Some(source) =
            event.get_mut(field).filter(|source| source.is_object() && source.get("component").is_some())
        {
            source["component"] = json!(user);
        }
    }
    *event != before
}

/// Labels and annotations of a namespace that say whose it is; of a tenant's all, since they say what its pods may do.
pub(crate) fn namespace_refusals(metadata: &Value, old: &Value, is_tenants: bool) -> Vec<FieldError> {
    let mut found = Vec::new();
    for map in ["labels", "annotations"] {
        let (now, before) = (metadata[map].as_object(), old[map].as_object());
        let mut keys: Vec<&String> = now.into_iter().chain(before).flat_map(|all| all.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let is_ours = |key: &str| is_tenants || key.starts_with(TENANT);
        for key in keys.into_iter().filter(|key| metadata[map][key.as_str()] != old[map][key.as_str()] && is_ours(key))
        {
            let detail = "is written by the controller of Tenants and by administrators; change the Tenant";
            found.push(forbid(format!("metadata.{map}[{key}]"), detail));
        }
    }
    found
}
