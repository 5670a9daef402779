//! A pod's own fields and resources as environment or files (the downward API).

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use pumice_units::Quantity;

/// What a node knows about a pod beside its object.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub node_name: String,
    pub host_ip: Ipv4Addr,
    pub pod_ip: Ipv4Addr,
    /// Stands in for a missing cpu limit.
    pub node_cpu_milli: i64,
    /// Stands in for a missing memory limit.
    pub node_memory_bytes: i64,
}

/// The value of a field such as `metadata.labels['a']`; none for one that does not exist.
pub(crate) fn field(pod: &Pod, placement: &Placement, path: &str) -> Option<String> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    Some(match path {
        "metadata.name" => metadata.name.clone()?,
        "metadata.namespace" => metadata.namespace.clone()?,
        "metadata.uid" => metadata.uid.clone()?,
        "metadata.labels" => listed(metadata.labels.iter().flatten()),
        "metadata.annotations" => listed(metadata.annotations.iter().flatten()),
        "spec.nodeName" => placement.node_name.clone(),
        "spec.serviceAccountName" => spec?.service_account_name.clone().unwrap_or_else(|| "default".into()),
        "status.hostIP" | "status.hostIPs" => placement.host_ip.to_string(),
        "status.podIP" | "status.podIPs" => placement.pod_ip.to_string(),
        _ => {
            let (map, key) = path.strip_suffix("']")?.split_once("['")?;
            let entries = match map {
                "metadata.labels" => metadata.labels.as_ref(),
                "metadata.annotations" => metadata.annotations.as_ref(),
                _ => return None,
            };
            entries.and_then(|entries| entries.get(key)).cloned().unwrap_or_default()
        }
    })
}

fn listed<'a>(entries: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    entries.map(|(key, value)| format!("{key}={value:?}\n")).collect::<String>().trim_end().to_owned()
}

/// The value of a resource such as `limits.cpu`, in units of its divisor, rounded up.
pub(crate) fn resource(
    container: &Container,
    placement: &Placement,
    selector: &ResourceFieldSelector,
) -> Option<String> {
    let (list, name) = selector.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let given = match list {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => return None,
    };
    let given = given.and_then(|list| list.get(name)).and_then(parse);
    let value = match (given, list, name) {
        (Some(value), ..) => value,
        (None, "limits", "cpu") => Quantity::from_milli(placement.node_cpu_milli),
        (None, "limits", "memory") => Quantity::from_units(placement.node_memory_bytes),
        (None, ..) => Quantity::from_units(0),
    };
    let divisor = selector.divisor.as_ref().and_then(parse).filter(|divisor| !divisor.is_zero());
    let divisor = divisor.unwrap_or(Quantity::from_units(1));
    let quotient = match name {
        "cpu" => ceil(value.cpu_milli(), divisor.cpu_milli()),
        _ => ceil(value.value(), divisor.value()),
    };
    Some(quotient.to_string())
}

fn ceil(value: i64, divisor: i64) -> i64 {
    let divisor = divisor.max(1);
    value / divisor + i64::from(value % divisor > 0)
}

/// A quantity of the wire; none when it is not one.
pub(crate) fn parse(quantity: &WireQuantity) -> Option<Quantity> {
    quantity.0.parse().ok()
}

#[cfg(test)]
pub(crate) fn placement() -> Placement {
    Placement {
        node_name: "n1".into(),
        host_ip: Ipv4Addr::new(192, 0, 2, 2),
        pod_ip: Ipv4Addr::new(10, 64, 0, 2),
        node_cpu_milli: 4000,
        node_memory_bytes: 8 << 30,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_follow_the_downward_api() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "1", "b": "x\ny"},
                         "annotations": {"volcano.sh/task-index": "3"}},
            "spec": {"containers": []},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let cases = [
            ("metadata.name", Some("p")),
            ("metadata.labels['a']", Some("1")),
            ("metadata.labels['none']", Some("")),
            ("metadata.annotations['volcano.sh/task-index']", Some("3")),
            ("metadata.labels", Some("a=\"1\"\nb=\"x\\ny\"")),
            ("spec.nodeName", Some("n1")),
            ("spec.serviceAccountName", Some("default")),
            ("status.podIP", Some("10.64.0.2")),
            ("spec.nonsense", None),
            ("metadata.labels['a'", None),
        ];
        for (path, expected) in cases {
            assert_eq!(field(&pod, &placement(), path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let container = json!({"name": "c", "resources": {
            "limits": {"cpu": "1500m"}, "requests": {"memory": "1000Ki"}}});
        let container: Container = serde_json::from_value(container).unwrap();
        let cases = [
            ("limits.cpu", None, Some("2")),
            ("limits.cpu", Some("1m"), Some("1500")),
            ("limits.memory", Some("1Gi"), Some("8")),
            ("requests.memory", Some("1Mi"), Some("1")),
            ("requests.cpu", None, Some("0")),
            ("other.cpu", None, None),
        ];
        for (name, divisor, expected) in cases {
            let selector = ResourceFieldSelector {
                container_name: None,
                divisor: divisor.map(|text: &str| WireQuantity(text.into())),
                resource: name.into(),
            };
            assert_eq!(resource(&container, &placement(), &selector).as_deref(), expected, "{name} / {divisor:?}");
        }
    }
}
