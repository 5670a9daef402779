//! PersistentVolumeClaims: what may stand in one. They are bound by `workers::volumes`.

use pumice_objects::field::FieldError;
use pumice_objects::meta;
use pumice_objects::status::Status;
use serde_json::{Map, Value, json};

use super::pod::spec::parse_quantity;
use super::storage_class::default_class;
use super::{Hook, Strategy};
use crate::problems::Problems;
use crate::strategies::storage_class::CLASSES;

/// Keeps a claim while pods use it.
pub(crate) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// The storage class, before there was a field for it.
pub(crate) const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(crate) struct Claim;

impl Strategy for Claim {
    fn defaults(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.entry("volumeMode").or_insert_with(|| json!("Filesystem"));
            same_sources(spec);
        }
    }

    fn prepare_create(&self, object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        protect(object, CLAIM_PROTECTION);
        let unnamed = object["spec"]["storageClassName"].is_null() && meta::annotation(object, OLD_CLASS).is_none();
        if unnamed && let Some(default) = default_class(&hook.reader.list(CLASSES, None)) {
            object["spec"]["storageClassName"] = json!(default);
        }
        object["status"] = json!({ "phase": "Pending" });
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        check_modes(spec, &mut problems);
        let storage = &spec["resources"]["requests"]["storage"];
        if storage.is_null() {
            problems.required("spec.resources[storage]", "");
        } else if parse_quantity(storage).is_none_or(|amount| amount.is_negative() || amount.is_zero()) {
            problems.invalid("spec.resources[storage]", storage, "must be a quantity greater than zero");
        }
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let still = |object: &Value| {
            let mut spec = object["spec"].clone();
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("resources");
                for field in ["storageClassName", "volumeName"] {
                    if old["spec"][field].is_null() {
                        spec.remove(field);
                    }
                }
            }
            spec
        };
        if still(new) != still(old) {
            problems.forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            );
        }
        problems.into_errors()
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// The older field of what a claim is filled from and the newer one say the same, unless the newer names another namespace.
fn same_sources(spec: &mut Map<String, Value>) {
    let given = |field: &str| spec.get(field).filter(|source| source.is_object()).cloned();
    match (given("dataSource"), given("dataSourceRef")) {
        (Some(source), None) => drop(spec.insert("dataSourceRef".to_owned(), source)),
        (None, Some(source)) if source["namespace"].is_null() => drop(spec.insert("dataSource".to_owned(), source)),
        _ => {}
    }
}

/// Access modes of a claim or a volume.
pub(crate) fn check_modes(spec: &Value, problems: &mut Problems) {
    let modes = spec["accessModes"].as_array().map_or(&[][..], Vec::as_slice);
    if modes.is_empty() {
        problems.required("spec.accessModes", "at least 1 access mode is required");
    }
    for (index, mode) in modes.iter().enumerate() {
        let mode = mode.as_str().unwrap_or_default();
        if !MODES.contains(&mode) {
            problems.not_supported(&format!("spec.accessModes[{index}]"), mode, &MODES);
        }
    }
}

/// Adds a finalizer that keeps an object in use.
pub(crate) fn protect(object: &mut Value, finalizer: &str) {
    let mut all: Vec<String> = meta::finalizers(object).map(str::to_owned).collect();
    if !all.iter().any(|one| one == finalizer) {
        all.push(finalizer.to_owned());
        meta::set_finalizers(object, all.iter().map(String::as_str));
    }
}

/// The class of a claim or volume; empty for none.
pub(crate) fn class_of(object: &Value) -> &str {
    meta::annotation(object, OLD_CLASS)
        .unwrap_or_else(|| object["spec"]["storageClassName"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_fields_of_a_source_say_the_same() {
        let source = json!({"kind": "VolumeSnapshot", "name": "s"});
        let elsewhere = json!({"kind": "VolumeSnapshot", "name": "s", "namespace": "n"});
        for (given, wanted) in [
            (json!({"dataSource": source}), json!([source, source])),
            (json!({"dataSourceRef": source}), json!([source, source])),
            (json!({"dataSourceRef": elsewhere}), json!([null, elsewhere])),
            (json!({}), json!([null, null])),
        ] {
            let mut claim = json!({ "spec": given });
            Claim.defaults(&mut claim);
            assert_eq!(json!([claim["spec"]["dataSource"], claim["spec"]["dataSourceRef"]]), wanted);
        }
    }

    #[test]
    fn claims_say_what_they_lack() {
        let good = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        assert!(Claim.validate(&good).is_empty());
        assert_eq!(Claim.validate(&json!({})).len(), 2);
        let mut bound = good.clone();
        bound["spec"]["volumeName"] = json!("v");
        assert!(Claim.validate_update(&bound, &good).is_empty());
        assert_eq!(Claim.validate_update(&good, &bound).len(), 1);
    }
}
