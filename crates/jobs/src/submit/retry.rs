//! A job anew: the same spec under a new name that says of which job it is a retry.
//!
//! Invariant: what the platform wrote on the old job (status, uid, who made it, what was learned) does not go along, and the
//! new name is one that no job has. What the old job brought along, a script or a bundle in ConfigMaps or a key in a Secret, belongs to
//! both, so either may be deleted.
//! [`again`] is pure. Called by `jobctl retry`.

use std::collections::BTreeSet;

use pumice_api::names as known;
use serde_json::{Map, Value, json};

use crate::bundle::{Location, StoreAddress, location};
use crate::error::Error;
use crate::job::{self, JobEnd, JobError, JobRef, end_of, idempotency};
use crate::json::text_at;
use crate::lookup;
use crate::platform::call::{self, CallError, FailureClass};
use crate::platform::connection::Connection;
use crate::render::slurm;
use crate::submit::{self, marked};

/// The job that another is a retry of; label.
pub const RETRY_OF: &str = "pumice.sh/retry-of";
/// The most characters of a job's name: it is a label of its pods.
const NAME_MAX: usize = 63;
/// Names tried before giving up.
const NAMES_MAX: u32 = 1000;
/// Labels and annotations that say something of the old job only, beside what controllers noted.
const LEFT_BEHIND: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    idempotency::KEY,
    idempotency::SPEC,
    known::CREATED_BY_JOB_FLOW,
    known::CREATED_BY_JOB_TEMPLATE,
    known::CRON_JOB,
    known::CRON_JOB_TIME,
    known::USER,
];

/// The `number`th run of a job, the first being itself.
pub fn again(job: &Value, number: u32) -> Value {
    let metadata = &job["metadata"];
    let root = root(job);
    let end = format!("-r{number}");
    let front: String = root.chars().take(NAME_MAX - end.len()).collect();
    let mut labels = carried_over(&metadata["labels"]);
    labels.insert(RETRY_OF.to_owned(), root.into());
    let mut fresh = json!({
        "name": format!("{}{end}", front.trim_end_matches(['-', '.'])),
        "namespace": metadata["namespace"],
        "labels": labels,
    });
    let annotations = carried_over(&metadata["annotations"]);
    if !annotations.is_empty() {
        fresh["annotations"] = annotations.into();
    }
    let mut spec = job["spec"].clone();
    slurm::renumber(&mut spec, text_at(&fresh, "/name"));
    json!({"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": fresh, "spec": spec})
}

/// The first job of a chain of retries.
fn root(job: &Value) -> &str {
    let label = job["metadata"]["labels"][RETRY_OF].as_str();
    label.unwrap_or_else(|| text_at(job, "/metadata/name"))
}

