//! Ways from a pod to the host that are not its volumes: devices, descriptors, the program of process 1, its environment.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kube::api::DeleteParams;
use pumice_linux::cgroup::{CgroupSpec, Hierarchy};
use pumice_shim::spec::MountSpec;
use serde_json::json;

use crate::exec::{Session, script};
use crate::harness::{TestPod, is_root};
use crate::node::{TestNode, sh};

/// Streams of one pod that the agent serves at a time.
const POD_SESSIONS: usize = 32;

/// What a `chmod` or `setxattr` would change.
#[derive(Debug, PartialEq)]
struct FileState {
    mode: u32,
    changed_s: i64,
    changed_ns: i64,
}

fn state(path: impl AsRef<Path>) -> FileState {
    let found = std::fs::metadata(path).unwrap();
    FileState { mode: found.mode(), changed_s: found.ctime(), changed_ns: found.ctime_nsec() }
}

#[test]
fn standard_input_and_covered_files_are_not_the_hosts() {
    if !is_root() {
        return;
    }
    let before = state("/dev/null");
    let pod = TestPod::sh(
        "stat -L -c '%d:%i %a' /proc/self/fd/0 /dev/null; chmod 0600 /proc/self/fd/0; chmod 0644 /proc/keys || echo refused; \
         stat -c %d /proc/keys; stat -c %d /dev; read line; echo \"end of input: $?\"; cat /proc/keys | wc -c",
    );
    pod.start().done();
    let log = pod.log();
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains("chmod:")).collect();
    assert_eq!(lines[0], lines[1], "{log}");
    assert!(lines[0].ends_with(" 666"), "{log}");
    assert_eq!(lines[2], "refused");
    assert_eq!(lines[3], lines[4], "the covering device is the pod's: {log}");
    assert_eq!(lines[5..], ["end of input: 1", "0"]);
    assert_eq!(state("/dev/null"), before, "the host's null device is as it was");
}

#[test]
fn devices_of_the_host_are_used_but_not_changed() {
    if !is_root() {
        return;
    }
    let fuse = Path::new("/dev/fuse");
    if !fuse.exists() {
        eprintln!("not run: needs /dev/fuse");
        return;
    }
    let before = state(fuse);
    let script = "chmod 0600 /dev/fuse 2>&1; test -c /dev/fuse && exec 3<>/dev/fuse && echo opened";
    let without = TestPod::sh(script);
    without.start().done();
    assert!(!without.log().contains("opened"), "nobody has asked for it: {}", without.log());
    let mut pod = TestPod::sh(script);
    let source = PathBuf::from("/dev/fuse");
    pod.spec.containers[0].mounts = vec![MountSpec { target: source.clone(), source, sub_path: None, read_only: true }];
    pod.start().done();
    assert!(pod.log().contains("Read-only file system") && pod.log().contains("opened"), "{}", pod.log());
    assert_eq!(state(fuse), before);
}

#[test]
fn process_1_has_no_device_of_the_host_open() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh(
        "for fd in /proc/1/fd/*; do stat -L -c '%F %d:%i' $fd; done; stat -c 'null %d:%i' /dev/null; ls /proc/self/fd | wc -w",
    );
    pod.spec.containers[0].capabilities_add = vec!["SYS_PTRACE".into()];
    pod.start().done();
    let log = pod.log();
    let null = log.lines().find_map(|line| line.strip_prefix("null ")).unwrap();
    let devices: Vec<&str> = log.lines().filter(|line| line.starts_with("character special")).collect();
    assert!(devices.len() == 3 && devices.iter().all(|line| line.ends_with(null)), "{log}");
    assert_eq!(log.lines().last(), Some("4"), "a program has three streams, and the folder that is listed: {log}");
}

#[test]
fn a_program_can_not_keep_what_spares_the_shim_from_the_kernel() {
    if !is_root() {
        return;
    }
    let pod = TestPod::sh(
        "cat /proc/self/oom_score_adj; (echo -1 > /proc/self/oom_score_adj) 2> /dev/null; cat /proc/self/oom_score_adj \
         /proc/1/oom_score_adj",
    );
    pod.start().done();
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    // A machine may keep the right from root itself.
    let shims = if may_lower_oom_score() { "-900\n" } else { &own };
    assert_eq!(pod.log(), format!("0\n0\n{shims}"));
}

/// Whether this process has `CAP_SYS_RESOURCE`.
fn may_lower_oom_score() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(rights.trim(), 16).unwrap() & 1 << 24 != 0
}

