//! Nodes.

use k8s_openapi::api::core::v1::Node;
use pumice_engine::{NodeFacts, Taint, TaintEffect};

use super::{resources, text};

pub(crate) fn node_facts(node: &Node) -> NodeFacts {
    let spec = node.spec.as_ref();
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    let taint = |taint: &k8s_openapi::api::core::v1::Taint| {
        let effect = effect(&taint.effect)?;
        Some(Taint { key: taint.key.clone(), value: text(taint.value.as_ref()), effect })
    };
    NodeFacts {
        name: text(node.metadata.name.as_ref()),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: taints.into_iter().flatten().filter_map(taint).collect(),
        unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
        allocatable: node
            .status
            .as_ref()
            .and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()))
            .map(resources)
            .unwrap_or_default(),
    }
}

pub(super) fn effect(word: &str) -> Option<TaintEffect> {
    match word {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}