fn carried_over(texts: &Value) -> Map<String, Value> {
    let all = texts.as_object().into_iter().flatten();
    all.filter(|(key, _)| !LEFT_BEHIND.contains(&key.as_str()) && !known::NOTES_ON_JOBS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Submits a job that has ended anew; [`JobError::NotEnded`] or [`JobError::Suspended`] if it has not.
pub async fn retry(connection: &Connection, job: &JobRef) -> Result<JobRef, Error> {
    let old = lookup::get(connection, job).await?;
    let (name, flag) = (job.name.clone(), job.namespace_flag());
    match end_of(&lookup::typed(connection, &old)?) {
        None => return Err(JobError::NotEnded { name, flag }.into()),
        Some(JobEnd::Aborted) => return Err(JobError::Suspended { name, flag }.into()),
        Some(_) => {}
    }
    let path = job::jobs_path(Some(&job.namespace));
    let mut number = 2;
    let made = loop {
        match call::create(connection, &path, &again(&old, number), &format!("retry job {}", job.name)).await {
            Ok(made) => break made,
            Err(error) if error.class() == FailureClass::Conflict && number < NAMES_MAX => number += 1,
            Err(error) => return Err(error.into()),
        }
    };
    let new = JobRef { namespace: job.namespace.clone(), name: text_at(&made, "/metadata/name").to_owned() };
    if let Err(error) = share(connection, &old, &made).await {
        // Its script would go with the old job. The first failure is the one to tell of.
        let _ = call::delete(connection, &new.path(), &format!("delete job {}", new.name)).await;
        return Err(error.into());
    }
    Ok(new)
}

/// Lets what the old job brought along, and the new one uses too, belong to both.
async fn share(connection: &Connection, old: &Value, made: &Value) -> Result<(), CallError> {
    let [namespace, uid] = ["/metadata/namespace", "/metadata/uid"].map(|pointer| text_at(old, pointer));
    for (plural, name) in used(&old["spec"]) {
        let path = format!("/api/v1/namespaces/{namespace}/{plural}/{}", call::query_value(&name));
        let found = match call::get(connection, &path, &format!("read {plural} {name}")).await {
            Ok(found) => found,
            // One that is not there belongs to nobody; pods say that they wait for it.
            Err(error) if error.class() == FailureClass::NotFound => continue,
            Err(error) => return Err(error),
        };
        let mut owners = found["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        if !owners.iter().any(|owner| text_at(owner, "/uid") == uid) {
            continue;
        }
        owners.push(submit::owner("Job", made));
        let version = &found["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version, "ownerReferences": owners}});
        call::merge(connection, &path, &patch, &format!("share {plural} {name}")).await?;
    }
    Ok(())
}

/// The ConfigMaps that the pods of a job mount, the one that owns all others of their bundle, and the Secret with the key of
/// their results; each after the name of its kind in paths.
fn used(spec: &Value) -> BTreeSet<(&'static str, String)> {
    let tasks = spec["tasks"].as_array().into_iter().flatten();
    let pods = || tasks.clone().map(|task| &task["template"]["spec"]);
    let volumes = pods().flat_map(|pod| pod["volumes"].as_array().into_iter().flatten());
    let mounted = volumes.map(|volume| text_at(volume, "/configMap/name").to_owned());
    let containers = pods().flat_map(|pod| pod["containers"].as_array().into_iter().flatten());
    let variables = containers.flat_map(|container| container["env"].as_array().into_iter().flatten());
    let named = |name: &'static str| variables.clone().filter(move |variable| variable["name"] == name);
    let located = named(location::VARIABLE);
    let spots = located.filter_map(|variable| Some(text_at(variable, "/value").parse::<Location>().ok()?.address));
    let bundles = spots.filter_map(|address| match address {
        StoreAddress::ConfigMaps { name, .. } => Some(name),
        StoreAddress::Folder(_) => None,
    });
    let secrets = named(marked::VARIABLE).map(|key| text_at(key, "/valueFrom/secretKeyRef/name").to_owned());
    let maps = mounted.chain(bundles).map(|name| ("configmaps", name));
    maps.chain(secrets.map(|name| ("secrets", name))).filter(|(_, name)| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_uses_what_the_job_before_brought_along() {
        let bundle = |address: &str| format!("{address}#{}/r", crate::bundle::ChunkId::of(b""));
        let container = |value: String| {
            json!({"env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "not-ours"}}},
                {"name": "PUMICE_BUNDLE", "value": value},
                {"name": "PUMICE_RUN_KEY", "valueFrom": {"secretKeyRef": {"name": "run-key-x"}}},
            ]})
        };
        let spec = json!({"tasks": [{"template": {"spec": {
            "volumes": [{"configMap": {"name": "script"}}, {"emptyDir": {}}],
            "containers": [container(bundle("objects:n/bundle-x")), container(bundle("folder:/b"))],
        }}}]});
        let used_here = used(&spec);
        let names: Vec<_> = used_here.iter().map(|(plural, name)| (*plural, name.as_str())).collect();
        assert_eq!(names, [("configmaps", "bundle-x"), ("configmaps", "script"), ("secrets", "run-key-x")]);
        assert!(used(&json!({})).is_empty());
    }

    #[test]
    fn a_retry_is_the_same_job_under_a_new_name() {
        let old = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": "sweep", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "ownerReferences": [{"name": "flow"}], "labels": {"team": "a", known::CRON_JOB: "c"},
                "annotations": {known::USER: "ada", "note": "x", idempotency::KEY: "k", idempotency::SPEC: "s"}},
            "spec": {"queue": "q", "tasks": [{"replicas": 3}]},
            "status": {"state": {"phase": "Failed"}},
        });
        let second = again(&old, 2);
        insta::assert_yaml_snapshot!(second);
        // A retry of a retry counts on.
        assert_eq!(again(&second, 3)["metadata"]["name"], "sweep-r3");
        let long = json!({"metadata": {"name": format!("{}-{}", "a".repeat(59), "b".repeat(3))}});
        assert_eq!(again(&long, 10)["metadata"]["name"], format!("{}-r10", "a".repeat(59)));
    }
}
