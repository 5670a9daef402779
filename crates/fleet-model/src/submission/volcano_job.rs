//! Jobs that are whole Volcano Jobs, in an annotation in place of a pod spec.
//!
//! Invariant: the Job is as an admission of a cluster would take it, each of its templates keeps the rules that pod specs
//! keep, and what it asks for is bounded: [`JOB_BYTES_MAX`], [`PODS_MAX`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use pumice_ledger::{JobId, RunId};
use pumice_units::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::annotations::{GANG_ID, VOLCANO_JOB};
use super::spec::{DEPTH_MAX, check_bounds, list, list_mut, text};
use super::{Completed, Item, ItemError, Rules};
use super::{complete, resources, validate};
use crate::names::pod_name;

/// Most bytes of a Job's text.
const JOB_BYTES_MAX: usize = 256 << 10;
/// Most pods of a Job.
pub const PODS_MAX: i64 = 10_000;
/// The last attempt whose name is sure to be short enough for names that are made of it.
const ATTEMPT_MAX: u32 = 999;
/// What a Job is of.
const OF: (&str, &str) = ("batch.volcano.sh/v1alpha1", "Job");

/// Fills a Job in that is made under a name, and judges it, as an admission does: or says what is wrong with it.
type Judge = dyn Fn(&mut Value, &str) -> Result<(), String> + Send + Sync;

/// The rules of Volcano Jobs themselves; without any no such job is taken.
#[derive(Clone, Default)]
pub struct VolcanoJobs(Option<Arc<Judge>>);

impl VolcanoJobs {
    /// Jobs that this fills in and finds good.
    pub fn judged_by(judge: impl Fn(&mut Value, &str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(judge)))
    }
}

impl fmt::Debug for VolcanoJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VolcanoJobs").field(&self.0.is_some()).finish()
    }
}

impl PartialEq for VolcanoJobs {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_some() == other.0.is_some()
    }
}

/// Why a Volcano job is refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum JobError {
    #[error("this server takes no Volcano Jobs: give a pod spec")]
    NotTaken,
    #[error("it has more than {JOB_BYTES_MAX} bytes: move files into images or volumes")]
    TooLarge,
    #[error("it is neither JSON nor YAML of one object: {cause}")]
    Text { cause: String },
    #[error("it is nested deeper than {DEPTH_MAX} levels, which no Job is")]
    TooDeep,
    #[error("it is {found}, and {} {} is wanted", OF.0, OF.1)]
    Kind { found: String },
    #[error("{0}")]
    Judged(String),
    #[error("it has {pods} pods: a Job has 1 to {PODS_MAX} of them here")]
    Pods { pods: i64 },
    #[error("{field}: it goes with pods of their own: leave it out")]
    Beside { field: &'static str },
    #[error("metadata.namespace: {job:?}, but {item:?} in the item's namespace: say it once")]
    Namespace { job: String, item: String },
    #[error("spec.priorityClassName: {name:?} is not to be had: use {}, or leave it out", .allowed.join(", "))]
    PriorityClass { name: String, allowed: Vec<String> },
    #[error("task {task}: podSpec.priorityClassName: {here:?}, but {job:?} of the job: pods of a Job have the same")]
    ClassDiffers { task: String, here: String, job: String },
    #[error("task {task}: {cause}")]
    Task {
        task: String,
        #[source]
        cause: Box<ItemError>,
    },
}

/// A Volcano job that lacks nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolcanoJob {
    /// How many of its pods start together.
    pub least: u32,
    /// Its pods, those that have to start first.
    pub parts: Vec<VolcanoTask>,
}

/// Pods of one template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolcanoTask {
    pub pods: u32,
    /// The template: `metadata` and `spec`.
    pub template: Value,
    /// What each takes, as Kubernetes counts it.
    pub requests: BTreeMap<String, Quantity>,
}

/// Whether an item is a Volcano job.
pub fn is_volcano_job(item: &Item) -> bool {
    item.annotations.contains_key(VOLCANO_JOB)
}

/// Checks and completes an item of a queue that is a Volcano job.
pub fn complete(item: &Item, queue: &str, rules: &Rules) -> Result<Completed, ItemError> {
    let mut job = read(item).map_err(ItemError::VolcanoJob)?;
    let judge = rules.volcano_jobs.0.as_ref().ok_or(JobError::NotTaken).map_err(ItemError::VolcanoJob)?;
    let namespace = namespace(item, &job)?;
    rules.queue_access.check_namespace(queue, &namespace)?;
    beside(item).map_err(ItemError::VolcanoJob)?;
    // A Job is made under the name of its run, which is never longer than this.
    let name = pod_name(RunId { job: JobId(0), attempt: ATTEMPT_MAX });
    judge(&mut job, &name).map_err(|said| ItemError::VolcanoJob(JobError::Judged(said)))?;
    validate::item_alone(item, rules)?;
    let (class, whole) = tasks(&mut job, queue, rules).map_err(ItemError::VolcanoJob)?;
    let mut annotations = item.annotations.clone();
    annotations.insert(VOLCANO_JOB.to_owned(), job.to_string());
    Ok(Completed { namespace, annotations, volcano_job: Some(whole), ..complete::item_alone(item, class) })
}

