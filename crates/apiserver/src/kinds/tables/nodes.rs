//! The row of a node.

use pumice_objects::table::{Column, Table};
use serde_json::{Value, json};

use super::{or_empty, or_none, text};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

pub(crate) fn table() -> Table {
    Table::new(vec![
        Column::name(),
        text("Status", |node, _| json!(status(node))),
        text("Roles", |node, _| json!(roles(node))),
        Column::age(),
        text("Version", |node, _| or_empty(&node["status"]["nodeInfo"]["kubeletVersion"])),
        text("Internal-IP", |node, _| address(node, "InternalIP")).wide(),
        text("External-IP", |node, _| address(node, "ExternalIP")).wide(),
        text("OS-Image", |node, _| json!(or_unknown(node, "osImage"))).wide(),
        text("Kernel-Version", |node, _| json!(kernel(node))).wide(),
        text("Container-Runtime", |node, _| json!(or_unknown(node, "containerRuntimeVersion"))).wide(),
    ])
}

/// What a node says of itself; it may have said nothing yet.
fn or_unknown<'n>(node: &'n Value, field: &str) -> &'n str {
    node["status"]["nodeInfo"][field].as_str().filter(|text| !text.is_empty()).unwrap_or("<unknown>")
}

fn kernel(node: &Value) -> String {
    let version = or_unknown(node, "kernelVersion");
    match node["status"]["nodeInfo"]["architecture"].as_str() {
        Some(architecture) if !architecture.is_empty() => format!("{version} ({architecture})"),
        _ => version.to_owned(),
    }
}

fn status(node: &Value) -> String {
    let ready = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready")
        .map(|condition| condition["status"] == "True");
    let mut text = match ready {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        text.push_str(",SchedulingDisabled");
    }
    text
}

fn roles(node: &Value) -> String {
    let roles: Vec<&str> = node["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix(ROLE_PREFIX))
        .collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

fn address(node: &Value, kind: &str) -> Value {
    let found = node["status"]["addresses"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|address| address["type"] == kind)
        .map_or(&Value::Null, |address| &address["address"]);
    or_none(found)
}
