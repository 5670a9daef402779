//! What must be written before a pod is bound: where a volume is wanted, which volume a claim gets, which devices.
//!
//! Invariant: each write is done at most once in effect, however often it is asked for; a volume that is not there in
//! time fails the bind, which is decided on again, to the same node. Called by the writer.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::resource::v1 as dra;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client};
use pumice_cluster::write;
use pumice_engine::{Bind, DeviceName, NodeName, Prebind};
use serde_json::{Value, json};

/// How long a bind waits for its volumes before its pod waits again: less than a call may take.
const VOLUMES_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Keeps an allocated claim from vanishing under its pods.
const PROTECTION: &str = "resource.kubernetes.io/delete-protection";

pub(crate) async fn carry_out(client: &Client, bind: &Bind) -> Result<(), kube::Error> {
    let mut volumes = Vec::new();
    for step in &bind.prebind {
        match step {
            Prebind::SelectNode { namespace, claim, node } => {
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
                let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
                write::merge(&claims, claim, &patch).await?;
                volumes.push((namespace, claim));
            }
            Prebind::BindVolume { namespace, claim, uid, volume } => {
                let all: Api<PersistentVolume> = Api::all(client.clone());
                write::merge(&all, volume, &give(namespace, claim, uid)).await?;
                volumes.push((namespace, claim));
            }
            Prebind::Reserve { namespace, claim, devices, node } => {
                let claims: Api<dra::ResourceClaim> = Api::namespaced(client.clone(), namespace);
                reserve(&claims, claim, devices, node, bind).await?;
            }
        }
    }
    for (namespace, claim) in volumes {
        bound(client, namespace, claim).await?;
    }
    Ok(())
}

/// The volume belongs to the claim from now on.
fn give(namespace: &str, claim: &str, uid: &str) -> Value {
    json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {"claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim, "uid": uid,
        }},
    })
}

async fn bound(client: &Client, namespace: &str, name: &str) -> Result<(), kube::Error> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let look = async {
        loop {
            let claim = claims.get(name).await?;
            if claim.status.and_then(|status| status.phase).as_deref() == Some("Bound") {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(VOLUMES_WITHIN, look).await.unwrap_or_else(|_| {
        let message = format!("volume claim {name} is not bound yet");
        Err(kube::Error::Api(Status::failure(&message, "Conflict").with_code(409).boxed()))
    })
}

async fn reserve(
    claims: &Api<dra::ResourceClaim>,
    name: &str,
    devices: &[(String, DeviceName)],
    node: &NodeName,
    bind: &Bind,
) -> Result<(), kube::Error> {
    let mut claim = claims.get(name).await?;
    let finalizers = claim.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == PROTECTION) {
        finalizers.push(PROTECTION.to_owned());
        claim = claims.replace(name, &PostParams::default(), &claim).await?;
    }
    if reserved(&mut claim, devices, node, bind) {
        claims.replace_status(name, &PostParams::default(), &claim).await?;
    }
    Ok(())
}

/// Adds the pod, and the devices where the claim has none. False if nothing is to be written.
fn reserved(claim: &mut dra::ResourceClaim, devices: &[(String, DeviceName)], node: &NodeName, bind: &Bind) -> bool {
    let status = claim.status.get_or_insert_default();
    let consumers = status.reserved_for.get_or_insert_default();
    if status.allocation.is_some() && consumers.iter().any(|consumer| bind.uid == *consumer.uid) {
        return false;
    }
    if !consumers.iter().any(|consumer| bind.uid == *consumer.uid) {
        consumers.push(dra::ResourceClaimConsumerReference {
            resource: "pods".to_owned(),
            name: bind.name.clone(),
            uid: bind.uid.to_string(),
            ..Default::default()
        });
    }
    if status.allocation.is_none() {
        status.allocation = Some(allocation(devices, node));
    }
    true
}

fn allocation(devices: &[(String, DeviceName)], node: &NodeName) -> dra::AllocationResult {
    use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
    let result = |(request, device): &(String, DeviceName)| dra::DeviceRequestAllocationResult {
        request: request.clone(),
        driver: device.driver.clone(),
        pool: device.pool.clone(),
        device: device.device.clone(),
        ..Default::default()
    };
    let field = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_string()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), ..Default::default() };
    dra::AllocationResult {
        devices: Some(dra::DeviceAllocationResult {
            results: Some(devices.iter().map(result).collect()),
            ..Default::default()
        }),
        node_selector: Some(NodeSelector { node_selector_terms: vec![term] }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_gets_its_devices_once_and_each_pod_once() {
        let bind = |uid: &str| Bind {
            uid: uid.into(),
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            node: "n".into(),
            group: "".into(),
            annotations: Default::default(),
            prebind: Vec::new(),
        };
        let device = DeviceName { driver: "gpu.com".to_owned(), pool: "n".to_owned(), device: "d0".to_owned() };
        let devices = [("r".to_owned(), device)];
        let mut claim = dra::ResourceClaim::default();
        assert!(reserved(&mut claim, &devices, &"n".into(), &bind("a")));
        assert!(!reserved(&mut claim, &devices, &"n".into(), &bind("a")), "nothing is written twice");
        assert!(reserved(&mut claim, &[], &"n".into(), &bind("b")));
        let facts = crate::translate::device_claim_facts(&claim);
        assert_eq!(facts.allocated.as_ref().map(Vec::len), Some(1));
        assert_eq!(facts.node_terms.unwrap()[0].fields[0].values, ["n"]);
        let consumers = claim.status.unwrap().reserved_for.unwrap();
        assert_eq!(consumers.iter().map(|consumer| consumer.uid.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }
}
