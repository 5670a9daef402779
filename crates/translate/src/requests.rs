//! What a pod asks for: its effective requests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use pumice_engine::Resources;

use super::resources;

/// Containers and sidecars together, or the largest init container with the sidecars before it, whichever is more;
/// pod-level resources replace cpu, memory and huge pages; overhead comes on top.
pub(super) fn requests(spec: &core::PodSpec, status: Option<&core::PodStatus>) -> Resources {
    let mut sum = Resources::new();
    let mut largest = Resources::new();
    let mut sidecars = Resources::new();
    for container in &spec.containers {
        add(&mut sum, &resized(container, status));
    }
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            let asked = resized(container, status);
            add(&mut sum, &asked);
            add(&mut sidecars, &asked);
        } else {
            let mut asked = effective_requests(container.resources.as_ref());
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
    for (name, amount) in effective_requests(spec.resources.as_ref()) {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            sum.insert(name, amount);
        }
    }
    add(&mut sum, &spec.overhead.as_ref().map(resources).unwrap_or_default());
    // One of `pods` is the engine's to count.
    sum.remove("pods");
    sum
}

/// What a container asks for, or still holds while it is resized in place: the most of spec, what the kubelet granted
/// and what runs. A resize that can never be done does not count.
fn resized(container: &core::Container, status: Option<&core::PodStatus>) -> Resources {
    let spec = effective_requests(container.resources.as_ref());
    let statuses = status.into_iter().flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        status.container_statuses.iter().flatten().chain(init)
    });
    let Some(own) = statuses.into_iter().find(|own| own.name == container.name) else { return spec };
    let granted = own.allocated_resources.as_ref().map(resources);
    let runs = own.resources.as_ref().and_then(|runs| runs.requests.as_ref()).map(resources);
    let known = granted.is_some() || runs.is_some();
    let mut most = if known && status.is_some_and(is_infeasible) { Resources::new() } else { spec };
    for (name, amount) in granted.into_iter().chain(runs).flatten() {
        let total = most.entry(name).or_default();
        *total = amount.max(*total);
    }
    most
}

fn is_infeasible(status: &core::PodStatus) -> bool {
    let condition = |condition: &core::PodCondition| {
        condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible")
    };
    status.resize.as_deref() == Some("Infeasible") || status.conditions.iter().flatten().any(condition)
}

/// The requests; a limit without a request is one, as the API server's defaulting has it.
fn effective_requests(requirements: Option<&core::ResourceRequirements>) -> Resources {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_resize_holds_the_most_until_it_is_done() {
        let spec: core::PodSpec =
            serde_json::from_value(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}))
                .unwrap();
        let pending = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        for (granted, runs, conditions, expected) in [
            (json!(null), json!(null), json!(null), 3_000),
            (json!({"cpu": "2"}), json!({"cpu": "2"}), json!(null), 3_000),
            (json!({"cpu": "5"}), json!({"cpu": "4"}), json!(null), 5_000),
            (json!({"cpu": "2"}), json!({"cpu": "1"}), pending.clone(), 2_000),
            (json!(null), json!(null), pending, 3_000),
        ] {
            let container: Value = json!({
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": granted, "resources": {"requests": runs},
            });
            let status: core::PodStatus =
                serde_json::from_value(json!({"containerStatuses": [container], "conditions": conditions})).unwrap();
            assert_eq!(requests(&spec, Some(&status))["cpu"], expected, "{status:?}");
        }
    }
}
