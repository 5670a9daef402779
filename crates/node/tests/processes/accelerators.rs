//! Accelerators are allotted: made-up ones, whose nodes are the host's own harmless devices.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_linux::procfs;
use pumice_node::DeviceFolders;
use pumice_shim::spec::{SPEC_FILE, ShimSpec};
use serde_json::{Value, json};

use crate::harness::{is_root, wait_for};
use crate::node::TestNode;

/// Tells which cards there are and which of them open, and goes on until it is told to end.
const LOOK: &str = "trap 'exit 0' TERM; for node in /dev/nvidia*; do (exec 3<> $node) 2> /dev/null && echo $node; done; \
                    echo $NVIDIA_VISIBLE_DEVICES; while :; do sleep 0.02; done";

/// A machine with two cards. Their driver tells of the second.
fn machine(at: &Path) -> DeviceFolders {
    let folders = DeviceFolders { dev: at.join("dev"), graphics: at.join("drm"), nvidia: at.join("gpus") };
    fs::create_dir_all(&folders.dev).unwrap();
    for (node, device) in [("nvidia0", "/dev/zero"), ("nvidia1", "/dev/full"), ("nvidiactl", "/dev/null")] {
        symlink(device, folders.dev.join(node)).unwrap();
    }
    let card = folders.nvidia.join("0000:3b:00.0");
    fs::create_dir_all(&card).unwrap();
    fs::write(card.join("information"), "GPU UUID: GPU-second\nDevice Minor: 1\n").unwrap();
    folders
}

async fn node(machine: &Path) -> TestNode {
    let mut node = TestNode::without_agent().await;
    node.devices = self::machine(machine);
    node.start_agent().await;
    node
}

/// Bug: such pods failed with `UnexpectedAdmissionError`.
#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_somebody_wrote_into_the_node_is_only_counted() {
    if !is_root() {
        return;
    }
    let machine = tempfile::tempdir().unwrap();
    let at = machine.path();
    let mut node = TestNode::without_agent().await;
    node.devices = DeviceFolders { dev: at.join("dev"), graphics: at.join("drm"), nvidia: at.join("gpus") };
    node.start_agent().await;
    node.create("counted", with_gpus("true", 1)).await;
    node.phase("counted", "Succeeded").await;
}

fn with_gpus(script: &str, gpus: u32) -> Value {
    json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "none",
        "command": ["sh", "-c", script], "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]})
}

async fn sees(node: &TestNode, name: &str, expected: &[&str]) -> Pod {
    let pod = node.phase(name, "Running").await;
    let log = node.log_when(name, "c", |log| log.lines().count() >= expected.len()).await;
    assert_eq!(log.lines().collect::<Vec<_>>(), expected, "{name}");
    pod
}

fn annotation(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get("pumice.sh/accelerators").map(String::as_str)
}

fn message(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or_default()
}

