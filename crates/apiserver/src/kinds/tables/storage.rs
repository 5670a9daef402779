//! Rows of volumes, claims, storage classes, and of what drivers of storage write.

use pumice_objects::meta;
use pumice_objects::table::{Column, ColumnType, Table};
use serde_json::{Value, json};

use super::{created_at, flag, or_empty, or_none, text};
use crate::strategies::claim::class_of;
use crate::strategies::storage_class::DEFAULT;

pub(crate) fn volume() -> Table {
    Table::new(vec![
        Column::name(),
        text("Capacity", |object, _| or_empty(&object["spec"]["capacity"]["storage"])),
        text("Access Modes", |object, _| json!(access_modes(&object["spec"]))),
        text("Reclaim Policy", |object, _| or_empty(&object["spec"]["persistentVolumeReclaimPolicy"])),
        text("Status", |object, _| json!(phase_shown(object))),
        text("Claim", |object, _| json!(claim_shown(object))),
        text("StorageClass", |object, _| json!(class_of(object))),
        text("VolumeAttributesClass", |object, _| attributes(object)),
        text("Reason", |object, _| or_empty(&object["status"]["reason"])),
        Column::age(),
        text("VolumeMode", |object, _| or_none(&object["spec"]["volumeMode"])).wide(),
    ])
}

pub(crate) fn claim() -> Table {
    Table::new(vec![
        Column::name(),
        text("Status", |object, _| json!(phase_shown(object))),
        text("Volume", |object, _| or_empty(&object["spec"]["volumeName"])),
        text("Capacity", |object, _| capacity(object)),
        text("Access Modes", |object, _| json!(access_modes(&object["status"]))),
        text("StorageClass", |object, _| json!(class_of(object))),
        text("VolumeAttributesClass", |object, _| attributes(object)),
        Column::age(),
        text("VolumeMode", |object, _| or_none(&object["spec"]["volumeMode"])).wide(),
    ])
}

/// What a claim got; a claim that names a volume and has none yet has nothing.
fn capacity(claim: &Value) -> Value {
    match &claim["status"]["capacity"]["storage"] {
        Value::Null if !claim["spec"]["volumeName"].as_str().unwrap_or_default().is_empty() => json!("0"),
        storage => or_empty(storage),
    }
}

/// Columns of storage classes.
pub(crate) fn class() -> Table {
    let mut name = text("Name", |object, _| {
        let mark = if meta::annotation(object, DEFAULT) == Some("true") { " (default)" } else { "" };
        json!(format!("{}{mark}", meta::name(object)))
    });
    name.format = "name".to_owned();
    Table::new(vec![
        name,
        text("Provisioner", |object, _| or_empty(&object["provisioner"])),
        text("ReclaimPolicy", |object, _| or_empty(&object["reclaimPolicy"])),
        text("VolumeBindingMode", |object, _| or_empty(&object["volumeBindingMode"])),
        text("AllowVolumeExpansion", |object, _| json!(object["allowVolumeExpansion"] == true)),
        Column::age(),
    ])
}

pub(crate) fn csi_driver() -> Table {
    Table::new(vec![
        Column::name(),
        flag("AttachRequired", |object, _| json!(object["spec"]["attachRequired"] != false)),
        flag("PodInfoOnMount", |object, _| json!(object["spec"]["podInfoOnMount"] == true)),
        flag("StorageCapacity", |object, _| json!(object["spec"]["storageCapacity"] == true)),
        text("TokenRequests", |object, _| json!(audiences(&object["spec"]["tokenRequests"]))),
        flag("RequiresRepublish", |object, _| json!(object["spec"]["requiresRepublish"] == true)),
        text("Modes", |object, _| json!(modes(&object["spec"]["volumeLifecycleModes"]))),
        Column::age(),
    ])
}

/// Columns of the drivers of nodes.
pub(crate) fn csi_node() -> Table {
    Table::new(vec![
        Column::name(),
        Column::builtin("Drivers", ColumnType::Integer, |object, _| {
            json!(object["spec"]["drivers"].as_array().map_or(0, Vec::len))
        }),
        Column::age(),
    ])
}

pub(crate) fn csi_storage_capacity() -> Table {
    Table::new(vec![Column::name(), created_at()])
}

pub(crate) fn volume_attachment() -> Table {
    let mut attacher = text("Attacher", |object, _| or_empty(&object["spec"]["attacher"]));
    attacher.format = "name".to_owned();
    Table::new(vec![
        Column::name(),
        attacher,
        text("PV", |object, _| or_empty(&object["spec"]["source"]["persistentVolumeName"])),
        text("Node", |object, _| or_empty(&object["spec"]["nodeName"])),
        flag("Attached", |object, _| json!(object["status"]["attached"] == true)),
        Column::age(),
    ])
}

fn audiences(requests: &Value) -> String {
    let Some(requests) = requests.as_array() else { return "<unset>".to_owned() };
    let audiences = requests.iter().map(|request| request["audience"].as_str().unwrap_or_default());
    audiences.collect::<Vec<&str>>().join(",")
}

fn modes(modes: &Value) -> String {
    let modes: Vec<&str> = modes.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if modes.is_empty() { "<none>".to_owned() } else { modes.join(",") }
}

/// The claim that a volume is for.
fn claim_shown(volume: &Value) -> String {
    let reference = &volume["spec"]["claimRef"];
    match (reference["namespace"].as_str(), reference["name"].as_str()) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        _ => String::new(),
    }
}

fn phase_shown(object: &Value) -> &str {
    if meta::deletion_timestamp(object).is_some() {
        return "Terminating";
    }
    object["status"]["phase"].as_str().unwrap_or_default()
}

fn attributes(object: &Value) -> Value {
    match object["spec"]["volumeAttributesClassName"].as_str() {
        Some(name) if !name.is_empty() => json!(name),
        _ => json!("<unset>"),
    }
}

fn access_modes(part: &Value) -> String {
    let modes = part["accessModes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let short = modes.map(|mode| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    });
    short.collect::<Vec<&str>>().join(",")
}
