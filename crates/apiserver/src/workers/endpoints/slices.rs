//! The EndpointSlices of a headless service, from its pods.
//!
//! Invariant: pure; the same pods give the same slices, in the order of the pods' names, so that nothing is written twice.
//! Used by the task in `endpoints`.

use std::collections::BTreeMap;

use pumice_objects::meta;
use serde_json::{Value, json};

/// Most endpoints of one slice, as upstream.
const ENDPOINTS_MAX: usize = 100;
/// Names the service of a slice.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Who makes them, by upstream's name.
const US: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";

/// What of a pod stands in a slice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    uid: String,
    address: String,
    node: String,
    hostname: String,
    subdomain: String,
    is_ready: bool,
    is_leaving: bool,
    /// Numbers of named ports.
    ports: BTreeMap<String, i64>,
}

impl Peer {
    /// A pod that has an address and has not ended.
    pub(crate) fn of(pod: &Value) -> Option<Peer> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let address = text(&status["podIP"]);
        if address.is_empty() || matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
            return None;
        }
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let containers = spec["containers"].as_array().into_iter().flatten();
        let ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
        Some(Peer {
            name: meta::name(pod).to_owned(),
            labels: meta::labels(pod).map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            uid: text(&pod["metadata"]["uid"]),
            address,
            node: text(&spec["nodeName"]),
            hostname: text(&spec["hostname"]),
            subdomain: text(&spec["subdomain"]),
            is_ready: conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True"),
            is_leaving: meta::deletion_timestamp(pod).is_some(),
            ports: ports
                .filter_map(|port| Some((port["name"].as_str()?.to_owned(), port["containerPort"].as_i64()?)))
                .collect(),
        })
    }
}

/// Whether a service gets slices: a headless one that selects pods.
pub(crate) fn has_slices(service: &Value) -> bool {
    let selects = service["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    service["spec"]["clusterIP"] == "None" && selects && meta::deletion_timestamp(service).is_none()
}

/// Whether a service selects pods with these labels.
pub(crate) fn selects(service: &Value, labels: &BTreeMap<String, String>) -> bool {
    let mut wanted = service["spec"]["selector"].as_object().into_iter().flatten();
    wanted.all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
}

/// The slices of a service, by name, without what the server adds. `peers` are in the order of their names.
pub(crate) fn slices<'p>(service: &Value, peers: impl Iterator<Item = &'p Peer>) -> BTreeMap<String, Value> {
    let mut by_ports: Vec<(Value, Vec<Value>)> = Vec::new();
    for peer in peers {
        let ports = ports(service, peer);
        let endpoint = endpoint(service, peer);
        match by_ports.iter_mut().find(|(known, _)| *known == ports) {
            Some((_, endpoints)) => endpoints.push(endpoint),
            None => by_ports.push((ports, vec![endpoint])),
        }
    }
    let mut made = BTreeMap::new();
    for (ports, endpoints) in by_ports {
        for part in endpoints.chunks(ENDPOINTS_MAX) {
            let name = format!("{}-{}", meta::name(service), made.len());
            let slice = slice(service, &name, &ports, part);
            made.insert(name, slice);
        }
    }
    made
}

fn slice(service: &Value, name: &str, ports: &Value, endpoints: &[Value]) -> Value {
    let mut labels = service["metadata"]["labels"].clone();
    if !labels.is_object() {
        labels = json!({});
    }
    labels[SERVICE_NAME] = json!(meta::name(service));
    labels[MANAGED_BY] = json!(US);
    labels[HEADLESS] = json!("");
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": meta::namespace(service), "labels": labels,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": meta::name(service), "uid": meta::uid(service),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
    })
}

/// The service's ports as this pod has them; one by a name that the pod does not have is left out.
fn ports(service: &Value, peer: &Peer) -> Value {
    let wanted = service["spec"]["ports"].as_array().into_iter().flatten();
    let ports = wanted.filter_map(|port| {
        let target = &port["targetPort"];
        let number = match target.as_str() {
            Some(name) => *peer.ports.get(name)?,
            None => target.as_i64().or_else(|| port["port"].as_i64())?,
        };
        let name = port["name"].as_str().unwrap_or_default();
        Some(json!({"name": name, "port": number, "protocol": port["protocol"].as_str().unwrap_or("TCP")}))
    });
    Value::Array(ports.collect())
}

