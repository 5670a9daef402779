//! Volumes: claims, volumes, storage classes, CSINodes; and what a pod claims by name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use pumice_engine::{
    CsiNodeFacts, NodeTerm, ObjectName, Operator, PodClaims, Requirement, StorageClassFacts, VolumeClaimFacts,
    VolumeFacts,
};

use super::inter_pod::selector;
use super::template::term;
use super::{amount, annotation, text};

/// Written by those who bind volumes when a claim and its volume have found each other.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The node that a provisioner was told.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The storage class, before there was a field for it.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// What a pod claims: volumes, ephemeral ones by the name their claims get, and devices.
pub(super) fn pod_claims(pod: &core::Pod, spec: &core::PodSpec) -> PodClaims {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volume = |volume: &core::Volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{pod_name}-{}", volume.name)),
        _ => None,
    };
    let mut claims =
        PodClaims { volumes: spec.volumes.iter().flatten().filter_map(volume).collect(), ..PodClaims::default() };
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    for claim in spec.resource_claims.iter().flatten() {
        let made = statuses.into_iter().flatten().find(|status| status.name == claim.name);
        match (&claim.resource_claim_name, made) {
            (Some(name), _) => claims.devices.push(name.clone()),
            // Made, and without a name: the pod needs none.
            (None, Some(status)) => claims.devices.extend(status.resource_claim_name.clone()),
            (None, None) => claims.unmade.push(claim.name.clone()),
        }
    }
    claims
}

/// What placing pods reads of a PersistentVolumeClaim.
pub fn volume_claim_facts(claim: &core::PersistentVolumeClaim) -> VolumeClaimFacts {
    let metadata = &claim.metadata;
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let volume = text(spec.volume_name.as_ref());
    VolumeClaimFacts {
        namespace: text(metadata.namespace.as_ref()),
        name: text(metadata.name.as_ref()),
        uid: text(metadata.uid.as_ref()),
        bound: !volume.is_empty() && annotation(metadata, BIND_COMPLETED).is_some(),
        volume,
        lost: phase == Some("Lost"),
        terminating: metadata.deletion_timestamp.is_some(),
        class: annotation(metadata, CLASS).map(str::to_owned).or(spec.storage_class_name).unwrap_or_default(),
        access_modes: spec.access_modes.unwrap_or_default(),
        block: spec.volume_mode.as_deref() == Some("Block"),
        bytes: requests.and_then(|requests| requests.get("storage")).map_or(0, |bytes| amount("storage", bytes)),
        selector: spec.selector.as_ref().map(selector),
        selected_node: annotation(metadata, SELECTED_NODE).map(Into::into),
    }
}

/// What placing pods reads of a PersistentVolume.
pub fn volume_facts(volume: &core::PersistentVolume) -> VolumeFacts {
    let metadata = &volume.metadata;
    let spec = volume.spec.clone().unwrap_or_default();
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let claim = |claim: &core::ObjectReference| {
        ObjectName::new(claim.namespace.as_deref().unwrap_or_default(), claim.name.as_deref().unwrap_or_default())
    };
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    VolumeFacts {
        name: text(metadata.name.as_ref()),
        labels: metadata.labels.clone().unwrap_or_default(),
        class: annotation(metadata, CLASS).map(str::to_owned).or(spec.storage_class_name).unwrap_or_default(),
        access_modes: spec.access_modes.unwrap_or_default(),
        block: spec.volume_mode.as_deref() == Some("Block"),
        bytes: spec.capacity.as_ref().and_then(|all| all.get("storage")).map_or(0, |bytes| amount("storage", bytes)),
        node_terms: required.map(|selector| selector.node_selector_terms.iter().map(term).collect()),
        claim: spec.claim_ref.as_ref().map(claim),
        available: matches!(phase, None | Some("Available" | "Pending" | "")),
        driver: spec.csi.as_ref().map(|csi| csi.driver.clone()).unwrap_or_default(),
        handle: spec.csi.as_ref().map(|csi| csi.volume_handle.clone()).unwrap_or_default(),
    }
}

/// What placing pods reads of a StorageClass.
pub fn storage_class_facts(class: &StorageClass) -> StorageClassFacts {
    let topology = |topology: &core::TopologySelectorTerm| NodeTerm {
        expressions: topology
            .match_label_expressions
            .iter()
            .flatten()
            .map(|label| Requirement { key: label.key.clone(), operator: Operator::In, values: label.values.clone() })
            .collect(),
        fields: Vec::new(),
    };
    StorageClassFacts {
        name: text(class.metadata.name.as_ref()),
        provisioner: class.provisioner.clone(),
        waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        topologies: class.allowed_topologies.iter().flatten().map(topology).collect(),
    }
}

