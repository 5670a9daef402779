//! What an object uses of quotas: amounts by the names that a quota's `hard` has.
//!
//! Invariant: pure, and as upstream's evaluators count: a pod that has ended counts as an object only, everything else as
//! long as it is stored. Asked by the ledger for stored objects and for those that are to be stored.

use pumice_objects::meta;
use pumice_units::Quantity;
use serde_json::Value;

use crate::admission::pod_resources::{Amounts, amounts, total};
use crate::strategies::resource_quota::{CLAIMS, COUNTED, OF_CLASS, PLAIN, PODS, SERVICES};

/// What one object uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) amounts: Amounts,
    /// What scopes look at; of pods only.
    pub(crate) pod: Option<PodTraits>,
}

/// What the scopes of a quota look at.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodTraits {
    pub(crate) terminating: bool,
    pub(crate) best_effort: bool,
    pub(crate) priority_class: String,
    pub(crate) cross_namespace_affinity: bool,
}

/// What an object of this resource, as the store names it, uses.
pub(crate) fn of(resource: &str, object: &Value) -> Usage {
    let one = Quantity::from_units(1);
    let mut used = Amounts::from([(count_name(resource), one)]);
    if COUNTED.contains(&resource) {
        used.insert(resource.to_owned(), one);
    }
    match resource {
        PODS => {
            let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            if !ended {
                used.insert(PODS.to_owned(), one);
                used.extend(compute(&total(&object["spec"], "requests"), &total(&object["spec"], "limits")));
            }
            return Usage { amounts: used, pod: Some(traits(object)) };
        }
        CLAIMS => claim(object, &mut used),
        SERVICES => service(&object["spec"], &mut used),
        _ => {}
    }
    Usage { amounts: used, pod: None }
}

/// How quotas name the number of a resource's objects: `count/jobs.batch` for the store's `batch/jobs`.
fn count_name(resource: &str) -> String {
    match resource.split_once('/') {
        None => format!("count/{resource}"),
        Some((group, plural)) => format!("count/{plural}.{group}"),
    }
}

/// Requests and limits by the names that quotas have for them.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::new();
    for (name, amount) in requests {
        used.insert(format!("requests.{name}"), *amount);
        if PLAIN.contains(&name.as_str()) || name.starts_with("hugepages-") {
            used.insert(name.clone(), *amount);
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| PLAIN.contains(&name.as_str())) {
        used.insert(format!("limits.{name}"), *amount);
    }
    used
}

fn traits(pod: &Value) -> PodTraits {
    let spec = &pod["spec"];
    PodTraits {
        terminating: spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0),
        best_effort: pod["status"]["qosClass"] == "BestEffort",
        priority_class: spec["priorityClassName"].as_str().unwrap_or_default().to_owned(),
        cross_namespace_affinity: crosses_namespaces(&spec["affinity"]),
    }
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let crosses = |term: &Value| {
        term["namespaces"].as_array().is_some_and(|list| !list.is_empty()) || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let list = |field: &str| affinity[kind][field].as_array().map_or(&[][..], Vec::as_slice);
        list("requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || list("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|weighted| crosses(&weighted["podAffinityTerm"]))
    })
}

fn claim(object: &Value, used: &mut Amounts) {
    let spec = &object["spec"];
    let storage = amounts(&spec["resources"]["requests"]).remove("storage").unwrap_or_default();
    used.insert("requests.storage".to_owned(), storage);
    let class = meta::annotation(object, "volume.beta.kubernetes.io/storage-class");
    let class = class.or_else(|| spec["storageClassName"].as_str()).unwrap_or_default();
    if !class.is_empty() {
        used.insert(format!("{class}{OF_CLASS}requests.storage"), storage);
        used.insert(format!("{class}{OF_CLASS}{CLAIMS}"), Quantity::from_units(1));
    }
}

