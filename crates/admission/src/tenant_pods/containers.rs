//! Containers: nobody else than the pod, no more rights, no ports of the machine, no devices but the tenant's.

use pumice_api::tenant::{ALL_DEVICES, TenantSpec};
use pumice_objects::field::FieldError;
use serde_json::{Value, json};

use super::{containers_of, forbid, is_empty, text};

/// Fields by which a container would be somebody else than its pod.
const OF_POD: [&str; 4] = ["runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile"];
/// Resources below these names are no devices.
const PLAIN_DOMAIN: &str = "kubernetes.io";

pub(super) fn refusals(spec: &Value, tenant: &TenantSpec) -> Vec<FieldError> {
    let mut found = Vec::new();
    devices_refused("spec.resources", &spec["resources"], tenant, &mut found);
    if !is_empty(&spec["resourceClaims"]) && !may_have(ALL_DEVICES, tenant) {
        found.push(forbid("spec.resourceClaims", "the tenant may not claim any device; ask for one by resources"));
    }
    for (path, container) in containers_of(spec) {
        context(&format!("{path}.securityContext"), &container["securityContext"], &mut found);
        devices_refused(&format!("{path}.resources"), &container["resources"], tenant, &mut found);
        for (index, port) in container["ports"].as_array().into_iter().flatten().enumerate() {
            if !matches!(&port["hostPort"], Value::Null) && port["hostPort"] != 0 {
                let detail = "a tenant's pods have no ports of the machine; remove the field, and use a Service";
                found.push(forbid(format!("{path}.ports[{index}].hostPort"), detail));
            }
        }
    }
    found
}

fn context(path: &str, context: &Value, found: &mut Vec<FieldError>) {
    for field in OF_POD.into_iter().filter(|field| !context[*field].is_null()) {
        found.push(forbid(format!("{path}.{field}"), "the pod says it for all of its containers; remove the field"));
    }
    if context["allowPrivilegeEscalation"] != false {
        found.push(forbid(format!("{path}.allowPrivilegeEscalation"), "must be false for a tenant's pods"));
    }
    if !matches!(&context["privileged"], Value::Null | Value::Bool(false)) {
        found.push(forbid(
            format!("{path}.privileged"),
            "a tenant's pods have no rights of the machine; remove the field",
        ));
    }
    if context["capabilities"] != json!({"drop": ["ALL"]}) {
        found.push(forbid(format!("{path}.capabilities"), "must be {drop: [ALL]} for a tenant's pods"));
    }
    if !matches!(text(&context["procMount"]), "" | "Default")
        || !(context["procMount"].is_null() || context["procMount"].is_string())
    {
        found.push(forbid(format!("{path}.procMount"), "must be Default for a tenant's pods"));
    }
    profiles(path, context, found);
}

/// Profiles of other kinds of machines, and none where there is one.
pub(super) fn profiles(path: &str, context: &Value, found: &mut Vec<FieldError>) {
    for field in ["seLinuxOptions", "windowsOptions"].into_iter().filter(|field| !is_empty(&context[*field])) {
        found.push(forbid(format!("{path}.{field}"), "is no tenant's to choose; remove the field"));
    }
    if !is_empty(&context["appArmorProfile"]) && text(&context["appArmorProfile"]["type"]) == "Unconfined" {
        found.push(forbid(format!("{path}.appArmorProfile.type"), "must not be Unconfined for a tenant's pods"));
    }
}

/// Resources of devices that the tenant may not ask for.
pub(super) fn devices_refused(path: &str, resources: &Value, tenant: &TenantSpec, found: &mut Vec<FieldError>) {
    for list in ["limits", "requests"] {
        for name in resources[list].as_object().into_iter().flatten().map(|(name, _)| name) {
            let Some((domain, _)) = name.split_once('/') else { continue };
            let is_plain = domain == PLAIN_DOMAIN || domain.ends_with(".kubernetes.io");
            if !is_plain && !may_have(name, tenant) {
                let detail = format!("{name} is not among the tenant's devices; have an administrator add it");
                found.push(forbid(format!("{path}.{list}[{name}]"), detail));
            }
        }
    }
}

pub(crate) fn may_have(device: &str, tenant: &TenantSpec) -> bool {
    tenant.devices.iter().any(|allowed| allowed == ALL_DEVICES || allowed == device)
}
