//! Manifests, rendered to everything the controller makes of them: our own in full, those of others in short.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use pumice_api::batch::{Job, TaskSpec};
use pumice_api::names;
use serde_json::{Map, Value, json};

use super::model::Model;
use crate::job::{Effect, Ensured, pods};
use crate::plugins;
use crate::plugins::ssh::KeyPair;

/// Manifests that admission refuses.
const REFUSED: &str = "webhook-deny";

fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The manifests of a folder of fixtures; none where it is absent and may be.
fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = project().join("../shared/fixtures").join(folder);
    #[allow(clippy::disallowed_methods, reason = "only tests look whether they run where all fixtures must be")]
    let required = std::env::var("CI").is_ok();
    assert!(folder.is_dir() || !required, "{} is missing", folder.display());
    if folder.is_dir() { manifests(&folder) } else { Vec::new() }
}

fn manifests(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    files.sort();
    files
}

/// The jobs in a manifest, and the jobs that flows and cron jobs in it make, as admission leaves them.
fn load(file: &Path) -> Vec<Job> {
    let text = std::fs::read_to_string(file).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_str_multiple(&text).unwrap();
    let volcanos =
        |document: &&Value| document["apiVersion"].as_str().is_some_and(|text| text.contains(".volcano.sh/"));
    let specs = documents.iter().filter(volcanos).filter_map(|document| {
        let spec = match document["kind"].as_str()? {
            "Job" | "JobTemplate" => &document["spec"],
            "CronJob" => &document["spec"]["jobTemplate"]["spec"],
            _ => return None,
        };
        Some((document["metadata"]["name"].as_str()?, spec))
    });
    specs.map(|(name, spec)| admitted(name, spec)).collect()
}

fn admitted(name: &str, spec: &Value) -> Job {
    let mut job: Job = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": "0190c7a2-0000-7000-8000-000000000001", "generation": 1},
        "spec": spec,
    }))
    .unwrap();
    for (index, task) in job.spec.tasks.iter_mut().enumerate() {
        task.min_available.get_or_insert(task.replicas);
        if task.name.is_empty() {
            task.name = format!("default{index}");
        }
    }
    if job.spec.min_available == 0 {
        job.spec.min_available = job.spec.tasks.iter().filter_map(|task| task.min_available).sum();
    }
    for (implied, by) in [("svc", &["tensorflow", "mpi", "pytorch", "ray"][..]), ("ssh", &["mpi"])] {
        if by.iter().any(|name| job.spec.plugins.contains_key(*name)) {
            job.spec.plugins.entry(implied.to_owned()).or_default();
        }
    }
    job
}

/// All objects by kind and name; of each task only the first and the last pod.
fn render(job: Job) -> BTreeMap<String, Value> {
    let mut objects = BTreeMap::new();
    let mut model = Model::new(job);
    let named = model.job.spec.volumes.iter().map(|volume| volume.volume_claim_name.clone());
    model.claims.extend(named.filter(|name| !name.is_empty()));
    for _ in 0..2 {
        let plan = model.plan(None);
        for effect in plan.stages.iter().flatten() {
            let (key, value) = match effect {
                Effect::CreateGroup(group) => ("PodGroup".to_owned(), json!(group)),
                Effect::CreateClaim(claim) => {
                    (format!("Claim {}", claim.metadata.name.as_deref().unwrap()), json!(claim))
                }
                Effect::Ensure { id, object, .. } => (format!("{:?} {}", id.kind, id.name), ensured(object)),
                Effect::CreatePod(pod) => {
                    let name = pod.metadata.name.as_deref().unwrap();
                    let last =
                        model.job.spec.tasks.iter().any(|task| name.ends_with(&format!("-{}", task.replicas - 1)));
                    if !last && !name.ends_with("-0") {
                        continue;
                    }
                    (format!("Pod {name}"), json!(pod))
                }
                Effect::Record { message, .. } => ("Event".to_owned(), json!(message)),
                _ => continue,
            };
            objects.insert(key, value);
        }
        model.apply(plan, usize::MAX);
        model.admit();
    }
    objects
}

fn ensured(object: &Ensured) -> Value {
    match object {
        Ensured::ConfigMap(map) => json!(map),
        Ensured::Service(service) => json!(service),
        Ensured::NetworkPolicy(policy) => json!(policy),
        Ensured::SshSecret(plan) => {
            let keys = KeyPair { private_key: "PRIVATE".into(), public_key: "ssh-rsa PUBLIC".into() };
            let mut secret = json!(plan.with_keys(&keys));
            secret["config (decoded)"] = plan.config.clone().into();
            secret
        }
    }
}

/// What a job is expanded to, in short: names, numbers, keys; nothing that its author wrote at length.
fn summary(job: Job) -> Value {
    let plugins = plugins::of_job(&job).unwrap();
    let tasks: Map<String, Value> =
        job.spec.tasks.iter().map(|task| (task.name.clone(), of_task(&job, task, &plugins))).collect();
    let objects = render(job).into_iter().filter(|(key, _)| !key.starts_with("Pod "));
    let mut short: Map<String, Value> = objects.map(|(key, object)| (key, of_object(&object))).collect();
    short.insert("tasks".to_owned(), tasks.into());
    short.into()
}