#[test]
fn a_pod_has_so_many_processes_and_no_more() {
    if !is_root() {
        return;
    }
    let forks = "i=0; while [ $i -lt 60 ]; do sleep 600 & i=$((i+1)); done; echo made all";
    let mut pod = TestPod::sh(forks);
    let Some(group) = &mut pod.spec.cgroup else { return };
    if !group.hierarchy.counts_processes() {
        eprintln!("not run: no control group counts processes");
        return;
    }
    group.pids_max = Some(30);
    pod.spec.containers.push(crate::harness::container("beside", "sleep 0.1; exit 0"));
    let status = pod.start().done();
    assert!(!pod.log().contains("made all"), "{}", pod.log());
    let exit = status.containers[0].exit().unwrap();
    assert_ne!(exit.code, 0);
    assert_eq!(exit.message.as_deref(), Some("the pod has as many processes as it may have"));
    assert_eq!(pod.groups(), [] as [&Path; 0]);

    let mut pod = TestPod::sh(forks);
    pod.spec.cgroup.as_mut().unwrap().pids_max = Some(100);
    assert_eq!(pod.start().exit().code, 0, "{}", pod.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_of_the_platform_stays_with_it() {
    if !is_root() {
        return;
    }
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "this process has something to hide");
    let node = TestNode::start().await;
    let mut main = sh("tr '\\0' '\\n' < /proc/1/environ; chmod 0700 /proc/1/exe 2>&1; echo over; exec sleep 600");
    main["securityContext"] = json!({"capabilities": {"add": ["SYS_PTRACE"]}});
    let own = state(std::env::current_exe().unwrap());
    node.create("p", json!({"containers": [main]})).await;
    node.phase("p", "Running").await;
    let mut log = String::new();
    while !log.contains("over\n") {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        log = node.log("p", "main").await;
    }
    assert!(log.contains("PATH=") && !log.contains("CARGO"), "{log}");
    assert!(log.contains("Read-only file system"), "{log}");
    assert_eq!(state(std::env::current_exe().unwrap()), own, "the program's file is as it was");

    let what = script("chmod 0700 /proc/1/exe 2>&1; stat -L -c %d:%i /proc/self/fd/0 /dev/null", "output=1");
    let ended = Session::open(node.handle(), "p", &what).await.unwrap().end().await;
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].contains("Read-only file system"), "{}", ended.stdout);
    assert_eq!(lines[1], lines[2], "standard input of a program beside is the pod's too");
    assert_eq!(state(std::env::current_exe().unwrap()), own);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_has_a_resolver_file_of_its_own_and_can_not_write_it() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let text = "stat -c %d:%i /etc/resolv.conf; (echo nameserver 6.6.6.6 >> /etc/resolv.conf) 2>&1; \
                chmod 0666 /etc/resolv.conf 2>&1; rm /etc/resolv.conf 2>&1; cat /etc/resolv.conf; echo mine >> /etc/hosts && echo hosts";
    let mut seen = Vec::new();
    for name in ["a", "b"] {
        node.sh(name, text).await;
        node.phase(name, "Succeeded").await;
        let log = node.log(name, "main").await;
        assert_eq!(log.matches("Read-only file system").count(), 2, "{log}");
        assert!(log.ends_with("hosts\n") && !log.contains("6.6.6.6"), "{log}");
        seen.push(log.lines().next().unwrap().to_owned());
    }
    assert_ne!(seen[0], seen[1], "two files");
    for name in ["a", "b"] {
        node.delete(name, &DeleteParams::default()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_beside_are_the_pods_own_use_and_bounded() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let pod = node.sh("p", "exec sleep 600").await;
    node.phase("p", "Running").await;
    let mut sessions = Vec::new();
    for _ in 0..POD_SESSIONS {
        let mut session =
            Session::open(node.handle(), "p", &script("echo ready; exec sleep 600", "output=1")).await.unwrap();
        session.until("ready").await;
        sessions.push(session);
    }
    let refused = Session::open(node.handle(), "p", &script("true", "output=1")).await.err().unwrap();
    assert!(refused.starts_with("429 this node serves 32 streams of one pod"), "{refused}");
    if let Some(groups) = exec_groups(&node, pod.metadata.uid.as_deref().unwrap()) {
        for group in groups {
            let tasks = std::fs::read_to_string(group.join("tasks")).unwrap();
            assert!(tasks.lines().count() >= POD_SESSIONS, "{}: {tasks:?}", group.display());
        }
    }
    drop(sessions);
    let again = async {
        loop {
            match Session::open(node.handle(), "p", &script("echo again", "output=1")).await {
                Ok(session) => return session.end().await,
                Err(refused) => assert!(refused.starts_with("429"), "{refused}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    assert_eq!(again.await.stdout, "again\n", "an end makes room");
    node.delete("p", &DeleteParams::default().grace_period(0)).await;
    node.gone(&pod).await;
}

/// Where the helpers of a pod's programs are, with control groups of version 1.
fn exec_groups(node: &TestNode, uid: &str) -> Option<Vec<PathBuf>> {
    let CgroupSpec { hierarchy: Hierarchy::V1 { memory, pids, .. }, path, .. } = node.pod_groups(uid)? else {
        return None;
    };
    Some(vec![memory.join(&path).join("exec.processes"), pids?.join(path)])
}
