//! StorageClasses: what may stand in one, and which is the default.

use std::cmp::Reverse;

use pumice_objects::field::FieldError;
use pumice_objects::meta;
use pumice_objects::names;
use pumice_objects::status::Status;
use serde_json::{Value, json};

use super::{Hook, Strategy};
use crate::problems::Problems;

/// The store's name of classes.
pub(crate) const CLASSES: &str = "storage.k8s.io/storageclasses";
/// Makes a folder of the node for each claim.
pub(crate) const PROVISIONER: &str = "pumice.sh/folder";

/// Marks the class of claims that name none.
pub(crate) const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
/// Volumes of such a class are made by hand.
const NOBODY: &str = "kubernetes.io/no-provisioner";
const POLICIES: [&str; 2] = ["Delete", "Retain"];
const MODES: [&str; 2] = ["Immediate", "WaitForFirstConsumer"];

pub(crate) struct StorageClass;

impl Strategy for StorageClass {
    fn defaults(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else { return };
        fields.entry("reclaimPolicy").or_insert_with(|| json!("Delete"));
        fields.entry("volumeBindingMode").or_insert_with(|| json!("Immediate"));
    }

    fn prepare_create(&self, object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        let provisioner = object["provisioner"].as_str().unwrap_or_default();
        if ![PROVISIONER, NOBODY].contains(&provisioner) {
            hook.warnings.push(format!(
                "nobody here makes volumes of provisioner {provisioner:?}: {PROVISIONER} does, and {NOBODY} takes volumes \
                 that exist"
            ));
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let provisioner = object["provisioner"].as_str().unwrap_or_default();
        if provisioner.is_empty() {
            problems.required("provisioner", "");
        } else if let Err(error) = names::check_qualified_name(&provisioner.to_lowercase()) {
            problems.invalid("provisioner", &object["provisioner"], &error.to_string());
        }
        for (field, allowed) in [("reclaimPolicy", &POLICIES), ("volumeBindingMode", &MODES)] {
            let given = object[field].as_str().unwrap_or_default();
            if !allowed.contains(&given) {
                problems.not_supported(field, given, allowed);
            }
        }
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for field in ["parameters", "provisioner", "reclaimPolicy"] {
            if new[field] != old[field] {
                problems.forbidden(field, &format!("updates to {field} are forbidden."));
            }
        }
        problems.immutable("volumeBindingMode", &new["volumeBindingMode"], &old["volumeBindingMode"]);
        problems.into_errors()
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// The class of claims that name none: the youngest that is marked so.
pub(crate) fn default_class(classes: &[Value]) -> Option<String> {
    let marked = classes.iter().filter(|class| meta::annotation(class, DEFAULT) == Some("true"));
    let youngest = marked.map(|class| (meta::creation_timestamp(class), Reverse(meta::name(class)))).max();
    youngest.map(|(_, Reverse(name))| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_filled_and_checked() {
        let mut class = json!({"provisioner": PROVISIONER});
        StorageClass.defaults(&mut class);
        assert_eq!((&class["reclaimPolicy"], &class["volumeBindingMode"]), (&json!("Delete"), &json!("Immediate")));
        assert!(StorageClass.validate(&class).is_empty());
        let mut odd = class.clone();
        odd["reclaimPolicy"] = json!("Recycle");
        assert_eq!(StorageClass.validate(&odd).len(), 1);
        let changed = StorageClass.validate_update(&odd, &class);
        assert_eq!(changed[0].to_string(), "reclaimPolicy: Forbidden: updates to reclaimPolicy are forbidden.");
    }

    #[test]
    fn the_youngest_default_is_the_default() {
        let class = |name: &str, made: &str, marked: &str| json!({"metadata": {"name": name, "creationTimestamp": made, "annotations": {DEFAULT: marked}}});
        let old = class("old", "2026-01-01T00:00:00Z", "true");
        let young = class("young", "2026-02-01T00:00:00Z", "true");
        let none = class("none", "2026-03-01T00:00:00Z", "false");
        assert_eq!(default_class(&[old, young, none.clone()]).as_deref(), Some("young"));
        assert_eq!(default_class(&[none]), None);
    }
}