fn service(spec: &Value, used: &mut Amounts) {
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let count = |count: usize| Quantity::from_units(i64::try_from(count).unwrap_or(i64::MAX));
    let (mut balancers, mut node_ports) = (0, 0);
    match spec["type"].as_str() {
        Some("NodePort") => node_ports = ports.len(),
        Some("LoadBalancer") => {
            balancers = 1;
            let allocated = spec["allocateLoadBalancerNodePorts"] != false;
            node_ports = ports.iter().filter(|port| allocated || port["nodePort"].as_i64().unwrap_or(0) != 0).count();
        }
        _ => {}
    }
    used.insert("services.loadbalancers".to_owned(), count(balancers));
    used.insert("services.nodeports".to_owned(), count(node_ports));
}

/// What a quota on these amounts has to be told by each container and is not: `limits.cpu for: a,b; memory for: a`.
pub(crate) fn unspecified<'a>(hard: impl Iterator<Item = &'a String>, pod: &Value) -> Option<String> {
    const SPECIFIED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    let spec = &pod["spec"];
    let containers: Vec<&Value> =
        ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array()).flatten().collect();
    let of_pod = compute(&amounts(&spec["resources"]["requests"]), &amounts(&spec["resources"]["limits"]));
    let mut lacking = Vec::new();
    for name in hard.filter(|name| SPECIFIED.contains(&name.as_str()) && !of_pod.contains_key(*name)) {
        let mut silent: Vec<&str> = containers
            .iter()
            .filter(|container| {
                let resources = &container["resources"];
                !compute(&amounts(&resources["requests"]), &amounts(&resources["limits"])).contains_key(name)
            })
            .map(|container| container["name"].as_str().unwrap_or_default())
            .collect();
        if !silent.is_empty() {
            silent.sort_unstable();
            lacking.push(format!("{name} for: {}", silent.join(",")));
        }
    }
    if lacking.is_empty() { None } else { Some(lacking.join("; ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(usage: &Usage) -> String {
        let shown: Vec<String> = usage.amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        shown.join(" ")
    }

    #[test]
    fn objects_use_what_upstream_counts() {
        let pod = |phase: &str| {
            json!({
                "spec": {"containers": [{"name": "a", "resources": {
                    "requests": {"cpu": "1", "nvidia.com/gpu": "2"}, "limits": {"cpu": "2", "nvidia.com/gpu": "2"}}}]},
                "status": {"phase": phase, "qosClass": "Burstable"},
            })
        };
        let wanted = "count/pods=1 cpu=1 limits.cpu=2 pods=1 requests.cpu=1 requests.nvidia.com/gpu=2";
        assert_eq!(shown(&of("pods", &pod("Running"))), wanted);
        assert_eq!(shown(&of("pods", &pod("Succeeded"))), "count/pods=1");
        let claim = json!({"spec": {"storageClassName": "x", "resources": {"requests": {"storage": "1Gi"}}}});
        assert_eq!(
            shown(&of("persistentvolumeclaims", &claim)),
            "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=1Gi \
             x.storageclass.storage.k8s.io/persistentvolumeclaims=1 x.storageclass.storage.k8s.io/requests.storage=1Gi"
        );
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}});
        assert_eq!(
            shown(&of("services", &service)),
            "count/services=1 services=1 services.loadbalancers=1 services.nodeports=2"
        );
        assert_eq!(shown(&of("batch.volcano.sh/jobs", &json!({}))), "count/jobs.batch.volcano.sh=1");
    }

    #[test]
    fn containers_that_say_nothing_are_named() {
        let pod = json!({"spec": {
            "containers": [{"name": "b"}, {"name": "a", "resources": {"limits": {"cpu": "1"}}}],
            "initContainers": [{"name": "c"}],
        }});
        let hard = ["limits.cpu", "memory", "pods", "requests.nvidia.com/gpu"].map(str::to_owned);
        assert_eq!(unspecified(hard.iter(), &pod).as_deref(), Some("limits.cpu for: b,c; memory for: a,b,c"));
        assert_eq!(unspecified(["pods".to_owned()].iter(), &pod), None);
    }
}
