//! What every object made for a job has: owner, labels, namespace.
//!
//! Invariant: everything made for a job is controlled by it, so that it goes when the job goes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pumice_api::batch::Job;
use pumice_api::names;

/// The job as the controller of something.
pub(crate) fn owner(job: &Job) -> OwnerReference {
    OwnerReference {
        api_version: "batch.volcano.sh/v1alpha1".to_owned(),
        kind: "Job".to_owned(),
        name: name(job).to_owned(),
        uid: uid(job).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Metadata of an object made for the job.
pub(crate) fn metadata(job: &Job, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: job.metadata.namespace.clone(),
        labels: Some(selector(job)),
        owner_references: Some(vec![owner(job)]),
        ..ObjectMeta::default()
    }
}

/// Labels that all objects made for the job have, and nothing else.
pub(crate) fn selector(job: &Job) -> BTreeMap<String, String> {
    let labels = [(names::JOB_NAME, name(job)), (names::JOB_NAMESPACE, namespace(job))];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

pub(crate) fn name(job: &Job) -> &str {
    job.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(job: &Job) -> &str {
    job.metadata.namespace.as_deref().unwrap_or_default()
}

/// What an annotation of the job says.
pub(crate) fn annotation<'a>(job: &'a Job, key: &str) -> Option<&'a str> {
    job.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn uid(job: &Job) -> &str {
    job.metadata.uid.as_deref().unwrap_or_default()
}
