//! Networks of pods that the agent makes ahead.

use std::collections::BTreeSet;
use std::time::Duration;

use pumice_linux::links;
use pumice_node::tear_down;

use crate::harness::{is_root, wait_for};
use crate::node::TestNode;

/// More than are made ahead.
const PODS: usize = 30;

/// How many links are in the group of a bridge, beside it; none where it is gone.
fn pairs(bridge: &str) -> usize {
    let group = u32::from_str_radix(bridge.strip_prefix("pm").unwrap(), 16).unwrap();
    let in_group = links::members(&mut links::open().unwrap(), group).unwrap();
    in_group.iter().filter(|name| *name != bridge).count()
}

/// Starts pods that run on, and returns which network namespace each is in.
async fn namespaces(node: &TestNode, names: impl Iterator<Item = usize>) -> Vec<String> {
    let names: Vec<String> = names.map(|number| format!("p{number}")).collect();
    for name in &names {
        node.sh(name, "readlink /proc/self/ns/net; exec sleep 1000").await;
    }
    let mut found = Vec::new();
    for name in &names {
        node.phase(name, "Running").await;
        let mut log = String::new();
        while log.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
            log = node.log(name, "main").await;
        }
        found.push(log);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_has_a_network_that_no_other_pod_has() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    let mut found = namespaces(&node, 0..PODS).await;
    let bridge = node.bridge();
    wait_for("some that are made ahead", || (pairs(&bridge) > PODS).then_some(()));
    // Whoever makes them is gone, and what was made for pods to come with it.
    node.kill_agent().await;
    wait_for("the links of pods alone", || (pairs(&bridge) == PODS).then_some(()));
    node.start_agent().await;
    found.extend(namespaces(&node, PODS..2 * PODS).await);
    let different: BTreeSet<&String> = found.iter().collect();
    assert_eq!(different.len(), 2 * PODS, "{found:?}");
    assert!(!found.contains(&std::fs::read_link("/proc/self/ns/net").unwrap().to_string_lossy().into_owned()));
    node.stop_agent().await;
    let torn_down = tear_down(&node.data_dir.path().join("data"), Some(Duration::ZERO), |_, _| {}).unwrap();
    assert_eq!((torn_down.ended, torn_down.unended.len()), (2 * PODS, 0));
    assert!(!TestNode::links().contains(&bridge) && pairs(&bridge) == 0);
}
