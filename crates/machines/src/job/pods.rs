//! The pods of a job.
//!
//! Invariant: a pod is a function of the job and its task and index; its name is `<job>-<task>-<index>`. What the user wrote
//! into the template stays, the labels and annotations everyone relies on are set on top.

pub(super) mod scale_down;
pub(super) mod volumes;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::{Job, TaskSpec};
use pumice_api::names;

use crate::job::memory::learning;
use crate::job::memory::sizes::Sizes;
use crate::job::retries::{self, PodRetries};
use crate::job::{memory, sync};
use crate::job_object;
use crate::plugins::{Plugin, PodPlace};

/// Annotations of a job that its pods get too.
const INHERITED_ANNOTATIONS: &[&str] = &[names::PREEMPTABLE, names::COOLDOWN_TIME, names::REVOCABLE_ZONE];
/// Labels of a job that its pods get too.
const INHERITED_LABELS: &[&str] = &[names::PREEMPTABLE, names::COOLDOWN_TIME];

/// Makes the pod of a task at an index.
pub(super) fn build(
    job: &Job,
    task: &TaskSpec,
    index: i32,
    plugins: &[Plugin],
    sizes: &Sizes,
    retries: &PodRetries,
    evicted_at: Option<Timestamp>,
) -> Pod {
    let name = names::pod_name(job_object::name(job), &task.name, index);
    let mut annotations = annotations(job, task, index);
    if let Some(at) = evicted_at {
        annotations.insert(names::EVICTED_AT.to_owned(), at.to_string());
    }
    let mut spec = task.template.spec.clone().unwrap_or_default();
    let retried = retries.times(&task.name, index);
    if retried > 0 {
        annotations.insert(retries::RETRIED.to_owned(), retried.to_string());
    }
    let level = sizes.level(&task.name, index);
    let given = sizes.give(job, task, &level, &mut spec);
    annotations.extend(given.learned.map(|learned| (learning::MEMORY_LEARNED.to_owned(), learned)));
    if let Some(raised) = given.raised {
        // It asks for more than its neighbours, so it can't stand in for one of them.
        annotations.entry(names::TEMPLATE_UID.to_owned()).and_modify(|uid| *uid = format!("{uid}-{raised}"));
        annotations.insert(memory::MEMORY_RAISED.to_owned(), raised);
    }
    let template = task.template.metadata.clone().unwrap_or_default();
    let mut metadata = ObjectMeta {
        name: Some(name.clone()),
        namespace: job.metadata.namespace.clone(),
        owner_references: Some(vec![job_object::owner(job)]),
        labels: Some(over(template.labels, labels(job, task, index))),
        annotations: Some(over(template.annotations, annotations)),
        finalizers: template.finalizers,
        ..ObjectMeta::default()
    };
    fill(job, &mut spec);
    volumes::mount(job, &mut spec);
    let raised: i64 = level.iter().map(|(_, times)| *times).sum();
    let attempt = 1 + i64::from(job.status.retry_count) + retried + raised;
    let place = PodPlace { job, task, pod_name: &name, index, attempt };
    for plugin in plugins {
        plugin.shape_pod(&place, &mut metadata, &mut spec);
    }
    Pod { metadata, spec: Some(spec), status: None }
}

fn fill(job: &Job, spec: &mut PodSpec) {
    let absent = |field: &Option<String>| field.as_deref().unwrap_or_default().is_empty();
    if absent(&spec.scheduler_name) && !job.spec.scheduler_name.is_empty() {
        spec.scheduler_name = Some(job.spec.scheduler_name.clone());
    }
    if absent(&spec.priority_class_name) && !job.spec.priority_class_name.is_empty() {
        spec.priority_class_name = Some(job.spec.priority_class_name.clone());
    }
}

fn task_name(task: &TaskSpec) -> &str {
    if task.name.is_empty() { names::DEFAULT_TASK } else { &task.name }
}

fn labels(job: &Job, task: &TaskSpec, index: i32) -> BTreeMap<String, String> {
    let own = job.metadata.labels.as_ref();
    let mut all = inherited(own, INHERITED_LABELS);
    all.insert(names::TASK_INDEX.to_owned(), index.to_string());
    all.insert(names::TASK_SPEC.to_owned(), task_name(task).to_owned());
    all.insert(names::JOB_NAME.to_owned(), job_object::name(job).to_owned());
    all.insert(names::JOB_NAMESPACE.to_owned(), job_object::namespace(job).to_owned());
    all.insert(names::QUEUE_NAME.to_owned(), sync::queue_name(job).to_owned());
    if let Some(policy) = &task.partition_policy {
        let partition = if policy.partition_size > 0 { index / policy.partition_size } else { 0 };
        all.insert(names::PARTITION_ID.to_owned(), partition.to_string());
    }
    all
}

fn annotations(job: &Job, task: &TaskSpec, index: i32) -> BTreeMap<String, String> {
    let own = job.metadata.annotations.as_ref();
    let mut all = inherited(own, INHERITED_ANNOTATIONS);
    let budget = [names::JDB_MIN_AVAILABLE, names::JDB_MAX_UNAVAILABLE];
    if let Some(key) = budget.iter().find(|key| own.is_some_and(|own| own.contains_key(**key))) {
        all.extend(inherited(own, &[key]));
    }
    let status = &job.status;
    let job_name = job_object::name(job);
    let set = [
        (names::TASK_INDEX, index.to_string()),
        (names::TASK_SPEC, task_name(task).to_owned()),
        (names::JOB_NAME, job_name.to_owned()),
        (names::QUEUE_NAME, sync::queue_name(job).to_owned()),
        (names::JOB_VERSION, status.version.to_string()),
        (names::JOB_RETRY_COUNT, status.retry_count.to_string()),
        (names::TEMPLATE_UID, format!("{job_name}-{}", task.name)),
        (names::GROUP_NAME, names::pod_group_name(job_name, job_object::uid(job))),
    ];
    all.extend(set.map(|(key, value)| (key.to_owned(), value)));
    if let Some(policy) = &task.topology_policy {
        all.insert(names::NUMA_TOPOLOGY_POLICY.to_owned(), policy.as_str().to_owned());
    }
    all
}

fn inherited(own: Option<&BTreeMap<String, String>>, keys: &[&str]) -> BTreeMap<String, String> {
    let values = keys.iter().filter_map(|key| own?.get(*key).map(|value| ((*key).to_owned(), value.clone())));
    values.collect()
}

fn over(template: Option<BTreeMap<String, String>>, ours: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = template.unwrap_or_default();
    all.extend(ours);
    all
}
