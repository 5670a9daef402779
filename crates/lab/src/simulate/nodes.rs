//! The nodes of a virtual cluster: `100x16cpu,64Gi` as a person writes it, or Node objects in YAML.
//!
//! Invariant: names are unique and sort in the order in which the nodes were given. Called by the edge that reads
//! requests, and by the readers of traces that describe their cluster.

use k8s_openapi::api::core::v1::Node;
use pumice_engine::{NodeFacts, Resources};
use pumice_units::Quantity;

use pumice_translate as translate;

/// Nodes of one cluster; more are refused.
pub const NODES_MAX: usize = 100_000;
/// Room for pods of a node that does not say, where it has no more cores than that; Kubernetes' own.
const PODS: i64 = 110;
/// Bytes of a file of nodes.
const FILE_BYTES_MAX: usize = 64 << 20;

/// Why nodes can't be had from a text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NodesError {
    /// It is not of the form.
    #[error(
        "{part:?} is no group of nodes; write one such as 100x16cpu,64Gi or 4x64cpu,512Gi,8gpu, several joined by +"
    )]
    Form { part: String },
    /// There are none, or too many.
    #[error("{nodes} nodes; between 1 and {NODES_MAX} can be simulated")]
    Count { nodes: u64 },
    /// A file of nodes is too long.
    #[error("the file of nodes has {bytes} bytes, more than {FILE_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A file of nodes can't be read.
    #[error("the file of nodes can't be read: {0}")]
    Yaml(String),
}

/// `NxWcpu,64Gi,8gpu,name=amount`, several joined by `+`.
///
/// # Errors
/// When it is not of that form, or names no nodes or too many.
pub fn parse(text: &str) -> Result<Vec<NodeFacts>, NodesError> {
    let mut nodes = Vec::new();
    for part in text.split('+') {
        let form = || NodesError::Form { part: part.trim().to_owned() };
        let (count, shape) = part.trim().split_once('x').ok_or_else(form)?;
        let count: u64 = count.trim().parse().map_err(|_| form())?;
        let total = count.saturating_add(nodes.len() as u64);
        if count == 0 || total > NODES_MAX as u64 {
            return Err(NodesError::Count { nodes: total });
        }
        let offered = shape_of(shape).ok_or_else(form)?;
        for _ in 0..count {
            nodes.push(node(nodes.len(), offered.clone()));
        }
    }
    Ok(nodes)
}

/// So many nodes of so many cores, as logs describe their machines.
///
/// # Errors
/// When there are none, or too many.
pub(crate) fn alike(count: u64, cores: i64, memory_bytes: Option<i64>) -> Result<Vec<NodeFacts>, NodesError> {
    if count == 0 || count > NODES_MAX as u64 {
        return Err(NodesError::Count { nodes: count });
    }
    let mut offered = Resources::from([("cpu".to_owned(), cores.saturating_mul(1_000))]);
    offered.extend(memory_bytes.map(|bytes| ("memory".to_owned(), bytes)));
    let offered = with_pods(offered);
    Ok((0..count as usize).map(|index| node(index, offered.clone())).collect())
}

/// Node objects: documents of YAML, or a list.
///
/// # Errors
/// When they can't be read, or are none or too many.
pub fn read(text: &str) -> Result<Vec<NodeFacts>, NodesError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(NodesError::TooLong { bytes: text.len() });
    }
    let wrong = |error: String| NodesError::Yaml(error.lines().next().unwrap_or_default().to_owned());
    let documents: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(text).map_err(|error| wrong(error.to_string()))?;
    let mut nodes = Vec::new();
    for document in documents {
        let items = match document.get("items").and_then(serde_json::Value::as_array) {
            Some(items) => items.clone(),
            None => vec![document],
        };
        for item in items.into_iter().filter(|item| item.get("kind").is_none_or(|kind| kind == "Node")) {
            let object: Node = serde_json::from_value(item).map_err(|error| wrong(error.to_string()))?;
            let mut facts = translate::node_facts(&object);
            if facts.name.is_empty() {
                return Err(NodesError::Yaml(format!("Node {} has no metadata.name", nodes.len() + 1)));
            }
            facts.allocatable = with_pods(facts.allocatable);
            nodes.push(facts);
        }
    }
    nodes.sort_by(|left, right| left.name.cmp(&right.name));
    nodes.dedup_by(|left, right| left.name == right.name);
    if nodes.is_empty() || nodes.len() > NODES_MAX {
        return Err(NodesError::Count { nodes: nodes.len() as u64 });
    }
    Ok(nodes)
}

