//! How pods ended is on the disk when it is told.

use pumice_shim::control::{self, Stop};

use crate::harness::{is_root, wait_for};
use crate::node::TestNode;

/// The ends that an agent has synced, those of many pods together.
fn synced(node: &TestNode) -> String {
    let lines = String::from_utf8(std::fs::read(node.data_dir.path().join("data/node/exits")).unwrap()).unwrap();
    lines.lines().filter(|line| line.contains("\"status\":")).collect()
}

// INV-49
#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_on_the_disk_when_it_is_told() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    for number in 0..20 {
        node.sh(&format!("p{number}"), &format!("exit {}", number % 2)).await;
    }
    for number in 0..20 {
        let phase = if number % 2 == 0 { "Succeeded" } else { "Failed" };
        let pod = node.phase(&format!("p{number}"), phase).await;
        assert!(synced(&node).contains(pod.metadata.uid.as_ref().unwrap()), "p{number}");
    }
    // One that ends while no agent is there is synced by its shim, and told by the next agent.
    let pod = node.sh("late", "exec sleep 1000").await;
    node.phase("late", "Running").await;
    let (dir, uid) = (node.pod_dir(&pod), pod.metadata.uid.unwrap());
    node.kill_agent().await;
    control::request_stop(&dir, Stop { grace_seconds: 0 }).unwrap();
    wait_for("the end of the shim", || (!control::is_alive(&dir)).then_some(()));
    assert!(!synced(&node).contains(&uid));
    node.start_agent().await;
    node.phase("late", "Failed").await;
    assert!(synced(&node).contains(&uid));
}
