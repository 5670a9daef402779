//! What a pod says of other pods: affinity, anti-affinity, topology spread.
//!
//! What depends on the pod alone is resolved here: its namespace where a term names none, and its own labels for
//! `matchLabelKeys` and `mismatchLabelKeys`, which the API server may have resolved already.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use pumice_engine::{
    InterPodConstraints, LabelSelector, Operator, PodSelector, PodTerm, PreferredPodTerm, Requirement, SpreadConstraint,
};

/// The pod that speaks.
struct Speaker<'a> {
    namespace: &'a str,
    labels: &'a BTreeMap<String, String>,
}

pub(super) fn inter_pod_constraints(
    namespace: &str,
    labels: Option<&BTreeMap<String, String>>,
    spec: &core::PodSpec,
) -> InterPodConstraints {
    let none = BTreeMap::new();
    let speaker = Speaker { namespace, labels: labels.unwrap_or(&none) };
    let affinity = spec.affinity.as_ref();
    let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let required = |list: Option<&Vec<core::PodAffinityTerm>>| -> Vec<PodTerm> {
        list.into_iter().flatten().map(|term| speaker.term(term)).collect()
    };
    let preferred = |list: Option<&Vec<core::WeightedPodAffinityTerm>>, sign: i32| -> Vec<PreferredPodTerm> {
        let one = |term: &core::WeightedPodAffinityTerm| PreferredPodTerm {
            weight: term.weight.clamp(0, 100) * sign,
            term: speaker.term(&term.pod_affinity_term),
        };
        list.into_iter().flatten().map(one).collect()
    };
    let soft_near = near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref());
    let soft_apart = apart.and_then(|apart| apart.preferred_during_scheduling_ignored_during_execution.as_ref());
    InterPodConstraints {
        affinity: required(near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref())),
        anti_affinity: required(
            apart.and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_ref()),
        ),
        preferred: [preferred(soft_near, 1), preferred(soft_apart, -1)].concat(),
        spread: spec.topology_spread_constraints.iter().flatten().map(|spread| speaker.spread(spread)).collect(),
    }
}

impl Speaker<'_> {
    fn term(&self, term: &core::PodAffinityTerm) -> PodTerm {
        let named = term.namespaces.clone().filter(|names| !names.is_empty());
        let own = || if term.namespace_selector.is_none() { vec![self.namespace.to_owned()] } else { Vec::new() };
        let mut labels = term.label_selector.as_ref().map(selector);
        if let Some(labels) = &mut labels {
            self.require(labels, term.match_label_keys.as_ref(), Operator::In);
            self.require(labels, term.mismatch_label_keys.as_ref(), Operator::NotIn);
        }
        PodTerm {
            pods: PodSelector {
                namespaces: named.unwrap_or_else(own),
                namespace_selector: term.namespace_selector.as_ref().map(selector),
                labels,
            },
            topology_key: term.topology_key.clone(),
        }
    }

    fn spread(&self, spread: &core::TopologySpreadConstraint) -> SpreadConstraint {
        let mut labels = spread.label_selector.as_ref().map(selector);
        if let Some(labels) = &mut labels {
            self.require(labels, spread.match_label_keys.as_ref(), Operator::In);
        }
        SpreadConstraint {
            term: PodTerm {
                pods: PodSelector { namespaces: vec![self.namespace.to_owned()], namespace_selector: None, labels },
                topology_key: spread.topology_key.clone(),
            },
            max_skew: spread.max_skew,
            hard: spread.when_unsatisfiable == "DoNotSchedule",
            min_domains: spread.min_domains.map_or(0, super::count),
            honors_affinity: spread.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: spread.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    /// Adds the pod's own values of `keys`; keys that it lacks say nothing.
    fn require(&self, labels: &mut LabelSelector, keys: Option<&Vec<String>>, operator: Operator) {
        for key in keys.into_iter().flatten() {
            let Some(value) = self.labels.get(key) else { continue };
            let requirement = Requirement { key: key.clone(), operator, values: vec![value.clone()] };
            if !labels.requirements.contains(&requirement) {
                labels.requirements.push(requirement);
            }
        }
    }
}

pub(super) fn selector(selector: &meta::LabelSelector) -> LabelSelector {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| Requirement {
        key: key.clone(),
        operator: Operator::In,
        values: vec![value.clone()],
    });
    let expressions = selector.match_expressions.iter().flatten().map(|requirement| {
        let values = requirement.values.clone().unwrap_or_default();
        let (operator, values) = match requirement.operator.as_str() {
            "NotIn" => (Operator::NotIn, values),
            "Exists" => (Operator::Exists, Vec::new()),
            "DoesNotExist" => (Operator::DoesNotExist, Vec::new()),
            "In" => (Operator::In, values),
            // An operator that nobody knows matches nothing: In with no values.
            _ => (Operator::In, Vec::new()),
        };
        Requirement { key: requirement.key.clone(), operator, values }
    });
    LabelSelector { requirements: equal.chain(expressions).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: key.to_owned(), operator, values: values.iter().map(|value| (*value).to_owned()).collect() }
    }

    #[test]
    fn own_labels_and_namespace_are_resolved() {
        let spec: core::PodSpec = serde_json::from_value(json!({
            "containers": [],
            "affinity": {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}},
                     "matchLabelKeys": ["rev", "absent"], "mismatchLabelKeys": ["tenant"]},
                    {"topologyKey": "zone", "namespaces": ["other"]}]},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 7, "podAffinityTerm": {"topologyKey": "host", "namespaceSelector": {},
                     "labelSelector": {"matchExpressions": [{"key": "x", "operator": "Odd", "values": ["1"]}]}}}]},
            },
            "topologySpreadConstraints": [
                {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3,
                 "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["rev"],
                 "nodeTaintsPolicy": "Honor", "nodeAffinityPolicy": "Ignore"},
                {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway"}],
        }))
        .unwrap();
        let labels = BTreeMap::from([("rev".to_owned(), "7".to_owned()), ("tenant".to_owned(), "t".to_owned())]);
        let found = inter_pod_constraints("ns", Some(&labels), &spec);
        let first = &found.affinity[0].pods;
        assert_eq!(first.namespaces, ["ns"]);
        assert_eq!(first.namespace_selector, None);
        let requirements = [
            requirement("app", Operator::In, &["a"]),
            requirement("rev", Operator::In, &["7"]),
            requirement("tenant", Operator::NotIn, &["t"]),
        ];
        assert_eq!(first.labels.as_ref().unwrap().requirements, requirements);
        let second = &found.affinity[1].pods;
        assert_eq!((second.namespaces.as_slice(), &second.labels), (&["other".to_owned()][..], &None));
        let apart = &found.preferred[0];
        assert_eq!(apart.weight, -7);
        assert_eq!(apart.term.pods.namespaces, Vec::<String>::new(), "the selector of namespaces speaks alone");
        assert_eq!(apart.term.pods.labels.as_ref().unwrap().requirements, [requirement("x", Operator::In, &[])]);
        let hard = &found.spread[0];
        assert!(hard.hard && hard.honors_taints && !hard.honors_affinity);
        assert_eq!((hard.max_skew, hard.min_domains), (2, 3));
        assert_eq!(hard.term.pods.labels.as_ref().unwrap().requirements, requirements[..2]);
        let soft = &found.spread[1];
        assert!(!soft.hard && !soft.honors_taints && soft.honors_affinity);
        assert_eq!(soft.term.pods.labels, None);
    }
}