/// How many volumes of each driver a node attaches.
pub fn csi_node_facts(node: &CSINode) -> CsiNodeFacts {
    let limit = |driver: &k8s_openapi::api::storage::v1::CSINodeDriver| {
        let count = driver.allocatable.as_ref()?.count?;
        Some((driver.name.clone(), i64::from(count)))
    };
    let limits: BTreeMap<String, i64> = node.spec.drivers.iter().filter_map(limit).collect();
    CsiNodeFacts { node: text(node.metadata.name.as_ref()).into(), limits }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn read<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn pods_claim_volumes_and_devices_by_the_names_that_exist() {
        let pod: core::Pod = read(json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [],
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
                    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                    {"name": "tmp", "emptyDir": {}},
                ],
                "resourceClaims": [
                    {"name": "named", "resourceClaimName": "gpu"},
                    {"name": "made", "resourceClaimTemplateName": "t"},
                    {"name": "needless", "resourceClaimTemplateName": "t"},
                    {"name": "later", "resourceClaimTemplateName": "t"},
                ],
            },
            "status": {"resourceClaimStatuses": [
                {"name": "made", "resourceClaimName": "p-made-x7"},
                {"name": "needless"},
            ]},
        }));
        let claims = pod_claims(&pod, pod.spec.as_ref().unwrap());
        assert_eq!(claims.volumes, words(&["shared", "p-scratch"]));
        assert_eq!((claims.devices, claims.unmade), (words(&["gpu", "p-made-x7"]), words(&["later"])));
    }

    #[test]
    fn a_claim_is_bound_only_when_its_binding_is_complete() {
        let claim = |volume: &str, annotations: Value| -> VolumeClaimFacts {
            volume_claim_facts(&read(json!({
                "metadata": {"name": "c", "namespace": "ns", "annotations": annotations},
                "spec": {"volumeName": volume},
            })))
        };
        let done = json!({"pv.kubernetes.io/bind-completed": "yes"});
        for (volume, annotations, bound) in
            [("", json!({}), false), ("v", json!({}), false), ("", done.clone(), false), ("v", done, true)]
        {
            let facts = claim(volume, annotations.clone());
            assert_eq!((facts.bound, facts.volume.as_str()), (bound, volume), "{volume:?} {annotations}");
        }
    }

    #[test]
    fn what_a_claim_asks_for_is_read() {
        let facts = volume_claim_facts(&read(json!({
            "metadata": {
                "name": "c", "namespace": "ns", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"volume.kubernetes.io/selected-node": "n1", "volume.beta.kubernetes.io/storage-class": "old"},
            },
            "spec": {
                "storageClassName": "new", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}, "selector": {"matchLabels": {"disk": "ssd"}},
            },
            "status": {"phase": "Lost"},
        })));
        assert_eq!((facts.namespace.as_str(), facts.name.as_str(), facts.uid.as_str()), ("ns", "c", "u"));
        assert_eq!((facts.class.as_str(), facts.selected_node.as_deref()), ("old", Some("n1")), "the annotation wins");
        assert_eq!((facts.bytes, facts.block, facts.lost, facts.terminating), (1 << 30, true, true, true));
        assert_eq!(
            (facts.access_modes, facts.selector.map(|all| all.requirements.len())),
            (words(&["ReadWriteOnce"]), Some(1))
        );
        let empty = volume_claim_facts(&core::PersistentVolumeClaim::default());
        assert_eq!(empty, VolumeClaimFacts::default());
    }

    #[test]
    fn volumes_classes_and_limits() {
        let volume = |phase: &str| {
            volume_facts(&read(json!({
                "metadata": {"name": "v", "labels": {"disk": "ssd"}},
                "spec": {
                    "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "fast",
                    "claimRef": {"namespace": "ns", "name": "c"}, "csi": {"driver": "d", "volumeHandle": "h"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                    ]}},
                },
                "status": {"phase": phase},
            })))
        };
        for (phase, available) in
            [("", true), ("Pending", true), ("Available", true), ("Bound", false), ("Released", false)]
        {
            assert_eq!(volume(phase).available, available, "{phase}");
        }
        let facts = volume("Bound");
        assert_eq!((facts.bytes, facts.class.as_str(), facts.claim.as_deref()), (2 << 30, "fast", Some("ns/c")));
        assert_eq!((facts.driver.as_str(), facts.handle.as_str(), facts.block), ("d", "h", false));
        assert_eq!(facts.node_terms.map(|terms| terms.len()), Some(1));
        assert_eq!(volume_facts(&core::PersistentVolume::default()).node_terms, None, "lies anywhere");

        for (mode, waits) in [("Immediate", false), ("WaitForFirstConsumer", true)] {
            let class = storage_class_facts(&read(json!({
                "metadata": {"name": "s"}, "provisioner": "p", "volumeBindingMode": mode,
                "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
            })));
            assert_eq!((class.waits, class.provisioner.as_str()), (waits, "p"));
            assert_eq!(class.topologies[0].expressions[0].values, words(&["a", "b"]));
        }

        let node = csi_node_facts(&read(json!({
            "metadata": {"name": "n"},
            "spec": {"drivers": [
                {"name": "limited", "nodeID": "i", "allocatable": {"count": 3}},
                {"name": "free", "nodeID": "i"},
            ]},
        })));
        assert_eq!(node.limits, BTreeMap::from([("limited".to_owned(), 3)]), "no count is no limit");
    }
}
