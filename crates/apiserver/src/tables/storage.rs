//! Rows of volumes, claims and storage classes.

use pumice_objects::meta;
use pumice_objects::table::{Column, ColumnType, Table};
use serde_json::{Value, json};

use super::{or_empty, or_none, text};
use crate::strategy::storage_class::DEFAULT;
use crate::volumes::binding::class_of;

/// Columns of volumes.
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

/// Columns of claims.
pub(crate) fn claim() -> Table {
    Table::new(vec![
        Column::name(),
        text("Status", |object, _| json!(phase_shown(object))),
        text("Volume", |object, _| or_empty(&object["spec"]["volumeName"])),
        text("Capacity", |object, _| or_empty(&object["status"]["capacity"]["storage"])),
        text("Access Modes", |object, _| json!(access_modes(&object["status"]))),
        text("StorageClass", |object, _| json!(class_of(object))),
        text("VolumeAttributesClass", |object, _| attributes(object)),
        Column::age(),
        text("VolumeMode", |object, _| or_none(&object["spec"]["volumeMode"])).wide(),
    ])
}

/// Columns of storage classes.
pub(crate) fn class() -> Table {
    Table::new(vec![
        text("Name", |object, _| {
            let mark = if meta::annotation(object, DEFAULT) == Some("true") { " (default)" } else { "" };
            json!(format!("{}{mark}", meta::name(object)))
        }),
        text("Provisioner", |object, _| or_empty(&object["provisioner"])),
        text("ReclaimPolicy", |object, _| or_empty(&object["reclaimPolicy"])),
        text("VolumeBindingMode", |object, _| or_empty(&object["volumeBindingMode"])),
        Column::builtin("AllowVolumeExpansion", ColumnType::Boolean, |object, _| {
            json!(object["allowVolumeExpansion"] == true)
        }),
        Column::age(),
    ])
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
