//! Containers that are added to pods that run, as the agent does it.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{Patch, PatchParams};
use pumice_linux::files::{Durability, write_atomic};
use pumice_shim::ephemeral::{self, EphemeralContainer};
use pumice_shim::status::STATUS_FILE;
use serde_json::{Value, json};

use crate::harness::{container, is_root};
use crate::node::TestNode;

fn named(name: &str, script: &str) -> Value {
    json!({"name": name, "image": "any", "command": ["sh", "-c", script]})
}

async fn add(node: &TestNode, pod: &str, container: Value) {
    let patch = Patch::Strategic(json!({"spec": {"ephemeralContainers": [container]}}));
    node.pods().patch_subresource("ephemeralcontainers", pod, &PatchParams::default(), &patch).await.unwrap();
}

fn status(pod: &Pod, name: &str) -> Option<ContainerStatus> {
    let statuses = pod.status.as_ref()?.ephemeral_container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == name).cloned()
}

/// Waits for the end of an added container.
async fn ended(node: &TestNode, pod: &str, name: &str) -> i32 {
    let code = |pod: &Pod| Some(status(pod, name)?.state?.terminated?.exit_code);
    code(&node.pod(pod, name, |pod| code(pod).is_some()).await).unwrap()
}

/// Waits until an added container waits for this reason, and gives the message.
async fn waits(node: &TestNode, pod: &str, name: &str, reason: &str) -> String {
    let waiting = |pod: &Pod| status(pod, name)?.state?.waiting;
    let is_it = |pod: &Pod| waiting(pod).is_some_and(|found| found.reason.as_deref() == Some(reason));
    waiting(&node.pod(pod, reason, is_it).await).unwrap().message.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_for_while_the_agent_was_away_runs_once() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    let pod = node.sh("p", "exec sleep 1000").await;
    node.phase("p", "Running").await;
    add(&node, "p", named("first", "echo first; exit 3")).await;
    assert_eq!(ended(&node, "p", "first").await, 3);
    node.kill_agent().await;
    add(&node, "p", named("away", "echo away; exit 4")).await;
    node.start_agent().await;
    assert_eq!(ended(&node, "p", "away").await, 4);
    node.kill_agent().await;
    // As if it had ended after it had written this, and before the shim heard of it.
    add(&node, "p", named("unheard", "echo never")).await;
    let unheard = container("unheard", "echo unheard; exit 5");
    let unheard = EphemeralContainer { container: unheard, target: None, image_id: "an image".into() };
    let file = node.pod_dir(&pod).join("ephemeral/unheard.json");
    write_atomic(&file, &serde_json::to_vec(&unheard).unwrap(), Durability::Process).unwrap();
    node.start_agent().await;
    assert_eq!(ended(&node, "p", "unheard").await, 5);
    node.kill_agent().await;
    node.start_agent().await;
    let again = node.pod("p", "a status again", |pod| status(pod, "unheard").is_some()).await;
    assert_eq!(status(&again, "unheard").unwrap().image_id, "an image");
    for (name, text) in [("first", "first\n"), ("away", "away\n"), ("unheard", "unheard\n")] {
        assert_eq!(node.log("p", name).await, text);
    }
    assert_eq!(again.status.unwrap().phase.as_deref(), Some("Running"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_can_not_be_had_says_why_until_it_can() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let pod = node.sh("p", "exec sleep 1000").await;
    node.phase("p", "Running").await;
    let mut lacks = named("lacks", "echo $KEY");
    lacks["env"] = json!([{"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "k"}}}]);
    add(&node, "p", lacks).await;
    let mut root = named("root", "true");
    root["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 0});
    add(&node, "p", root).await;
    let message = waits(&node, "p", "lacks", "CreateContainerConfigError").await;
    assert_eq!(message, "ConfigMap \"later\" not found");
    let message = waits(&node, "p", "root", "CreateContainerConfigError").await;
    // A strategic merge puts what is new first.
    assert!(message.starts_with("spec.ephemeralContainers[0].securityContext.runAsUser: "), "{message}");
    let event = node.event("p", "Failed", |_| true).await;
    let path = event.involved_object.field_path.unwrap();
    assert!(path.starts_with("spec.ephemeralContainers{"), "{path}");
    node.config_map("later", json!({"k": "it came"})).await;
    assert_eq!(ended(&node, "p", "lacks").await, 0);
    assert_eq!(node.log("p", "lacks").await, "it came\n");

    // A shim of an earlier release says nothing of them.
    let file = node.pod_dir(&pod).join(STATUS_FILE);
    let mut earlier: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    earlier.as_object_mut().unwrap().remove("ephemeral_containers");
    write_atomic(&file, earlier.to_string().as_bytes(), Durability::Process).unwrap();
    add(&node, "p", named("more", "true")).await;
    let message = waits(&node, "p", "more", "CreateContainerError").await;
    assert!(message.contains("started by an earlier release"), "{message}");
    assert!(!ephemeral::names(&node.pod_dir(&pod)).contains("more"));
}
