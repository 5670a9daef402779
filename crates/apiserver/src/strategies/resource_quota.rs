//! ResourceQuotas: what may stand in one, the names that its `hard` may have, and whose objects use what they name. They are
//! enforced by `admission::quota`.

use std::collections::BTreeSet;

use pumice_objects::field::FieldError;
use pumice_objects::names;
use serde_json::Value;

use super::Strategy;
use super::pod::spec::parse_quantity;
use crate::problems::Problems;

const SCOPES: [&str; 6] =
    ["BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating"];
/// Scopes that no pod has both of.
const OPPOSITES: [(&str, &str); 2] = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];
const OPERATORS: [&str; 4] = ["DoesNotExist", "Exists", "In", "NotIn"];

pub(crate) const PODS: &str = "pods";
pub(crate) const CLAIMS: &str = "persistentvolumeclaims";
pub(crate) const SERVICES: &str = "services";
/// Kinds that are counted by their bare name, too.
pub(crate) const COUNTED: [&str; 6] =
    ["configmaps", CLAIMS, "replicationcontrollers", "resourcequotas", "secrets", SERVICES];
/// Between a storage class and what is counted of it.
pub(crate) const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
/// Resources of containers that are also counted without `requests.` before them.
pub(crate) const PLAIN: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

pub(crate) struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        let hard: Vec<(&String, &Value)> = spec["hard"].as_object().into_iter().flatten().collect();
        for (name, amount) in &hard {
            check_name(name, &mut problems);
            check_amount(name, amount, &mut problems);
        }
        let names: Vec<&str> = hard.iter().map(|(name, _)| name.as_str()).collect();
        check_scopes(&spec["scopes"], &names, &mut problems);
        check_selector(&spec["scopeSelector"]["matchExpressions"], &names, &mut problems);
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let set = |object: &Value| -> BTreeSet<String> {
            let scopes = object["spec"]["scopes"].as_array().into_iter().flatten();
            scopes.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut problems = Problems::default();
        if set(new) != set(old) {
            problems.invalid("spec.scopes", &new["spec"]["scopes"], "field is immutable");
        }
        problems.into_errors()
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

fn check_name(name: &str, problems: &mut Problems) {
    let path = format!("spec.hard[{name}]");
    let bare = name.strip_prefix("requests.").unwrap_or(name);
    if let Err(error) = names::check_qualified_name(bare) {
        problems.invalid(&path, &name.into(), &error.to_string());
    } else if used_by(name).is_none() || !name.contains('/') && !is_standard(name) {
        problems.invalid(&path, &name.into(), "must be a standard resource for quota");
    }
}

/// Whether a name without a domain is one that Kubernetes has.
fn is_standard(name: &str) -> bool {
    const STANDARD: [&str; 17] = [
        "configmaps",
        "cpu",
        "ephemeral-storage",
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "memory",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
        "requests.storage",
        "resourcequotas",
        "secrets",
        "services",
    ];
    STANDARD.contains(&name)
        || ["services.loadbalancers", "services.nodeports"].contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

fn check_amount(name: &str, amount: &Value, problems: &mut Problems) {
    let path = format!("spec.hard[{name}]");
    let Some(parsed) = parse_quantity(amount) else {
        problems.invalid(&path, amount, "must be a quantity, as 500m or 1Gi");
        return;
    };
    if parsed.is_negative() {
        problems.invalid(&path, amount, "must be greater than or equal to 0");
    }
    let is_measured = ["cpu", "memory", "storage"].iter().any(|end| name.ends_with(end)) || name.contains("hugepages-");
    if !is_measured && !parsed.is_whole() {
        problems.invalid(&path, amount, "must be an integer");
    }
}

fn check_scopes(scopes: &Value, hard: &[&str], problems: &mut Problems) {
    let given: Vec<&str> = scopes.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for scope in &given {
        check_scope("spec.scopes", scopes, scope, hard, problems);
    }
    conflicts("spec.scopes", scopes, &given, problems);
}

fn check_scope(path: &str, shown: &Value, scope: &str, hard: &[&str], problems: &mut Problems) {
    if !SCOPES.contains(&scope) {
        problems.invalid(path, shown, "unsupported scope");
    }
    let of_pods = |name: &&str| used_by(name).as_deref() == Some("pods");
    // What has a domain is not looked at, as upstream: such an amount has no scope.
    let mut standard = hard.iter().filter(|name| is_standard(name));
    let unsupported = match scope {
        "BestEffort" => standard.any(|name| *name != "pods"),
        _ => standard.any(|name| !of_pods(name)),
    };
    if SCOPES.contains(&scope) && unsupported {
        problems.invalid(path, shown, "unsupported scope applied to resource");
    }
}

fn conflicts(path: &str, shown: &Value, given: &[&str], problems: &mut Problems) {
    if OPPOSITES.iter().any(|(one, other)| given.contains(one) && given.contains(other)) {
        problems.invalid(path, shown, "conflicting scopes");
    }
}

fn check_selector(terms: &Value, hard: &[&str], problems: &mut Problems) {
    let path = "spec.scopeSelector.matchExpressions";
    let mut given = Vec::new();
    for (index, term) in terms.as_array().into_iter().flatten().enumerate() {
        let scope = term["scopeName"].as_str().unwrap_or_default();
        let operator = term["operator"].as_str().unwrap_or_default();
        let values = term["values"].as_array().map_or(0, Vec::len);
        check_scope(&format!("{path}.scopeName"), &term["scopeName"], scope, hard, problems);
        given.push(scope);
        if SCOPES.contains(&scope) && scope != "PriorityClass" && operator != "Exists" {
            let detail = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                 ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                 ResourceQuotaScopeCrossNamespacePodAffinity";
            problems.invalid(&format!("{path}.operator"), &term["operator"], detail);
        }
        match operator {
            "In" | "NotIn" if values == 0 => problems.required(
                &format!("{path}.values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if values > 0 => problems.invalid(
                &format!("{path}.values"),
                &term["values"],
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            known if OPERATORS.contains(&known) => {}
            _ => problems.invalid(
                &format!("{path}[{index}].operator"),
                &term["operator"],
                "not a valid selector operator",
            ),
        }
    }
    conflicts(path, terms, &given, problems);
}

/// The store's resource whose objects use what `hard` calls by this name. Nothing for a name that nothing uses.
pub(crate) fn used_by(name: &str) -> Option<String> {
    if let Some(counted) = name.strip_prefix("count/") {
        return match counted.split_once('.') {
            None => Some(counted.to_owned()),
            Some((plural, group)) => Some(format!("{group}/{plural}")),
        };
    }
    if name == "requests.storage" || name.contains(OF_CLASS) {
        return Some(CLAIMS.to_owned());
    }
    if COUNTED.contains(&name) {
        return Some(name.to_owned());
    }
    if name.starts_with("services.") {
        return Some(SERVICES.to_owned());
    }
    let of_pods = name == PODS
        || PLAIN.contains(&name)
        || ["requests.", "limits.", "hugepages-"].iter().any(|prefix| name.starts_with(prefix));
    of_pods.then(|| PODS.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quotas_are_checked_in_upstreams_words() {
        let select = |term: Value| json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [term]}});
        for (spec, wanted) in [
            (json!({"hard": {"pods": "1", "requests.nvidia.com/gpu": 4, "count/jobs.batch.volcano.sh": "2"}}), None),
            (json!({"hard": {"gold.storageclass.storage.k8s.io/requests.storage": "1Gi"}}), None),
            // Only standard amounts have to be ones of pods where a scope is named.
            (
                json!({"hard": {"pods": "1", "count/jobs.batch": "2"}, "scopeSelector": {"matchExpressions":
                    [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}),
                None,
            ),
            (
                json!({"hard": {"services": "1"}, "scopes": ["Terminating"]}),
                Some("unsupported scope applied to resource"),
            ),
            (json!({"hard": {"podz": "1"}}), Some("must be a standard resource for quota")),
            (json!({"hard": {"pods": "-1"}}), Some("must be greater than or equal to 0")),
            (json!({"hard": {"pods": "1500m"}}), Some("must be an integer")),
            (json!({"hard": {"cpu": "1500m"}}), None),
            (json!({"hard": {"pods": "1"}, "scopes": ["Odd"]}), Some("unsupported scope")),
            (json!({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}), Some("unsupported scope applied to resource")),
            (json!({"hard": {"pods": "1"}, "scopes": ["Terminating", "NotTerminating"]}), Some("conflicting scopes")),
            (select(json!({"scopeName": "PriorityClass", "operator": "In", "values": ["a"]})), None),
            (
                select(json!({"scopeName": "PriorityClass", "operator": "In"})),
                Some("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
            ),
        ] {
            let found = ResourceQuota.validate(&json!({"spec": spec}));
            let found = found.first().map(|error| error.to_string());
            match wanted {
                None => assert_eq!(found, None, "{spec}"),
                Some(wanted) => assert!(found.as_ref().is_some_and(|text| text.ends_with(wanted)), "{spec}: {found:?}"),
            }
        }
        let scoped = |scopes: Value| json!({"spec": {"scopes": scopes}});
        assert_eq!(ResourceQuota.validate_update(&scoped(json!(["Terminating"])), &scoped(json!([]))).len(), 1);
        let (one, other) = (json!(["Terminating", "BestEffort"]), json!(["BestEffort", "Terminating"]));
        assert!(ResourceQuota.validate_update(&scoped(one), &scoped(other)).is_empty());
    }

    #[test]
    fn names_belong_to_resources() {
        for (name, resource) in [
            ("cpu", Some("pods")),
            ("requests.nvidia.com/gpu", Some("pods")),
            ("limits.memory", Some("pods")),
            ("pods", Some("pods")),
            ("requests.storage", Some("persistentvolumeclaims")),
            ("gold.storageclass.storage.k8s.io/requests.storage", Some("persistentvolumeclaims")),
            ("services.nodeports", Some("services")),
            ("secrets", Some("secrets")),
            ("count/jobs.batch.volcano.sh", Some("batch.volcano.sh/jobs")),
            ("count/configmaps", Some("configmaps")),
            ("odd", None),
        ] {
            assert_eq!(used_by(name).as_deref(), resource, "{name}");
        }
    }
}
