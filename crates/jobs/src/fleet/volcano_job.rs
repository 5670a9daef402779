//! Jobs that go to a fleet as one: a cluster runs all of such a Job, with the plugins, policies and volumes that it has.
//!
//! Invariant: pure. A Job goes as a whole only where it can't be jobs of one pod each: those may be anywhere, and share a queue
//! more finely.

use pumice_api::names::{JOB_NAME, ON_OOM, RETRIES};
use pumice_wire::api::JobSubmitRequestItem;
use serde_json::{Map, Value, json};

use super::objects::MANIFEST;
use super::refusal::Refusal;
use super::submission::{self, PRIORITY, Submission};
use crate::json::text_at;

/// The Job; annotation of the one job that it is.
pub const VOLCANO_JOB: &str = "pumice.sh/volcano-job";
/// Plugins of which pods that are jobs of their own have what they need, or need nothing.
const PLAIN: [&str; 2] = ["env", "svc"];
/// What of a Job has a meaning only for all of its pods.
const OF_JOBS: [&str; 3] = ["policies", "volumes", "networkTopology"];
/// And of a task.
const OF_TASKS: [&str; 5] = ["policies", "dependsOn", "topologyPolicy", "partitionPolicy", "minSuccess"];

/// Only some clusters' controllers know these.
const OF_SINGLE_PODS: &[(&str, &str)] = &[("retries", AGAIN), (RETRIES, AGAIN), (ON_OOM, AGAIN)];
const AGAIN: &str = "a Job that goes to a cluster as a whole has no pod of it tried again alone: leave --retries and --on-oom \
                     out, and say --max-retry to run all of it again";

