//! The objects of a lease: its pod, and the services and ingresses beside it.
//!
//! Invariant: of the same lease the same objects come, so that making them twice is safe. Any stock scheduler binds the pod
//! to the leased node and to no other: the node is a term of its required affinity. Pure; the core calls [`build`].

use pumice_fleet_model::grants::NotGranted;
use pumice_fleet_model::names::{pod_name, pod_number};
use pumice_fleet_model::submission::annotations;
use pumice_ledger::RunId;
use pumice_objects::protobuf::ProtobufError;
use pumice_wire::executor::Lease;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::facts::Kind;
use crate::labels::{
    CUT_OFF_ANNOTATION, JOB_LABEL, JOB_SET_ANNOTATION, OWNER_ANNOTATION, POD_COUNT_LABEL, POD_NUMBER_LABEL,
    QUEUE_LABEL, RUN_LABEL,
};
use crate::settings::Settings;

mod service_objects;
mod volcano_job;

pub use volcano_job::is_volcano_job;

/// Why a lease has no pod.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PodError {
    /// The specification's bytes are none.
    #[error("the lease's pod specification can't be read")]
    Spec {
        #[source]
        source: ProtobufError,
    },
    /// There is nothing to run.
    #[error("the lease has no containers")]
    NoContainers,
    /// The Job of a Volcano job is none.
    #[error("the lease's Volcano Job can't be read: {cause}")]
    Job { cause: String },
    /// A Volcano job has nothing to run.
    #[error("the lease's Volcano Job has no tasks")]
    NoTasks,
    /// There is nowhere to run.
    #[error("the lease has no node")]
    NoNode,
    /// The queue may not have it in this cluster.
    #[error("this cluster does not let it (queueAccess of its executor): {0}")]
    NotGranted(#[from] NotGranted),
}

/// What is made for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// What the first of them is.
    pub kind: Kind,
    /// The pod, or the Job of a Volcano job.
    pub pod: Value,
    /// Services, to be owned by the pod once it has a uid.
    pub services: Vec<Value>,
    pub ingresses: Vec<Value>,
}

/// After how long without an answer of the server a lease's pod is stopped; none for never.
#[must_use]
pub fn cut_off_of(lease: &Lease) -> Option<i64> {
    (lease.cut_off_ms > 0).then(|| i64::try_from(lease.cut_off_ms).unwrap_or(i64::MAX))
}

/// The objects of a lease.
///
/// # Errors
/// Where nothing can be made of it.
pub fn build(run: RunId, lease: &Lease, settings: &Settings) -> Result<Objects, PodError> {
    settings.queue_access.check_namespace(&lease.queue, &lease.namespace)?;
    if is_volcano_job(lease) {
        let pod = volcano_job::build(run, lease, settings)?;
        return Ok(Objects { kind: Kind::Job, pod, services: Vec::new(), ingresses: Vec::new() });
    }
    let spec = lease.pod_spec.clone().unwrap_or_default();
    let mut spec = spec.to_json().map_err(|source| PodError::Spec { source })?;
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        return Err(PodError::NoContainers);
    }
    settings.queue_access.check_pod(&lease.queue, &spec)?;
    if lease.node.is_empty() {
        return Err(PodError::NoNode);
    }
    let (services, ingresses) = service_objects::build(run, lease, &spec, &settings.addressing);
    spec["restartPolicy"] = json!("Never");
    pin(&mut spec, &lease.node);
    let environment = environment(run, lease);
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            set_environment(container, &environment);
        }
    }
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(run),
            "namespace": lease.namespace,
            "labels": labels(run, lease),
            "annotations": annotations_of(lease),
        },
        "spec": spec,
    });
    Ok(Objects { kind: Kind::Pod, pod, services, ingresses })
}

