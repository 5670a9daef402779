//! The clusters that a workload is tried on.
//!
//! Invariant: names of nodes are unique in their cluster, those of clusters in all; there is at least one node. Pools hold the
//! nodes as executors would tell of them.

use std::collections::{BTreeMap, BTreeSet};

use pumice_engine::{NodeFacts, Resources};
use pumice_translate::armada::{self, ClusterSpec, NodeTemplateFields, SpecError, wrong};
use pumice_wire::executor as wire;

use super::draw::Distribution;
use pumice_fleet_server::sessions::{DEFAULT_POOL, node_facts};

/// Nodes of one specification.
pub const NODES_MAX: usize = 100_000;
/// The label by which a cluster's nodes are told from others.
pub const CLUSTER_LABEL: &str = "armadaproject.io/clusterName";
/// Room for pods of a node that does not say: none is ever full of pods.
const PODS: i64 = 1_000_000;

/// The nodes of a fleet, as a specification of clusters describes them.
#[derive(Debug, Clone)]
pub struct Clusters {
    /// What they are called.
    pub name: String,
    /// The nodes, cluster by cluster.
    pub nodes: Vec<Node>,
    /// From the lease until the pod runs.
    pub(super) pending: Distribution,
    /// What is in the specification and changes nothing.
    pub notes: Vec<String>,
}

/// A node of one of the clusters.
#[derive(Debug, Clone)]
pub struct Node {
    pub cluster: String,
    /// The pool that it is counted in.
    pub pool: String,
    pub facts: NodeFacts,
}

impl Clusters {
    /// Reads a specification; `name` is what it is called where it does not say so itself.
    ///
    /// # Errors
    /// What can't be run, and where it stands.
    pub fn read(text: &str, name: &str) -> Result<Self, SpecError> {
        let spec: ClusterSpec = armada::read(text)?;
        let (mut nodes, mut names) = (Vec::new(), BTreeSet::new());
        for (place, cluster) in spec.clusters.iter().enumerate() {
            let place = format!("clusters[{place}]");
            armada::name(format!("{place}.name"), &cluster.name)?;
            if !names.insert(&cluster.name) {
                return Err(wrong(format!("{place}.name"), format!("there is another cluster {}", cluster.name)));
            }
            let pool = if cluster.pool.is_empty() { DEFAULT_POOL } else { &cluster.pool };
            armada::name(format!("{place}.pool"), pool)?;
            for (index, template) in cluster.node_templates.iter().enumerate() {
                if nodes.len() + template.number as usize > NODES_MAX {
                    let place = format!("{place}.nodeTemplates[{index}].number");
                    return Err(wrong(place, format!("there are more than {NODES_MAX} nodes")));
                }
                let facts = facts(template, &cluster.name);
                nodes.extend((0..template.number).map(|number| Node {
                    cluster: cluster.name.clone(),
                    pool: pool.to_owned(),
                    facts: NodeFacts { name: format!("{}-{index}-{number}", cluster.name).into(), ..facts.clone() },
                }));
            }
        }
        if nodes.is_empty() {
            return Err(wrong("clusters", "there are no nodes"));
        }
        let mut notes = Vec::new();
        if spec.workflow_manager_delay_distribution.is_some() {
            notes.push(
                "workflowManagerDelayDistribution: nobody submits again, what is preempted waits by itself".into(),
            );
        }
        Ok(Self {
            name: if spec.name.is_empty() { name.to_owned() } else { spec.name },
            nodes,
            pending: spec.pending_delay_distribution.map(Distribution::from).unwrap_or_default(),
            notes,
        })
    }

    /// The pools, in alphabetical order.
    pub fn pools(&self) -> BTreeSet<&str> {
        self.nodes.iter().map(|node| node.pool.as_str()).collect()
    }

    /// What all nodes offer together, pods aside.
    pub fn total(&self) -> Resources {
        let mut total: BTreeMap<&String, i64> = BTreeMap::new();
        for (name, amount) in self.nodes.iter().flat_map(|node| &node.facts.allocatable) {
            let sum = total.entry(name).or_default();
            *sum = sum.saturating_add(*amount);
        }
        total.into_iter().filter(|(name, _)| *name != "pods").map(|(name, sum)| (name.clone(), sum)).collect()
    }
}

