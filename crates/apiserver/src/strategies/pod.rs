//! Pods: defaults, priority, spec rules, immutability, grace.
//!
//! Invariant: what this file lets through, the scheduler and the node can read without further checks.
//! Called by the pipeline through [`Strategy`].

use pumice_clock::wire_time;
use pumice_objects::field::FieldError;
use pumice_objects::status::Status;
use serde_json::{Map, Value, json};

use super::{Hook, Strategy};
use crate::ephemeral_containers::{self, EPHEMERAL_CONTAINERS};

mod account;
mod defaults;
mod qos;
mod security;
pub(crate) mod spec;
mod template;
mod update;

pub(crate) use defaults::{apply_to_template as template_defaults, source_defaults};
pub use template::validate_pod_template;
pub(crate) use template::validate_rules as validate_template_rules;

/// Why a pod with gates is not placed.
pub(crate) const GATED: &str = "SchedulingGated";

pub(crate) struct Pod;

impl Strategy for Pod {
    fn defaults(&self, object: &mut Value) {
        defaults::apply(object);
    }

    fn prepare_create(&self, object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        account::provide(object, hook)?;
        resolve_priority(object, hook);
        let class = qos::class(object);
        object["status"] = json!({ "phase": "Pending", "qosClass": class });
        if object["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            object["status"]["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "lastTransitionTime": wire_time(hook.now),
                "reason": GATED, "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        spec::validate(object)
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        ephemeral_containers::refuse(&object["spec"], "cannot be set on create")
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        update::validate(new, old)
    }

    fn validate_update_below(&self, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        match subresource {
            "ephemeralcontainers" => ephemeral_containers::validate_update(new, old),
            _ => self.validate_update(new, old),
        }
    }

    /// Pods that no node holds, or that have ended, need no grace.
    fn grace_seconds(&self, object: &Value, asked: Option<i64>) -> i64 {
        let bound = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        let finished = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if !bound || finished {
            return 0;
        }
        asked
            .or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64())
            .unwrap_or(defaults::GRACE_SECONDS)
            .max(0)
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn status_keeps_labels(&self) -> bool {
        true
    }
}

/// Fills `spec.priority` and `spec.preemptionPolicy` from the class.
///
/// Upstream refuses an unknown class with 403. Manifests written for Volcano name classes that exist on the author's
/// cluster only, so here such a pod gets priority 0 and the client a warning; `docs/api-compatibility.md` says so.
fn resolve_priority(object: &mut Value, hook: &mut Hook<'_>) {
    let name = object["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = if name.is_empty() {
        hook.reader.find_flagged("scheduling.k8s.io/priorityclasses", "globalDefault")
    } else {
        hook.reader.get("scheduling.k8s.io/priorityclasses", "", &name)
    };
    let Some(spec) = object["spec"].as_object_mut() else { return };
    let Some(class) = class else {
        if !name.is_empty() {
            hook.warnings.push(format!("no PriorityClass with name {name} was found: the pod gets priority 0"));
        }
        spec.insert("priority".to_owned(), json!(0));
        spec.entry("preemptionPolicy").or_insert_with(|| json!("PreemptLowerPriority"));
        return;
    };
    if name.is_empty() {
        spec.insert("priorityClassName".to_owned(), class["metadata"]["name"].clone());
    }
    spec.insert("priority".to_owned(), class["value"].clone());
    if let Some(policy) = class["preemptionPolicy"].as_str() {
        spec.insert("preemptionPolicy".to_owned(), json!(policy));
    }
}

/// The lists of containers that a pod is made with, by the field's name.
const CONTAINER_LISTS: [&str; 2] = ["initContainers", "containers"];
const ALL_LISTS: [&str; 3] = [CONTAINER_LISTS[0], CONTAINER_LISTS[1], EPHEMERAL_CONTAINERS];

/// Every container that a pod is made with, with the path of its entry.
fn containers(spec: &Value) -> impl Iterator<Item = (String, &Map<String, Value>)> {
    containers_in(spec, &CONTAINER_LISTS)
}

/// Every container of some lists, with the path of its entry.
fn containers_in<'s>(
    spec: &'s Value,
    lists: &'static [&'static str],
) -> impl Iterator<Item = (String, &'s Map<String, Value>)> {
    lists.iter().flat_map(move |list| {
        spec[*list]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .filter_map(move |(index, item)| Some((format!("spec.{list}[{index}]"), item.as_object()?)))
    })
}
