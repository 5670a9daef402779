//! Services: stored, with the addresses they would need left out.
//!
//! Headless services are what the node reads for names. No virtual address is made: a service that is not headless keeps
//! an empty `clusterIP`, and the client gets a warning.

use std::collections::BTreeSet;

use pumice_objects::field::FieldError;
use pumice_objects::names::{self, NameRule};
use pumice_objects::status::Status;
use serde_json::{Map, Value, json};

use super::{Hook, Strategy};
use crate::problems::Problems;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// How long a client stays with a pod where nobody says it: three hours.
const AFFINITY_SECONDS: i64 = 10_800;

pub(crate) struct Service;

impl Strategy for Service {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
        spec.entry("type").or_insert_with(|| json!("ClusterIP"));
        spec.entry("sessionAffinity").or_insert_with(|| json!("None"));
        if spec["sessionAffinity"] == "ClientIP" {
            let timeout = json!({ "clientIP": { "timeoutSeconds": AFFINITY_SECONDS } });
            spec.entry("sessionAffinityConfig").or_insert(timeout);
        }
        if spec["type"] != "ExternalName" {
            families(spec);
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(port) = port.as_object_mut() else { continue };
            port.entry("protocol").or_insert_with(|| json!("TCP"));
            // Typed clients write 0, or no text, for "not given".
            let is_given = port.get("targetPort").is_some_and(|target| *target != 0 && *target != "");
            if !is_given && let Some(number) = port.get("port").cloned() {
                port.insert("targetPort".to_owned(), number);
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        object["status"] = json!({ "loadBalancer": {} });
        let kind = object["spec"]["type"].as_str().unwrap_or_default();
        if object["spec"]["clusterIP"] != "None" && kind != "ExternalName" {
            hook.warnings.push(
                "the service is stored, but gets no virtual address here: only headless services (clusterIP: None) \
                 have an effect"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        let kind = spec["type"].as_str().unwrap_or_default();
        if !TYPES.contains(&kind) {
            problems.not_supported("spec.type", kind, &TYPES);
        }
        let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
        let headless = spec["clusterIP"] == "None";
        if ports.is_empty() && !headless && kind != "ExternalName" {
            problems.required("spec.ports", "");
        }
        if kind == "ExternalName"
            && spec["externalName"].as_str().is_none_or(|name| names::check_dns1123_subdomain(name).is_err())
        {
            problems.required("spec.externalName", "");
        }
        check_ports(ports, &mut problems);
        problems.into_errors()
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn name_rule(&self) -> NameRule {
        NameRule::Label1035
    }
}

/// What a cluster whose addresses are of version 4 writes, as upstream.
fn families(spec: &mut Map<String, Value>) {
    let headless = spec.get("clusterIP").is_some_and(|ip| ip == "None");
    // Without a selector people make the endpoints, of either version.
    let (families, policy) = match headless && !has_selector(spec) {
        true => (json!(["IPv4", "IPv6"]), "RequireDualStack"),
        false => (json!(["IPv4"]), "SingleStack"),
    };
    let (balanced, reached) = (spec["type"] == "LoadBalancer", spec["type"] == "NodePort");
    for (key, value, counts) in [
        ("internalTrafficPolicy", json!("Cluster"), true),
        ("ipFamilies", families, true),
        ("ipFamilyPolicy", json!(policy), true),
        ("clusterIPs", json!(["None"]), headless),
        ("externalTrafficPolicy", json!("Cluster"), balanced || reached),
        ("allocateLoadBalancerNodePorts", json!(true), balanced),
    ] {
        if counts {
            spec.entry(key).or_insert(value);
        }
    }
}

fn has_selector(spec: &Map<String, Value>) -> bool {
    spec.get("selector").and_then(Value::as_object).is_some_and(|selector| !selector.is_empty())
}

fn check_ports(ports: &[Value], problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let name = port["name"].as_str().unwrap_or_default();
        if name.is_empty() && ports.len() > 1 {
            problems.required(&format!("{path}.name"), "");
        } else if !name.is_empty() && names::check_dns1123_label(name).is_err() {
            problems.dns_label(&format!("{path}.name"), name);
        } else if !name.is_empty() && !seen.insert(name) {
            problems.duplicate(&format!("{path}.name"), name);
        }
        if !port["port"].as_i64().is_some_and(|number| (1..=65_535).contains(&number)) {
            problems.invalid(&format!("{path}.port"), &port["port"], "must be between 1 and 65535, inclusive");
        }
        let protocol = port["protocol"].as_str().unwrap_or_default();
        if !PROTOCOLS.contains(&protocol) {
            problems.not_supported(&format!("{path}.protocol"), protocol, &PROTOCOLS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_policies_are_as_upstream_writes_them() {
        let one = json!(["IPv4"]);
        for (spec, wanted) in [
            (
                json!({"clusterIP": "None", "selector": {"a": "b"}}),
                json!({"ipFamilies": one, "ipFamilyPolicy": "SingleStack", "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster"}),
            ),
            (
                json!({"clusterIP": "None"}),
                json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}),
            ),
            (json!({}), json!({"ipFamilies": one, "clusterIPs": null, "externalTrafficPolicy": null})),
            (json!({"type": "ExternalName"}), json!({"ipFamilies": null, "internalTrafficPolicy": null})),
            (
                json!({"type": "NodePort"}),
                json!({"externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": null}),
            ),
            (json!({"type": "LoadBalancer"}), json!({"allocateLoadBalancerNodePorts": true})),
            (
                json!({"sessionAffinity": "ClientIP"}),
                json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}}),
            ),
        ] {
            let mut service = json!({ "spec": spec });
            Service.defaults(&mut service);
            for (key, value) in wanted.as_object().unwrap() {
                assert_eq!(service["spec"][key], *value, "{key} of {spec}");
            }
        }
    }

    #[test]
    fn ports_are_filled_and_checked() {
        let mut service = json!({"spec": {"ports": [{"port": 80}]}});
        Service.defaults(&mut service);
        assert_eq!(service["spec"]["ports"][0], json!({"port": 80, "protocol": "TCP", "targetPort": 80}));
        assert!(Service.validate(&service).is_empty());
        for (spec, path) in [
            (json!({"type": "ClusterIP"}), "spec.ports"),
            (json!({"type": "Odd", "clusterIP": "None"}), "spec.type"),
            (json!({"type": "ClusterIP", "ports": [{"port": 0, "protocol": "TCP"}]}), "spec.ports[0].port"),
        ] {
            assert_eq!(Service.validate(&json!({"spec": spec}))[0].path, path);
        }
    }
}