/// Whether a Job's spec can't be jobs of one pod each.
pub fn is_wanted(spec: &Map<String, Value>) -> bool {
    let is_said = |fields: &Map<String, Value>, name: &str| fields.get(name).is_some_and(submission::is_said);
    let tasks = spec.get("tasks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let plugins = || spec.get("plugins").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    OF_JOBS.iter().any(|name| is_said(spec, name))
        || plugins().any(|name| !PLAIN.contains(&name.as_str()))
        // Tasks that find each other by name.
        || tasks.len() > 1 && plugins().any(|name| name == "svc")
        || tasks.iter().filter_map(Value::as_object).any(|task| OF_TASKS.iter().any(|name| is_said(task, name)))
        || is_part(spec, tasks)
}

/// Whether some of the pods start together, but not all.
fn is_part(spec: &Map<String, Value>, tasks: &[Value]) -> bool {
    let pods: u64 = tasks.iter().map(|task| task.get("replicas").and_then(Value::as_u64).unwrap_or(1)).sum();
    let least = spec.get("minAvailable").and_then(Value::as_u64).unwrap_or(pods);
    least > 1 && least < pods
}

/// The one item of a Job whose name, namespace and queue are filled in, and whose fields are known to have a meaning.
///
/// # Errors
/// What is missing, or what such a Job can't have.
pub fn item(job: &Value, key: &str, manifest: String) -> Result<Submission, Refusal> {
    submission::refuse(submission::fields_at(job, "/metadata/annotations"), OF_SINGLE_PODS)?;
    for task in job.pointer("/spec/tasks").and_then(Value::as_array).into_iter().flatten() {
        submission::refuse(task.as_object(), OF_SINGLE_PODS)?;
        submission::refuse(submission::fields_at(task, "/template/metadata/annotations"), OF_SINGLE_PODS)?;
    }
    let mut whole = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": job["metadata"], "spec": job["spec"],
    });
    for task in whole["spec"]["tasks"].as_array_mut().into_iter().flatten() {
        for containers in ["containers", "initContainers"] {
            let containers = task.pointer_mut(&format!("/template/spec/{containers}")).and_then(Value::as_array_mut);
            containers.into_iter().flatten().try_for_each(submission::settle)?;
        }
    }
    let text = |pointer| text_at(job, pointer).to_owned();
    let annotations =
        [(JOB_NAME, text("/metadata/name")), (MANIFEST, manifest), (VOLCANO_JOB, submission::without_ids(&whole))];
    let item = JobSubmitRequestItem {
        priority: PRIORITY,
        namespace: text("/metadata/namespace"),
        annotations: annotations.map(|(name, text)| (name.to_owned(), text)).into(),
        client_id: format!("{key}.0"),
        ..JobSubmitRequestItem::default()
    };
    Ok(Submission { items: vec![item], batch: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(change: impl FnOnce(&mut Value)) -> Value {
        let task = |name: &str, replicas: u32| {
            let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
            json!({"name": name, "replicas": replicas, "template": {"spec": {"containers": [container]}}})
        };
        let mut job = json!({
            "metadata": {"name": "train", "namespace": "team"},
            "spec": {"queue": "research", "tasks": [task("master", 1), task("worker", 2)]},
        });
        change(&mut job);
        job
    }

    #[test]
    fn what_needs_its_other_pods_goes_as_a_whole() {
        type Change = (fn(&mut Value), usize);
        let changes: [Change; 11] = [
            (|_| {}, 3),
            (|job| job["spec"]["minAvailable"] = json!(1), 3),
            (|job| job["spec"]["plugins"] = json!({"env": []}), 3),
            (|job| job["spec"]["plugins"] = json!({"svc": []}), 1),
            (|job| job["spec"]["plugins"] = json!({"pytorch": ["--master=master"]}), 1),
            (|job| job["spec"]["minAvailable"] = json!(2), 1),
            (|job| job["spec"]["policies"] = json!([{"event": "PodFailed", "action": "RestartJob"}]), 1),
            (|job| job["spec"]["policies"] = json!([]), 3),
            (|job| job["spec"]["volumes"] = json!([{"mountPath": "/x"}]), 1),
            (|job| job["spec"]["tasks"][1]["dependsOn"] = json!({"name": ["master"]}), 1),
            (|job| job["spec"]["tasks"][1]["policies"] = json!([{"event": "PodFailed", "action": "AbortJob"}]), 1),
        ];
        for (change, wanted) in changes {
            let job = job(change);
            let asked = submission::items(&job, "k").unwrap();
            assert_eq!(asked.items.len(), wanted, "{job}");
        }
    }

    #[test]
    fn the_job_is_in_its_one_item() {
        let job = job(|job| job["spec"]["plugins"] = json!({"svc": [], "ssh": []}));
        let item = submission::items(&job, "k").unwrap().items.remove(0);
        assert_eq!((item.namespace.as_str(), item.client_id.as_str(), item.pod_specs.len()), ("team", "k.0", 0));
        let whole: Value = serde_json::from_str(&item.annotations[VOLCANO_JOB]).unwrap();
        let resources = &whole["spec"]["tasks"][1]["template"]["spec"]["containers"][0]["resources"];
        assert_eq!(resources, &json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}));
        let kept: Value = serde_json::from_str(&item.annotations[MANIFEST]).unwrap();
        assert_eq!(kept["spec"], job["spec"]);
    }

    #[test]
    fn what_only_some_clusters_know_is_refused_in_a_whole_job_too() {
        let changes: [fn(&mut Value); 3] = [
            |job| job["spec"]["tasks"][1]["retries"] = json!(2),
            |job| job["metadata"]["annotations"] = json!({ON_OOM: "factor=2"}),
            |job| job["spec"]["tasks"][0]["template"]["metadata"] = json!({"annotations": {RETRIES: "2"}}),
        ];
        for change in changes {
            let job = job(|job| {
                job["spec"]["plugins"] = json!({"svc": []});
                change(job);
            });
            assert!(
                submission::items(&job, "k").unwrap_err().message.contains("leave --retries and --on-oom out"),
                "{job}"
            );
        }
    }
}
