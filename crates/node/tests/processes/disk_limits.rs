//! Pods that say how much they read and write a second at most.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::harness::is_root;
use crate::node::{NODE, TestNode};

const READ: &str = "pumice.sh/io-read-bytes-per-second";
const WRITE: &str = "pumice.sh/io-write-bytes-per-second";
/// Writes 2 MiB to a volume and reads them, past the memory of the kernel, and tells how many milliseconds each took.
const COPY: &str = "now() { date +%s%3N; }; begin=$(now); dd if=/dev/zero of=/data/file bs=64k count=32 oflag=direct 2> /dev/null || echo none; \
                    middle=$(now); dd if=/data/file of=/dev/null bs=64k iflag=direct 2> /dev/null; echo $((middle - begin)) $(($(now) - middle))";

/// As long as 2 MiB take at least at 1 MiB a second, of which the kernel gives a part at once.
const LEAST_MS: u64 = 1500;

async fn create(node: &TestNode, name: &str, annotations: Value) -> Pod {
    let container = json!({"name": "c", "image": "none", "command": ["sh", "-c", COPY],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let pod = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"nodeName": NODE,
        "restartPolicy": "Never", "containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]}});
    node.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
}

/// How long a pod wrote and read, in milliseconds; none where its disk is written through the memory alone.
async fn times(node: &TestNode, name: &str, annotations: Value) -> Option<[u64; 2]> {
    create(node, name, annotations).await;
    node.phase(name, "Succeeded").await;
    let log = node.log(name, "c").await;
    if log.contains("none") {
        return None;
    }
    let times: Vec<u64> = log.split_whitespace().map(|number| number.parse().unwrap()).collect();
    Some([times[0], times[1]])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_writes_and_reads_no_faster_than_it_says() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    if !node.handle().capabilities().cgroup.as_ref().is_some_and(|groups| groups.limits_disk()) {
        println!("vacuous on this kernel: no control group limits disks");
        return;
    }
    let Some(free) = times(&node, "free", json!({})).await else {
        println!("vacuous on this disk: it can't be written past the memory");
        return;
    };
    let writes = times(&node, "writes", json!({WRITE: "1Mi"})).await.unwrap();
    assert!(writes[0] >= LEAST_MS && free[0] < writes[0] && writes[1] < writes[0], "{free:?} {writes:?}");
    let reads = times(&node, "reads", json!({READ: "1Mi"})).await.unwrap();
    assert!(reads[1] >= LEAST_MS && free[1] < reads[1] && reads[0] < reads[1], "{free:?} {reads:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_no_quantity_is_refused_with_its_path() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    create(&node, "p", json!({WRITE: "fast"})).await;
    let waits = |pod: &Pod| {
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let waiting = containers.and_then(|statuses| statuses.first()?.state.as_ref()?.waiting.clone());
        waiting.is_some_and(|waiting| {
            waiting.reason.as_deref() == Some("CreateContainerConfigError")
                && waiting.message.unwrap_or_default().starts_with(&format!("metadata.annotations[{WRITE}]: \"fast\""))
        })
    };
    node.pod("p", "refused", waits).await;
}
