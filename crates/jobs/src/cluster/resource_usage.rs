//! What running pods ask for and what they use, summed up by pod, job, queue, namespace or node.
//!
//! Invariant: usage is what the cluster measures (`metrics.k8s.io`); where nothing is measured it is `None` and never a guess.
//! Sums are pure. Called by `jobctl top` and `usage`.

use std::collections::{BTreeMap, HashMap};

use pumice_api::names;
use pumice_units::Quantity;
use serde::{Deserialize, Serialize};

use crate::output::amounts::{bytes, cores};
use crate::output::table::Table;
use crate::platform::call::{self, CallError, FailureClass, Pages};
use crate::platform::connection::Connection;

/// CPU and memory that something asks for, uses or has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// Thousandths of a core.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory_bytes: i64,
}

impl Amounts {
    fn of(list: &BTreeMap<String, Quantity>) -> Self {
        let amount = |name: &str| list.get(name).copied().unwrap_or(Quantity::ZERO);
        Amounts { cpu_milli: amount("cpu").cpu_milli(), memory_bytes: amount("memory").value() }
    }

    fn add(&mut self, other: Amounts) {
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
    }
}

/// What of a pod says how much it asks for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodRequests {
    metadata: PodIdentity,
    spec: PodNeeds,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PodIdentity {
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodNeeds {
    node_name: String,
    containers: Vec<ContainerNeeds>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerNeeds {
    resources: Resources,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, Quantity>,
}

/// What loads are summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Pod,
    /// The job of a pod.
    Job,
    /// The queue of a pod's job.
    Queue,
    Namespace,
    Node,
}

impl By {
    fn key(self, pod: &PodRequests) -> String {
        let label = |key: &str| pod.metadata.labels.get(key).cloned().unwrap_or_else(|| "-".to_owned());
        match self {
            By::Pod => pod.metadata.name.clone(),
            By::Job => label(names::JOB_NAME),
            By::Queue => label(names::QUEUE_NAME),
            By::Namespace => pod.metadata.namespace.clone(),
            By::Node => pod.spec.node_name.clone(),
        }
    }

    fn head(self) -> &'static str {
        match self {
            By::Pod => "POD",
            By::Job => "JOB",
            By::Queue => "QUEUE",
            By::Namespace => "NAMESPACE",
            By::Node => "NODE",
        }
    }
}

/// Pods under one heading.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    pub name: String,
    pub pods: u64,
    /// What they ask for.
    pub requested: Amounts,
    /// What they use; `null` where that is not measured of all of them.
    pub used: Option<Amounts>,
    /// What there is, of a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amounts>,
}

/// What pods use, by namespace and name.
pub type MeasuredUsage = HashMap<(String, String), Amounts>;

/// Sums up pods that have a node, largest first.
pub fn usage_by(pods: &[PodRequests], measured: Option<&MeasuredUsage>, by: By) -> Vec<ResourceUsage> {
    let mut sums: BTreeMap<String, ResourceUsage> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.spec.node_name.is_empty()) {
        let name = by.key(pod);
        let fresh =
            || ResourceUsage { name: name.clone(), pods: 0, requested: Amounts::default(), used: None, capacity: None };
        let usage = sums.entry(name.clone()).or_insert_with(fresh);
        let before = if usage.pods == 0 { Some(Amounts::default()) } else { usage.used };
        usage.pods += 1;
        for container in &pod.spec.containers {
            usage.requested.add(Amounts::of(&container.resources.requests));
        }
        let identity = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        // One pod without a measurement makes the sum a guess.
        usage.used = before.zip(measured.and_then(|measured| measured.get(&identity))).map(|(mut sum, used)| {
            sum.add(*used);
            sum
        });
    }
    let mut sums: Vec<ResourceUsage> = sums.into_values().collect();
    sums.sort_by_key(|usage| std::cmp::Reverse((usage.requested.cpu_milli, usage.requested.memory_bytes)));
    sums
}

/// The table of usage; usage and waste only where something is measured.
pub fn table(rows: &[ResourceUsage], by: By) -> Table {
    let measured = rows.iter().any(|usage| usage.used.is_some());
    let capacity = rows.iter().any(|usage| usage.capacity.is_some());
    let mut head = vec![by.head(), "PODS", "CPU", "MEMORY"];
    if capacity {
        head.extend(["OF CPU", "OF MEMORY"]);
    }
    if measured {
        head.extend(["CPU USED", "MEMORY USED", "CPU WASTE", "MEMORY WASTE"]);
    }
    let mut table = Table::new(head);
    let either = |amount: Option<Amounts>| match amount {
        Some(amount) => [cores(amount.cpu_milli), bytes(amount.memory_bytes)],
        None => ["-".to_owned(), "-".to_owned()],
    };
    for usage in rows {
        let mut row = vec![usage.name.clone(), usage.pods.to_string()];
        row.extend(either(Some(usage.requested)));
        if capacity {
            row.extend(either(usage.capacity));
        }
        if measured {
            row.extend(either(usage.used));
            row.push(waste(usage.requested.cpu_milli, usage.used.map(|used| used.cpu_milli)));
            row.push(waste(usage.requested.memory_bytes, usage.used.map(|used| used.memory_bytes)));
        }
        table.push(row);
    }
    table
}

