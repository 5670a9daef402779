//! What a new Job gets filled in, on its JSON so that nothing else changes.
//!
//! Idempotent. Values of a wrong type are left alone: the schema refuses them in its own words.

use pumice_api::names::{DEFAULT_QUEUE, unnamed_task};
use pumice_machines::job::MAX_PARALLEL;
use serde_json::{Map, Value, json};

use crate::Rules;

/// How often a job, and a container of a task, may restart.
const MAX_RETRY: i64 = 3;
/// Plugins whose pods find each other by name.
const NEED_SVC: &[&str] = &["tensorflow", "mpi", "pytorch", "ray"];
/// Plugins whose pods log into each other.
const NEED_SSH: &[&str] = &["mpi"];

/// Fills in what a new job leaves out.
pub fn mutate(job: &mut Value, rules: &Rules) {
    let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(least) = fill(spec, rules) {
        fill_number(spec, "minAvailable", least);
    }
}

/// Fills in what a changed job leaves out, so that applying a manifest again changes nothing: a client that replaces the
/// list of tasks drops what was filled in. `minAvailable` stays: 0 is a word of its own here, it scales a job to nothing.
pub fn mutate_again(job: &mut Value, rules: &Rules) {
    if let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) {
        fill(spec, rules);
    }
}

/// Fills in all but `minAvailable` and returns the pods that the tasks need; nothing where a number is no number.
fn fill(spec: &mut Map<String, Value>, rules: &Rules) -> Option<i64> {
    fill_text(spec, "queue", DEFAULT_QUEUE);
    fill_text(spec, "schedulerName", rules.scheduler_name());
    fill_number(spec, "maxRetry", MAX_RETRY);
    let mut least = Some(0_i64);
    if let Some(tasks) = spec.get_mut("tasks").and_then(Value::as_array_mut) {
        for (index, task) in tasks.iter_mut().enumerate() {
            let task_least = task.as_object_mut().and_then(|task| fill_task(task, index));
            least = least.zip(task_least).and_then(|(sum, more)| sum.checked_add(more));
        }
    }
    imply_plugins(spec);
    least
}

/// Fills in a task and returns the pods it needs; nothing where a number is no number.
fn fill_task(task: &mut Map<String, Value>, index: usize) -> Option<i64> {
    fill_text(task, "name", &unnamed_task(index));
    fill_number(task, "maxRetry", MAX_RETRY);
    if let Some(pod) =
        task.get_mut("template").and_then(|template| template.get_mut("spec")).and_then(Value::as_object_mut)
        && pod.get("hostNetwork") == Some(&Value::Bool(true))
    {
        fill_text(pod, "dnsPolicy", "ClusterFirstWithHostNet");
    }
    if let Some(least) = task.get("minAvailable").filter(|value| !value.is_null()) {
        return least.as_i64();
    }
    let least = match partitions_needed(task) {
        Some(least) => least,
        None => number(task, "replicas")?.min(most_at_once(task).unwrap_or(i64::MAX)),
    };
    task.insert("minAvailable".to_owned(), least.into());
    Some(least)
}

/// Pods of the partitions that a task needs, where it has a minimum of them.
fn partitions_needed(task: &Map<String, Value>) -> Option<i64> {
    let policy = task.get("partitionPolicy")?.as_object()?;
    let least = number(policy, "minPartitions").filter(|least| *least > 0)?;
    least.checked_mul(number(policy, "partitionSize")?)
}

/// Pods that a task may have at once, where it says so.
fn most_at_once(task: &Map<String, Value>) -> Option<i64> {
    if let Some(field) = task.get(MAX_PARALLEL.field).filter(|value| !value.is_null()) {
        return field.as_i64();
    }
    let text = task.get("template")?.get("metadata")?.get("annotations")?.get(MAX_PARALLEL.annotation)?.as_str()?;
    MAX_PARALLEL.read(text).ok().map(i64::from)
}

fn imply_plugins(spec: &mut Map<String, Value>) {
    let Some(plugins) = spec.get_mut("plugins").and_then(Value::as_object_mut) else { return };
    for (implied, by) in [("svc", NEED_SVC), ("ssh", NEED_SSH)] {
        if by.iter().any(|name| plugins.contains_key(*name)) {
            plugins.entry(implied).or_insert_with(|| json!([]));
        }
    }
}

/// A number that is absent counts as 0.
fn number(object: &Map<String, Value>, name: &str) -> Option<i64> {
    match object.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(value) => value.as_i64(),
    }
}

fn fill_number(object: &mut Map<String, Value>, name: &str, value: i64) {
    if number(object, name) == Some(0) {
        object.insert(name.to_owned(), value.into());
    }
}

fn fill_text(object: &mut Map<String, Value>, name: &str, text: &str) {
    if matches!(object.get(name), None | Some(Value::Null)) || object.get(name).and_then(Value::as_str) == Some("") {
        object.insert(name.to_owned(), text.into());
    }
}
