//! What the agent of a node may write, where that depends on the object: its own Node and Lease, the status and the end of its pods,
//! tokens for these, and the end of folders on it.
//!
//! As the admission plugin NodeRestriction of Kubernetes, but for one taint: here the agent itself says that its disk is nearly full.
//! Nor does an agent make mirror pods. Called by the write verbs; costs whoever is no node one look at the user's name.

use pumice_auth::{ISSUER, Identity, node_of};
use pumice_objects::meta;
use pumice_objects::status::Status;
use serde_json::{Map, Value};

use crate::admission::{Attributes, Operation};
use crate::authz::nodes::{LEASES, VOLUME_NODE, node_of_pod};
use crate::strategies::storage_class::PROVISIONER;

/// The taint that an agent may set on its own Node, and take away.
const DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
/// Labels of these domains are the cluster's, but for those below.
const DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];
/// What nobody but administrators sets, so that workloads can be kept to nodes by it.
const RESTRICTED: &str = "node-restriction.kubernetes.io";
const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const OWN_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Refuses what isn't the node's to write. `object` is nothing for a deletion.
pub(crate) fn check(
    write: &Attributes<'_>,
    identity: &Identity,
    name: &str,
    old: Option<&Value>,
    object: Option<&Value>,
) -> Result<(), Status> {
    let Some(node) = node_of(identity) else { return Ok(()) };
    let found = match &*write.descriptor.storage {
        "pods" => pod(write, node, name, old, object),
        "nodes" => own(node, name, "Node").and_then(|()| node_object(old, object)),
        "coordination.k8s.io/leases" if write.namespace == LEASES => own(node, name, "Lease"),
        "persistentvolumes" => volume(write, node, old),
        _ => Ok(()),
    };
    found.map_err(|cause| Status::forbidden(write.resource(), name, cause))
}

/// Refuses a token that is not for a pod on the node.
pub(crate) fn check_token(identity: &Identity, pod: Option<&Value>, audiences: &[String]) -> Result<(), String> {
    let Some(node) = node_of(identity) else { return Ok(()) };
    let Some(pod) = pod else {
        return Err(format!("node {node:?} gets tokens for its pods alone: bind the token to one, with its uid"));
    };
    if pod["spec"]["nodeName"] != *node {
        return Err(format!("node {node:?} gets no token for a pod of another node"));
    }
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let sources = volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    let wanted: Vec<&str> = sources.filter_map(|source| source["serviceAccountToken"]["audience"].as_str()).collect();
    match audiences.iter().find(|one| **one != ISSUER && !wanted.contains(&one.as_str())) {
        Some(other) => Err(format!("the pod asks for no token for {other:?}, so node {node:?} gets none")),
        None => Ok(()),
    }
}

fn own(node: &str, name: &str, what: &str) -> Result<(), String> {
    if name == node { Ok(()) } else { Err(format!("node {node:?} can only write its own {what}")) }
}

fn pod(
    write: &Attributes<'_>,
    node: &str,
    name: &str,
    old: Option<&Value>,
    object: Option<&Value>,
) -> Result<(), String> {
    match (write.operation, write.subresource) {
        (Operation::Update, "status") | (Operation::Delete, "") => {}
        _ => return Err(format!("node {node:?} can only write the status of its pods, and remove them")),
    }
    // What is written may be less than the whole pod.
    if node_of_pod(write.store, write.namespace, name).is_some_and(|of| of != node) {
        return Err(format!("node {node:?} can only write pods that are bound to it"));
    }
    if let (Some(old), Some(object)) = (old, object)
        && entries(&old["metadata"]["labels"]) != entries(&object["metadata"]["labels"])
    {
        return Err(format!("node {node:?} can't change labels of pods"));
    }
    Ok(())
}

fn node_object(old: Option<&Value>, object: Option<&Value>) -> Result<(), String> {
    let Some(object) = object else { return Err("a node's agent can't delete its Node".to_owned()) };
    let nothing = Map::new();
    let labels = |object: &'_ Value| object["metadata"]["labels"].as_object().cloned();
    let (before, after) = (old.and_then(labels), labels(object));
    let (before, after) = (before.as_ref().unwrap_or(&nothing), after.as_ref().unwrap_or(&nothing));
    let changed = |key: &&String| before.get(*key) != after.get(*key);
    let refused = after.keys().chain(before.keys()).filter(changed).find(|key| !is_own_label(key));
    if let Some(key) = refused {
        return Err(format!("a node's agent can't change the label {key} of its Node"));
    }
    let Some(old) = old else { return Ok(()) };
    if taints(old) != taints(object) {
        return Err(format!("a node's agent can't change taints of its Node, but for {DISK_PRESSURE}"));
    }
    for field in ["ownerReferences", "finalizers"] {
        if !same(&old["metadata"][field], &object["metadata"][field]) {
            return Err(format!("a node's agent can't change metadata.{field} of its Node"));
        }
    }
    Ok(())
}

