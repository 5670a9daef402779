//! The cluster's smaller objects: HyperNodes, NodeShards, budgets, quotas, namespaces.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use pumice_api::names;
use pumice_api::shard::NodeShard;
use pumice_api::topology::{HyperNode, Member, MemberType};
use pumice_engine::{
    BudgetFacts, Delta, HyperNodeFacts, HyperNodeMember, MemberKind, QuotaFacts, Resources, ShardFacts,
};

use super::{amount, annotation, count, requirements, text};

/// Weight of a namespace among those that share a queue; annotation.
const NAMESPACE_WEIGHT: &str = "pumice.sh/weight";
/// What nobody weighs more than.
const NAMESPACE_WEIGHT_MAX: i64 = 1_000_000;

/// What the engine reads of a HyperNode.
pub fn hyper_node_facts(node: &HyperNode) -> HyperNodeFacts {
    HyperNodeFacts {
        name: text(node.metadata.name.as_ref()),
        tier: u32::try_from(node.spec.tier.max(0)).unwrap_or(u32::MAX),
        tier_name: node.spec.tier_name.clone(),
        members: node.spec.members.iter().filter_map(member).collect(),
    }
}

/// A member without a selector names nothing.
fn member(member: &Member) -> Option<HyperNodeMember> {
    let selector = &member.selector;
    let which = match (&selector.exact_match, &selector.regex_match, &selector.label_match) {
        (Some(exact), _, _) => MemberKind::Exact(exact.name.clone()),
        (_, Some(regex), _) => MemberKind::Pattern(regex.pattern.clone()),
        (_, _, Some(labels)) => MemberKind::Labels(requirements(labels)),
        (None, None, None) => return None,
    };
    Some(HyperNodeMember { hyper_node: member.type_ == Some(MemberType::HyperNode), which })
}

/// What the engine reads of a NodeShard.
pub fn shard_facts(shard: &NodeShard) -> ShardFacts {
    ShardFacts {
        name: text(shard.metadata.name.as_ref()),
        desired: shard.spec.nodes_desired.iter().map(|node| node.as_str().into()).collect(),
        in_use: shard.status.nodes_in_use.iter().map(|node| node.as_str().into()).collect(),
    }
}

/// What the engine reads of a PodDisruptionBudget.
pub fn budget_facts(budget: &PodDisruptionBudget) -> BudgetFacts {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    BudgetFacts {
        namespace: text(budget.metadata.namespace.as_ref()),
        name: text(budget.metadata.name.as_ref()),
        selector: selector.map(requirements),
        allowed: budget.status.as_ref().map_or(0, |status| count(status.disruptions_allowed.unwrap_or(0))),
    }
}

/// What the engine reads of a ResourceQuota.
pub fn quota_facts(quota: &ResourceQuota) -> QuotaFacts {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let used = quota.status.as_ref().and_then(|status| status.used.as_ref());
    QuotaFacts {
        namespace: text(quota.metadata.namespace.as_ref()),
        name: text(quota.metadata.name.as_ref()),
        hard: hard.map(quota_amounts).unwrap_or_default(),
        used: used.map(quota_amounts).unwrap_or_default(),
    }
}

/// `requests.cpu` and `limits.cpu` count in milli-cores, as `cpu` does.
fn quota_amounts(list: &BTreeMap<String, WireQuantity>) -> Resources {
    let unit = |name: &str| if name.ends_with(".cpu") { "cpu".to_owned() } else { name.to_owned() };
    list.iter().map(|(name, quantity)| (name.clone(), amount(&unit(name), quantity))).collect()
}

/// A namespace, with its weight and its queue.
pub fn namespace(namespace: &Namespace) -> Delta {
    let weight = annotation(&namespace.metadata, NAMESPACE_WEIGHT).and_then(|text| text.parse().ok());
    Delta::NamespaceUpsert {
        name: text(namespace.metadata.name.as_ref()),
        weight: weight.unwrap_or(1_i64).clamp(1, NAMESPACE_WEIGHT_MAX),
        labels: namespace.metadata.labels.clone().unwrap_or_default(),
        queue: annotation(&namespace.metadata, names::SCHEDULING_QUEUE_NAME).map(str::to_owned),
    }
}
