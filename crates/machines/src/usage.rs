//! What a pod takes, as Kubernetes' ResourceQuota counts it.
//!
//! Invariant: amounts are exact; one that can't be read counts as nothing (admission refuses it). Called for the `minResources`
//! of the PodGroups of jobs and of other pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use pumice_api::scheduling::ResourceList;
use pumice_units::Quantity;

/// Amounts by resource name.
pub(crate) type Usage = BTreeMap<String, Quantity>;

/// Usage of one pod under the names quotas use: `cpu` and `requests.cpu`, `limits.memory`, `pods`, and so on.
pub(crate) fn quota_usage(spec: Option<&PodSpec>) -> Usage {
    let mut usage = Usage::from(["pods", "count/pods"].map(|name| (name.to_owned(), Quantity::from_units(1))));
    for (resource, amount) in of_pod(spec, requests) {
        usage.insert(format!("requests.{resource}"), amount);
        usage.insert(resource, amount);
    }
    for (resource, amount) in of_pod(spec, limits) {
        if matches!(resource.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{resource}"), amount);
        }
    }
    usage
}

/// As a `minResources` says it.
pub(crate) fn to_wire(usage: Usage) -> ResourceList {
    usage.into_iter().map(|(resource, amount)| (resource, WireQuantity(amount.to_string()))).collect()
}

/// Adds `usage` to `total`, `count` times; saturates at nothing less than what fits.
pub(crate) fn add_times(total: &mut Usage, usage: &Usage, count: i64) {
    for (resource, amount) in usage {
        let sum = total.entry(resource.clone()).or_insert(Quantity::ZERO);
        let more = amount.checked_mul(count).and_then(|amount| sum.checked_add(amount));
        *sum = more.unwrap_or(*sum);
    }
}

/// Containers and sidecars run together; each init container runs with the sidecars before it.
fn of_pod(spec: Option<&PodSpec>, of: fn(&Container) -> Usage) -> Usage {
    let Some(spec) = spec else { return Usage::new() };
    let mut running = Usage::new();
    for container in &spec.containers {
        add_times(&mut running, &of(container), 1);
    }
    let mut sidecars = Usage::new();
    let mut starting = Usage::new();
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add_times(&mut running, &own, 1);
            add_times(&mut sidecars, &own, 1);
            raise(&mut starting, &sidecars);
        } else {
            let mut together = sidecars.clone();
            add_times(&mut together, &own, 1);
            raise(&mut starting, &together);
        }
    }
    raise(&mut running, &starting);
    for (resource, amount) in spec.overhead.iter().flatten() {
        let overhead = Usage::from([(resource.clone(), read(&amount.0))]);
        add_times(&mut running, &overhead, 1);
    }
    running
}

fn raise(usage: &mut Usage, floor: &Usage) {
    for (resource, amount) in floor {
        let held = usage.entry(resource.clone()).or_insert(Quantity::ZERO);
        *held = (*held).max(*amount);
    }
}

/// Requests, with limits standing in for those that are absent, as the API server defaults them.
fn requests(container: &Container) -> Usage {
    let mut all = limits(container);
    let own = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    all.extend(own.into_iter().flatten().map(|(resource, amount)| (resource.clone(), read(&amount.0))));
    all
}

fn limits(container: &Container) -> Usage {
    let own = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    own.into_iter().flatten().map(|(resource, amount)| (resource.clone(), read(&amount.0))).collect()
}

fn read(text: &str) -> Quantity {
    text.parse().unwrap_or(Quantity::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn usage_is_counted_as_a_quota_counts_it() {
        let spec: PodSpec = serde_json::from_value(json!({
            "overhead": {"cpu": "10m"},
            "initContainers": [
                {"name": "big", "resources": {"requests": {"memory": "3Gi"}}},
                {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                {"name": "last", "resources": {"requests": {"cpu": "2"}}},
            ],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}},
                {"name": "b", "resources": {"limits": {"nvidia.com/gpu": "2"}}},
            ],
        }))
        .unwrap();
        let usage: BTreeMap<String, String> =
            quota_usage(Some(&spec)).into_iter().map(|(name, amount)| (name, amount.to_string())).collect();
        let expected = [
            ("count/pods", "1"),
            ("cpu", "2110m"),
            ("limits.cpu", "1010m"),
            ("limits.memory", "1Gi"),
            ("memory", "3Gi"),
            ("nvidia.com/gpu", "2"),
            ("pods", "1"),
            ("requests.cpu", "2110m"),
            ("requests.memory", "3Gi"),
            ("requests.nvidia.com/gpu", "2"),
        ];
        assert_eq!(usage, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }
}