fn entries(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object().filter(|entries| !entries.is_empty())
}

/// Nothing and an empty list are the same.
fn same(one: &Value, other: &Value) -> bool {
    let filled = |value: &Value| value.as_array().filter(|list| !list.is_empty()).cloned();
    filled(one) == filled(other)
}

/// All taints but the one that is the agent's.
fn taints(node: &Value) -> Vec<&Value> {
    node["spec"]["taints"].as_array().into_iter().flatten().filter(|taint| taint["key"] != DISK_PRESSURE).collect()
}

fn is_own_label(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    let within = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if within(RESTRICTED) {
        return false;
    }
    !DOMAINS.iter().any(|parent| within(parent))
        || OWN_LABELS.contains(&key)
        || OWN_DOMAINS.iter().any(|parent| within(parent))
}

/// A folder goes once its claim has gone and nobody wants to keep what is in it.
fn volume(write: &Attributes<'_>, node: &str, old: Option<&Value>) -> Result<(), String> {
    let Some(old) = old.filter(|_| write.operation == Operation::Delete) else {
        return Err(format!("node {node:?} can't write volumes"));
    };
    let of = meta::label(old, VOLUME_NODE);
    let is_over = old["status"]["phase"] == "Released"
        && old["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        && old["spec"]["csi"]["driver"] == PROVISIONER;
    match of {
        Some(of) if (of.is_empty() || of == node) && is_over => Ok(()),
        _ => Err(format!("node {node:?} can only remove folders on it that were released to be deleted")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_of_the_cluster_are_not_the_nodes() {
        for (key, wanted) in [
            ("kubernetes.io/hostname", true),
            ("topology.kubernetes.io/zone", true),
            ("node.kubernetes.io/anything", true),
            ("x.kubelet.kubernetes.io/y", true),
            ("team", true),
            ("example.com/rack", true),
            ("notkubernetes.io/x", true),
            ("node-restriction.kubernetes.io/secret", false),
            ("deep.node-restriction.kubernetes.io/secret", false),
            ("node-role.kubernetes.io/control-plane", false),
            ("kubernetes.io/role", false),
            ("sigs.k8s.io/x", false),
        ] {
            assert_eq!(is_own_label(key), wanted, "{key}");
        }
    }

    #[test]
    fn of_its_node_an_agent_changes_what_is_its_own() {
        let node = |labels: Value, taints: Value| json!({"metadata": {"labels": labels}, "spec": {"taints": taints}});
        let old = node(json!({"kubernetes.io/os": "linux", "kubernetes.io/role": "db"}), json!([{"key": "gpu"}]));
        let with = |change: &dyn Fn(&mut Value)| {
            let mut changed = old.clone();
            change(&mut changed);
            node_object(Some(&old), Some(&changed)).is_ok()
        };
        assert!(with(&|node| node["metadata"]["labels"]["team"] = json!("a")));
        assert!(with(&|node| node["spec"]["taints"] = json!([{"key": "gpu"}, {"key": DISK_PRESSURE}])));
        assert!(with(&|node| node["metadata"]["annotations"] = json!({"a": "b"})));
        for bad in [
            &(|node: &mut Value| node["metadata"]["labels"]["kubernetes.io/role"] = json!("web"))
                as &dyn Fn(&mut Value),
            &|node| drop(node["metadata"]["labels"].as_object_mut().and_then(|all| all.remove("kubernetes.io/role"))),
            &|node| node["metadata"]["labels"]["node-restriction.kubernetes.io/x"] = json!("y"),
            &|node| node["metadata"]["ownerReferences"] = json!([{"name": "x"}]),
            &|node| node["spec"]["taints"] = json!([]),
            &|node| node["spec"]["taints"] = json!([{"key": "gpu", "effect": "NoExecute"}]),
        ] {
            assert!(!with(bad));
        }
        assert!(node_object(None, Some(&node(json!({"node-restriction.kubernetes.io/x": "y"}), Value::Null))).is_err());
        assert!(node_object(Some(&old), None).is_err());
    }

    #[test]
    fn tokens_are_for_pods_of_the_node_and_for_whom_they_ask() {
        let node = Identity::node("n1");
        let source = json!({"serviceAccountToken": {"audience": "vault"}});
        let pod = |node: &str| json!({"spec": {"nodeName": node, "volumes": [{"projected": {"sources": [source]}}]}});
        let audiences = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        assert!(check_token(&node, Some(&pod("n1")), &audiences(&[ISSUER, "vault"])).is_ok());
        assert!(check_token(&node, Some(&pod("n1")), &audiences(&["other"])).is_err());
        assert!(check_token(&node, Some(&pod("n2")), &audiences(&[ISSUER])).is_err());
        assert!(check_token(&node, None, &audiences(&[ISSUER])).is_err());
        assert!(check_token(&Identity::new("ann", [] as [&str; 0]), None, &audiences(&["other"])).is_ok());
    }
}
