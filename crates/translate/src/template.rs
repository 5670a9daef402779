//! What placing a pod reads of its spec: effective requests, constraints, priority.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_engine::{
    HostPort, NodeTerm, Operator, PodTemplate, PreferredTerm, Requirement, Toleration, template_annotations,
};

use super::inter_pod::inter_pod_constraints;
use super::requests::requests;
use super::{annotation, containers, text};

const TASK_PRIORITY: &str = "volcano.sh/task-priority";
/// Volcano's priority of a pod that has none.
const DEFAULT_PRIORITY: i32 = 1;

/// `namespace` is the pod's: a template has none of its own.
pub(super) fn template(
    namespace: &str,
    metadata: &ObjectMeta,
    spec: &core::PodSpec,
    status: Option<&core::PodStatus>,
) -> PodTemplate {
    let affinity = spec.affinity.as_ref();
    let nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = nodes.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    let preferred = nodes.and_then(|nodes| nodes.preferred_during_scheduling_ignored_during_execution.as_ref());
    let containers = containers::containers(spec);
    PodTemplate {
        requests: requests(spec, status),
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
        images: images(spec),
        inter_pod: inter_pod_constraints(namespace, metadata.labels.as_ref(), spec),
        priority: annotation(metadata, TASK_PRIORITY)
            .and_then(|text| text.parse().ok())
            .or(spec.priority)
            .unwrap_or(DEFAULT_PRIORITY),
        time_limit_ms: spec.active_deadline_seconds.filter(|limit| *limit > 0).map(|limit| limit.saturating_mul(1_000)),
        unsupported: Vec::new(),
    }
}

/// Each container's image, under the name that nodes list it by.
fn images(spec: &core::PodSpec) -> Vec<String> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let named = containers.filter_map(|container| container.image.as_deref());
    named
        .map(|image| {
            let tagged = image.rfind(':') > image.rfind('/') && image.contains(':');
            if tagged { image.to_owned() } else { format!("{image}:latest") }
        })
        .collect()
}

pub(super) fn term(term: &core::NodeSelectorTerm) -> NodeTerm {
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