/// The part of what was asked for that is not used.
fn waste(requested: i64, used: Option<i64>) -> String {
    match used {
        Some(used) if requested > 0 => {
            let unused = i128::from(requested.saturating_sub(used).max(0));
            format!("{} %", unused * 100 / i128::from(requested))
        }
        _ => "-".to_owned(),
    }
}

/// Pods of a namespace, or of all, that have not ended. `labels` may be empty.
pub async fn pods(
    connection: &Connection,
    namespace: Option<&str>,
    labels: &str,
) -> Result<Vec<PodRequests>, CallError> {
    let path = collection("/api/v1", namespace, "pods");
    let labels =
        if labels.is_empty() { String::new() } else { format!("&labelSelector={}", call::query_value(labels)) };
    let query = format!("&fieldSelector=status.phase%3DRunning{labels}");
    let mut pages = Pages::new(connection, &path, &query, "list pods");
    let mut pods = Vec::new();
    while let Some(page) = pages.next_items().await? {
        pods.extend::<Vec<PodRequests>>(page);
    }
    Ok(pods)
}

/// What pods use; `None` where the cluster doesn't measure it.
pub async fn usage(connection: &Connection, namespace: Option<&str>) -> Result<Option<MeasuredUsage>, CallError> {
    #[derive(Deserialize)]
    struct Measured {
        metadata: PodIdentity,
        #[serde(default)]
        containers: Vec<MeasuredContainer>,
    }
    #[derive(Deserialize)]
    struct MeasuredContainer {
        #[serde(default)]
        usage: BTreeMap<String, Quantity>,
    }
    let path = collection("/apis/metrics.k8s.io/v1beta1", namespace, "pods");
    let mut pages = Pages::new(connection, &path, "", "ask what pods use");
    let mut usage = MeasuredUsage::new();
    loop {
        match pages.next_items::<Measured>().await {
            Ok(Some(page)) => {
                for pod in page {
                    let mut sum = Amounts::default();
                    pod.containers.iter().for_each(|container| sum.add(Amounts::of(&container.usage)));
                    usage.insert((pod.metadata.namespace, pod.metadata.name), sum);
                }
            }
            Ok(None) => return Ok(Some(usage)),
            Err(error) if error.class() == FailureClass::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

fn collection(root: &str, namespace: Option<&str>, plural: &str) -> String {
    namespace.map_or_else(|| format!("{root}/{plural}"), |namespace| format!("{root}/namespaces/{namespace}/{plural}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pods() -> Vec<PodRequests> {
        let pod = |name: &str, node: &str, queue: &str, cpu: &str, memory: &str| {
            json!({"metadata": {"name": name, "namespace": "n", "labels": {names::QUEUE_NAME: queue, names::JOB_NAME: "j"}},
                   "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}, {}]}})
        };
        let pods = json!([
            pod("a", "east", "q", "1500m", "1Gi"),
            pod("b", "east", "q", "1", "512Mi"),
            pod("c", "west", "r", "4", "100M"),
            pod("unplaced", "", "r", "4", "100M"),
        ]);
        serde_json::from_value(pods).unwrap()
    }

    #[test]
    fn loads_are_summed_and_waste_is_what_is_not_used() {
        let mut usage = MeasuredUsage::new();
        for (name, cpu_milli, memory_bytes) in [("a", 300, 1 << 29), ("b", 950, 1 << 30)] {
            usage.insert(("n".to_owned(), name.to_owned()), Amounts { cpu_milli, memory_bytes });
        }
        let mut text = String::new();
        for by in [By::Pod, By::Job, By::Queue, By::Namespace, By::Node] {
            text.push_str(&table(&usage_by(&pods(), Some(&usage), by), by).render(false));
        }
        let mut nodes = usage_by(&pods(), None, By::Node);
        nodes[0].capacity = Some(Amounts { cpu_milli: 8000, memory_bytes: 16 << 30 });
        text.push_str(&table(&nodes, By::Node).render(false));
        text.push_str(&serde_json::to_string(&nodes).unwrap());
        insta::assert_snapshot!(text);
    }
}
