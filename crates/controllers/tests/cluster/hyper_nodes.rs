//! HyperNodes against an API server: discovered by label, counted, repaired.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use pumice_api::topology::HyperNode;
use serde_json::json;

use crate::harness::Cluster;

const CONFIGURATION: &str = "
networkTopologyDiscovery:
- source: label
  enabled: true
  config:
    networkTopologyTypes:
      net:
      - nodeLabel: spine
      - nodeLabel: leaf
      - nodeLabel: kubernetes.io/hostname
";

async fn node(cluster: &Cluster, name: &str, leaf: &str) {
    let labels = json!({"leaf": leaf, "spine": "s1"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    cluster.create::<Node>(&Api::all(cluster.admin.clone()), node).await;
}

async fn configure(cluster: &Cluster, text: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin.clone(), "volcano-system");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "volcano-controller-configmap"},
        "data": {"volcano-controller.conf": text}});
    maps.patch("volcano-controller-configmap", &PatchParams::default(), &Patch::Merge(&map)).await.unwrap();
}

/// Waits until there are HyperNodes of these tiers and counts, and returns them by tier and name.
async fn wait_network(cluster: &Cluster, wanted: &[(i64, i64)]) -> Vec<HyperNode> {
    use futures::StreamExt as _;
    let hyper_nodes: Api<HyperNode> = Api::all(cluster.admin.clone());
    let mut changes = std::pin::pin!(pumice_cluster::watch(hyper_nodes.clone(), Default::default()));
    let found = async {
        while changes.next().await.is_some() {
            let mut all = hyper_nodes.list(&Default::default()).await.unwrap().items;
            all.sort_by_key(|hyper_node| (hyper_node.spec.tier, hyper_node.status.node_count));
            let told: Vec<(i64, i64)> =
                all.iter().map(|hyper_node| (hyper_node.spec.tier, hyper_node.status.node_count)).collect();
            if told == wanted {
                return all;
            }
        }
        panic!("the watch of HyperNodes ended")
    };
    match tokio::time::timeout(crate::harness::DEADLINE, found).await {
        Ok(all) => all,
        Err(_) => panic!("not {wanted:?}: {:#?}", hyper_nodes.list(&Default::default()).await.unwrap().items),
    }
}

#[tokio::test]
async fn labels_of_nodes_become_a_network() {
    let mut cluster = Cluster::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}});
    cluster.create::<Namespace>(&Api::all(cluster.admin.clone()), namespace).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin.clone(), "volcano-system");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "volcano-controller-configmap"}});
    cluster.create::<ConfigMap>(&maps, map).await;
    for (name, leaf) in [("n1", "l1"), ("n2", "l1"), ("n3", "l2")] {
        node(&cluster, name, leaf).await;
    }
    // One by hand, which is only counted: by pattern, so that it follows the nodes.
    let by_hand = json!({"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": "hand"},
        "spec": {"tier": 9, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "^n"}}}]}});
    let hyper_nodes: Api<HyperNode> = Api::all(cluster.admin.clone());
    cluster.create::<HyperNode>(&hyper_nodes, by_hand).await;
    wait_network(&cluster, &[(9, 3)]).await;
    configure(&cluster, CONFIGURATION).await;
    let network = wait_network(&cluster, &[(1, 1), (1, 2), (2, 2), (9, 3)]).await;
    let names: Vec<String> = network.iter().map(|hyper_node| hyper_node.metadata.name.clone().unwrap()).collect();
    assert!(names[0].starts_with("hypernode-net-tier1-") && names[2].starts_with("hypernode-net-tier2-"), "{names:?}");

    // A node comes while the controllers are away, and one that was made is deleted by somebody.
    cluster.stop_controllers().await;
    node(&cluster, "n4", "l2").await;
    hyper_nodes.delete(&names[2], &DeleteParams::default()).await.unwrap();
    cluster.start_controllers();
    let network = wait_network(&cluster, &[(1, 2), (1, 2), (2, 2), (9, 4)]).await;
    assert!(network.iter().all(|hyper_node| names.contains(hyper_node.metadata.name.as_ref().unwrap())));

    // A configuration that can't be read changes nothing, and is told; another one takes over.
    configure(&cluster, "networkTopologyDiscovery: 7").await;
    let message = cluster.wait_event_in("volcano-system", "volcano-controller-configmap", "InvalidConfiguration").await;
    assert!(message.contains("can't be read"), "{message}");
    wait_network(&cluster, &[(1, 2), (1, 2), (2, 2), (9, 4)]).await;
    configure(&cluster, &CONFIGURATION.replace("      - nodeLabel: spine\n", "")).await;
    wait_network(&cluster, &[(1, 2), (1, 2), (9, 4)]).await;
}