/// The Job of an item.
fn read(item: &Item) -> Result<Value, JobError> {
    let said = item.annotations.get(VOLCANO_JOB).map(String::as_str).unwrap_or_default();
    if said.len() > JOB_BYTES_MAX {
        return Err(JobError::TooLarge);
    }
    let job = if said.trim_start().starts_with('{') {
        serde_json::from_str(said).map_err(|error| JobError::Text { cause: error.to_string() })?
    } else {
        yaml(said)?
    };
    check_bounds(&job, JOB_BYTES_MAX).map_err(|error| match error {
        ItemError::PodSpecTooDeep { .. } => JobError::TooDeep,
        _ => JobError::TooLarge,
    })?;
    let found = (text(&job, "apiVersion"), text(&job, "kind"));
    if found != OF {
        let found = format!("{:.80} {:.80}", found.0, found.1);
        return Err(JobError::Kind {
            found: if found == " " { "no object with apiVersion and kind".to_owned() } else { found },
        });
    }
    Ok(job)
}

fn yaml(text: &str) -> Result<Value, JobError> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_documents: 1,
            max_aliases: 1_000,
            max_events: 2 * JOB_BYTES_MAX,
            max_nodes: JOB_BYTES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: JOB_BYTES_MAX },
    };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| JobError::Text { cause: error.without_snippet().to_string() })
}

fn namespace(item: &Item, job: &Value) -> Result<String, ItemError> {
    match (item.namespace.as_str(), text(&job["metadata"], "namespace")) {
        ("", "") => Err(ItemError::Namespace),
        ("", one) | (one, "") => Ok(one.to_owned()),
        (one, other) if one == other => Ok(one.to_owned()),
        (one, other) => {
            let (job, item) = (other.to_owned(), one.to_owned());
            Err(ItemError::VolcanoJob(JobError::Namespace { job, item }))
        }
    }
}

/// What an item of a pod may have beside it.
fn beside(item: &Item) -> Result<(), JobError> {
    let beside = [
        ("podSpec", item.pod_spec.is_some()),
        ("podSpecs", !item.pod_specs.is_empty()),
        ("services", !item.services.is_empty()),
        ("ingress", !item.ingress.is_empty()),
        ("requiredNodeLabels", !item.required_node_labels.is_empty()),
        ("annotations[armadaproject.io/gangId]", item.annotations.contains_key(GANG_ID)),
    ];
    let found = beside.into_iter().find(|(_, is_there)| *is_there);
    found.map_or(Ok(()), |(field, _)| Err(JobError::Beside { field }))
}

/// Checks and completes the templates of a Job; its priority class, and what its pods ask for.
fn tasks(job: &mut Value, queue: &str, rules: &Rules) -> Result<(String, VolcanoJob), JobError> {
    let spec = &mut job["spec"];
    let class = priority_class(spec, rules)?;
    let pods: i64 = list(spec, "tasks").iter().map(|task| number(task, "replicas")).fold(0, i64::saturating_add);
    if !(1..=PODS_MAX).contains(&pods) {
        return Err(JobError::Pods { pods });
    }
    let least = count(spec, "minAvailable").clamp(1, u32::try_from(pods).unwrap_or(u32::MAX));
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    let Value::Object(fields) = spec else { return Err(JobError::Pods { pods: 0 }) };
    for task in list_mut(fields, "tasks") {
        let (replicas, least) = (count(task, "replicas"), count(task, "minAvailable"));
        let part = template(task, queue, &class, rules)?;
        let least = least.min(replicas);
        let of = |pods| VolcanoTask { pods, ..part.clone() };
        if least > 0 {
            first.push(of(least));
        }
        if replicas > least {
            rest.push(of(replicas - least));
        }
    }
    first.extend(rest);
    Ok((class, VolcanoJob { least, parts: first }))
}

fn priority_class(spec: &Value, rules: &Rules) -> Result<String, JobError> {
    let name = text(spec, "priorityClassName");
    let allowed = &rules.allowed_priority_class_names;
    match name {
        "" => Ok(rules.default_priority_class_name.clone()),
        _ if allowed.contains(name) => Ok(name.to_owned()),
        _ => Err(JobError::PriorityClass { name: name.to_owned(), allowed: allowed.iter().cloned().collect() }),
    }
}

/// Checks and completes the template of a task, of which there are no pods yet.
fn template(task: &mut Value, queue: &str, class: &str, rules: &Rules) -> Result<VolcanoTask, JobError> {
    let name = text(task, "name").to_owned();
    let in_task = |cause| JobError::Task { task: name.clone(), cause: Box::new(cause) };
    let template = &mut task["template"];
    validate::pod_spec(&template["spec"], queue, rules).map_err(in_task)?;
    let here = text(&template["spec"], "priorityClassName");
    if !here.is_empty() && here != class {
        let (here, job) = (here.to_owned(), class.to_owned());
        return Err(JobError::ClassDiffers { task: name, here, job });
    }
    let mut fields: Map<String, Value> = template["spec"].as_object().cloned().unwrap_or_default();
    complete::resource_defaults(&mut fields, rules);
    let mut pod_spec = Value::Object(fields);
    let requests = resources::requests(&pod_spec);
    if let Value::Object(fields) = &mut pod_spec {
        complete::pod_defaults(fields, class, &requests, rules);
    }
    template["spec"] = pod_spec;
    let metadata = template["metadata"].as_object().cloned().unwrap_or_default();
    Ok(VolcanoTask { pods: 0, template: json!({ "metadata": metadata, "spec": template["spec"] }), requests })
}

/// A number that was judged; none is 0.
fn number(of: &Value, name: &str) -> i64 {
    of[name].as_i64().unwrap_or(0).max(0)
}

fn count(of: &Value, name: &str) -> u32 {
    u32::try_from(number(of, name)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