/// The most cores that one of the nodes has, at least 1.
pub(crate) fn cores_max(nodes: &[NodeFacts]) -> i64 {
    let cores = nodes.iter().filter_map(|node| node.allocatable.get("cpu")).map(|milli| milli / 1_000);
    cores.max().unwrap_or(1).max(1)
}

/// What a pod may ask for of all nodes together.
pub(crate) fn total(nodes: &[NodeFacts]) -> Resources {
    let mut total = Resources::new();
    for (name, amount) in nodes.iter().filter(|node| !node.unschedulable).flat_map(|node| &node.allocatable) {
        let sum = total.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
    total
}

/// A node that offers that, and room for pods.
pub(crate) fn node_of(index: usize, offered: Resources) -> NodeFacts {
    node(index, with_pods(offered))
}

fn node(index: usize, allocatable: Resources) -> NodeFacts {
    let name = format!("n{index:05}");
    let labels = [("kubernetes.io/hostname".to_owned(), name.clone())].into();
    NodeFacts { name: name.into(), allocatable, labels, ..NodeFacts::default() }
}

fn with_pods(mut offered: Resources) -> Resources {
    let cores = offered.get("cpu").copied().unwrap_or(0) / 1_000;
    offered.entry("pods".to_owned()).or_insert(PODS.max(cores));
    offered
}

fn shape_of(text: &str) -> Option<Resources> {
    let mut offered = Resources::new();
    for word in text.split(',').map(str::trim) {
        let (name, amount) = if let Some((name, amount)) = word.split_once('=') {
            (name, amount)
        } else if let Some(cores) = word.strip_suffix("cpu") {
            ("cpu", cores)
        } else if let Some(devices) = word.strip_suffix("gpu") {
            ("nvidia.com/gpu", devices)
        } else {
            ("memory", word)
        };
        let amount: Quantity = amount.parse().ok()?;
        let amount = if name == "cpu" { amount.cpu_milli() } else { amount.value() };
        if name.is_empty() || amount <= 0 || offered.insert(name.to_owned(), amount).is_some() {
            return None;
        }
    }
    offered.contains_key("cpu").then(|| with_pods(offered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_nodes_are_read_as_people_write_them() {
        let nodes = parse("2x16cpu,64Gi + 1x128cpu,1Ti,8gpu,pods=300").unwrap();
        let offered = |index: usize, name: &str| nodes[index].allocatable.get(name).copied();
        assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n00000", "n00001", "n00002"]);
        assert_eq!(
            (offered(1, "cpu"), offered(1, "memory"), offered(1, "pods")),
            (Some(16_000), Some(64 << 30), Some(110))
        );
        assert_eq!((offered(2, "nvidia.com/gpu"), offered(2, "pods")), (Some(8), Some(300)));
        assert_eq!(parse("1x128cpu").unwrap()[0].allocatable["pods"], 128);
        assert_eq!((cores_max(&nodes), total(&nodes)["cpu"]), (128, 160_000));
    }

    #[test]
    fn what_is_no_group_of_nodes_is_refused() {
        for text in
            ["", "16cpu", "ax16cpu", "2x", "2xcpu", "2x64Gi", "2x16cpu,16cpu", "2x-1cpu", "2x16cpu,64Gy", "2x16cpu,=3"]
        {
            assert!(matches!(parse(text), Err(NodesError::Form { .. })), "{text}");
        }
        for text in ["0x16cpu", "99999999x1cpu", "18446744073709551615x1cpu", "90000x1cpu+90000x1cpu"] {
            assert!(matches!(parse(text), Err(NodesError::Count { .. })), "{text}");
        }
        assert!(parse("99999999999999999999999x1cpu").is_err());
    }

    #[test]
    fn nodes_come_from_objects() {
        let text = "kind: Node\nmetadata: {name: b}\nstatus: {allocatable: {cpu: 2, memory: 4Gi}}\n---\n\
                    kind: List\nitems:\n- kind: Node\n  metadata: {name: a}\n  spec: {unschedulable: true}\n\
                    \x20 status: {allocatable: {cpu: 1500m}}\n- kind: Pod\n";
        let nodes = read(text).unwrap();
        assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((nodes[0].allocatable["cpu"], total(&nodes)["cpu"]), (1_500, 2_000));
        assert!(matches!(read("kind: Pod"), Err(NodesError::Count { .. })));
        assert!(matches!(read("a: [b"), Err(NodesError::Yaml(_))));
    }
}
