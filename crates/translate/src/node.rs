//! Nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use pumice_engine::{NodeFacts, Resources, Taint, TaintEffect};

use super::{resources, text, volcano_annotations};

/// What the engine reads of a node.
pub fn node_facts(node: &Node) -> NodeFacts {
    let spec = node.spec.as_ref();
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    let taint = |taint: &k8s_openapi::api::core::v1::Taint| {
        let effect = effect(&taint.effect)?;
        Some(Taint { key: taint.key.clone(), value: text(taint.value.as_ref()), effect })
    };
    NodeFacts {
        name: text(node.metadata.name.as_ref()).into(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: taints.into_iter().flatten().filter_map(taint).collect(),
        unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
        allocatable: node
            .status
            .as_ref()
            .and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()))
            .map(resources)
            .unwrap_or_default(),
        capacity: capacity(node),
        annotations: volcano_annotations(&node.metadata),
        images: images(node),
        usage: None,
    }
}

/// Empty where it is what is allocatable.
fn capacity(node: &Node) -> Resources {
    let Some(status) = &node.status else { return Resources::new() };
    let capacity = status.capacity.as_ref().filter(|capacity| status.allocatable.as_ref() != Some(*capacity));
    capacity.map(resources).unwrap_or_default()
}

/// Sizes of images under each of their names.
fn images(node: &Node) -> BTreeMap<String, i64> {
    let all = node.status.iter().flat_map(|status| status.images.iter().flatten());
    let named = all.flat_map(|image| {
        let bytes = image.size_bytes.unwrap_or(0);
        image.names.iter().flatten().map(move |name| (name.clone(), bytes))
    });
    named.collect()
}

pub(super) fn effect(word: &str) -> Option<TaintEffect> {
    match word {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}