fn endpoint(service: &Value, peer: &Peer) -> Value {
    let published = service["spec"]["publishNotReadyAddresses"] == true;
    let mut endpoint = json!({
        "addresses": [peer.address],
        "conditions": {
            "ready": published || peer.is_ready && !peer.is_leaving,
            "serving": peer.is_ready,
            "terminating": peer.is_leaving,
        },
        "targetRef": {"kind": "Pod", "namespace": meta::namespace(service), "name": peer.name, "uid": peer.uid},
    });
    if !peer.node.is_empty() {
        endpoint["nodeName"] = json!(peer.node);
    }
    if !peer.hostname.is_empty() && peer.subdomain == meta::name(service) {
        endpoint["hostname"] = json!(peer.hostname);
    }
    endpoint
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, extra: Value) -> Value {
        let mut pod = json!({
            "metadata": {"name": name, "uid": format!("u-{name}"), "labels": {"app": "x"}},
            "spec": {"nodeName": "n", "containers": [{"ports": [{"name": "web", "containerPort": 8080}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (pointer, value) in extra.as_object().expect("fields") {
            let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
            pod.pointer_mut(parent).expect("parent")[field] = value.clone();
        }
        pod
    }

    fn service(spec: Value) -> Value {
        let mut service = json!({
            "metadata": {"name": "s", "namespace": "ns", "uid": "u"},
            "spec": {"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"name": "p", "port": 80, "targetPort": "web"}]},
        });
        for (field, value) in spec.as_object().expect("fields") {
            service["spec"][field] = value.clone();
        }
        service
    }

    fn made(service: &Value, pods: &[Value]) -> Vec<Value> {
        let peers: Vec<Peer> = pods.iter().filter_map(Peer::of).collect();
        slices(service, peers.iter()).into_values().collect()
    }

    #[test]
    fn pods_stand_in_slices_as_they_are() {
        let pods = [
            peer("a", json!({"/spec/hostname": "h", "/spec/subdomain": "s"})),
            peer("b", json!({"/status/conditions": []})),
            peer("c", json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"})),
            peer("d", json!({"/status/phase": "Succeeded"})),
            peer("e", json!({"/status/podIP": ""})),
        ];
        let slices = made(&service(json!({})), &pods);
        assert_eq!(slices.len(), 1);
        assert_eq!(slices[0]["ports"], json!([{"name": "p", "port": 8080, "protocol": "TCP"}]));
        let endpoints = slices[0]["endpoints"].as_array().expect("list");
        let ready: Vec<bool> = endpoints.iter().map(|one| one["conditions"]["ready"] == true).collect();
        assert_eq!(ready, [true, false, false]);
        assert_eq!((&endpoints[0]["hostname"], &endpoints[0]["nodeName"]), (&json!("h"), &json!("n")));
        let published = made(&service(json!({"publishNotReadyAddresses": true})), &pods);
        assert_eq!(
            published[0]["endpoints"][1]["conditions"],
            json!({"ready": true, "serving": false, "terminating": false})
        );
    }

    #[test]
    fn many_pods_and_other_ports_take_more_slices() {
        let mut pods: Vec<Value> = (0..150).map(|index| peer(&format!("p{index:03}"), json!({}))).collect();
        pods.push(peer("q", json!({"/spec/containers": [{"ports": [{"name": "web", "containerPort": 9}]}]})));
        let slices = made(&service(json!({})), &pods);
        let sizes: Vec<usize> = slices.iter().map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len)).collect();
        assert_eq!(sizes, [100, 50, 1]);
    }

    #[test]
    fn only_headless_services_that_select_have_slices() {
        assert!(has_slices(&service(json!({}))));
        assert!(!has_slices(&service(json!({"clusterIP": ""}))));
        assert!(!has_slices(&service(json!({"selector": {}}))));
    }
}