/// Bug: a container that named one GPU had all of the machine's.
#[tokio::test(flavor = "multi_thread")]
async fn no_gpu_is_of_two_pods_and_it_is_free_when_its_pod_has_ended() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut node = node(folder.path()).await;
    for name in ["first", "second"] {
        node.create(name, with_gpus(LOOK, 1)).await;
        node.phase(name, "Running").await;
    }
    let first = sees(&node, "first", &["/dev/nvidia0", "/dev/nvidiactl", "0"]).await;
    let second = sees(&node, "second", &["/dev/nvidia1", "/dev/nvidiactl", "GPU-second"]).await;
    assert_eq!([annotation(&first), annotation(&second)], [Some("c: nvidia.com/gpu=0"), Some("c: nvidia.com/gpu=1")]);
    let none = node.create("none", with_gpus("ls /dev/nvidia*", 0)).await;
    node.phase("none", "Failed").await;
    assert_eq!(annotation(&none), None);
    // The scheduler would not have sent it.
    node.create("third", with_gpus(LOOK, 1)).await;
    let refused = node.phase("third", "Failed").await;
    assert_eq!(refused.status.as_ref().unwrap().reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert!(message(&refused).contains("unavailable for nvidia.com/gpu. Requested: 1, Available: 0"), "{refused:?}");
    node.event("third", "UnexpectedAdmissionError", |event| event.type_.as_deref() == Some("Warning")).await;
    // Another agent knows what pods have.
    node.kill_agent().await;
    node.start_agent().await;
    node.create("fourth", with_gpus(LOOK, 1)).await;
    node.phase("fourth", "Failed").await;
    node.delete("first", &DeleteParams::default()).await;
    node.gone(&first).await;
    node.create("fifth", with_gpus(LOOK, 1)).await;
    sees(&node, "fifth", &["/dev/nvidia0", "/dev/nvidiactl", "0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_restarts_has_the_same_gpu() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path()).await;
    let mut spec = with_gpus("ls /dev/nvidia[0-9]; test -e /state/again || { touch /state/again; exit 1; }", 1);
    spec["restartPolicy"] = json!("OnFailure");
    spec["volumes"] = json!([{"name": "state", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "state", "mountPath": "/state"}]);
    spec["initContainers"] = json!([{"name": "init", "image": "none", "command": ["ls", "/dev/nvidia0", "/dev/nvidia1"],
        "resources": {"limits": {"nvidia.com/gpu": "2"}}}]);
    let pod = node.create("again", spec).await;
    node.phase("again", "Succeeded").await;
    assert_eq!(node.log("again", "init").await, "/dev/nvidia0\n/dev/nvidia1\n");
    assert_eq!(node.log("again", "c").await, "/dev/nvidia0\n");
    let spec = fs::read(node.pod_dir(&pod).join(SPEC_FILE)).unwrap();
    let spec: ShimSpec = serde_json::from_slice(&spec).unwrap();
    assert_eq!(spec.containers[0].accelerators.as_ref().unwrap()["nvidia.com/gpu"], [0].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_the_version_before_has_all_that_it_sees() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut node = node(folder.path()).await;
    let before = node.create("before", with_gpus(LOOK, 1)).await;
    node.phase("before", "Running").await;
    node.kill_agent().await;
    let path = node.pod_dir(&before).join(SPEC_FILE);
    let mut spec: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    spec["containers"][0].as_object_mut().unwrap().remove("accelerators").unwrap();
    let mounts = spec["containers"][0]["mounts"].as_array_mut().unwrap();
    let mut second = mounts.last().unwrap().clone();
    second["target"] = json!("/dev/nvidia1");
    mounts.push(second);
    fs::write(&path, spec.to_string()).unwrap();
    node.start_agent().await;
    node.create("next", with_gpus(LOOK, 1)).await;
    let refused = node.phase("next", "Failed").await;
    assert!(message(&refused).contains("Available: 0"), "{}", message(&refused));
    node.delete("before", &DeleteParams::default()).await;
    node.gone(&before).await;
    node.create("later", with_gpus(LOOK, 2)).await;
    sees(&node, "later", &["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "0,1"]).await;
}

/// A control group whose processes can't even be killed, until it is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn of(processes: &[i32]) -> Frozen {
        let group = Path::new(FREEZERS).join(format!("pumice-test-{}", processes[0]));
        fs::create_dir(&group).unwrap();
        let frozen = Frozen(group);
        processes.iter().for_each(|pid| fs::write(frozen.0.join("cgroup.procs"), pid.to_string()).unwrap());
        fs::write(frozen.0.join("freezer.state"), "FROZEN").unwrap();
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let killed = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in killed.lines().filter_map(|pid| pid.parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        wait_for("the group to be empty", || fs::remove_dir(&self.0).ok());
    }
}

const FREEZERS: &str = "/sys/fs/cgroup/freezer";

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_of_a_lost_pod_is_free_when_its_processes_are_gone() {
    if !is_root() {
        return;
    }
    if !Path::new(FREEZERS).join("tasks").exists() {
        println!("vacuous on this kernel: nothing keeps a process that is killed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path()).await;
    // Its processes are the same all the time.
    let lost = node.create("lost", with_gpus("ls /dev/nvidia?; exec sleep 1000", 2)).await;
    sees(&node, "lost", &["/dev/nvidia0", "/dev/nvidia1"]).await;
    let shim = node.shim_pid(&lost);
    let frozen = Frozen::of(&procfs::descendants(shim));
    kill(Pid::from_raw(shim), Signal::SIGKILL).unwrap();
    node.phase("lost", "Failed").await;
    node.create("next", with_gpus(LOOK, 1)).await;
    let waits = |pod: &Pod| {
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let waiting = containers.and_then(|statuses| statuses.first()?.state.as_ref()?.waiting.clone());
        waiting.and_then(|waiting| waiting.message).as_deref()
            == Some("processes of the pod default/lost still use nvidia.com/gpu")
    };
    node.pod("next", "waiting for a GPU", waits).await;
    drop(frozen);
    sees(&node, "next", &["/dev/nvidia0", "/dev/nvidiactl", "0"]).await;
}
