//! The cluster's nodes as the server is told of them, with what pods use there that are not the fleet's.
//!
//! Invariant: [`Nodes::changes`] says each change once; after [`Nodes::all`] it says only what is new since. The shell feeds
//! it from its watches.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use pumice_cluster::Change;
use pumice_fleet_model::names::CLUSTER_LABEL;
use pumice_wire::executor::{self as wire, NodeState, Taint};

use crate::labels::RUN_LABEL;

/// The label that names a node's pool.
pub const POOL_LABEL: &str = "armadaproject.io/pool";
/// The pool of nodes that name none.
const DEFAULT_POOL: &str = "default";

type Amounts = BTreeMap<String, i64>;

/// What is known of nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    nodes: BTreeMap<String, NodeState>,
    /// Pods of others by namespace and name: their node and what they take of it.
    others: BTreeMap<(String, String), (String, Amounts)>,
    used: BTreeMap<String, Amounts>,
    dirty: BTreeSet<String>,
    synced: bool,
    /// The cluster runs Volcano jobs.
    runs_jobs: bool,
}

impl Nodes {
    /// All nodes were seen once.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The pool of a node.
    pub fn pool(&self, node: &str) -> &str {
        self.nodes.get(node).map_or(DEFAULT_POOL, |node| node.pool.as_str())
    }

    /// Whether the cluster runs Volcano jobs.
    pub fn runs_jobs(&mut self, does: bool) {
        if self.runs_jobs != does {
            self.runs_jobs = does;
            self.dirty.extend(self.nodes.keys().cloned());
        }
    }

    /// Takes in a change of nodes.
    pub fn apply(&mut self, change: Change<Node>) {
        match change {
            Change::Replace(all) => {
                let before: Vec<String> = std::mem::take(&mut self.nodes).into_keys().collect();
                self.dirty.extend(before);
                all.into_iter().for_each(|node| self.put(node));
                self.synced = true;
            }
            Change::Applied(node) => self.put(node),
            Change::Deleted(node) => {
                let name = node.metadata.name.unwrap_or_default();
                self.nodes.remove(&name);
                self.dirty.insert(name);
            }
        }
    }

    /// A pod is new or changed.
    pub fn pod(&mut self, pod: &Pod) {
        self.pod_removed(pod);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let is_ours = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(RUN_LABEL));
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
        if is_ours || matches!(phase, Some("Succeeded" | "Failed")) {
            return;
        }
        let amounts: Amounts = pumice_translate::pod_facts(pod, &[]).template.requests.clone();
        let used = self.used.entry(node.clone()).or_default();
        for (resource, amount) in &amounts {
            let sum = used.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        self.dirty.insert(node.clone());
        self.others.insert(key(pod), (node, amounts));
    }

    /// A pod is gone.
    pub fn pod_removed(&mut self, pod: &Pod) {
        let Some((node, amounts)) = self.others.remove(&key(pod)) else { return };
        let used = self.used.entry(node.clone()).or_default();
        for (resource, amount) in amounts {
            let sum = used.entry(resource).or_default();
            *sum = sum.saturating_sub(amount);
        }
        used.retain(|_, sum| *sum != 0);
        self.dirty.insert(node);
    }

    /// These are all pods.
    pub fn all_pods(&mut self, pods: &[Pod]) {
        self.dirty.extend(std::mem::take(&mut self.used).into_keys());
        self.others.clear();
        pods.iter().for_each(|pod| self.pod(pod));
    }

    /// All nodes, for the beginning of a session. Nothing counts as changed afterwards.
    pub fn all(&mut self) -> wire::Nodes {
        self.dirty.clear();
        let nodes = self.nodes.keys().filter_map(|name| self.state(name)).collect();
        wire::Nodes { complete: true, nodes, removed: Vec::new() }
    }

    /// What changed since it was last asked for.
    pub fn changes(&mut self) -> Option<wire::Nodes> {
        let dirty = std::mem::take(&mut self.dirty);
        let (mut nodes, mut removed) = (Vec::new(), Vec::new());
        for name in dirty {
            match self.state(&name) {
                Some(state) => nodes.push(state),
                None => removed.push(name),
            }
        }
        let any = !nodes.is_empty() || !removed.is_empty();
        any.then_some(wire::Nodes { complete: false, nodes, removed })
    }

    fn put(&mut self, node: Node) {
        let state = state(node);
        // Nodes say every few seconds that they live.
        if self.nodes.get(&state.name) != Some(&state) {
            self.dirty.insert(state.name.clone());
            self.nodes.insert(state.name.clone(), state);
        }
    }

    fn state(&self, name: &str) -> Option<NodeState> {
        let mut state = self.nodes.get(name)?.clone();
        if self.runs_jobs {
            state.labels.insert(CLUSTER_LABEL.to_owned(), "true".to_owned());
        }
        let used = self.used.get(name).into_iter().flatten();
        state.used_by_others = used
            .map(|(resource, amount)| {
                let unit = if resource == "cpu" { "m" } else { "" };
                (resource.clone(), format!("{amount}{unit}"))
            })
            .collect();
        Some(state)
    }
}

