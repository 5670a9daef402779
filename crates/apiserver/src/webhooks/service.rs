//! Where a service leads, on this platform.
//!
//! Invariant: only pods that are up and have an address are given, those that are ready first. There are no virtual
//! addresses here: what a Service names are its pods, or another host.

use pumice_objects::meta;
use pumice_store::Store;
use serde_json::Value;

use crate::stored::parse;

/// Most pods that are tried for one request.
const ENDPOINTS_MAX: usize = 3;

/// A pod behind a service. Sorted by its fields in their order: those that are ready come first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Reached {
    is_unready: bool,
    host: String,
    port: u16,
}

/// Hosts and ports behind a port of a service.
pub(super) fn endpoints(store: &Store, namespace: &str, name: &str, port: u16) -> Result<Vec<(String, u16)>, String> {
    let found = store.find("services", namespace, name);
    let found = found.ok_or_else(|| format!("service {name:?} not found"))?;
    let service = parse(&found);
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        let host = spec["externalName"].as_str().unwrap_or_default();
        return Ok(vec![(host.to_owned(), port)]);
    }
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let declared = ports.iter().find(|one| one["port"].as_u64() == Some(u64::from(port)));
    // A headless service without ports leads to every port of its pods.
    let target = match declared {
        Some(declared) => &declared["targetPort"],
        None if ports.is_empty() && spec["clusterIP"] == "None" => &Value::Null,
        None => return Err(format!("service port {port} not found for service {name:?}")),
    };
    let Some(selector) = spec["selector"].as_object().filter(|selector| !selector.is_empty()) else {
        return Err(format!("service {name:?} has no selector: its endpoints can't be found here"));
    };
    let mut reached: Vec<Reached> = Vec::new();
    for object in store.list("pods", Some(namespace)).items {
        let pod = parse(&object);
        let selected = selector.iter().all(|(key, value)| meta::label(&pod, key) == value.as_str());
        if selected && let Some((host, port)) = address(&pod, target, port) {
            reached.push(Reached { is_unready: !is_ready(&pod), host, port });
        }
    }
    reached.sort();
    reached.truncate(ENDPOINTS_MAX);
    if reached.is_empty() {
        return Err(format!("no endpoints available for service {name:?}"));
    }
    Ok(reached.into_iter().map(|one| (one.host, one.port)).collect())
}

fn address(pod: &Value, target: &Value, port: u16) -> Option<(String, u16)> {
    if pod["status"]["phase"] != "Running" || pod["metadata"]["deletionTimestamp"].is_string() {
        return None;
    }
    let host = pod["status"]["podIP"].as_str().filter(|host| !host.is_empty())?;
    let port = match target {
        Value::Number(number) => u16::try_from(number.as_u64()?).ok()?,
        Value::String(name) => {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let mut ports = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
            let named = ports.find(|one| one["name"] == name.as_str())?;
            u16::try_from(named["containerPort"].as_u64()?).ok()?
        }
        _ => port,
    };
    Some((host.to_owned(), port))
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_port_is_that_of_the_pod() {
        let pod = json!({
            "metadata": {}, "status": { "phase": "Running", "podIP": "10.0.0.1" },
            "spec": { "containers": [{ "ports": [{ "name": "web", "containerPort": 8443 }] }] },
        });
        assert_eq!(address(&pod, &json!("web"), 443), Some(("10.0.0.1".to_owned(), 8443)));
        assert_eq!(address(&pod, &json!(9), 443), Some(("10.0.0.1".to_owned(), 9)));
        assert_eq!(address(&pod, &Value::Null, 443), Some(("10.0.0.1".to_owned(), 443)));
        assert_eq!(address(&pod, &json!("none"), 443), None);
        assert_eq!(address(&json!({ "status": { "phase": "Pending", "podIP": "10.0.0.1" } }), &json!(9), 443), None);
    }
}