fn labels(run: RunId, lease: &Lease) -> Map<String, Value> {
    let mut labels: Map<String, Value> = lease.labels.iter().map(|(key, text)| (key.clone(), json!(text))).collect();
    let ours = [
        (JOB_LABEL, run.job.to_string()),
        (RUN_LABEL, run.to_string()),
        (QUEUE_LABEL, lease.queue.clone()),
        (POD_NUMBER_LABEL, pod_number(run).to_string()),
        (POD_COUNT_LABEL, "1".to_owned()),
    ];
    labels.extend(ours.map(|(key, text)| (key.to_owned(), Value::String(text))));
    labels
}

fn annotations_of(lease: &Lease) -> Map<String, Value> {
    let mut all: Map<String, Value> = lease.annotations.iter().map(|(key, text)| (key.clone(), json!(text))).collect();
    all.insert(JOB_SET_ANNOTATION.to_owned(), json!(lease.job_set));
    all.insert(OWNER_ANNOTATION.to_owned(), json!(lease.user));
    // What the user wrote there does not count.
    all.remove(CUT_OFF_ANNOTATION);
    all.extend(cut_off_of(lease).map(|ms| (CUT_OFF_ANNOTATION.to_owned(), json!(ms.to_string()))));
    all
}

/// What every container is told of its job.
fn environment(run: RunId, lease: &Lease) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("ARMADA_JOB_ID", run.job.to_string()),
        ("ARMADA_QUEUE", lease.queue.clone()),
        ("ARMADA_JOB_SET_ID", lease.job_set.clone()),
        ("PUMICE_ATTEMPT", run.attempt.to_string()),
    ];
    let said = |key: &str| lease.annotations.get(key).filter(|text| !text.is_empty()).cloned();
    if let Some(gang) = said(annotations::GANG_ID) {
        all.push(("ARMADA_GANG_ID", gang));
        all.extend(said(annotations::GANG_CARDINALITY).map(|text| ("ARMADA_GANG_CARDINALITY", text)));
        if let Some(label) = said(annotations::GANG_UNIFORMITY) {
            // The server puts the value that it chose under the label itself.
            all.extend(lease.labels.get(&label).map(|text| ("ARMADA_GANG_NODE_UNIFORMITY_LABEL_VALUE", text.clone())));
            all.push(("ARMADA_GANG_NODE_UNIFORMITY_LABEL_NAME", label));
        }
    }
    all
}

/// Adds what the user has not set. Ours comes first, so that the user's may refer to it.
fn set_environment(container: &mut Value, environment: &[(&'static str, String)]) {
    let theirs = container["env"].as_array().cloned().unwrap_or_default();
    let is_free = |name: &str| !theirs.iter().any(|one| one["name"] == name);
    let ours = environment.iter().filter(|(name, _)| is_free(name));
    let mut all: Vec<Value> = ours.map(|(name, text)| json!({ "name": name, "value": text })).collect();
    all.extend(theirs);
    container["env"] = Value::Array(all);
}

/// Adds the node to each term of the required affinity. Terms are alternatives, so that each needs it; one without any
/// expression matches nothing in Kubernetes, and would match the node with it, so that it is left out.
fn pin(spec: &mut Value, node: &str) {
    const TERMS: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    let has = |term: &Value, list: &str| term[list].as_array().is_some_and(|list| !list.is_empty());
    let theirs = spec.pointer(TERMS).and_then(Value::as_array).cloned();
    let terms: Vec<Value> = match theirs {
        // A field names one node: a term that has one keeps it, and so matches this node or none.
        Some(terms) if !terms.is_empty() => terms
            .into_iter()
            .filter(|term| has(term, "matchExpressions") || has(term, "matchFields"))
            .map(|mut term| {
                match term["matchFields"].as_array_mut() {
                    Some(fields) => fields.push(field.clone()),
                    None => term["matchFields"] = json!([field]),
                }
                term
            })
            .collect(),
        _ => vec![json!({ "matchFields": [field] })],
    };
    if !spec["affinity"].is_object() {
        spec["affinity"] = json!({});
    }
    let affinity = &mut spec["affinity"];
    if !affinity["nodeAffinity"].is_object() {
        affinity["nodeAffinity"] = json!({});
    }
    affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({ "nodeSelectorTerms": terms });
}

#[cfg(test)]
mod tests;
