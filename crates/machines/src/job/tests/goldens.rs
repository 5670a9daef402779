//! The manifests of the articles, rendered to everything the controller makes of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pumice_api::batch::Job;
use serde_json::{Value, json};

use super::model::Model;
use crate::job::{Effect, Ensured};
use crate::plugins::ssh::KeyPair;

/// The fixtures' folder; `None` where it is absent and may be.
fn fixtures() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/articles");
    #[allow(clippy::disallowed_methods, reason = "only tests look whether they run where all fixtures must be")]
    let required = std::env::var("CI").is_ok();
    assert!(folder.is_dir() || !required, "{} is missing", folder.display());
    folder.is_dir().then_some(folder)
}

fn load(file: &str) -> Option<Job> {
    let text = std::fs::read_to_string(fixtures()?.join(file)).unwrap();
    let mut value: Value = serde_saphyr::from_str(&text).unwrap();
    value["metadata"]["namespace"] = "default".into();
    value["metadata"]["uid"] = "0190c7a2-0000-7000-8000-000000000001".into();
    value["metadata"]["generation"] = 1.into();
    let mut job: Job = serde_json::from_value(value).unwrap();
    for task in &mut job.spec.tasks {
        task.min_available.get_or_insert(task.replicas);
    }
    Some(job)
}

/// All objects by kind and name; of each task only the first and the last pod.
fn render(job: Job) -> BTreeMap<String, Value> {
    let mut objects = BTreeMap::new();
    let mut model = Model::new(job);
    for _ in 0..2 {
        let plan = model.plan(None);
        for effect in plan.stages.iter().flatten() {
            let (key, value) = match effect {
                Effect::CreateGroup(group) => ("PodGroup".to_owned(), json!(group)),
                Effect::CreateClaim(claim) => {
                    (format!("Claim {}", claim.metadata.name.as_deref().unwrap()), json!(claim))
                }
                Effect::Ensure { object, .. } => match object {
                    Ensured::ConfigMap(map) => ("ConfigMap".to_owned(), json!(map)),
                    Ensured::Service(service) => ("Service".to_owned(), json!(service)),
                    Ensured::NetworkPolicy(policy) => ("NetworkPolicy".to_owned(), json!(policy)),
                    Ensured::SshSecret(plan) => {
                        let keys = KeyPair { private_key: "PRIVATE".into(), public_key: "ssh-rsa PUBLIC".into() };
                        let mut secret = json!(plan.with_keys(&keys));
                        secret["config (decoded)"] = plan.config.clone().into();
                        ("Secret".to_owned(), secret)
                    }
                },
                Effect::CreatePod(pod) => {
                    let name = pod.metadata.name.as_deref().unwrap();
                    let last =
                        model.job.spec.tasks.iter().any(|task| name.ends_with(&format!("-{}", task.replicas - 1)));
                    if !last && !name.ends_with("-0") {
                        continue;
                    }
                    (format!("Pod {name}"), json!(pod))
                }
                _ => continue,
            };
            objects.insert(key, value);
        }
        model.apply(plan, usize::MAX);
        model.admit();
    }
    objects
}

#[test]
fn mindspore() {
    if let Some(job) = load("mindspore-cpu.yaml") {
        insta::assert_yaml_snapshot!(render(job));
    }
}

#[test]
fn tensorflow() {
    if let Some(job) = load("tensorflow-dist-mnist.yaml") {
        insta::assert_yaml_snapshot!(render(job));
    }
}

#[test]
fn test_job_with_a_claim_and_a_volume_without() {
    if let Some(job) = load("test-job.yaml") {
        insta::assert_yaml_snapshot!(render(job));
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