fn of_object(object: &Value) -> Value {
    let keys = |value: &Value| value.as_object().map(|all| all.keys().cloned().collect::<Vec<_>>());
    let spec = &object["spec"];
    if object.is_string() {
        object.clone()
    } else if !spec["minMember"].is_null() {
        let resources = keys(&spec["minResources"]);
        json!({"minMember": spec["minMember"], "minTaskMember": spec["minTaskMember"], "queue": spec["queue"],
            "priorityClassName": spec["priorityClassName"], "minResources": resources})
    } else if !spec["selector"].is_null() {
        let ports: Vec<_> = spec["ports"].as_array().into_iter().flatten().map(|port| &port["port"]).collect();
        json!({"selector": spec["selector"], "ports": ports})
    } else {
        json!(keys(&object["data"]).or_else(|| keys(spec)))
    }
}

fn of_task(job: &Job, task: &TaskSpec, plugins: &[plugins::Plugin]) -> Value {
    let pod = |index| pods::build(job, task, index, plugins, &Default::default(), &Default::default(), None);
    let (first, last) = (pod(0), pod(task.replicas - 1));
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
    let spec = first.spec.as_ref().unwrap();
    let host = format!("{:?}.{:?}", spec.hostname.as_deref(), spec.subdomain.as_deref());
    let volumes: Vec<&str> = spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let containers: Map<String, Value> =
        containers.map(|container| (container.name.clone(), of_container(container))).collect();
    json!({"first": name(&first), "last": name(&last), "pods": task.replicas, "host": host, "volumes": volumes,
        "priorityClassName": spec.priority_class_name, "schedulerName": spec.scheduler_name,
        "labels": beyond(first.metadata.labels.as_ref(), EVERY_LABEL),
        "annotations": beyond(first.metadata.annotations.as_ref(), EVERY_ANNOTATION),
        "containers": containers})
}

/// Labels that every pod has.
const EVERY_LABEL: &[&str] =
    &[names::JOB_NAME, names::JOB_NAMESPACE, names::QUEUE_NAME, names::TASK_INDEX, names::TASK_SPEC];
/// Annotations that every pod has.
const EVERY_ANNOTATION: &[&str] = &[
    names::GROUP_NAME,
    names::JOB_NAME,
    names::JOB_RETRY_COUNT,
    names::JOB_VERSION,
    names::QUEUE_NAME,
    names::TASK_INDEX,
    names::TASK_SPEC,
    names::TEMPLATE_UID,
];

fn beyond(all: Option<&BTreeMap<String, String>>, every: &[&str]) -> Vec<String> {
    let all = all.unwrap();
    assert!(every.iter().all(|key| all.contains_key(*key)), "{all:?}");
    all.keys().filter(|key| !every.contains(&key.as_str())).cloned().collect()
}

fn of_container(container: &Container) -> Value {
    let env: Vec<&str> = container.env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    let ports: Vec<i32> = container.ports.iter().flatten().map(|port| port.container_port).collect();
    let mounts: Vec<&str> = container.volume_mounts.iter().flatten().map(|mount| mount.mount_path.as_str()).collect();
    json!({"env": env, "ports": ports, "mounts": mounts})
}

/// By file, and by name in the file.
fn summaries(files: &[PathBuf]) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for file in files {
        let file_name = file.file_name().unwrap().to_string_lossy().into_owned();
        if file_name.contains(REFUSED) {
            continue;
        }
        for job in load(file) {
            let key = format!("{file_name} {}", job.metadata.name.as_deref().unwrap());
            all.insert(key, summary(job));
        }
    }
    all
}

#[test]
fn volcanos_examples_in_short() {
    let files = fixtures("volcano/examples");
    if !files.is_empty() {
        insta::assert_yaml_snapshot!(summaries(&files));
    }
}

#[test]
fn articles_in_short() {
    let files = fixtures("articles");
    if !files.is_empty() {
        insta::assert_yaml_snapshot!(summaries(&files));
    }
}

#[test]
fn our_examples() {
    let folder = project().join("examples");
    let files = manifests(&folder).into_iter().chain(manifests(&folder.join("frameworks")));
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let jobs = load(&file);
        let several = jobs.len() > 1;
        for job in jobs {
            let mut snapshot = format!("example_{name}");
            if several {
                snapshot += &format!("_{}", job.metadata.name.as_deref().unwrap_or_default());
            }
            insta::assert_yaml_snapshot!(snapshot, render(job));
        }
    }
}

#[test]
fn plugin_arguments_change_what_is_made() {
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {
            "minAvailable": 1, "priorityClassName": "high",
            "plugins": {
                "svc": ["--publish-not-ready-addresses", "--inject-hosts-env=false", "--disable-network-policy"],
                "ssh": ["--ssh-key-file-path=/home/me/.ssh", "--ssh-port=2222", "--no-root"],
                "env": [],
            },
            "tasks": [{"name": "my-task", "replicas": 2, "minAvailable": 1, "topologyPolicy": "restricted",
                "partitionPolicy": {"totalPartitions": 2, "partitionSize": 1, "minPartitions": 1},
                "template": {
                    "metadata": {"labels": {"mine": "yes"}, "annotations": {"mine": "too"}},
                    "spec": {
                        "hostname": "fixed", "subdomain": "here", "priorityClassName": "own", "schedulerName": "other",
                        "initContainers": [{"name": "i"}], "containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}],
                    }}}],
        },
    }))
    .unwrap();
    insta::assert_yaml_snapshot!(render(job));
}