fn key(pod: &Pod) -> (String, String) {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

fn state(node: Node) -> NodeState {
    let mut labels = node.metadata.labels.unwrap_or_default();
    // Only the executor says it.
    labels.remove(CLUSTER_LABEL);
    let spec = node.spec.unwrap_or_default();
    let taint = |taint: k8s_openapi::api::core::v1::Taint| Taint {
        key: taint.key,
        value: taint.value.unwrap_or_default(),
        effect: taint.effect,
    };
    let allocatable = node.status.and_then(|status| status.allocatable).unwrap_or_default();
    NodeState {
        name: node.metadata.name.unwrap_or_default(),
        pool: labels.get(POOL_LABEL).cloned().unwrap_or_else(|| DEFAULT_POOL.to_owned()),
        labels,
        taints: spec.taints.unwrap_or_default().into_iter().map(taint).collect(),
        unschedulable: spec.unschedulable.unwrap_or(false),
        allocatable: allocatable.into_iter().map(|(resource, amount)| (resource, amount.0)).collect(),
        used_by_others: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(pool: Option<&str>) -> Node {
        let mut node = json!({
            "metadata": { "name": "a", "labels": {} },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] },
            "status": { "allocatable": { "cpu": "4", "memory": "8Gi" } },
        });
        if let Some(pool) = pool {
            node["metadata"]["labels"][POOL_LABEL] = json!(pool);
        }
        serde_json::from_value(node).expect("a node")
    }

    fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": { "name": name, "namespace": "n" },
            "spec": { "nodeName": "a", "containers": [
                { "name": "c", "resources": { "requests": { "cpu": "500m", "memory": "1Ki" } } }] },
            "status": { "phase": "Running" },
        });
        change(&mut pod);
        serde_json::from_value(pod).expect("a pod")
    }

    fn used(nodes: &mut Nodes) -> Option<String> {
        let nodes = nodes.changes()?;
        Some(nodes.nodes.iter().map(|node| format!("{}: {:?}", node.name, node.used_by_others)).collect())
    }

    #[test]
    fn nodes_are_told_once_with_their_pool() {
        let mut nodes = Nodes::default();
        nodes.apply(Change::Replace(vec![node(None)]));
        let all = nodes.all();
        assert!(all.complete);
        assert_eq!((all.nodes[0].pool.as_str(), all.nodes[0].taints.len()), ("default", 1));
        assert_eq!(all.nodes[0].allocatable["memory"], "8Gi");
        assert_eq!(nodes.changes(), None);
        nodes.apply(Change::Applied(node(None)));
        assert_eq!(nodes.changes(), None);
        nodes.apply(Change::Applied(node(Some("gpu"))));
        assert_eq!(nodes.changes().expect("changed").nodes[0].pool, "gpu");
        nodes.apply(Change::Deleted(node(None)));
        assert_eq!(nodes.changes().expect("changed").removed, ["a"]);
    }

    #[test]
    fn nodes_say_that_their_cluster_runs_whole_jobs_when_it_does() {
        let mut nodes = Nodes::default();
        let mut faked = node(None);
        faked.metadata.labels.get_or_insert_default().insert(CLUSTER_LABEL.to_owned(), "forged".to_owned());
        nodes.apply(Change::Replace(vec![faked]));
        let label = |told: &wire::Nodes| told.nodes[0].labels.get(CLUSTER_LABEL).cloned();
        assert_eq!(label(&nodes.all()), None, "nobody else says it");
        nodes.runs_jobs(true);
        assert_eq!(label(&nodes.changes().expect("told anew")).as_deref(), Some("true"));
        nodes.runs_jobs(true);
        assert_eq!(nodes.changes(), None);
        nodes.runs_jobs(false);
        assert_eq!(label(&nodes.changes().expect("told anew")), None);
    }

    #[test]
    fn only_pods_of_others_that_run_use_a_node() {
        let mut nodes = Nodes::default();
        nodes.apply(Change::Replace(vec![node(None)]));
        nodes.all();
        nodes.pod(&pod("p", |_| {}));
        nodes.pod(&pod("ours", |pod| pod["metadata"]["labels"] = json!({ RUN_LABEL: "x" })));
        nodes.pod(&pod("over", |pod| pod["status"]["phase"] = json!("Failed")));
        nodes.pod(&pod("waits", |pod| pod["spec"]["nodeName"] = Value::Null));
        let one = "a: {\"cpu\": \"500m\", \"memory\": \"1024\"}";
        assert_eq!(used(&mut nodes).as_deref(), Some(one));
        nodes.pod(&pod("p", |_| {}));
        nodes.pod(&pod("q", |_| {}));
        assert_eq!(used(&mut nodes).as_deref(), Some("a: {\"cpu\": \"1000m\", \"memory\": \"2048\"}"));
        nodes.pod_removed(&pod("p", |_| {}));
        assert_eq!(used(&mut nodes).as_deref(), Some(one));
        nodes.all_pods(&[]);
        assert_eq!(used(&mut nodes).as_deref(), Some("a: {}"));
    }
}
