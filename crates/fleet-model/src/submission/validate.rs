//! The rules of submissions, one function each, in Armada's order.
//!
//! Invariant: the bounds of a pod spec are checked before anything walks it, and its types before anything else reads it.

use std::collections::BTreeMap;

use pumice_objects::protobuf;
use pumice_objects::selector::LabelRequirement;
use serde_json::Value;

use super::annotations::PRICE_BAND;
use super::error::ContainerPath;
use super::{Again, Item, ItemError, PriceBand, Rules, Submission, SubmitError};
use super::{failures, gang, resources, services, spec};

type Rule = Result<(), ItemError>;

/// The rules of the whole request.
pub fn request(submission: &Submission, rules: &Rules) -> Result<(), SubmitError> {
    if submission.queue.is_empty() {
        return Err(SubmitError::Queue);
    }
    gang::check(&submission.items, rules)?;
    if submission.job_set.is_empty() {
        return Err(SubmitError::JobSet);
    }
    let (length, limit) = (submission.job_set.chars().count(), rules.job_set_id_length_limit);
    if length >= limit { Err(SubmitError::JobSetLength { length, limit }) } else { Ok(()) }
}

/// The rules of one item of a queue, and its pod spec.
pub fn item<'i>(item: &'i Item, queue: &str, rules: &Rules) -> Result<&'i Value, ItemError> {
    if item.namespace.is_empty() {
        return Err(ItemError::Namespace);
    }
    rules.queue_access.check_namespace(queue, &item.namespace)?;
    let pod_spec = one_pod_spec(item)?;
    placeable(pod_spec, rules)?;
    rules.queue_access.check_pod(queue, pod_spec)?;
    priority_class(pod_spec, rules)?;
    grace_period(pod_spec, rules)?;
    ingresses(item)?;
    ports(pod_spec)?;
    client_id(&item.client_id, rules)?;
    tolerations(pod_spec, rules)?;
    price_band(item)?;
    failures::check(item)?;
    services::check_names(item, rules)?;
    node_labels(item, pod_spec)?;
    priority(item.priority)?;
    Ok(pod_spec)
}

/// What the scheduler reads of a pod spec.
fn placeable(pod_spec: &Value, rules: &Rules) -> Rule {
    size(pod_spec, rules)?;
    affinity(&pod_spec["affinity"]["nodeAffinity"])?;
    if spec::list(pod_spec, "containers").is_empty() {
        return Err(ItemError::Containers);
    }
    resources::check(pod_spec, rules)?;
    resources::check_init_cores(pod_spec, rules)
}

/// The rules of a pod spec that is one of several of a job of a queue.
pub fn pod_spec(pod_spec: &Value, queue: &str, rules: &Rules) -> Rule {
    placeable(pod_spec, rules)?;
    rules.queue_access.check_pod(queue, pod_spec)?;
    grace_period(pod_spec, rules)?;
    ports(pod_spec)?;
    tolerations(pod_spec, rules)
}

/// The rules of an item apart from its pod specs.
pub fn item_alone(item: &Item, rules: &Rules) -> Rule {
    client_id(&item.client_id, rules)?;
    price_band(item)?;
    failures::check(item)?;
    priority(item.priority)
}

/// The rules of a job of an item that breaks none.
pub fn again(again: &Again, rules: &Rules) -> Rule {
    client_id(&again.client_id, rules)?;
    priority(again.priority)
}

fn priority(asked: f64) -> Rule {
    if asked.is_nan() { Err(ItemError::Priority) } else { Ok(()) }
}

fn one_pod_spec(item: &Item) -> Result<&Value, ItemError> {
    let count = item.pod_specs.len() + usize::from(item.pod_spec.is_some());
    match item.pod_spec.iter().chain(&item.pod_specs).next() {
        None => Err(ItemError::PodSpecMissing),
        Some(_) if count > 1 => Err(ItemError::PodSpecs { count }),
        Some(pod_spec) => Ok(pod_spec),
    }
}

/// Depth, types and size, as protobuf has it.
fn size(pod_spec: &Value, rules: &Rules) -> Rule {
    let max = rules.max_pod_spec_size_bytes;
    spec::check_bounds(pod_spec, max)?;
    let bytes = protobuf::builtin().encode_message("core.v1.PodSpec", pod_spec);
    let bytes = bytes.map_err(|source| ItemError::PodSpec { source })?;
    if bytes.len() > max { Err(ItemError::PodSpecTooLarge { max }) } else { Ok(()) }
}

