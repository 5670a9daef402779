//! Nodes: their rows, and letting them take pods or not.
//!
//! Pure but for what talks. Called by `jobctl node` and `top`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pumice_units::Quantity;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::Missing;
use crate::cluster::resource_usage::Amounts;
use crate::error::Error;
use crate::names;
use crate::output::age;
use crate::output::amounts::{bytes, cores};
use crate::output::table::{Table, Tint};
use crate::platform::call::{self, CallError, FailureClass, Pages};
use crate::platform::connection::Connection;

const NODES: &str = "/api/v1/nodes";

/// What a list needs of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSummary {
    metadata: Identity,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Identity {
    name: String,
    creation_timestamp: Option<Time>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Spec {
    unschedulable: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocatable: BTreeMap<String, Quantity>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

impl NodeSummary {
    /// The name that pods have in `spec.nodeName`.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// What pods can have of it.
    pub fn capacity(&self) -> Amounts {
        let amount = |name: &str| self.status.allocatable.get(name).copied().unwrap_or(Quantity::ZERO);
        Amounts { cpu_milli: amount("cpu").cpu_milli(), memory_bytes: amount("memory").value() }
    }

    fn state(&self) -> &'static str {
        let ready = self.status.conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True");
        match (ready, self.spec.unschedulable) {
            (true, false) => "Ready",
            (true, true) => "Ready,Cordoned",
            (false, false) => "NotReady",
            (false, true) => "NotReady,Cordoned",
        }
    }
}

/// All nodes by name.
pub async fn list(connection: &Connection) -> Result<Vec<NodeSummary>, CallError> {
    let mut pages = Pages::new(connection, NODES, "", "list nodes");
    let mut nodes: Vec<NodeSummary> = Vec::new();
    while let Some(page) = pages.next_items().await? {
        nodes.extend(page);
    }
    nodes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(nodes)
}

/// A node as the server has it.
pub async fn get(connection: &Connection, name: &str) -> Result<Value, Error> {
    call::get(connection, &path(name)?, &format!("get node {name}")).await.map_err(|error| missing(error, name))
}

/// Lets a node take pods, or no more of them; those that run on it stay.
pub async fn cordon(connection: &Connection, name: &str, cordoned: bool) -> Result<Value, Error> {
    let doing = format!("{} node {name}", if cordoned { "cordon" } else { "uncordon" });
    // `null` takes the field away, as kubectl leaves it.
    let wanted = if cordoned { Value::Bool(true) } else { Value::Null };
    let patch = json!({"spec": {"unschedulable": wanted}});
    call::merge(connection, &path(name)?, &patch, &doing).await.map_err(|error| missing(error, name))
}

fn path(name: &str) -> Result<String, Error> {
    names::check("node name", name, 253)?;
    Ok(format!("{NODES}/{name}"))
}

fn missing(error: CallError, name: &str) -> Error {
    match error.class() {
        FailureClass::NotFound => Missing { what: "node", name: name.to_owned() }.into(),
        _ => error.into(),
    }
}

/// The table of nodes.
pub fn table(nodes: &[NodeSummary], now: Timestamp) -> Table {
    let mut table = Table::new(["NAME", "STATE", "CPU", "MEMORY", "PODS", "AGE"]);
    table.tint(1, |state| if state == "Ready" { Tint::Good } else { Tint::Bad });
    for node in nodes {
        let Amounts { cpu_milli, memory_bytes } = node.capacity();
        let made = node.metadata.creation_timestamp.as_ref();
        table.push([
            node.metadata.name.clone(),
            node.state().to_owned(),
            cores(cpu_milli),
            bytes(memory_bytes),
            node.status.allocatable.get("pods").map_or_else(String::new, Quantity::to_string),
            made.map_or_else(|| "?".to_owned(), |at| age::short(now.as_second() - at.0.as_second())),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_nodes() {
        let node = |name: &str, cordoned: bool, ready: &str| {
            json!({"metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
                   "spec": {"unschedulable": cordoned},
                   "status": {"allocatable": {"cpu": "31500m", "memory": "256Gi", "pods": "110"},
                              "conditions": [{"type": "Ready", "status": ready}]}})
        };
        let nodes = json!([node("a", false, "True"), node("b", true, "True"), node("c", true, "Unknown"), {"metadata": {"name": "d"}}]);
        let nodes: Vec<NodeSummary> = serde_json::from_value(nodes).unwrap();
        insta::assert_snapshot!(table(&nodes, "2026-01-02T00:00:00Z".parse().unwrap()).render(false));
    }
}
