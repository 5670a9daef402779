//! The Lease that says that a node lives.
//!
//! Invariant: a cluster that watches Leases calls a node lost that has not renewed its own for [`LEASE_SECONDS`] or a
//! little longer, and marks it unknown. Called by the agent for this machine and by simulated nodes.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use pumice_cluster::{Failure, failure};
use serde_json::json;

const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: i32 = 40;

/// Renews the Lease, making it and its namespace when missing.
pub(crate) async fn renew(client: &Client, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let renewed = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed});
    let patch = json!({"spec": spec});
    match leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Err(error) if failure(&error) == Failure::NotFound => {}
        other => return other.map(drop),
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}});
    let namespace: Namespace = serde_json::from_value(namespace).map_err(kube::Error::SerdeError)?;
    // It is there on any real cluster, and its absence shows up in the next call.
    let _ = namespaces.create(&PostParams::default(), &namespace).await;
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec});
    let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
    leases.create(&PostParams::default(), &lease).await.map(drop)
}
