//! The calls themselves: each one object, one intent. Nothing here decides or retries, but for an eviction's condition.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_api::shard::NodeShard;
use pumice_cluster::{Failure, PodRef, failure, write};
use pumice_engine::{Bind, Eviction, Ungate};
use serde_json::{Value, json};

use super::Nomination;
use crate::{patches, prebind};

/// How often an eviction's condition is tried on a pod that others write to.
const CONDITION_TRIES: u32 = 3;

pub(super) async fn bind(client: Client, bind: Arc<Bind>) -> Result<(), kube::Error> {
    prebind::carry_out(&client, &bind).await?;
    let pod = PodRef { namespace: &bind.namespace, name: &bind.name, uid: &bind.uid };
    write::bind_pod(&client, pod, &bind.node, &bind.annotations).await
}

/// Says on the pod why it goes, then asks for its end. A pod that could not be told goes all the same.
pub(super) async fn evict(
    client: Client,
    eviction: Arc<Eviction>,
    text: String,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &eviction.namespace);
    for _ in 0..CONDITION_TRIES {
        let pod = pods.get(&eviction.name).await?;
        // Another pod of that name is none of ours; one that goes already needs no word.
        if pod.metadata.uid.as_deref() != Some(&*eviction.uid) || pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let patch = patches::evicted(&pod, &text, now);
        match write::merge_status(&pods, &eviction.name, &patch).await {
            Err(error) if failure(&error) == Failure::Conflict => {}
            _ => break,
        }
    }
    let pod = PodRef { namespace: &eviction.namespace, name: &eviction.name, uid: &eviction.uid };
    write::delete_pod(&client, pod).await
}

pub(super) async fn group(client: Client, namespace: String, name: String, patch: Value) -> Result<(), kube::Error> {
    write::merge_unread::<PodGroup>(&client, &namespace, &name, None, &patch).await
}

pub(super) async fn pod_status(
    client: Client,
    namespace: String,
    name: String,
    patch: Value,
) -> Result<(), kube::Error> {
    write::merge_unread::<Pod>(&client, &namespace, &name, Some("status"), &patch).await
}

pub(super) async fn nominate(client: Client, nomination: Nomination) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"uid": nomination.uid}, "status": {"nominatedNodeName": nomination.node}});
    pod_status(client, nomination.namespace, nomination.name, patch).await
}

pub(super) async fn queue(client: Client, name: String, patch: Value) -> Result<(), kube::Error> {
    let queues: Api<Queue> = Api::all(client);
    write::merge_status(&queues, &name, &patch).await.map(drop)
}

/// Removes a gate, and leaves those of others.
pub(super) async fn ungate(client: Client, ungate: Ungate) -> Result<(), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client, &ungate.namespace);
    let pod = pods.get(&ungate.name).await?;
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    let left: Vec<Value> = gates.filter(|gate| gate.name != ungate.gate).map(|gate| json!(gate)).collect();
    let metadata = json!({"uid": ungate.uid, "resourceVersion": pod.metadata.resource_version});
    let gates = if left.is_empty() { Value::Null } else { Value::Array(left) };
    let patch = json!({"metadata": metadata, "spec": {"schedulingGates": gates}});
    write::merge(&pods, &ungate.name, &patch).await.map(drop)
}

/// Says which nodes a NodeShard has.
pub(super) async fn shard(client: Client, name: String, nodes: Vec<String>, now: Timestamp) -> Result<(), kube::Error> {
    let shards: Api<NodeShard> = Api::all(client);
    let patch = json!({"status": {"nodesInUse": nodes, "lastUpdateTime": patches::seconds(now)}});
    write::merge_status(&shards, &name, &patch).await.map(drop)
}
