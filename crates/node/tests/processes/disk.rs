//! What a pod may use of the disk, with real pods.

use std::time::Duration;

use serde_json::json;

use crate::harness::is_root;
use crate::node::TestNode;

/// Found within ten seconds, and ended within a second and what it takes to tell.
const ENDED_WITHIN: Duration = Duration::from_secs(12);

/// Paths of what it writes are longer than any call takes, and another pod has many files.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_over_its_limit_is_ended_within_ten_seconds_however_deep_it_writes() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let create = async |name: &str, script: &str| {
        let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "8Mi"}}]);
        let command = ["sh", "-c", script];
        let container = json!({"name": "main", "image": "pumice.sh/host", "command": command, "volumeMounts": [
            {"name": "v", "mountPath": "/v"}]});
        node.create(name, json!({"volumes": volumes, "containers": [container]})).await
    };
    let many = "cd /v; i=0; while [ $i -lt 60000 ]; do : > $i; i=$((i+1)); done; echo made; sleep 1000";
    create("many", many).await;
    let made = async |pod: &str| {
        while !node.log(pod, "main").await.contains("made") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), made("many")).await.unwrap();
    let deep = "cd /v; name=$(printf %0200d 0); i=0; while [ $i -lt 60 ]; do mkdir $name && cd -P $name; i=$((i+1)); done 2>&1; \
                sleep 6; head -c 12M /dev/zero > big; echo made; sleep 1000";
    create("deep", deep).await;
    tokio::time::timeout(Duration::from_secs(60), made("deep")).await.unwrap();
    let written = pumice_clock::monotonic();
    let ended = node.phase("deep", "Failed").await.status.unwrap();
    assert!(written.elapsed() < ENDED_WITHIN, "{:?}", written.elapsed());
    assert_eq!(ended.reason.as_deref(), Some("Evicted"));
    assert_eq!(ended.message.as_deref(), Some("Usage of EmptyDir volume \"v\" exceeds the limit \"8Mi\". "));
    let many = node.get("many").await.unwrap().status.unwrap();
    assert_eq!(many.phase.as_deref(), Some("Running"), "empty files take little: {many:?}");
}
