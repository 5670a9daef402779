//! The Job of one flow: its template, with what the flow says differently.

use k8s_openapi::Resource as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pumice_api::batch::{Job, JobSpec};
use pumice_api::flow::{Flow, JobFlow, JobTemplate};
use pumice_api::names;

/// Longest value of a label.
const LABEL_MAX: usize = 63;
/// What the definition fills into a patch that does not say it.
const DEFAULT_MAX_RETRY: i32 = 3;

pub(super) fn job(job_flow: &JobFlow, flow: &Flow, template: &JobTemplate) -> Job {
    let namespace = job_flow.metadata.namespace.clone().unwrap_or_default();
    let name = job_flow.metadata.name.clone().unwrap_or_default();
    let made_by = [
        (names::CREATED_BY_JOB_TEMPLATE, format!("{namespace}.{}", flow.name)),
        (names::CREATED_BY_JOB_FLOW, format!("{namespace}.{name}")),
    ];
    let mut annotations = made_by.clone().map(|(key, value)| (key.to_owned(), value)).to_vec();
    let user = job_flow.metadata.annotations.as_ref().and_then(|all| all.get(names::USER));
    annotations.extend(user.map(|user| (names::USER.to_owned(), user.clone())));
    // A longer value would have the Job refused; the annotation says it all the same, and the label is found.
    let labels = made_by.map(|(key, value)| (key, if value.len() <= LABEL_MAX { value } else { String::new() }));
    let metadata = ObjectMeta {
        name: Some(super::job_name(&name, &flow.name)),
        namespace: Some(namespace),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value)).into()),
        annotations: Some(annotations.into_iter().collect()),
        owner_references: Some(vec![OwnerReference {
            api_version: JobFlow::API_VERSION.to_owned(),
            kind: JobFlow::KIND.to_owned(),
            name,
            uid: job_flow.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    let patch = flow.patch.as_ref().map(|patch| &patch.job_spec);
    let spec = patch.map_or_else(|| template.spec.clone(), |patch| patched(&template.spec, patch));
    Job { metadata, spec, ..Job::default() }
}

/// The template's spec, with each member that the patch sets in its place; plugins are added by name. A queue `default` and
/// a retry limit of 3 count as not set: the definition fills them in.
fn patched(template: &JobSpec, patch: &JobSpec) -> JobSpec {
    let mut spec = template.clone();
    let or = |new: &String, old: &mut String, unset: &str| {
        if !new.is_empty() && new != unset {
            old.clone_from(new);
        }
    };
    or(&patch.scheduler_name, &mut spec.scheduler_name, "");
    or(&patch.queue, &mut spec.queue, names::DEFAULT_QUEUE);
    or(&patch.priority_class_name, &mut spec.priority_class_name, "");
    if patch.min_available != 0 {
        spec.min_available = patch.min_available;
    }
    if patch.max_retry != 0 && patch.max_retry != DEFAULT_MAX_RETRY {
        spec.max_retry = patch.max_retry;
    }
    if !patch.volumes.is_empty() {
        spec.volumes.clone_from(&patch.volumes);
    }
    if !patch.tasks.is_empty() {
        spec.tasks.clone_from(&patch.tasks);
    }
    if !patch.policies.is_empty() {
        spec.policies.clone_from(&patch.policies);
    }
    spec.plugins.extend(patch.plugins.clone());
    spec.running_estimate = patch.running_estimate.clone().or(spec.running_estimate);
    spec.ttl_seconds_after_finished = patch.ttl_seconds_after_finished.or(spec.ttl_seconds_after_finished);
    spec.min_success = patch.min_success.or(spec.min_success);
    spec.suspend = patch.suspend.or(spec.suspend);
    spec.active_deadline_seconds = patch.active_deadline_seconds.or(spec.active_deadline_seconds);
    spec.network_topology = patch.network_topology.clone().or(spec.network_topology);
    spec
}
