//! PersistentVolumes: what may stand in one. They are bound by `workers::volumes`.

use pumice_clock::wire_time;
use pumice_objects::field::FieldError;
use pumice_objects::status::Status;
use serde_json::{Value, json};

use super::claim::{check_modes, protect};
use super::pod::source_defaults;
use super::pod::spec::parse_quantity;
use super::{Hook, Strategy};
use crate::problems::Problems;
use crate::strategies::storage_class::PROVISIONER;

/// Keeps a volume while a claim has it.
pub(crate) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

const POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
/// Fields of a specification that are no source.
const OTHERS: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

pub(crate) struct Volume;

impl Strategy for Volume {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
        spec.entry("persistentVolumeReclaimPolicy").or_insert_with(|| json!("Retain"));
        spec.entry("volumeMode").or_insert_with(|| json!("Filesystem"));
        source_defaults(spec);
    }

    fn prepare_create(&self, object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        protect(object, VOLUME_PROTECTION);
        object["status"] = json!({ "phase": "Pending", "lastPhaseTransitionTime": wire_time(hook.now) });
        let spec = &object["spec"];
        let known = spec["hostPath"].is_object() || spec["local"].is_object() || spec["csi"]["driver"] == PROVISIONER;
        if !known || spec["volumeMode"] == "Block" {
            hook.warnings.push(
                "the volume is stored and bound, but no node here can mount it: only hostPath and local volumes with a file \
                 system are mounted"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        check_modes(spec, &mut problems);
        let capacity = spec["capacity"].as_object();
        match capacity.map(|capacity| (capacity.len(), capacity.get("storage"))) {
            None | Some((0, _)) => problems.required("spec.capacity", ""),
            Some((1, Some(storage))) => {
                if parse_quantity(storage).is_none_or(|amount| amount.is_negative() || amount.is_zero()) {
                    problems.invalid("spec.capacity[storage]", storage, "must be greater than zero");
                }
            }
            Some(_) => problems.not_supported("spec.capacity", &spec["capacity"].to_string(), &["storage"]),
        }
        for (field, allowed) in [("persistentVolumeReclaimPolicy", &POLICIES[..]), ("volumeMode", &VOLUME_MODES[..])] {
            let given = spec[field].as_str().unwrap_or_default();
            if !allowed.contains(&given) {
                problems.not_supported(&format!("spec.{field}"), given, allowed);
            }
        }
        check_source(spec, &mut problems);
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let source = |object: &Value| -> Vec<(String, Value)> {
            let fields = object["spec"].as_object().into_iter().flatten();
            let source = fields.filter(|(field, _)| !OTHERS.contains(&field.as_str()));
            source.map(|(field, value)| (field.clone(), value.clone())).collect()
        };
        if source(new) != source(old) {
            let detail = "spec.persistentvolumesource is immutable after creation";
            problems.forbidden("spec.persistentvolumesource", detail);
        }
        problems.immutable("spec.volumeMode", &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
        if !old["spec"]["nodeAffinity"].is_null() {
            problems.immutable("spec.nodeAffinity", &new["spec"]["nodeAffinity"], &old["spec"]["nodeAffinity"]);
        }
        problems.into_errors()
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

fn check_source(spec: &Value, problems: &mut Problems) {
    let sources = spec.as_object().into_iter().flatten().filter(|(field, _)| !OTHERS.contains(&field.as_str()));
    match sources.count() {
        0 => problems.required("spec", "must specify a volume type"),
        1 => {}
        _ => problems.forbidden("spec", "may not specify more than 1 volume type"),
    }
    for field in ["hostPath", "local"].into_iter().filter(|field| spec[*field].is_object()) {
        let at = format!("spec.{field}.path");
        let path = spec[field]["path"].as_str().unwrap_or_default();
        if path.is_empty() {
            problems.required(&at, "");
        } else if path.split('/').any(|part| part == "..") {
            problems.invalid(&at, &spec[field]["path"], "must not contain '..'");
        } else if !path.starts_with('/') {
            problems.invalid(&at, &spec[field]["path"], "must be an absolute path");
        }
    }
    if spec["local"].is_object() && spec["nodeAffinity"]["required"].is_null() {
        problems.required("spec.nodeAffinity", "Local volume requires node affinity");
    }
    let name = |field: &str| spec["csi"][field].as_str().is_none_or(str::is_empty);
    if spec["csi"].is_object() && (name("driver") || name("volumeHandle")) {
        problems.required("spec.csi", "a driver and a volumeHandle are required");
    }
    let handle = spec["csi"]["volumeHandle"].as_str().unwrap_or_default();
    if spec["csi"]["driver"] == PROVISIONER && !is_folder(handle) {
        problems.invalid("spec.csi.volumeHandle", &spec["csi"]["volumeHandle"], "must be NAMESPACE/FOLDER");
    }
}

/// Whether a handle names a folder below that of its namespace.
fn is_folder(handle: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    handle.split_once('/').is_some_and(|(namespace, name)| plain(namespace) && plain(name) && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(spec: Value) -> Value {
        let mut whole = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"},
            "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem",
        });
        for (field, value) in spec.as_object().expect("fields") {
            whole[field] = value.clone();
        }
        if whole["hostPath"].is_null() {
            whole.as_object_mut().expect("fields").remove("hostPath");
        }
        json!({ "spec": whole })
    }

    #[test]
    fn volumes_are_checked() {
        let affinity = json!({"required": {"nodeSelectorTerms": []}});
        for (spec, path) in [
            (json!({}), None),
            (json!({"hostPath": null, "local": {"path": "/x"}, "nodeAffinity": affinity}), None),
            (json!({"hostPath": null, "csi": {"driver": PROVISIONER, "volumeHandle": "ns/c"}}), None),
            (json!({"hostPath": null, "local": {"path": "/x"}}), Some("spec.nodeAffinity")),
            (json!({"hostPath": null}), Some("spec")),
            (json!({"nfs": {"server": "a", "path": "/"}}), Some("spec")),
            (json!({"hostPath": {"path": "/x/../y"}}), Some("spec.hostPath.path")),
            (json!({"hostPath": {"path": "x"}}), Some("spec.hostPath.path")),
            (json!({"accessModes": []}), Some("spec.accessModes")),
            (json!({"capacity": {}}), Some("spec.capacity")),
            (json!({"capacity": {"storage": "0"}}), Some("spec.capacity[storage]")),
            (json!({"persistentVolumeReclaimPolicy": "Odd"}), Some("spec.persistentVolumeReclaimPolicy")),
            (
                json!({"hostPath": null, "csi": {"driver": PROVISIONER, "volumeHandle": "ns/../c"}}),
                Some("spec.csi.volumeHandle"),
            ),
            (
                json!({"hostPath": null, "csi": {"driver": PROVISIONER, "volumeHandle": "../c"}}),
                Some("spec.csi.volumeHandle"),
            ),
        ] {
            let found = Volume.validate(&volume(spec.clone()));
            assert_eq!(found.first().map(|error| error.path.as_str()), path, "{spec}");
        }
        let moved = volume(json!({"hostPath": {"path": "/y"}}));
        assert_eq!(Volume.validate_update(&moved, &volume(json!({}))).len(), 1);
    }
}
