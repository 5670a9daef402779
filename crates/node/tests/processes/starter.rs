//! The process that shims begin as copies of.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_linux::procfs;
use pumice_shim::starter::START_SHIMS;

use crate::harness::{is_root, wait_for};
use crate::node::TestNode;

/// The words by which a process was started.
fn words(pid: i32) -> Vec<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The starter of the pods in a folder.
fn starter(pods_dir: &Path) -> Option<i32> {
    procfs::children(std::process::id().cast_signed()).into_iter().find(|pid| {
        let words = words(*pid);
        words.iter().any(|word| word == START_SHIMS) && words.iter().any(|word| Path::new(word).starts_with(pods_dir))
    })
}

async fn running(node: &TestNode, name: &str) -> (Pod, i32) {
    node.sh(name, "exec sleep 1000").await;
    let pod = node.phase(name, "Running").await;
    let shim = node.shim_pid(&pod);
    (pod, shim)
}

#[tokio::test(flavor = "multi_thread")]
async fn shims_are_copies_of_a_process_that_is_made_again_when_it_is_gone() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    let (pod, shim) = running(&node, "a").await;
    let dir = node.pod_dir(&pod);
    let first = starter(dir.parent().unwrap()).unwrap();
    assert_eq!(procfs::parent(shim), Some(first));
    assert_eq!(
        words(shim).iter().rfind(|word| !word.is_empty()).map(String::as_str),
        dir.to_str(),
        "as people look for it"
    );
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    wait_for("the shim to be left behind", || (procfs::parent(shim) != Some(first)).then_some(()));
    let (second_pod, second_shim) = running(&node, "b").await;
    let second = starter(dir.parent().unwrap()).unwrap();
    assert_ne!(second, first);
    assert_eq!(procfs::parent(second_shim), Some(second));
    // A shim that ends is nobody's to wait for.
    node.delete("b", &DeleteParams::default()).await;
    node.gone(&second_pod).await;
    wait_for("the end of a shim", || (!Path::new(&format!("/proc/{second_shim}")).exists()).then_some(()));
    node.stop_agent().await;
    assert_eq!(starter(dir.parent().unwrap()), None, "it ends with the agent");
    assert!(Path::new(&format!("/proc/{shim}")).exists(), "and shims go on");
}