/// What the nodes of a template are, but for their names.
fn facts(template: &NodeTemplateFields, cluster: &str) -> NodeFacts {
    let taint = |taint: &armada::TaintFields| wire::Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.word().to_owned(),
    };
    let amounts = template.total_resources.resources.iter();
    let mut labels = template.labels.clone();
    labels.insert(CLUSTER_LABEL.to_owned(), cluster.to_owned());
    let mut facts = node_facts(wire::NodeState {
        labels: labels.into_iter().collect(),
        taints: template.taints.iter().map(taint).collect(),
        allocatable: amounts.map(|(name, amount)| (name.clone(), amount.0.to_string())).collect(),
        ..wire::NodeState::default()
    });
    facts.allocatable.entry("pods".to_owned()).or_insert(PODS);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_become_nodes_with_labels_and_pools() {
        let text = "clusters:\n- name: a\n  pool: x\n  nodeTemplates:\n  - number: 2\n    taints: [{key: gpu, value: 'true', \
                    effect: NoSchedule}]\n    labels: {zone: z}\n    totalResources: {resources: {cpu: '32', memory: \
                    1Gi}}\n- name: b\n  nodeTemplates: [{number: 1, totalResources: {resources: {cpu: 4, pods: 7}}}]\n\
                    pendingDelayDistribution: {minimum: {seconds: 3}}\nworkflowManagerDelayDistribution:\n  minimum: 1s\n";
        let clusters = Clusters::read(text, "named").unwrap();
        let names: Vec<&str> = clusters.nodes.iter().map(|node| node.facts.name.as_str()).collect();
        assert_eq!((clusters.name.as_str(), names), ("named", vec!["a-0-0", "a-0-1", "b-0-0"]));
        let [first, _, last] = clusters.nodes.as_slice() else { panic!("three") };
        assert_eq!((first.facts.labels["zone"].as_str(), first.facts.labels[CLUSTER_LABEL].as_str()), ("z", "a"));
        assert_eq!((first.facts.taints[0].key.as_str(), first.facts.allocatable["pods"]), ("gpu", PODS));
        assert_eq!((last.pool.as_str(), last.facts.allocatable["pods"]), (DEFAULT_POOL, 7));
        assert_eq!(clusters.total(), [("cpu".to_owned(), 68_000), ("memory".to_owned(), 2 << 30)].into());
        assert_eq!(clusters.pools(), ["default", "x"].into());
        assert_eq!(clusters.pending.minimum_ms, 3_000);
        assert_eq!(clusters.notes.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let node = "nodeTemplates: [{number: 1, totalResources: {resources: {cpu: 1}}}]";
        for (text, message) in [
            ("clusters: []".to_owned(), "clusters: there are no nodes"),
            ("name: x".to_owned(), "missing field `clusters`"),
            (format!("clusters:\n- name: a\n  {node}\n  zone: b\n"), "unknown field `zone`, expected one of name, pool, nodeTemplates at line 4, column 3"),
            (format!("clusters:\n- {{name: a, {node}}}\n- {{name: a}}\n"), "clusters[1].name: there is another cluster a"),
            (format!("clusters: [{{name: a/b, {node}}}]"), "clusters[0].name: there may be no '/' in a name"),
            ("clusters:\n- name: a\n  nodeTemplates:\n  - number: -1\n".to_owned(), "line 4"),
            (
                "clusters: [{name: a, nodeTemplates: [{number: 100001, totalResources: {}}]}]".to_owned(),
                "clusters[0].nodeTemplates[0].number: there are more than 100000 nodes",
            ),
            (
                "clusters:\n- name: a\n  nodeTemplates:\n  - number: 1\n    totalResources: {resources: {cpu: -1}}".to_owned(),
                "line 5",
            ),
            (
                "clusters:\n- name: a\n  nodeTemplates:\n  - {number: 1, totalResources: {}, taints: [{key: a, effect: No}]}"
                    .to_owned(),
                "unknown variant `No`",
            ),
        ] {
            let error = Clusters::read(&text, "c").unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
        let long = " ".repeat(armada::SPEC_BYTES_MAX + 1);
        assert!(matches!(Clusters::read(&long, "c"), Err(SpecError::TooLong { .. })));
    }
}
