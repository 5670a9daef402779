//! Which nodes a pod's own words allow: selectors, required affinity, taints. Exactly Kubernetes' rules.
//! Pure comparisons; used by the checks of `predicates` and by topology spread, which counts only such nodes.

use std::collections::BTreeMap;

use crate::cluster::nodes::NodeRow;
use crate::facts::{NodeTerm, Operator, Requirement, Taint, TaintEffect, Toleration};

/// Node selector and required node affinity.
pub(crate) fn selects(
    node_selector: &BTreeMap<String, String>,
    required_terms: Option<&[NodeTerm]>,
    node: &NodeRow,
) -> bool {
    node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && required_terms.is_none_or(|terms| terms.iter().any(|term| matches_term(term, node)))
}

/// A term without requirements matches no node.
pub(crate) fn matches_term(term: &NodeTerm, node: &NodeRow) -> bool {
    if term.expressions.is_empty() && term.fields.is_empty() {
        return false;
    }
    let label = |requirement: &Requirement| holds(requirement, node.labels.get(&requirement.key).map(String::as_str));
    let field = |requirement: &Requirement| requirement.key == "metadata.name" && holds(requirement, Some(&node.name));
    term.expressions.iter().all(label) && term.fields.iter().all(field)
}

/// One requirement on a value.
pub(crate) fn holds(requirement: &Requirement, actual: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|wanted| wanted == value);
    let compared = |wanted: fn(&i64, &i64) -> bool| match (actual.map(str::parse::<i64>), requirement.values.as_slice())
    {
        (Some(Ok(actual)), [value]) => value.parse().is_ok_and(|value| wanted(&actual, &value)),
        _ => false,
    };
    match requirement.operator {
        Operator::In => actual.is_some_and(listed),
        Operator::NotIn => !actual.is_some_and(listed),
        Operator::Exists => actual.is_some(),
        Operator::DoesNotExist => actual.is_none(),
        Operator::Gt => compared(i64::gt),
        Operator::Lt => compared(i64::lt),
    }
}

/// One requirement of a label selector, which knows no `Gt` and `Lt`.
pub(crate) fn selected(requirement: &Requirement, actual: Option<&str>) -> bool {
    !matches!(requirement.operator, Operator::Gt | Operator::Lt) && holds(requirement, actual)
}

/// Whether the toleration covers the taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    toleration.effect.is_none_or(|effect| effect == taint.effect)
        && (toleration.key.is_empty() && toleration.exists || toleration.key == taint.key)
        && (toleration.exists || toleration.value == taint.value)
}

/// The taints that keep the pod away, in the node's order.
pub(crate) fn untolerated<'a>(
    tolerations: &'a [Toleration],
    node: &'a NodeRow,
) -> impl Iterator<Item = &'a Taint> + use<'a> {
    let hard = node.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    hard.filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}
