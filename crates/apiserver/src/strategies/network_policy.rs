//! NetworkPolicies: enforced by nodes that can; the client is warned of those that can't.

use pumice_objects::field::FieldError;
use pumice_objects::selector::LabelSelector;
use pumice_objects::status::Status;
use serde_json::{Value, json};

use super::{Hook, Strategy};
use crate::problems::Problems;

const TYPES: [&str; 2] = ["Ingress", "Egress"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// What a node's agent says that it can.
const CAPABILITIES: &str = "pumice.sh/node-capabilities";
const ENFORCES: &str = "network-policy=yes";

pub(crate) struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
        if !spec.contains_key("policyTypes") {
            let types = if spec.contains_key("egress") { json!(TYPES) } else { json!([TYPES[0]]) };
            spec.insert("policyTypes".to_owned(), types);
        }
        for direction in ["ingress", "egress"] {
            let rules = spec.get_mut(direction).and_then(Value::as_array_mut).into_iter().flatten();
            let ports = rules.filter_map(|rule| rule.get_mut("ports")?.as_array_mut()).flatten();
            for port in ports.filter_map(Value::as_object_mut) {
                port.entry("protocol").or_insert_with(|| json!("TCP"));
            }
        }
    }

    fn prepare_create(&self, _object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        // The platform's own components make them as Volcano does, and know.
        if !hook.identity.user.starts_with("system:pumice:") {
            hook.warnings.extend(warning(&hook.reader.list("nodes", None)));
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        check_selector("spec.podSelector", &spec["podSelector"], &mut problems);
        let types = spec["policyTypes"].as_array().map_or(&[][..], Vec::as_slice);
        if types.len() > TYPES.len() {
            problems.invalid("spec.policyTypes", &spec["policyTypes"], "may not specify more than two policyTypes");
        }
        for (index, kind) in types.iter().enumerate() {
            let kind = kind.as_str().unwrap_or_default();
            if !TYPES.contains(&kind) {
                problems.not_supported(&format!("spec.policyTypes[{index}]"), kind, &TYPES);
            }
        }
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            for (index, rule) in spec[direction].as_array().into_iter().flatten().enumerate() {
                check_rule(&format!("spec.{direction}[{index}]"), rule, peers, &mut problems);
            }
        }
        problems.into_errors()
    }
}

/// What to say of nodes that do not enforce policies; those that say nothing of themselves run no pods of ours.
fn warning(nodes: &[Value]) -> Option<String> {
    let said = nodes.iter().filter_map(|node| {
        let said = node["metadata"]["annotations"][CAPABILITIES].as_str()?;
        Some((node["metadata"]["name"].as_str()?, said.split([' ', ';']).any(|word| word == ENFORCES)))
    });
    let (enforcing, other): (Vec<_>, Vec<_>) = said.partition(|(_, enforces)| *enforces);
    match other.first() {
        None if !enforcing.is_empty() => None,
        Some((name, _)) if !enforcing.is_empty() => Some(format!(
            "the network policy has no effect on {} of {} nodes, such as {name}: pods have no networks of their own there; run the \
             platform as root",
            other.len(),
            other.len() + enforcing.len()
        )),
        _ => Some(
            "the network policy is stored, but has no effect here: no node gives pods networks of their own; run the platform as root"
                .to_owned(),
        ),
    }
}

fn check_rule(path: &str, rule: &Value, peers: &str, problems: &mut Problems) {
    for (index, port) in rule["ports"].as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let protocol = port["protocol"].as_str().unwrap_or_default();
        if !PROTOCOLS.contains(&protocol) {
            problems.not_supported(&format!("{path}.protocol"), protocol, &PROTOCOLS);
        }
        if port["port"].as_i64().is_some_and(|number| !(1..=65_535).contains(&number)) {
            problems.invalid(&format!("{path}.port"), &port["port"], "must be between 1 and 65535, inclusive");
        }
    }
    for (index, peer) in rule[peers].as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}.{peers}[{index}]");
        let selectors = ["podSelector", "namespaceSelector"];
        let selecting = selectors.iter().any(|field| peer[*field].is_object());
        match (selecting, peer["ipBlock"].is_object()) {
            (false, false) => problems.required(&path, "must specify a peer"),
            (true, true) => problems.forbidden(&path, "may not specify both ipBlock and another peer"),
            _ => {}
        }
        for field in selectors {
            check_selector(&format!("{path}.{field}"), &peer[field], problems);
        }
    }
}

fn check_selector(path: &str, selector: &Value, problems: &mut Problems) {
    if selector.is_object()
        && let Err(error) = LabelSelector::from_json(selector)
    {
        problems.invalid(path, selector, &error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_do_not_enforce_policies_are_told_of() {
        let node =
            |name: &str, said: Option<&str>| json!({"metadata": {"name": name, "annotations": {CAPABILITIES: said}}});
        let yes = node("a", Some("network=yes network-policy=yes cgroup=v1; no quotas"));
        let no = node("b", Some("network=no network-policy=no cgroup=v1"));
        let silent = node("c", None);
        let told = |nodes: &[&Value]| warning(&nodes.iter().map(|node| (*node).clone()).collect::<Vec<_>>());
        assert_eq!(told(&[&yes, &silent]), None);
        assert!(told(&[&yes, &no, &silent]).unwrap().contains("1 of 2 nodes, such as b"));
        for nodes in [&[][..], &[&no], &[&silent]] {
            assert!(told(nodes).unwrap().contains("no effect here"), "{nodes:?}");
        }
    }

    #[test]
    fn policies_are_filled_and_checked() {
        let mut policy = json!({"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}});
        NetworkPolicy.defaults(&mut policy);
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
        assert_eq!(policy["spec"]["ingress"][0]["ports"][0], json!({"port": 80, "protocol": "TCP"}));
        assert!(NetworkPolicy.validate(&policy).is_empty());
        for (spec, path) in [
            (json!({"policyTypes": ["Odd"]}), "spec.policyTypes[0]"),
            (json!({"egress": [{"to": [{}]}]}), "spec.egress[0].to[0]"),
            (
                json!({"ingress": [{"from": [{"ipBlock": {"cidr": "1.2.3.0/24"}, "podSelector": {}}]}]}),
                "spec.ingress[0].from[0]",
            ),
            (json!({"ingress": [{"ports": [{"port": 0, "protocol": "TCP"}]}]}), "spec.ingress[0].ports[0].port"),
        ] {
            assert_eq!(NetworkPolicy.validate(&json!({"spec": spec}))[0].path, path);
        }
    }
}
