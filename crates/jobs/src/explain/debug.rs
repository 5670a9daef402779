//! What failed in a job's pod, and what it takes to run the same on the user's machine.
//!
//! Invariant: pure. Only values that stand in the pod itself are given: what comes from Secrets and other objects is named, not
//! fetched, so that no secret gets to a screen or into a file. Called by `jobctl debug`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use pumice_api::names;
use serde::Serialize;

use crate::job::pod::ATTEMPT;
use crate::job::{PodFailure, pod_failures};
use crate::render::RULE_VARIABLE;
use crate::shards::Plan;

/// A container that failed, and how to run it again.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    pub pod: String,
    /// The task of the job.
    pub task: String,
    /// The pod's index in the task.
    pub index: String,
    /// The keys of its records, the first and the last; empty if it has none, or if they are in a bundle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub records: String,
    /// The container; empty if none has started.
    pub container: String,
    /// The node; empty if it had none.
    pub node: String,
    /// Which run of this index it was, the first being 1.
    pub attempt: u32,
    /// The container's exit code.
    pub exit_code: i32,
    /// The signal that killed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether it was killed for want of memory.
    pub out_of_memory: bool,
    /// The failure for people.
    pub text: String,
    /// Program and arguments; empty if only the image knows them.
    pub command: Vec<String>,
    /// Variables with their values.
    pub environment: BTreeMap<String, String>,
    /// Variables whose values are elsewhere.
    pub not_here: Vec<String>,
    /// The working directory; empty if only the image knows it.
    pub directory: String,
}

/// The first failure, or that of the pod at this index.
pub fn case(pods: &[Pod], index: Option<u32>) -> Option<Case> {
    let wanted = |pod: &&Pod| index.is_none_or(|index| label(pod, names::TASK_INDEX) == index.to_string());
    let pods: Vec<Pod> = pods.iter().filter(wanted).cloned().collect();
    let failure = pod_failures(&pods).into_iter().next()?;
    let pod = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(&failure.pod))?;
    Some(of(pod, &failure))
}

fn of(pod: &Pod, failure: &PodFailure) -> Case {
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let mut containers = containers.into_iter().flatten();
    // A pod that never started has no failed container: its first one is what would have run.
    let container = if failure.container.is_empty() {
        spec.and_then(|spec| spec.containers.first())
    } else {
        containers.find(|container| container.name == failure.container)
    };
    let (environment, not_here) = container.map(|container| environment(pod, container)).unwrap_or_default();
    let attempt = environment.get(ATTEMPT).and_then(|text| text.parse().ok());
    let retries =
        pod.metadata.annotations.as_ref().and_then(|all| all.get(names::JOB_RETRY_COUNT)?.parse::<u32>().ok());
    let index = label(pod, names::TASK_INDEX);
    Case {
        pod: failure.pod.clone(),
        task: label(pod, names::TASK_SPEC).to_owned(),
        index: index.to_owned(),
        records: environment.get(RULE_VARIABLE).and_then(|rule| records(rule, index)).unwrap_or_default(),
        container: failure.container.clone(),
        node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        attempt: attempt.unwrap_or_else(|| retries.unwrap_or(0).saturating_add(1)),
        exit_code: failure.exit_code,
        signal: failure.signal,
        out_of_memory: failure.reason == "OOMKilled",
        text: failure.sentence(),
        command: container.map(|container| command(container, &environment)).unwrap_or_default(),
        directory: container.and_then(|container| container.working_dir.clone()).unwrap_or_default(),
        environment,
        not_here,
    }
}

/// The keys of the records of a pod.
fn records(rule: &str, index: &str) -> Option<String> {
    let plan = Plan::parse(rule).ok()?;
    let slice = plan.slice(index.parse().ok()?)?;
    let [first, last] = [slice.start, slice.end.checked_sub(1)?].map(|index| plan.shards().key(index));
    let (first, last) = (first?, last?);
    Some(if first == last { first } else { format!("{first} to {last}") })
}

fn label<'p>(pod: &'p Pod, key: &str) -> &'p str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// The variables whose values the pod itself says, and the names of the others.
fn environment(pod: &Pod, container: &Container) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut known, mut unknown) = (BTreeMap::new(), Vec::new());
    for variable in container.env.iter().flatten() {
        match value(pod, variable) {
            Some(value) => {
                let value = expand(&value, &known);
                known.insert(variable.name.clone(), value);
            }
            None => unknown.push(variable.name.clone()),
        }
    }
    for source in container.env_from.iter().flatten() {
        let map = source.config_map_ref.as_ref().map(|reference| format!("all of ConfigMap {}", reference.name));
        let secret = source.secret_ref.as_ref().map(|reference| format!("all of Secret {}", reference.name));
        unknown.extend(map.or(secret));
    }
    (known, unknown)
}

