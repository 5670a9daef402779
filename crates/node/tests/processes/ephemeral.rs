//! Containers that are added to pods that run, by the shim alone.

use pumice_shim::control::{self, Stop};
use pumice_shim::ephemeral::{self, EphemeralContainer};
use pumice_shim::spec::{IdRange, RestartPolicy, Users};
use pumice_shim::status::{ContainerState, ContainerStatus, ShimPhase};

use crate::harness::{TestPod, container, is_root, wait_for};

/// Has the pod's shim start a container that looks at `target`.
fn add(pod: &TestPod, name: &str, script: &str, target: Option<&str>) {
    let target = target.map(str::to_owned);
    let added = EphemeralContainer { container: container(name, script), target, image_id: String::new() };
    ephemeral::request(pod.path(), &added).unwrap();
}

fn status_of(pod: &TestPod, name: &str) -> Option<ContainerStatus> {
    pod.status()?.container(name).cloned()
}

/// The code of an added container once it has ended.
fn code(pod: &TestPod, name: &str) -> i32 {
    wait_for(&format!("the end of {name}"), || Some(status_of(pod, name)?.exit()?.code))
}

/// Finds the program of another container by its name, and looks at its files.
const LOOK: &str = "for process in /proc/[0-9]*; do \
    [ \"$(cat $process/comm)\" = sleep ] && cat $process/root/tmp/of-main; done; \
    [ -e /tmp/of-main ] || echo own root; hostname; exit 3";

#[test]
fn one_that_has_a_target_sees_its_processes_and_files() {
    if !is_root() {
        return;
    }
    let range = IdRange { inside: 0, outside: 0x7ff1_0000, count: 65_536 };
    for users in [None, Some(Users { uids: vec![range], gids: vec![range] })] {
        let mut pod = TestPod::sh("echo of the target > /tmp/of-main; echo ready; exec sleep 1000");
        pod.spec.users = users;
        pod.spec.restart_policy = RestartPolicy::Always;
        pod.start().log_contains("ready");
        add(&pod, "looker", LOOK, Some("main"));
        assert_eq!(code(&pod, "looker"), 3);
        assert_eq!(pod.log_of("looker"), "of the target\nown root\npod-host\n");
        add(&pod, "alone", "echo $$; [ -e /proc/1/root ]; ls -d /proc/[0-9]* | wc -l", None);
        code(&pod, "alone");
        let alone = pod.log_of("alone");
        assert!(alone.starts_with("2\n"), "processes of its own: {alone}");
        // Neither was started again, and the pod goes on.
        let status = pod.status().unwrap();
        assert!(status.phase == ShimPhase::Running && status.containers[0].is_running(), "{status:?}");
        assert_eq!(status.ephemeral_containers.iter().flatten().map(|one| one.restart_count).sum::<u32>(), 0);
        // Containers that come later have processes of their own as before.
        control::request_restart(pod.path(), "main", control::Restart { run: 0, grace_seconds: 0 }).unwrap();
        let again = || status_of(&pod, "main").filter(|main| main.is_running() && main.restart_count == 1);
        wait_for("another run", again);
        add(&pod, "second", "ls /proc/*/comm | wc -l; kill -0 2 && kill -0 1; exit $?", Some("main"));
        assert_eq!(code(&pod, "second"), 0, "{}", pod.log_of("second"));
    }
}

#[test]
fn one_that_is_asked_for_twice_runs_once() {
    if !is_root() {
        return;
    }
    let pod = TestPod::sh("sleep 1000");
    add(&pod, "early", "echo ran", None);
    pod.start();
    assert_eq!(code(&pod, "early"), 0, "asked for before there was a shim");
    add(&pod, "early", "echo again", None);
    add(&pod, "main", "echo never", None);
    add(&pod, "later", "exit 0", None);
    code(&pod, "later");
    assert_eq!((pod.log_of("early").as_str(), pod.log_of("main").as_str()), ("ran\n", ""));
    assert_eq!(pod.status().unwrap().ephemeral_containers.unwrap().len(), 2);
}

#[test]
fn the_end_of_the_pod_does_not_wait_for_what_was_added() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh("read line < /v/end; exit 7");
    pod.spec.grace_seconds = 1;
    let folder = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&folder.path().join("end"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let source = folder.path().into();
    pod.spec.containers[0].mounts =
        vec![pumice_shim::spec::MountSpec { source, sub_path: None, target: "/v".into(), read_only: false }];
    pod.start();
    // It does not end when it is asked to.
    add(&pod, "stubborn", "trap '' TERM; echo ready; while :; do sleep 1; done", Some("main"));
    add(&pod, "own", "trap '' TERM; echo ready; while :; do sleep 1; done", None);
    for name in ["stubborn", "own"] {
        wait_for(name, || (pod.log_of(name) == "ready\n").then_some(()));
    }
    std::fs::write(folder.path().join("end"), "now\n").unwrap();
    let status = pod.done();
    assert_eq!((status.phase, status.containers[0].exit().unwrap().code), (ShimPhase::Done, 7));
    let codes = status.ephemeral_containers.unwrap();
    assert!(codes.iter().all(|one| one.exit().is_some_and(|exit| exit.code == 137)), "{codes:?}");
    assert!(status.reason.is_none());
}

#[test]
fn one_whose_target_does_not_run_waits_for_it() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut pod = TestPod::sh("exec sleep 1000");
    pod.spec.init_containers = vec![container("init", "until [ -e /v/go ]; do sleep 0.05; done")];
    let source = folder.path().into();
    pod.spec.init_containers[0].mounts =
        vec![pumice_shim::spec::MountSpec { source, sub_path: None, target: "/v".into(), read_only: false }];
    pod.start();
    add(&pod, "early", "echo ran", Some("main"));
    add(&pod, "beside", "kill -0 2 && echo beside", Some("init"));
    let waits = || match status_of(&pod, "early")?.state {
        ContainerState::Waiting { message: Some(message), .. } => Some(message),
        _ => None,
    };
    assert_eq!(wait_for("why it waits", waits), "the target container \"main\" is not running");
    assert_eq!(code(&pod, "beside"), 0, "{}", pod.log_of("beside"));
    assert_eq!(pod.status().unwrap().phase, ShimPhase::Initializing);
    std::fs::write(folder.path().join("go"), "").unwrap();
    assert_eq!(code(&pod, "early"), 0);
    control::request_stop(pod.path(), Stop { grace_seconds: 0 }).unwrap();
    pod.done();
    add(&pod, "late", "echo never", None);
    assert!(status_of(&pod, "late").is_none());
}
