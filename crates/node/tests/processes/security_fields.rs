//! Fields of a pod's security with real processes: namespaces that it shares, parameters of the kernel, groups.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use pumice_shim::control::{self, Stop};
use pumice_shim::spec::{Processes, RestartPolicy, Sysctl};
use serde_json::{Value, json};

use crate::exec::{Session, script};
use crate::harness::{TestPod, container, is_root, wait_for};
use crate::node::{TestNode, sh};

/// A name for processes that no other run of this test has.
fn own_name(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Counts the processes of the host that are called so.
fn running(name: &str) -> usize {
    let comm = |dir: std::fs::DirEntry| std::fs::read_to_string(dir.path().join("cmdline")).unwrap_or_default();
    std::fs::read_dir("/proc").unwrap().flatten().map(comm).filter(|line| line.split('\0').next() == Some(name)).count()
}

/// A shell that leaves processes of this name behind: one in its own group, one in a session of its own.
fn leaves(name: &str, then: &str) -> String {
    format!("bash -c 'exec -a {name} sleep 3600' & setsid bash -c 'exec -a {name} sleep 3600' & sleep 0.3; {then}")
}

#[test]
fn the_hosts_processes_are_seen_and_the_containers_own_end_with_it() {
    if !is_root() {
        return;
    }
    let own = std::process::id();
    for (then, name) in [("exit 3", "pumice-left-by-host-1"), ("sleep 3600", "pumice-left-by-host-2")] {
        let name = &own_name(name);
        let mut pod = TestPod::sh(&leaves(name, &format!("cat /proc/{own}/comm; echo there; {then}")));
        pod.spec.processes = Processes::Host;
        pod.start().log_contains("there");
        assert_eq!(pod.log(), format!("{}there\n", std::fs::read_to_string(format!("/proc/{own}/comm")).unwrap()));
        if then != "exit 3" {
            assert_eq!(running(name), 2);
            control::request_stop(pod.path(), Stop { grace_seconds: 0 }).unwrap();
        }
        let exit = pod.exit();
        assert_eq!(exit.code, if then == "exit 3" { 3 } else { 137 });
        assert_eq!(running(name), 0, "{then}");
        assert_eq!(pod.groups(), [] as [&Path; 0], "{then}");
    }
}

/// A container that is told to end ends by its own handler, as with processes of its own.
#[test]
fn a_stop_reaches_programs_that_see_others_processes() {
    if !is_root() {
        return;
    }
    for processes in [Processes::Host, Processes::Pod] {
        let mut pod = TestPod::sh("trap 'echo bye; exit 4' TERM; echo ready; sleep 100 & wait");
        pod.spec.processes = processes;
        pod.start().log_contains("ready");
        control::request_stop(pod.path(), Stop { grace_seconds: 30 }).unwrap();
        assert_eq!(pod.exit().code, 4, "{processes:?}");
        assert_eq!(pod.log(), "ready\nbye\n", "{processes:?}");
    }
}

#[test]
fn containers_of_a_pod_see_each_others_processes_and_nobody_elses() {
    if !is_root() {
        return;
    }
    let name = &own_name("pumice-left-by-pod");
    let look = "while ! grep -qa '^pumice-left-by-pod' /proc/[0-9]*/cmdline; do sleep 0.01; done; \
                echo 1: $(ls /proc/1/root/ 2>&1 | wc -w) $(ls -d /proc/[0-9]* | wc -l); kill -9 1; echo seen; sleep 3600";
    let mut pod = TestPod::sh(look);
    pod.spec.processes = Processes::Pod;
    pod.spec.containers[0].capabilities_add = vec!["SYS_PTRACE".into()];
    pod.spec.containers.push(container("other", &leaves(name, "sleep 1; exit 5")));
    pod.start().log_contains("seen");
    let log = pod.log();
    let counted: Vec<&str> = log.lines().find_map(|line| line.strip_prefix("1: ")).unwrap().split(' ').collect();
    assert_eq!(counted[0], "0", "the first process has an empty root: {log}");
    assert!(counted[1].parse::<usize>().unwrap() < 20, "the host has more: {log}");
    // The other container's end is its own, and its alone.
    let status =
        wait_for("the end of the other", || pod.status().filter(|status| status.containers[1].exit().is_some()));
    assert_eq!(status.containers[1].exit().unwrap().code, 5);
    wait_for("what it left to be gone", || (running(name) == 0).then_some(()));
    assert!(pod.status().unwrap().containers[0].is_running());
    let pid = shim_pid(pod.path());
    let first = children(pid);
    control::request_stop(pod.path(), Stop { grace_seconds: 0 }).unwrap();
    assert_eq!(pod.exit().code, 137);
    wait_for("the pod's processes to be gone", || {
        first.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
}

fn shim_pid(dir: &Path) -> i64 {
    let text = std::fs::read_to_string(dir.join("shim.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["pid"].as_i64().unwrap()
}

fn children(pid: i64) -> Vec<i64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Whoever sees the first process of its container may kill it; what it did is over then, and so is all that it began.
#[test]
fn a_container_whose_first_process_is_killed_leaves_nothing_and_is_started_again() {
    if !is_root() {
        return;
    }
    for processes in [Processes::Host, Processes::Pod] {
        let name = own_name(&format!("pumice-orphans-{processes:?}"));
        let mut pod = TestPod::sh(&leaves(&name, "kill -9 $PPID; sleep 3600"));
        pod.spec.processes = processes;
        pod.spec.restart_policy = RestartPolicy::OnFailure;
        pod.start();
        let again =
            wait_for("the second run", || pod.status().filter(|status| status.containers[0].restart_count >= 1));
        assert_eq!(again.containers[0].last.as_ref().unwrap().code, 137, "{processes:?}");
        control::request_stop(pod.path(), Stop { grace_seconds: 0 }).unwrap();
        pod.done();
        wait_for("all to be gone", || (running(&name) == 0).then_some(()));
    }
}

#[test]
fn the_hosts_system_v_objects_and_shared_memory_are_the_pods_where_it_says_so() {
    if !is_root() {
        return;
    }
    let made = Command::new("ipcmk").args(["-M", "4096"]).output().unwrap();
    let id = String::from_utf8(made.stdout).unwrap().trim().rsplit(' ').next().unwrap().to_owned();
    let file = tempfile::Builder::new().prefix("pumice-shm").tempfile_in("/dev/shm").unwrap();
    let script = format!("ipcs -m | grep -c ' {id} '; ls {} 2> /dev/null | wc -l", file.path().display());
    for (host_ipc, expected) in [(false, "0\n0\n"), (true, "1\n1\n")] {
        let mut pod = TestPod::sh(&script);
        pod.spec.host_ipc = host_ipc;
        pod.start().done();
        assert_eq!(pod.log(), expected, "{host_ipc}");
    }
    assert!(Command::new("ipcrm").args(["-m", &id]).status().unwrap().success());
}

#[test]
fn a_parameter_that_the_kernel_does_not_take_fails_the_pod_with_its_name() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh("echo ran");
    pod.spec.sysctls = vec![Sysctl { name: "kernel.shm_rmid_forced".into(), value: "many".into() }];
    let exit = pod.start().exit();
    let message = exit.message.unwrap();
    assert_eq!(exit.reason, "StartError");
    assert!(message.starts_with("can't set the sysctl kernel.shm_rmid_forced to \"many\": "), "{message}");
}

/// A container with a field more.
fn with(mut container: Value, field: &str, value: Value) -> Value {
    container[field] = value;
    container
}

fn image(container: Value) -> Value {
    with(container, "image", json!("ada"))
}

/// All of them by the agent, from a pod's fields.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_what_its_fields_say() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let layer = root.path();
    std::fs::create_dir(layer.join("etc")).unwrap();
    std::fs::write(layer.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nada:x:7:7::/:/bin/sh\n").unwrap();
    std::fs::write(layer.join("etc/group"), "video:x:44:ada\n").unwrap();
    let node = TestNode::with_image_map(&format!("ada: {{layer: {}}}\n", layer.display())).await;
    let before = std::fs::read_to_string("/proc/sys/kernel/shm_rmid_forced").unwrap();
    let sysctls = json!([{"name": "kernel.shm_rmid_forced", "value": "1"}, {"name": "net.ipv4.ip_unprivileged_port_start", "value": "81"}]);
    let read =
        "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/ip_unprivileged_port_start; hostname; echo $HOSTNAME";
    let volumes = json!([{"name": "e", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}},
        {"name": "d", "projected": {"defaultMode": 256, "sources": [{"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}}]);
    let mounts =
        json!([{"name": "e", "mountPath": "/e"}, {"name": "m", "mountPath": "/m"}, {"name": "d", "mountPath": "/d"}]);
    let write = "for v in e m; do stat -c '%g %a' /$v; touch /$v/f && stat -c %g /$v/f; done; cat /d/name";
    let groups = |policy: Value| json!({"runAsUser": 7, "runAsGroup": 7, "supplementalGroups": [9], "supplementalGroupsPolicy": policy});
    for (name, spec, expected) in [
        (
            "sysctls",
            json!({"containers": [sh(read)], "securityContext": {"sysctls": sysctls}, "subdomain": "s", "setHostnameAsFQDN": true}),
            "1\n81\nsysctls.s.default.svc.cluster.local\nsysctls.s.default.svc.cluster.local\n",
        ),
        ("merge", json!({"containers": [image(sh("id -G"))], "securityContext": groups(json!(null))}), "7 9 44\n"),
        ("strict", json!({"containers": [image(sh("id -G"))], "securityContext": groups(json!("Strict"))}), "7 9\n"),
        (
            "volumes",
            json!({"containers": [with(sh(write), "volumeMounts", mounts)], "volumes": volumes,
                   "securityContext": {"runAsUser": 7, "runAsGroup": 7, "fsGroup": 4242}}),
            "4242 2777\n4242\n4242 2777\n4242\nvolumes",
        ),
    ] {
        node.create(name, spec).await;
        node.phase(name, "Succeeded").await;
        assert_eq!(node.log(name, "main").await, expected, "{name}");
    }
    assert_eq!(
        std::fs::read_to_string("/proc/sys/kernel/shm_rmid_forced").unwrap(),
        before,
        "the host's own is as it was"
    );
}

/// What `exec` has started ends with the container, whose processes are not in a namespace of their own.
#[tokio::test(flavor = "multi_thread")]
async fn exec_enters_a_pod_that_shares_processes_and_ends_with_it() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    for (field, name) in [("hostPID", "pumice-exec-in-host"), ("shareProcessNamespace", "pumice-exec-in-pod")] {
        let pod = name.to_ascii_lowercase();
        let name = &own_name(name);
        let other = json!({"name": "other", "image": "none", "command": ["sh", "-c", "exec sleep 3601"]});
        node.create(&pod, json!({"containers": [sh("exec sleep 3600"), other], field: true})).await;
        node.phase(&pod, "Running").await;
        let what = format!(
            "until grep -qa '^sleep.3601' /proc/[0-9]*/cmdline; do sleep 0.01; done; setsid bash -c 'exec -a {name} sleep 3600' > /dev/null \
             2>&1 & sleep 0.2; echo seen; sleep 3600"
        );
        let mut session = Session::open(node.handle(), &pod, &script(&what, "output=1")).await.unwrap();
        session.until("seen").await;
        assert_eq!(running(name), 1);
        let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        node.delete(&pod, &params).await;
        wait_for("what exec has started to end", || (running(name) == 0).then_some(()));
        let found = node.get(&pod).await;
        if let Some(found) = found {
            node.gone(&found).await;
        }
    }
}

/// A pod that can't have what it relies on waits, and says which field it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_can_not_be_had_is_named_with_its_path() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let sysctls = json!([{"name": "kernel.msgmax", "value": "1"}]);
    node.create("p", json!({"containers": [sh("true")], "securityContext": {"sysctls": sysctls}})).await;
    let refused =
        "spec.securityContext.sysctls[0].name: \"kernel.msgmax\" is not a sysctl that a pod may set for itself";
    let waits = |pod: &Pod| {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let waiting = statuses.filter_map(|status| status.state.as_ref()?.waiting.as_ref());
        waiting.into_iter().any(|waiting| {
            waiting.reason.as_deref() == Some("CreateContainerConfigError")
                && waiting.message.as_deref() == Some(refused)
        })
    };
    node.pod("p", "refused", waits).await;
}
