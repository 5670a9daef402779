//! What nodes have and what their pods ask for.
//!
//! Invariant: the sum of a node is that of the pods that are told to be on it, whichever of them was heard of first.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Node, Pod};
use pumice_cluster::Change;
use pumice_machines::sharding::{NodeLoad, capacity_milli, requested};

use crate::index::{Key, key};
use crate::node_table::NodeTable;

#[derive(Default)]
pub(super) struct Loads {
    /// With nothing asked for.
    nodes: NodeTable<NodeLoad>,
    /// The node of each pod that counts, and what the pod asks for.
    pods: HashMap<Key, (String, i64)>,
    pods_listed: bool,
    requested_milli: HashMap<String, i64>,
}

impl Loads {
    pub fn is_complete(&self) -> bool {
        self.nodes.is_listed && self.pods_listed
    }

    /// Whether nodes came, went, or changed in what counts.
    pub fn take_nodes(&mut self, change: Change<Node>) -> bool {
        self.nodes.take(change, |node| {
            let capacity_milli = capacity_milli(&node);
            NodeLoad { labels: node.metadata.labels.unwrap_or_default(), capacity_milli, requested_milli: 0 }
        })
    }

    pub fn take_pods(&mut self, change: Change<Pod>) {
        match change {
            Change::Replace(all) => {
                self.pods.clear();
                self.requested_milli.clear();
                all.iter().for_each(|pod| self.put(pod));
                self.pods_listed = true;
            }
            Change::Applied(pod) => self.put(&pod),
            Change::Deleted(pod) => self.drop(&key(&pod.metadata)),
        }
    }

    /// Every node with what is asked of it.
    pub fn nodes(&self) -> BTreeMap<String, NodeLoad> {
        let loaded = |(name, node): (&String, &NodeLoad)| {
            let requested_milli = self.requested_milli.get(name).copied().unwrap_or_default();
            (name.clone(), NodeLoad { requested_milli, ..node.clone() })
        };
        self.nodes.entries.iter().map(loaded).collect()
    }

    fn put(&mut self, pod: &Pod) {
        let key = key(&pod.metadata);
        self.drop(&key);
        if let Some((node, milli)) = requested(pod) {
            let sum = self.requested_milli.entry(node.to_owned()).or_default();
            *sum = sum.saturating_add(milli);
            self.pods.insert(key, (node.to_owned(), milli));
        }
    }

    fn drop(&mut self, key: &Key) {
        let Some((node, milli)) = self.pods.remove(key) else { return };
        if let Some(sum) = self.requested_milli.get_mut(&node) {
            *sum = sum.saturating_sub(milli);
            if *sum == 0 {
                self.requested_milli.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, node: &str, cpu: &str, extra: Value) -> Pod {
        let mut pod = json!({"metadata": {"name": name, "namespace": "n"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
        pod.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(pod).unwrap()
    }

    fn told(loads: &Loads) -> Vec<(String, i64, i64)> {
        let line = |(name, load): (String, NodeLoad)| (name, load.requested_milli, load.capacity_milli);
        loads.nodes().into_iter().map(line).collect()
    }

    #[test]
    fn sums_follow_pods_whatever_comes_first() {
        let mut loads = Loads::default();
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {"capacity": {"cpu": "4"}}})).unwrap();
        loads.take_pods(Change::Replace(vec![pod("p", "a", "1", json!({})), pod("q", "a", "500m", json!({}))]));
        assert!(!loads.is_complete());
        assert!(loads.take_nodes(Change::Replace(vec![node.clone()])));
        assert!(loads.is_complete() && !loads.take_nodes(Change::Applied(node)));
        assert_eq!(told(&loads), [("a".to_owned(), 1500, 4000)]);
        loads.take_pods(Change::Applied(pod("p", "a", "1", json!({"status": {"phase": "Succeeded"}}))));
        loads.take_pods(Change::Applied(pod("q", "a", "2", json!({}))));
        assert_eq!(told(&loads), [("a".to_owned(), 2000, 4000)]);
        loads.take_pods(Change::Deleted(pod("q", "a", "2", json!({}))));
        loads.take_pods(Change::Applied(pod("r", "b", "2", json!({}))));
        assert_eq!(told(&loads), [("a".to_owned(), 0, 4000)]);
    }
}
