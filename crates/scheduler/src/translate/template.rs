//! What placing a pod reads of its spec: effective requests, constraints, priority.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_engine::{
    HostPort, NodeTerm, Operator, PodTemplate, PreferredTerm, Requirement, Resources, Toleration, template_annotations,
};

use super::couplings::couplings;
use super::{annotation, containers, resources, text};

const TASK_PRIORITY: &str = "volcano.sh/task-priority";
/// Volcano's priority of a pod that has none.
const DEFAULT_PRIORITY: i32 = 1;

/// `namespace` is the pod's: a template has none of its own.
pub(super) fn template(namespace: &str, metadata: &ObjectMeta, spec: &core::PodSpec) -> PodTemplate {
    let affinity = spec.affinity.as_ref();
    let nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = nodes.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    let preferred = nodes.and_then(|nodes| nodes.preferred_during_scheduling_ignored_during_execution.as_ref());
    let containers = containers::containers(spec);
    PodTemplate {
        requests: requests(spec),
        limits: containers::limits(spec),
        guaranteed: containers::is_guaranteed(&containers),
        containers,
        annotations: template_annotations()
            .filter_map(|key| Some((key.to_owned(), annotation(metadata, key)?.to_owned())))
            .collect(),
        node_selector: spec.node_selector.clone().unwrap_or_default(),
        required_terms: required.map(|selector| selector.node_selector_terms.iter().map(term).collect()),
        preferred_terms: preferred
            .into_iter()
            .flatten()
            .map(|preferred| PreferredTerm { weight: preferred.weight, term: term(&preferred.preference) })
            .collect(),
        tolerations: spec.tolerations.iter().flatten().map(toleration).collect(),
        host_ports: host_ports(spec),
        couplings: couplings(namespace, metadata.labels.as_ref(), spec),
        priority: annotation(metadata, TASK_PRIORITY)
            .and_then(|text| text.parse().ok())
            .or(spec.priority)
            .unwrap_or(DEFAULT_PRIORITY),
        unsupported: unsupported(spec),
    }
}

/// Containers and sidecars together, or the largest init container with the sidecars before it, whichever is more;
/// pod-level resources replace cpu, memory and huge pages; overhead comes on top.
fn requests(spec: &core::PodSpec) -> Resources {
    let mut sum = Resources::new();
    let mut largest = Resources::new();
    let mut sidecars = Resources::new();
    for container in &spec.containers {
        add(&mut sum, &asked(container.resources.as_ref()));
    }
    for container in spec.init_containers.iter().flatten() {
        let mut asked = asked(container.resources.as_ref());
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sum, &asked);
            add(&mut sidecars, &asked);
        } else {
            add(&mut asked, &sidecars);
            for (name, amount) in asked {
                let most = largest.entry(name).or_default();
                *most = amount.max(*most);
            }
        }
    }
    for (name, amount) in largest {
        let total = sum.entry(name).or_default();
        *total = amount.max(*total);
    }
    for (name, amount) in asked(spec.resources.as_ref()) {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            sum.insert(name, amount);
        }
    }
    add(&mut sum, &spec.overhead.as_ref().map(resources).unwrap_or_default());
    // One of `pods` is the engine's to count.
    sum.remove("pods");
    sum
}

/// The requests; a limit without a request is one, as the API server's defaulting has it.
fn asked(requirements: Option<&core::ResourceRequirements>) -> Resources {
    let read = |list: Option<&BTreeMap<String, WireQuantity>>| list.map(resources).unwrap_or_default();
    let Some(requirements) = requirements else { return Resources::new() };
    let mut asked = read(requirements.limits.as_ref());
    asked.extend(read(requirements.requests.as_ref()));
    asked
}

fn add(sum: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        let total = sum.entry(name.clone()).or_default();
        *total = total.saturating_add(*amount);
    }
}

fn term(term: &core::NodeSelectorTerm) -> NodeTerm {
    let requirements =
        |list: Option<&Vec<core::NodeSelectorRequirement>>| list.into_iter().flatten().map(requirement).collect();
    NodeTerm {
        expressions: requirements(term.match_expressions.as_ref()),
        fields: requirements(term.match_fields.as_ref()),
    }
}

fn requirement(requirement: &core::NodeSelectorRequirement) -> Requirement {
    required(&requirement.key, &requirement.operator, requirement.values.as_ref())
}

/// A requirement in the words of the wire.
pub(super) fn required(key: &str, operator: &str, values: Option<&Vec<String>>) -> Requirement {
    let values = values.cloned().unwrap_or_default();
    let (operator, values) = match operator {
        "In" => (Operator::In, values),
        "NotIn" => (Operator::NotIn, values),
        "Exists" => (Operator::Exists, values),
        "DoesNotExist" => (Operator::DoesNotExist, values),
        "Gt" => (Operator::Gt, values),
        "Lt" => (Operator::Lt, values),
        // An operator nobody knows matches nothing, as in Kubernetes: In with no values.
        _ => (Operator::In, Vec::new()),
    };
    Requirement { key: key.to_owned(), operator, values }
}

fn toleration(toleration: &core::Toleration) -> Toleration {
    Toleration {
        key: text(toleration.key.as_ref()),
        exists: toleration.operator.as_deref() == Some("Exists"),
        value: text(toleration.value.as_ref()),
        effect: toleration.effect.as_deref().filter(|word| !word.is_empty()).and_then(super::node::effect),
    }
}

fn host_ports(spec: &core::PodSpec) -> Vec<HostPort> {
    let on_host = spec.host_network.unwrap_or(false);
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let mut found: Vec<HostPort> = ports
        .filter_map(|port| {
            let number = port.host_port.or(on_host.then_some(port.container_port))?;
            Some(HostPort {
                ip: text(port.host_ip.as_ref()),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                port: u16::try_from(number).ok().filter(|number| *number > 0)?,
            })
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Constraints that the engine does not have yet: a pod with one is held back, and says why.
fn unsupported(spec: &core::PodSpec) -> Vec<String> {
    let found = [("resourceClaims", spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()))];
    found.into_iter().filter(|(_, there)| *there).map(|(name, _)| name.to_owned()).collect()
}
