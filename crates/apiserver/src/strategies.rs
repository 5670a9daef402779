//! What is special about a kind: the hooks that the one pipeline calls.
//!
//! Invariant: hooks see and change one object; they never write to the store. A kind without its own rules uses
//! [`Plain`]. Called by the pipeline in `verbs`.

use jiff::Timestamp;
use pumice_auth::Identity;
use pumice_objects::field::FieldError;
use pumice_objects::names::NameRule;
use pumice_objects::status::Status;
use serde_json::Value;

use crate::authz::LazyRights;
use crate::problems::Problems;
use crate::stored::ObjectReader;

pub(crate) mod admission;
pub(crate) mod batch_cron_job;
pub(crate) mod batch_job;
pub(crate) mod claim;
pub(crate) mod config;
pub(crate) mod csi;
pub(crate) mod deployment;
pub(crate) mod devices;
pub(crate) mod disruption_budget;
pub(crate) mod endpoint_slice;
pub(crate) mod event;
pub(crate) mod lease;
pub(crate) mod limit_range;
pub(crate) mod namespace;
pub(crate) mod network_policy;
pub(crate) mod pod;
pub(crate) mod priority;
pub(crate) mod rbac;
pub(crate) mod replica_set;
pub(crate) mod replication_controller;
pub(crate) mod resource_quota;
pub(crate) mod service;
pub(crate) mod service_account;
pub(crate) mod stateful_set;
pub(crate) mod storage_class;
pub(crate) mod volume;
mod workload;

/// What a hook may look at beside its object.
pub(crate) struct Hook<'a> {
    /// Other objects, as they are now.
    pub(crate) reader: &'a dyn ObjectReader,
    pub(crate) identity: &'a Identity,
    /// What everybody may do now.
    pub(crate) rights: LazyRights<'a>,
    pub(crate) now: Timestamp,
    /// Goes to the client as `Warning` headers.
    pub(crate) warnings: &'a mut Vec<String>,
}

/// Hooks of a kind. Every method may be left out.
pub(crate) trait Strategy: Send + Sync {
    /// Defaults that the schema does not state. Idempotent.
    fn defaults(&self, _object: &mut Value) {}

    /// Sets what the server owns in a new object.
    fn prepare_create(&self, _object: &mut Value, _hook: &mut Hook<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// Sets what the server owns in a changed object.
    fn prepare_update(&self, _new: &mut Value, _old: &Value, _hook: &mut Hook<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// Rules for new and changed objects.
    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Rules that writes of the status alone must keep to as well.
    fn validate_status(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Rules for new objects alone.
    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Rules about what may change.
    fn validate_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// The same, where the change comes by the path of a subresource.
    fn validate_update_below(&self, _subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        self.validate_update(new, old)
    }

    /// Whether this object may be deleted at all.
    fn may_delete(&self, _object: &Value) -> Result<(), Status> {
        Ok(())
    }

    /// Seconds that the object stays after a delete; 0 removes it at once.
    fn grace_seconds(&self, _object: &Value, _asked: Option<i64>) -> i64 {
        0
    }

    /// Whether a delete answers with the object in place of a Status.
    fn returns_deleted(&self) -> bool {
        false
    }

    /// Whether a write of `/status` may change labels and annotations too.
    fn status_keeps_labels(&self) -> bool {
        false
    }

    /// Whether a new object keeps the status it comes with, though that has a path of its own.
    fn creates_with_status(&self) -> bool {
        false
    }

    /// How names are made.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }
}

/// No rules of its own.
pub(crate) struct Plain;

impl Strategy for Plain {}

/// As [`Plain`], but a node registers with its status, and a status write may carry labels.
pub(crate) struct Node;

impl Strategy for Node {
    fn creates_with_status(&self) -> bool {
        true
    }

    fn status_keeps_labels(&self) -> bool {
        true
    }
}

/// Rules about what may change in `metadata`, for every kind. What it may hold is checked by `pumice_objects::meta`.
pub(crate) fn validate_metadata_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let (new, old) = (&new["metadata"], &old["metadata"]);
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        problems.immutable(&format!("metadata.{field}"), &new[field], &old[field]);
    }
    if old["deletionTimestamp"].is_string() {
        let before = old["finalizers"].as_array().map_or(&[][..], Vec::as_slice);
        let added: Vec<String> = new["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|finalizer| !before.contains(finalizer))
            .map(ToString::to_string)
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            problems.forbidden("metadata.finalizers", &detail);
        }
    }
    problems.into_errors()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dying_object_takes_no_finalizer() {
        let old = json!({"metadata": {"name": "a", "deletionTimestamp": "x", "finalizers": ["a.b/c"]}});
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!([]);
        assert!(validate_metadata_update(&new, &old).is_empty());
        new["metadata"]["finalizers"] = json!(["a.b/d"]);
        assert_eq!(validate_metadata_update(&new, &old).len(), 1);
    }
}
