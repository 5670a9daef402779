//! What some plugins read of a pod's containers: limits, devices, whole cpus.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use pumice_engine::{ContainerFacts, Resources};

use super::resources;

/// Resources of shared devices begin so.
const DEVICE_PREFIXES: &[&str] = &["volcano.sh/vgpu-", "volcano.sh/gpu-"];

/// The containers, init containers first, where a plugin could read them: the pod is Guaranteed or asks for a shared
/// device. Others would only tell equal pods apart.
pub(super) fn containers(spec: &core::PodSpec) -> Vec<ContainerFacts> {
    let init = spec.init_containers.iter().flatten().map(|container| facts(container, true));
    let main = spec.containers.iter().map(|container| facts(container, false));
    let all: Vec<ContainerFacts> = init.chain(main).collect();
    let device = |name: &String| DEVICE_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let shares = all.iter().any(|container| container.limits.keys().any(device));
    if shares || is_guaranteed(&all) { all } else { Vec::new() }
}

fn facts(container: &core::Container, init: bool) -> ContainerFacts {
    let read = |list: Option<&BTreeMap<String, WireQuantity>>| list.map(resources).unwrap_or_default();
    let wanted = container.resources.as_ref();
    let limits = read(wanted.and_then(|wanted| wanted.limits.as_ref()));
    // A limit without a request is one, as the API server's defaulting has it.
    let mut requests = limits.clone();
    requests.extend(read(wanted.and_then(|wanted| wanted.requests.as_ref())));
    // A sidecar runs beside the others.
    let init = init && container.restart_policy.as_deref() != Some("Always");
    ContainerFacts { init, requests, limits }
}

/// QoS class Guaranteed: every container is limited in cpu and memory, to just what it requests.
pub(super) fn is_guaranteed(containers: &[ContainerFacts]) -> bool {
    let exact = |container: &ContainerFacts, name: &str| {
        let limit = container.limits.get(name).copied().unwrap_or(0);
        limit > 0 && container.requests.get(name) == Some(&limit)
    };
    !containers.is_empty() && containers.iter().all(|container| exact(container, "cpu") && exact(container, "memory"))
}

/// The sums of cpu and memory limits: of all containers, or of the largest init container where that is more. A
/// resource that a container does not limit has none.
pub(super) fn limits(spec: &core::PodSpec) -> Resources {
    let limit = |container: &core::Container, name: &str| {
        let limits = container.resources.as_ref().and_then(|wanted| wanted.limits.as_ref())?;
        resources(limits).get(name).copied().filter(|amount| *amount > 0)
    };
    let of = |name: &str| {
        let main = spec
            .containers
            .iter()
            .try_fold(0_i64, |sum, container| Some(sum.saturating_add(limit(container, name)?)))?;
        let init = spec.init_containers.iter().flatten().filter_map(|container| limit(container, name)).max();
        Some(main.max(init.unwrap_or(0)))
    };
    ["cpu", "memory"].into_iter().filter_map(|name| Some((name.to_owned(), of(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> core::PodSpec {
        serde_json::from_value(value).expect("a pod's spec")
    }

    #[test]
    fn containers_are_told_where_a_plugin_reads_them() {
        let exact = json!({ "limits": { "cpu": "2", "memory": "1Gi" }, "requests": { "cpu": "2" } });
        let burst = json!({ "limits": { "cpu": "2", "memory": "1Gi" }, "requests": { "cpu": "1" } });
        let card = json!({ "limits": { "volcano.sh/vgpu-number": "1" } });
        let bare = json!({});
        for (name, list, told, guaranteed) in [
            ("guaranteed", vec![&exact, &exact], 2, true),
            ("one of two", vec![&exact, &bare], 0, false),
            ("burstable", vec![&burst], 0, false),
            ("a device", vec![&bare, &card], 2, false),
        ] {
            let list: Vec<_> = list.into_iter().map(|wanted| json!({ "name": "c", "resources": wanted })).collect();
            let found = containers(&spec(json!({ "containers": list })));
            assert_eq!((found.len(), is_guaranteed(&found)), (told, guaranteed), "{name}");
        }
    }

    #[test]
    fn a_limit_holds_only_where_every_container_has_one() {
        let spec = spec(json!({
            "containers": [
                { "name": "a", "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } },
                { "name": "b", "resources": { "limits": { "cpu": "500m" } } },
            ],
            "initContainers": [{ "name": "i", "resources": { "limits": { "cpu": "2" } } }],
        }));
        assert_eq!(limits(&spec), [("cpu".to_owned(), 2_000)].into());
    }
}
