//! Events about pods in trouble, and none about the others.

use serde_json::json;

use crate::harness::is_root;
use crate::node::{TestNode, sh};

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_can_not_be_had_is_one_event_that_counts() {
    let node = TestNode::start().await;
    let mut container = sh("true");
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let volumes = json!([{"name": "v", "configMap": {"name": "m"}}]);
    node.create("p", json!({"containers": [container], "volumes": volumes})).await;
    let event = node.event("p", "FailedMount", |event| event.count >= Some(3)).await;
    assert_eq!(event.message.unwrap(), "MountVolume.SetUp failed for volume \"v\": ConfigMap \"m\" not found");
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("pumice-node"));
    assert!(event.last_timestamp > event.first_timestamp);
    assert_eq!(node.events("p").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_does_not_start_is_told_of_and_held_back() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let containers = json!([{"name": "main", "image": "none", "command": ["/no/such/program"]}]);
    node.create("p", json!({"containers": containers, "restartPolicy": "OnFailure"})).await;
    let failed = node.event("p", "Failed", |event| event.count >= Some(2)).await;
    let message = failed.message.unwrap();
    assert!(message.starts_with("Error: ") && message.contains("/no/such/program"), "{message}");
    assert_eq!(failed.involved_object.field_path.as_deref(), Some("spec.containers{main}"));
    let back_off = node.event("p", "BackOff", |_| true).await.message.unwrap();
    assert!(back_off.starts_with("Back-off restarting failed container main in pod p_default("), "{back_off}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ordinary_course_of_a_pod_makes_no_events() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    node.sh("p", "true").await;
    node.create(
        "rejected",
        json!({"containers": [{"name": "main", "image": "none", "command": ["true"],
        "resources": {"requests": {"cpu": "101"}}}]}),
    )
    .await;
    node.sh("q", "exit 3").await;
    node.phase("p", "Succeeded").await;
    node.phase("q", "Failed").await;
    node.event("rejected", "OutOfcpu", |_| true).await;
    for pod in ["p", "q"] {
        assert_eq!(node.events(pod).await, []);
    }
}