/// Terms that are preferred are not read, and those that are required must be.
fn affinity(node_affinity: &Value) -> Rule {
    if !spec::list(node_affinity, "preferredDuringSchedulingIgnoredDuringExecution").is_empty() {
        return Err(ItemError::PreferredAffinity);
    }
    let required = &node_affinity["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = spec::list(required, "nodeSelectorTerms");
    if !required.is_null() && terms.is_empty() {
        return Err(ItemError::AffinityTerms);
    }
    for (term, fields) in terms.iter().enumerate() {
        for (expression, json) in spec::list(fields, "matchExpressions").iter().enumerate() {
            LabelRequirement::from_json(json).map_err(|source| ItemError::AffinityExpression {
                term,
                expression,
                source,
            })?;
        }
        for (field, json) in spec::list(fields, "matchFields").iter().enumerate() {
            let is_read = spec::text(json, "key") == "metadata.name"
                && ["In", "NotIn"].contains(&spec::text(json, "operator"))
                && spec::list(json, "values").len() == 1;
            if !is_read {
                return Err(ItemError::AffinityField { term, field });
            }
        }
    }
    Ok(())
}

fn priority_class(pod_spec: &Value, rules: &Rules) -> Rule {
    let (name, allowed) = (spec::text(pod_spec, "priorityClassName"), &rules.allowed_priority_class_names);
    if name.is_empty() || allowed.contains(name) {
        return Ok(());
    }
    Err(ItemError::PriorityClass { name: name.to_owned(), allowed: allowed.iter().cloned().collect() })
}

fn grace_period(pod_spec: &Value, rules: &Rules) -> Rule {
    let seconds = pod_spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    let (min, max) = (rules.min_termination_grace_period.as_secs(), rules.max_termination_grace_period.as_secs());
    if seconds == 0 || (min..=max).contains(&seconds) {
        Ok(())
    } else {
        Err(ItemError::GracePeriod { seconds, min, max })
    }
}

fn ingresses(item: &Item) -> Rule {
    let mut seen = BTreeMap::new();
    for (index, ingress) in item.ingress.iter().enumerate() {
        if ingress.ports.is_empty() {
            return Err(ItemError::IngressPorts { index });
        }
        for &port in &ingress.ports {
            let first = *seen.entry(port).or_insert(index);
            if first != index {
                return Err(ItemError::IngressPortTwice { index, port, first });
            }
        }
    }
    Ok(())
}

/// A port appears once over all containers that run together; init containers run one after the other.
fn ports(pod_spec: &Value) -> Rule {
    let mut seen: BTreeMap<u64, ContainerPath> = BTreeMap::new();
    let is_running = |at: &ContainerPath, container: &Value| at.list == "containers" || spec::is_sidecar(container);
    for (at, container) in resources::places(pod_spec).filter(|(at, container)| is_running(at, container)) {
        for port in spec::list(container, "ports").iter().filter_map(|port| port["containerPort"].as_u64()) {
            if let Some(first) = seen.insert(port, at.clone()) {
                return Err(ItemError::PortTwice { at, port, first });
            }
        }
    }
    Ok(())
}

fn client_id(id: &str, rules: &Rules) -> Rule {
    let (length, max) = (id.chars().count(), rules.client_id_length_max);
    if length > max { Err(ItemError::ClientId { length, max }) } else { Ok(()) }
}

/// A toleration without a key is one of every taint, so of those that may not be tolerated, too.
fn tolerations(pod_spec: &Value, rules: &Rules) -> Rule {
    let Some(restricted) = rules.restricted_toleration_keys.first() else { return Ok(()) };
    for (index, toleration) in spec::list(pod_spec, "tolerations").iter().enumerate() {
        let key = spec::text(toleration, "key");
        if key.is_empty() {
            return Err(ItemError::TolerationOfAll { index, key: restricted.clone() });
        }
        if rules.restricted_toleration_keys.contains(key) {
            return Err(ItemError::Toleration { index, key: key.to_owned() });
        }
    }
    Ok(())
}

fn price_band(item: &Item) -> Rule {
    match item.annotations.get(PRICE_BAND) {
        Some(text) if PriceBand::parse(text).is_none() => Err(ItemError::PriceBand { text: text.clone() }),
        _ => Ok(()),
    }
}

/// Labels that are required twice have one value.
fn node_labels(item: &Item, pod_spec: &Value) -> Rule {
    for (key, value) in &item.required_node_labels {
        if let Some(other) = pod_spec["nodeSelector"][key].as_str().filter(|other| other != value) {
            let (key, value, other) = (key.clone(), value.clone(), other.to_owned());
            return Err(ItemError::NodeLabel { key, value, other });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
