//! The Node objects of simulated nodes.
//!
//! Invariant: a node is told once, ready. Its Lease is renewed only where that was asked for: nothing on one machine looks at
//! node leases, and a thousand nodes that renew theirs every ten seconds would be most of what the store writes. A cluster
//! with a node lifecycle controller calls nodes lost that don't. Called by the shell.

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use pumice_clock as clock;
use pumice_cluster::{Failure, failure};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::capacity::NodeShape;
use super::status::wire_time;
use super::{SIMULATED, node_name};
use crate::lease;

/// Nodes registered at a time.
const REGISTER_MAX: usize = 64;
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Parts of a round of renewals, so that they don't come all at once.
const SLICES: u32 = 50;

/// Creates all nodes, or refreshes those that are there already; goes on until all are.
pub(super) async fn register_all(client: &Client, nodes: impl IntoIterator<Item = u32>, shape: &NodeShape) {
    let registering = stream::iter(nodes).map(|index| async move {
        while let Err(error) = register(client, index, shape, clock::now().as_second()).await {
            tracing::warn!(node = node_name(index), error = %error, "node not registered, will try again");
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    });
    registering.buffer_unordered(REGISTER_MAX).for_each(|()| std::future::ready(())).await;
}

/// Renews every node's Lease once in `every`, for ever. Who was cut off for longer may have been called lost meanwhile, and
/// its pods not ready, which only a new status of each takes back. The nodes get theirs at once; `back` is told a round later,
/// when who called them lost has seen that.
pub(super) async fn keep_alive(client: &Client, nodes: u32, shape: &NodeShape, every: Duration, back: &Notify) {
    let mut returned = false;
    loop {
        let began = Instant::now();
        let mut lost = Vec::new();
        for slice in 0..SLICES.min(nodes) {
            let renewing = stream::iter((slice..nodes).step_by(SLICES as usize)).map(|index| async move {
                let name = node_name(index);
                let renewed = lease::renew(client, &name, clock::now()).await;
                renewed.err().map(|error| {
                    tracing::warn!(node = name, error = %error, "lease not renewed, will try again");
                    index
                })
            });
            let failed: Vec<_> = renewing.buffer_unordered(REGISTER_MAX).filter_map(std::future::ready).collect().await;
            lost.extend(failed);
            tokio::time::sleep_until(began + every * (slice + 1) / SLICES).await;
        }
        tokio::time::sleep_until(began + every).await;
        if began.elapsed() > every * 2 {
            lost = (0..nodes).collect();
        }
        if !lost.is_empty() {
            register_all(client, lost, shape).await;
            returned = true;
        } else if std::mem::take(&mut returned) {
            back.notify_one();
        }
    }
}

async fn register(client: &Client, index: u32, shape: &NodeShape, unix_seconds: i64) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let name = node_name(index);
    let object = node(&name, shape, unix_seconds);
    let typed: Node = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    match nodes.create(&PostParams::default(), &typed).await {
        Err(error) if failure(&error) == Failure::AlreadyExists => {}
        other => return other.map(drop),
    }
    let patch = json!({"metadata": {"labels": object["metadata"]["labels"]}, "status": object["status"]});
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
}

fn node(name: &str, shape: &NodeShape, unix_seconds: i64) -> Value {
    let at = wire_time(unix_seconds);
    let resources: Value = shape.resources().map(|(name, amount)| (name.to_owned(), json!(amount))).collect();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": "simulated",
               "lastHeartbeatTime": at, "lastTransitionTime": at})
    };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            SIMULATED: "true",
        }},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": "amd64", "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
                "containerRuntimeVersion": concat!("simulated://", env!("CARGO_PKG_VERSION")),
                "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION")),
                "operatingSystem": "linux", "osImage": "simulated", "systemUUID": "",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_ready_and_has_its_shape() {
        let shape: NodeShape = "cpu=32,memory=256Gi,nvidia.com/gpu=8".parse().unwrap();
        let node: Node = serde_json::from_value(node("sim-00001", &shape, 0)).unwrap();
        let status = node.status.unwrap();
        let allocatable: Vec<String> =
            status.allocatable.unwrap().into_iter().map(|(name, amount)| format!("{name}={}", amount.0)).collect();
        assert_eq!(allocatable, ["cpu=32", "memory=256Gi", "nvidia.com/gpu=8", "pods=110"]);
        assert!(status.conditions.unwrap().iter().any(|c| c.type_ == "Ready" && c.status == "True"));
        assert_eq!(node.metadata.labels.unwrap()["pumice.sh/simulated"], "true");
    }
}
