//! Namespaces: phase, the finalizer that empties them, those that stay.

use pumice_objects::names::NameRule;
use pumice_objects::status::{GroupResource, Status};
use serde_json::{Value, json};

use super::{Hook, Strategy};

/// Namespaces that can't be deleted.
pub(crate) const PERMANENT: [&str; 4] = ["default", "kube-node-lease", "kube-system", "pumice-system"];
/// The entry of `spec.finalizers` that the collector removes once the namespace is empty.
pub(crate) const FINALIZER: &str = "kubernetes";
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(crate) struct Namespace;

impl Strategy for Namespace {
    fn prepare_create(&self, object: &mut Value, _hook: &mut Hook<'_>) -> Result<(), Status> {
        object["spec"] = json!({ "finalizers": [FINALIZER] });
        object["status"] = json!({ "phase": "Active" });
        label(object);
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _hook: &mut Hook<'_>) -> Result<(), Status> {
        new["spec"] = old["spec"].clone();
        label(new);
        Ok(())
    }

    fn may_delete(&self, object: &Value) -> Result<(), Status> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if PERMANENT.contains(&name) {
            return Err(Status::forbidden(
                GroupResource { group: "", resource: "namespaces" },
                name,
                "this namespace may not be deleted",
            ));
        }
        Ok(())
    }

    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }
}

fn label(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if !object["metadata"]["labels"].is_object() {
        object["metadata"]["labels"] = json!({});
    }
    object["metadata"]["labels"][NAME_LABEL] = name;
}
