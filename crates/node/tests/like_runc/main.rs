//! Pods beside containers of `runc`: the same program is run in both, and what it observes is compared.
//!
//! A pod is made by the agent from a Pod object; the container is configured as containerd does it for a kubelet. Each difference
//! stands in [`differences::EXPLAINED`] with its reason; one that is not there fails the test, and so does an entry that is no
//! difference any more.
//! `cargo test -p pumice-node --test like_runc -- --nocapture` prints them.
//!
//! To observe more, let `probe/main.rs` print another `name=value`. It is one static file, which this test builds by `rustc`.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "the harness of a test fails by panicking")]

mod differences;
#[path = "../processes/harness.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod harness;
mod masked;
#[path = "../processes/node.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod node;
mod runc;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use caps::CapSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use node::TestNode;
use runc::Runc;

/// Properties that are compared at least.
const PROPERTIES_MIN: usize = 200;
/// The program's path in the containers.
const PROGRAM: &str = "/probe";
/// Where the host's control groups are in the containers, for the program to read its own.
const GROUPS: &str = "/groups";
const HOSTNAME: &str = "like-runc";
const MEMORY_BYTES: i64 = 256 << 20;
const CPU_REQUEST_MILLI: i64 = 250;
const CPU_LIMIT_MILLI: i64 = 500;
/// Processes of a pod at most, where nobody has set another number.
const PROCESSES_MAX: i64 = 4096;
/// Whom the program runs as.
const USERS: [u32; 2] = [0, 1000];
/// Programs whose end is compared: the name of a container, and its command.
const ENDS: [(&str, &[&str]); 9] = [
    ("true", &["/bin/true"]),
    ("false", &["/bin/false"]),
    ("code", &["/bin/sh", "-c", "exit 42"]),
    ("large-code", &["/bin/sh", "-c", "exit 300"]),
    ("fault", &[PROGRAM, "fault"]),
    ("by-its-own-signal", &[PROGRAM, "15"]),
    ("killed-child", &["/bin/sh", "-c", "/probe 9; exit $?"]),
    ("missing", &["/no-such-program"]),
    ("no-program", &["/etc/hosts"]),
];

#[test]
fn shim_entry() {
    harness::shim_entry();
}

/// What was observed, by name.
type Properties = BTreeMap<String, String>;

#[test]
fn a_pod_is_as_a_container_of_runc() {
    if !harness::is_root() {
        return;
    }
    if !Path::new("/sys/fs/cgroup/memory").exists() {
        eprintln!("not run: compares control groups of version 1, which this machine has not");
        return;
    }
    leave_traces();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(compare());
}

/// Gives this process, and threads that are made later, what programs must not inherit.
#[allow(unsafe_code)]
fn leave_traces() {
    let own = caps::read(None, CapSet::Permitted).unwrap();
    caps::set(None, CapSet::Inheritable, &own).unwrap();
    caps::set(None, CapSet::Ambient, &own).unwrap();
    // SAFETY: nobody here handles or sends it.
    unsafe { libc::signal(libc::SIGRTMIN() + 6, libc::SIG_IGN) };
}

async fn compare() {
    let folder = tempfile::tempdir().unwrap();
    let program = build_probe(folder.path());
    let Some(runc) = Runc::find(&program) else {
        eprintln!("not run: needs runc; `apt-get install runc`, or run ./tests/prerequisites");
        assert!(std::env::var_os("CI").is_none(), "runc is not installed");
        return;
    };
    let (ours, theirs) = tokio::join!(of_pods(&program), async { tokio::task::block_in_place(|| of_runc(&runc)) });
    let found = differences::compare(&ours, &theirs);
    println!("{} properties as {} users, {} differ", ours[0].len(), USERS.len(), found.len());
    assert!(ours[0].len() >= PROPERTIES_MIN, "{} properties", ours[0].len());
    differences::judge(&found);
}

fn build_probe(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/like_runc/probe/main.rs");
    let program = folder.join("probe");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(compiler)
        .args(["--edition", "2024", "-D", "warnings", "-C", "target-feature=+crt-static", "-C", "panic=abort", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// What the program observes in pods, as each user.
async fn of_pods(program: &Path) -> Vec<Properties> {
    let node = TestNode::start().await;
    for user in USERS {
        node.create(&format!("user-{user}"), pod(program, user)).await;
    }
    let mut observed = Vec::new();
    for user in USERS {
        let name = format!("user-{user}");
        let pod = node.pod(&name, "ended", has_ended).await;
        let mut properties = parse(&node.log(&name, "main").await);
        if user == 0 {
            properties.extend(ENDS.iter().map(|(name, _)| (format!("end.container {name}"), end(&pod, name))));
        }
        observed.push(properties);
    }
    observed
}

/// The same in containers of runc.
fn of_runc(runc: &Runc) -> Vec<Properties> {
    let mut observed: Vec<_> = USERS.iter().map(|user| parse(&runc.probe(*user))).collect();
    observed[0].extend(ENDS.iter().map(|(name, command)| (format!("end.container {name}"), runc.end(command))));
    observed
}

fn pod(program: &Path, user: u32) -> Value {
    let mounts = json!([{"name": "program", "mountPath": PROGRAM, "readOnly": true},
        {"name": "groups", "mountPath": GROUPS, "readOnly": true}]);
    let container = |name: &str, command: &[&str]| {
        json!({"name": name, "image": "none", "command": command, "volumeMounts": mounts,
            "securityContext": {"runAsUser": user, "runAsGroup": user},
            "resources": {"requests": {"cpu": format!("{CPU_REQUEST_MILLI}m")},
                "limits": {"cpu": format!("{CPU_LIMIT_MILLI}m"), "memory": MEMORY_BYTES.to_string()}}})
    };
    let mut containers = vec![container("main", &[PROGRAM])];
    if user == 0 {
        containers.extend(ENDS.iter().map(|(name, command)| container(name, command)));
    }
    json!({"containers": containers, "hostname": HOSTNAME, "automountServiceAccountToken": false,
        "volumes": [{"name": "program", "hostPath": {"path": program}},
            {"name": "groups", "hostPath": {"path": "/sys/fs/cgroup"}}]})
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// How a container of a pod has ended.
fn end(pod: &Pod, name: &str) -> String {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()).unwrap();
    let found = containers.iter().find(|container| container.name == name).unwrap();
    let end = found.state.as_ref().and_then(|state| state.terminated.as_ref()).unwrap();
    if end.reason.as_deref() == Some("StartError") {
        "never starts".to_owned()
    } else {
        format!("code {}", end.exit_code)
    }
}

/// What the program has printed. What names something of one run says whose it is instead.
fn parse(text: &str) -> Properties {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let is_own = |group: &&str| !groups.lines().any(|hosts| hosts == *group);
    let controller = |group: &str| group.split(':').nth(1).unwrap().to_owned();
    let properties = text.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| {
        let value = match name.split_once('.').unwrap_or((name, "")) {
            ("namespace", kind) => {
                let hosts = fs::read_link(Path::new("/proc/self/ns").join(kind)).unwrap();
                if hosts == Path::new(value) { "the host's" } else { "its own" }.to_owned()
            }
            ("groups", _) => {
                let own: BTreeSet<_> = value.split(' ').filter(is_own).map(controller).collect();
                format!("its own of {own:?}")
            }
            // Variables name services, too; those of a cluster come from the kubelet.
            ("process", "environment") => {
                value.split(' ').filter(|name| !name.starts_with("KUBERNETES_")).collect::<Vec<_>>().join(" ")
            }
            _ => value.to_owned(),
        };
        (name.to_owned(), value)
    });
    properties.collect()
}
