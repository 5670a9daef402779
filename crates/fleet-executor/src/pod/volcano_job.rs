//! The Volcano Job of a lease that is a Volcano job.
//!
//! Invariant: it carries the run's labels, and so do the pods that are made of its templates, by which all of them are known
//! as the fleet's. What would let it outlive its run, or vanish before its end is told, is left out.

use pumice_fleet_model::submission::annotations::VOLCANO_JOB;
use pumice_ledger::RunId;
use pumice_wire::executor::Lease;
use serde_json::{Map, Value, json};

use super::{
    CUT_OFF_ANNOTATION, JOB_LABEL, JOB_SET_ANNOTATION, OWNER_ANNOTATION, PodError, QUEUE_LABEL, RUN_LABEL,
    annotations_of, environment, pod_name, set_environment,
};
use crate::settings::Settings;

/// Annotations that only the fleet sets.
const OURS: [&str; 3] = [JOB_SET_ANNOTATION, OWNER_ANNOTATION, CUT_OFF_ANNOTATION];

/// Whether a lease is of a Volcano job.
#[must_use]
pub fn is_volcano_job(lease: &Lease) -> bool {
    lease.annotations.contains_key(VOLCANO_JOB)
}

/// The Job of a lease, in the queue of its cluster that the settings name.
///
/// # Errors
/// Where it is none, or the lease's queue may not have such pods.
pub(super) fn build(run: RunId, lease: &Lease, settings: &Settings) -> Result<Value, PodError> {
    let text = lease.annotations.get(VOLCANO_JOB).map(String::as_str).unwrap_or_default();
    let mut asked: Value = serde_json::from_str(text).map_err(|error| PodError::Job { cause: error.to_string() })?;
    let mut spec = asked["spec"].take();
    if spec["tasks"].as_array().is_none_or(Vec::is_empty) {
        return Err(PodError::NoTasks);
    }
    let environment = environment(run, lease);
    for task in spec["tasks"].as_array_mut().into_iter().flatten() {
        let template = &mut task["template"];
        settings.queue_access.check_pod(&lease.queue, &template["spec"])?;
        mark(&mut template["metadata"], run, lease);
        let pod = &mut template["spec"];
        without_class(pod);
        for list in ["initContainers", "containers"] {
            for container in pod.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                set_environment(container, &environment);
            }
        }
    }
    without_class(&mut spec);
    if let Some(fields) = spec.as_object_mut() {
        fields.insert("queue".to_owned(), json!(settings.volcano_queue));
        // It goes once its end is told, and not before.
        fields.remove("ttlSecondsAfterFinished");
    }
    let mut metadata = json!({
        "labels": asked["metadata"]["labels"].take(),
        "annotations": asked["metadata"]["annotations"].take(),
    });
    mark(&mut metadata, run, lease);
    metadata["name"] = json!(pod_name(run));
    metadata["namespace"] = json!(lease.namespace);
    Ok(json!({ "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec }))
}

/// The fleet decides who goes first, and its classes need not be the cluster's.
fn without_class(fields: &mut Value) {
    if let Some(fields) = fields.as_object_mut() {
        fields.remove("priorityClassName");
        fields.remove("priority");
    }
}

/// Adds the item's labels and annotations to what stands there, which goes before them, and the run's own, which go before
/// all.
fn mark(metadata: &mut Value, run: RunId, lease: &Lease) {
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let mut labels: Map<String, Value> = lease.labels.iter().map(|(key, text)| (key.clone(), json!(text))).collect();
    labels.extend(fields(&metadata["labels"]));
    let ours = [(JOB_LABEL, run.job.to_string()), (RUN_LABEL, run.to_string()), (QUEUE_LABEL, lease.queue.clone())];
    labels.extend(ours.map(|(key, text)| (key.to_owned(), json!(text))));
    let mut annotations = annotations_of(lease);
    let theirs = fields(&metadata["annotations"]);
    annotations.extend(theirs.into_iter().filter(|(key, _)| !OURS.contains(&key.as_str())));
    annotations.remove(VOLCANO_JOB);
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata["labels"] = Value::Object(labels);
    metadata["annotations"] = Value::Object(annotations);
}
