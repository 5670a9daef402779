//! PriorityClasses.

use pumice_objects::field::FieldError;
use pumice_objects::meta;
use pumice_objects::status::Status;
use serde_json::{Value, json};

use super::{Hook, Strategy};
use crate::problems::Problems;

/// Largest value of a class that is not the system's.
const USER_VALUE_MAX: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";
const SYSTEM_NAMES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
const POLICIES: [&str; 2] = ["Never", "PreemptLowerPriority"];

pub(crate) struct PriorityClass;

impl Strategy for PriorityClass {
    fn defaults(&self, object: &mut Value) {
        if object.is_object() && object["preemptionPolicy"].is_null() {
            object["preemptionPolicy"] = json!("PreemptLowerPriority");
        }
        if object.is_object() && object["value"].is_null() {
            object["value"] = json!(0);
        }
        // Upstream does not write it.
        if object.get("globalDefault").is_some_and(|default| *default == false)
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("globalDefault");
        }
    }

    /// One, and no change counts, as upstream.
    fn prepare_create(&self, object: &mut Value, _hook: &mut Hook<'_>) -> Result<(), Status> {
        meta::set_generation(object, 1);
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let system = SYSTEM_NAMES.contains(&name);
        if name.starts_with(SYSTEM_PREFIX) && !system {
            let detail = "priority class names with 'system-' prefix are reserved for system use only";
            problems.forbidden("metadata.name", detail);
        }
        let value = object["value"].as_i64().unwrap_or_default();
        if !system && value > USER_VALUE_MAX {
            let detail = format!("maximum allowed value of a user defined priority is {USER_VALUE_MAX}");
            problems.forbidden("value", &detail);
        }
        let policy = object["preemptionPolicy"].as_str().unwrap_or_default();
        if !POLICIES.contains(&policy) {
            problems.not_supported("preemptionPolicy", policy, &POLICIES);
        }
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if new["value"] != old["value"] {
            problems.forbidden("value", "may not be changed in an update.");
        }
        problems.immutable("preemptionPolicy", &new["preemptionPolicy"], &old["preemptionPolicy"]);
        problems.into_errors()
    }
}

/// A class that every cluster has.
pub(crate) struct BuiltInClass {
    pub(crate) name: &'static str,
    pub(crate) value: i64,
    pub(crate) about: &'static str,
}

/// The classes made at start.
pub(crate) const BUILT_IN: [BuiltInClass; 2] = [
    BuiltInClass {
        name: "system-cluster-critical",
        value: 2_000_000_000,
        about: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    },
    BuiltInClass {
        name: "system-node-critical",
        value: 2_000_001_000,
        about: "Used for system critical pods that must not be moved from their current node.",
    },
];