fn value(pod: &Pod, variable: &EnvVar) -> Option<String> {
    let Some(source) = &variable.value_from else { return Some(variable.value.clone().unwrap_or_default()) };
    let field = source.field_ref.as_ref()?.field_path.as_str();
    let of_map = |map: &Option<BTreeMap<String, String>>, front: &str| {
        let key = field.strip_prefix(front)?.strip_suffix("']")?;
        map.as_ref()?.get(key).cloned()
    };
    match field {
        "metadata.name" => pod.metadata.name.clone(),
        "metadata.namespace" => pod.metadata.namespace.clone(),
        "metadata.uid" => pod.metadata.uid.clone(),
        "spec.nodeName" => pod.spec.as_ref()?.node_name.clone(),
        "status.podIP" => pod.status.as_ref()?.pod_ip.clone(),
        _ => of_map(&pod.metadata.labels, "metadata.labels['")
            .or_else(|| of_map(&pod.metadata.annotations, "metadata.annotations['")),
    }
}

fn command(container: &Container, environment: &BTreeMap<String, String>) -> Vec<String> {
    // Arguments without a command belong to a program that only the image names.
    let Some(command) = container.command.as_ref().filter(|command| !command.is_empty()) else { return Vec::new() };
    command.iter().chain(container.args.iter().flatten()).map(|part| expand(part, environment)).collect()
}

/// `$(NAME)` is a variable's value and `$$` a dollar, as the kubelet has it; what is unknown stays.
fn expand(text: &str, environment: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let named = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match named.and_then(|(name, after)| Some((environment.get(name)?, after))) {
            Some((value, after)) => {
                out.push_str(value);
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(index: u32, exit_code: i32, reason: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": format!("j-t-{index}"), "namespace": "n",
                "labels": {names::TASK_INDEX: index.to_string(), names::TASK_SPEC: "t", "team": "a"},
                "annotations": {names::JOB_RETRY_COUNT: "1"}},
            "spec": {"nodeName": "east", "containers": [{
                "name": "main", "command": ["sh", "-c"], "args": ["echo $(DAY) $$(DAY) $(NONE) $"], "workingDir": "/w",
                "env": [
                    {"name": "DAY", "value": "2024-01-01"},
                    {"name": "FILE", "value": "/data/$(DAY).csv"},
                    {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "TEAM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "settings"}}],
            }]},
            "status": {"phase": "Failed", "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": exit_code, "reason": reason,
                    "finishedAt": format!("2026-01-01T00:00:{:02}Z", 30 - index)}},
            }]},
        }))
        .unwrap()
    }

    #[test]
    fn a_case_has_what_it_takes_to_run_it_again() {
        let pods = [pod(3, 7, "Error"), pod(8, 137, "OOMKilled")];
        insta::assert_yaml_snapshot!(case(&pods, Some(3)));
        let first = case(&pods, None).unwrap();
        assert_eq!((first.index.as_str(), first.out_of_memory), ("8", true), "the one that failed first");
        assert_eq!(case(&pods, Some(5)), None);
        assert_eq!(case(&[], None), None);
    }

    #[test]
    fn records_are_named_by_the_first_and_the_last() {
        for (rule, index, wanted) in [
            ("v1 chunk=1 array=100-199", "7", Some("107")),
            ("v1 chunk=10 array=0-9999", "7", Some("70 to 79")),
            ("v1 chunk=10 array=0-9999", "1000", None),
            ("v1 chunk=10 array=0-9999", "", None),
            ("v1 chunk=100 bundle=params rows=100000 columns=lr,seed", "0", None),
            ("v2", "0", None),
        ] {
            assert_eq!(records(rule, index).as_deref(), wanted, "{rule} {index}");
        }
    }

    #[test]
    fn any_text_is_expanded_to_something() {
        let environment = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, expanded) in [
            ("$(A)", "1"),
            ("$$(A)", "$(A)"),
            ("$(B)", "$(B)"),
            ("$(A", "$(A"),
            ("a$", "a$"),
            ("é$(A)é", "é1é"),
            ("", ""),
        ] {
            assert_eq!(expand(text, &environment), expanded);
        }
    }
}
