//! Writes who a pod is, and gives each of its containers the tenant's home and volumes.
//!
//! Values of a wrong type are left alone: the schema has refused them, or [`super::refusals`] does.

use pumice_api::names::{GROUP_NAME, SCHEDULING_QUEUE_NAME};
use pumice_api::tenant::TenantSpec;
use serde_json::{Map, Value, json};

use super::volumes::{self, Given, same_path};
use super::{LISTS, first_queue, host_paths, identity, is_empty, text};

/// Fields by which a container would be somebody else than its pod.
const OF_POD: [&str; 4] = ["runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile"];

/// Makes a new pod the tenant's. What it said otherwise is told.
pub fn force(pod: &mut Value, tenant: &TenantSpec, warnings: &mut Vec<String>) {
    choose_queue(pod, tenant);
    let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    if let Some(before) = spec.as_object_mut().and_then(|spec| spec.remove("hostUsers"))
        && before != true
    {
        warnings.push("spec.hostUsers: a tenant's pods have the tenant's uid on the machine, too: removed".to_owned());
    }
    identify(spec, tenant, warnings);
    host_paths::narrow(spec, tenant);
    let given = volumes::given(tenant);
    add_volumes(spec, &given);
    for list in LISTS {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            confine(container, list, warnings);
            furnish(container, tenant, &given);
        }
    }
}

/// Makes containers that are added to a pod the tenant's; those that it had stay as they are.
pub fn force_added(pod: &mut Value, old: &Value, tenant: &TenantSpec, warnings: &mut Vec<String>) {
    const LIST: &str = "ephemeralContainers";
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().map(|one| text(&one["name"]).to_owned()).collect()
    };
    let known = names(&old["spec"][LIST]);
    let there = names(&old["spec"]["volumes"]);
    let mut given = volumes::given(tenant);
    given.retain(|one| there.contains(&one.name));
    let Some(list) = pod.get_mut("spec").and_then(|spec| spec.get_mut(LIST)).and_then(Value::as_array_mut) else {
        return;
    };
    for container in list.iter_mut().filter(|one| !known.iter().any(|name| *name == text(&one["name"]))) {
        confine(container, LIST, warnings);
        furnish(container, tenant, &given);
    }
}

/// A pod that names no queue and is in no group goes to the tenant's first, where that is not everybody's.
fn choose_queue(pod: &mut Value, tenant: &TenantSpec) {
    let Some(queue) = first_queue(tenant) else { return };
    let annotations = &pod["metadata"]["annotations"];
    if is_empty(&annotations[GROUP_NAME]) && is_empty(&annotations[SCHEDULING_QUEUE_NAME]) {
        pumice_objects::meta::set_annotation(pod, SCHEDULING_QUEUE_NAME, queue);
    }
}

fn identify(spec: &mut Value, tenant: &TenantSpec, warnings: &mut Vec<String>) {
    let Some(context) = member(spec, "securityContext") else { return };
    for (field, wanted) in identity(tenant) {
        let before = context.get(field).unwrap_or(&Value::Null);
        if *before == wanted {
            continue;
        }
        if !is_empty(before) {
            warnings.push(format!("spec.securityContext.{field} is the tenant's: set to {wanted}"));
        }
        context.insert(field.to_owned(), wanted);
    }
}

fn confine(container: &mut Value, list: &str, warnings: &mut Vec<String>) {
    let path = format!("spec.{list}[{}].securityContext", text(&container["name"]));
    let Some(context) = member(container, "securityContext") else { return };
    for field in OF_POD {
        if context
            .remove(field)
            .is_some_and(|before| !is_empty(&before) && field.starts_with("runAs") && before != true)
        {
            warnings.push(format!("{path}.{field} is the pod's, which is the tenant's: removed"));
        }
    }
    for field in ["privileged", "procMount"] {
        if context.remove(field).is_some_and(|before| before != false && before != "Default") {
            warnings.push(format!("{path}.{field}: a tenant's pods have no rights of the machine: removed"));
        }
    }
    context.insert("allowPrivilegeEscalation".to_owned(), json!(false));
    let none = json!({"drop": ["ALL"]});
    if context.get("capabilities").is_some_and(|before| !is_empty(&before["add"])) {
        warnings.push(format!("{path}.capabilities: a tenant's pods have none"));
    }
    context.insert("capabilities".to_owned(), none);
}

fn add_volumes(spec: &mut Value, given: &[Given]) {
    if given.is_empty() {
        return;
    }
    if !spec["volumes"].is_array() {
        spec["volumes"] = json!([]);
    }
    let Some(all) = spec["volumes"].as_array_mut() else { return };
    for one in given {
        // Another volume of that name is refused later.
        if !all.iter().any(|volume| volume["name"] == *one.name) {
            all.push(one.volume());
        }
    }
}

/// Mounts what is given, unless the container has something there, and says where the home is.
fn furnish(container: &mut Value, tenant: &TenantSpec, given: &[Given]) {
    let Some(fields) = container.as_object_mut() else { return };
    if !given.is_empty() {
        let mounts = fields.entry("volumeMounts").or_insert(Value::Null);
        if mounts.is_null() {
            *mounts = json!([]);
        }
        let Some(mounts) = mounts.as_array_mut() else { return };
        for one in given {
            if !mounts.iter().any(|mount| same_path(text(&mount["mountPath"]), &one.mount_path)) {
                mounts.push(one.mount());
            }
        }
    }
    let Some(home) = tenant.home.as_ref().filter(|home| given.iter().any(|one| one.mount_path == home.mount_path))
    else {
        return;
    };
    let env = fields.entry("env").or_insert(Value::Null);
    if env.is_null() {
        *env = json!([]);
    }
    let Some(env) = env.as_array_mut() else { return };
    if !env.iter().any(|variable| variable["name"] == "HOME") {
        // First, so that others may refer to it.
        env.insert(0, json!({"name": "HOME", "value": home.mount_path}));
    }
}

fn member<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    let value = object.as_object_mut()?.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}
