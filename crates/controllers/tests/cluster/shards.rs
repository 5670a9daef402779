//! NodeShards against an API server: made, kept, told of in their status.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use pumice_api::shard::NodeShard;
use pumice_controllers::{Options, Sharding};
use serde_json::json;

use crate::harness::Cluster;

async fn start() -> Cluster {
    let mut cluster = Cluster::without_controllers(std::sync::Arc::new(pumice_apiserver::AdmitAll)).await;
    for (index, asked) in [0, 2, 9].into_iter().enumerate() {
        let name = format!("n{index}");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"capacity": {"cpu": "10"}}});
        let nodes: Api<Node> = Api::all(cluster.admin.clone());
        cluster.create::<Node>(&nodes, node.clone()).await;
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&node)).await.unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{index}")},
            "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": asked.to_string()}}}]}});
        cluster.create::<Pod>(&cluster.api(), pod).await;
    }
    let client = Client::new(cluster.controllers_service(), "default");
    let mut options = Options::new(client);
    options.enabled = "sharding-controller".parse().unwrap();
    options.sharding = Sharding::default();
    cluster.start_controllers_with(options);
    cluster
}

async fn wait_shard(cluster: &Cluster, name: &str, nodes: &[&str]) -> NodeShard {
    let has = |shard: Option<&NodeShard>| {
        shard.is_some_and(|shard| shard.spec.nodes_desired == nodes && shard.status.nodes_to_add == nodes)
    };
    cluster.wait(&Api::<NodeShard>::all(cluster.admin.clone()), name, has).await.unwrap()
}

#[tokio::test]
async fn nodes_are_shared_out_by_what_is_asked_of_them() {
    let cluster = start().await;
    let shards: Api<NodeShard> = Api::all(cluster.admin.clone());
    wait_shard(&cluster, "volcano", &["n0", "n1"]).await;
    wait_shard(&cluster, "agent-scheduler", &["n2"]).await;

    // Its scheduler says what it has: the rest is left to add and to remove.
    let status = json!({"status": {"nodesInUse": ["n1", "n9"]}});
    shards.patch_status("volcano", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let told = |shard: Option<&NodeShard>| {
        shard.is_some_and(|shard| shard.status.nodes_to_add == ["n0"] && shard.status.nodes_to_remove == ["n9"])
    };
    cluster.wait(&shards, "volcano", told).await;

    // A shard that is deleted comes back; one of a scheduler that nobody configured goes.
    shards.delete("agent-scheduler", &DeleteParams::default()).await.unwrap();
    wait_shard(&cluster, "agent-scheduler", &["n2"]).await;
    let stray = json!({"apiVersion": "shard.volcano.sh/v1alpha1", "kind": "NodeShard", "metadata": {"name": "stray"},
        "spec": {"nodesDesired": ["n2"]}});
    cluster.create::<NodeShard>(&shards, stray).await;
    cluster.wait(&shards, "stray", |shard| shard.is_none()).await;

    // The ConfigMap takes over when it comes.
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}});
    cluster.create::<Namespace>(&Api::all(cluster.admin.clone()), namespace).await;
    let text =
        "schedulerConfigs: [{name: volcano, policies: [{name: node-limit, arguments: {maxNodes: 1}}]}, {name: rest}]";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "volcano-sharding-configmap"},
        "data": {"sharding.yaml": text}});
    cluster.create::<ConfigMap>(&Api::namespaced(cluster.admin.clone(), "volcano-system"), map).await;
    wait_shard(&cluster, "rest", &["n1", "n2"]).await;
    cluster.wait(&shards, "agent-scheduler", |shard| shard.is_none()).await;
    cluster.wait(&shards, "volcano", |shard| shard.is_some_and(|shard| shard.spec.nodes_desired == ["n0"])).await;
}
