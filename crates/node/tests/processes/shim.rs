//! The shim with real processes: exits, memory, grace, isolation, restarts.

use std::path::Path;
use std::process::Command;

use crate::harness::{TestPod, container, is_root, wait_for};
use pumice_shim::control::{self, Stop};
use pumice_shim::spec::{Isolation, MemoryVolume, MountSpec, RestartPolicy, RootKind};
use pumice_shim::status::ContainerState;

#[test]
fn exits_are_reported_with_code_reason_and_message() {
    if !is_root() {
        return;
    }
    let cases = [
        ("exit 0", 0, None, "Completed", None),
        ("exit 3", 3, None, "Error", None),
        ("kill -TERM $$", 143, Some(15), "Error", None),
        ("echo last words > /dev/termination-log; exit 1", 1, None, "Error", Some("last words\n")),
    ];
    for (script, code, signal, reason, message) in cases {
        let pod = TestPod::sh(script);
        let exit = pod.start().exit();
        assert_eq!((exit.code, exit.signal, exit.reason.as_str()), (code, signal, reason), "{script}");
        assert_eq!(exit.message.as_deref(), message, "{script}");
        assert_eq!(pod.groups(), [] as [&Path; 0], "{script}");
    }
}

#[test]
fn what_is_written_is_that_it_begins_runs_and_is_over() {
    if !is_root() {
        return;
    }
    let pod = TestPod::sh("exit 3");
    assert_eq!(pod.start().done().sequence, 3);
}

#[test]
fn an_end_that_was_asked_for_before_there_was_a_shim_comes_before_the_program() {
    if !is_root() {
        return;
    }
    let pod = TestPod::sh("echo ran; sleep 3600");
    control::request_stop(pod.path(), Stop { grace_seconds: 30 }).unwrap();
    pod.start().done();
    assert_eq!(pod.log(), "");
}

#[test]
fn signals_that_the_platform_ignores_are_the_programs_own() {
    if !is_root() {
        return;
    }
    // As a platform that was started by `nohup`, or in the background of a script.
    let pod = TestPod::sh("sed -n 's/^Sig\\(Blk\\|Ign\\):[[:space:]]*//p' /proc/self/status");
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP INT QUIT USR1; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    pod.start_by(ignoring).done();
    let log = pod.log();
    let sets: Vec<u64> = log.lines().map(|set| u64::from_str_radix(set, 16).unwrap()).collect();
    // From 32 on they are the C library's own and nobody's.
    let standard = (1 << 31) - 1;
    assert_eq!(sets.iter().map(|set| set & standard).collect::<Vec<_>>(), [0, 0], "blocked and ignored: {log}");
}

#[test]
fn a_program_that_is_not_there_is_a_start_error() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh("");
    pod.spec.containers[0].argv = vec!["no-such-program".into()];
    let exit = pod.start().exit();
    assert_eq!((exit.code, exit.reason.as_str()), (128, "StartError"));
    assert!(exit.message.unwrap().contains("executable file not found in $PATH"));
}

#[test]
fn over_its_memory_limit_a_container_is_oom_killed() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh("x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo not reached ${#x}");
    pod.spec.containers[0].limits.memory_bytes = Some(20 << 20);
    let exit = pod.start().exit();
    assert_eq!((exit.code, exit.reason.as_str()), (137, "OOMKilled"), "{:?}", pod.log());
    assert!(!pod.log().contains("not reached"));
}

#[test]
fn without_a_control_group_the_resident_set_is_watched() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh("x=$(head -c 100000000 /dev/zero | tr '\\0' x); sleep 60");
    pod.spec.cgroup = None;
    pod.spec.containers[0].limits.memory_bytes = Some(30 << 20);
    let exit = pod.start().exit();
    assert_eq!((exit.code, exit.reason.as_str()), (137, "OOMKilled"));
}

#[test]
fn term_comes_first_and_kill_after_the_grace() {
    if !is_root() {
        return;
    }
    let polite = TestPod::sh("trap 'echo bye; exit 4' TERM; echo ready; sleep 100 & wait");
    polite.start().log_contains("ready");
    control::request_stop(polite.path(), Stop { grace_seconds: 30 }).unwrap();
    assert_eq!(polite.exit().code, 4);
    assert_eq!(polite.log(), "ready\nbye\n");

    let plain = TestPod::sh("echo ready; exec sleep 100");
    plain.start().log_contains("ready");
    control::request_stop(plain.path(), Stop { grace_seconds: 30 }).unwrap();
    assert_eq!(plain.exit().code, 143);

    let deaf = TestPod::sh("trap '' TERM; echo ready; while :; do sleep 1; done");
    deaf.start().log_contains("ready");
    control::request_stop(deaf.path(), Stop { grace_seconds: 1 }).unwrap();
    let exit = deaf.exit();
    assert_eq!((exit.code, exit.signal), (137, Some(9)));
}

#[test]
fn a_later_stop_brings_the_end_forward() {
    if !is_root() {
        return;
    }
    let pod = TestPod::sh("trap '' TERM; echo ready; while :; do sleep 1; done");
    pod.start().log_contains("ready");
    control::request_stop(pod.path(), Stop { grace_seconds: 3600 }).unwrap();
    control::request_stop(pod.path(), Stop { grace_seconds: 0 }).unwrap();
    assert_eq!(pod.exit().signal, Some(9));
}

#[test]
fn writes_do_not_reach_the_host() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "host").unwrap();
    let pod = TestPod::sh(&format!(
        "echo pod > {0}; rm -rf /etc/passwd; cat {0}; hostname; ls /proc | grep -c '^[0-9]'",
        file.display()
    ));
    pod.start().done();
    assert!(pod.log().starts_with("pod\npod-host\n"), "{}", pod.log());
    let processes: u32 = pod.log().lines().last().unwrap().parse().unwrap();
    assert!(processes <= 5, "sees {processes} processes");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "host");
    assert!(Path::new("/etc/passwd").exists());
}

#[test]
fn volumes_are_where_they_belong() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh(
        "echo to-volume > /data/new/out; cat /etc/given; echo x 2>/dev/null > /ro/y || echo refused; \
         df /mem | tail -1 | awk '{print $2}'; ls -A /hidden | wc -l; cat /sub/f",
    );
    let (volume, secret) = (pod.path().join("v"), pod.path().join("hidden"));
    for dir in [&volume, &secret] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::fs::write(volume.join("given"), "given\n").unwrap();
    std::fs::create_dir_all(volume.join("s")).unwrap();
    std::fs::write(volume.join("s/f"), "by sub-path\n").unwrap();
    let mount = |source: &Path, sub_path: Option<&str>, target: &str, read_only| MountSpec {
        source: source.into(),
        sub_path: sub_path.map(str::to_owned),
        target: target.into(),
        read_only,
    };
    let memory = pod.path().join("volumes/m");
    pod.spec.memory_volumes = vec![MemoryVolume { path: memory.clone(), size_bytes: Some(1 << 20), group: None }];
    pod.spec.hidden = vec![secret.clone()];
    let target = secret.clone();
    pod.spec.containers[0].argv[2] = pod.spec.containers[0].argv[2].replace("/hidden", &target.display().to_string());
    pod.spec.containers[0].mounts = vec![
        mount(&volume, Some("new"), "/data/new", false),
        mount(&volume.join("given"), None, "/etc/given", false),
        mount(&volume, None, "/ro", true),
        mount(&memory, None, "/mem", false),
        mount(&volume, Some("s"), "/sub", false),
    ];
    std::fs::write(secret.join("kubeconfig"), "secret").unwrap();
    pod.start().done();
    assert!(pod.log().contains("given\n"), "{}", pod.log());
    assert!(pod.log().contains("refused\n1024\n0\nby sub-path\n"), "{}", pod.log());
    assert_eq!(std::fs::read_to_string(volume.join("new/out")).unwrap(), "to-volume\n");
}

#[test]
fn init_containers_run_in_order_and_a_failing_one_ends_the_pod() {
    if !is_root() {
        return;
    }
    let volume = tempfile::tempdir().unwrap();
    let mut pod = TestPod::sh("cat /v/order");
    let mount = MountSpec { source: volume.path().into(), sub_path: None, target: "/v".into(), read_only: false };
    pod.spec.init_containers = vec![container("a", "echo a >> /v/order"), container("b", "echo b >> /v/order")];
    for container in pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers) {
        container.mounts = vec![mount.clone()];
    }
    assert_eq!(pod.start().exit().code, 0);
    assert_eq!(pod.log(), "a\nb\n");

    let mut pod = TestPod::sh("echo never");
    pod.spec.init_containers = vec![container("bad", "exit 7"), container("after", "true")];
    let status = pod.start().done();
    assert_eq!(status.init_containers[0].exit().unwrap().code, 7);
    assert!(matches!(status.init_containers[1].state, ContainerState::Waiting { .. }));
    assert!(matches!(status.containers[0].state, ContainerState::Waiting { .. }));
}

#[test]
fn a_sidecar_lives_as_long_as_the_containers() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh("echo work");
    let mut sidecar = container("side", "exec sleep 100");
    sidecar.sidecar = true;
    pod.spec.init_containers = vec![sidecar];
    let status = pod.start().done();
    assert_eq!(status.containers[0].exit().unwrap().code, 0);
    assert_eq!(status.init_containers[0].exit().unwrap().code, 143);
}

/// Notes its end, a while after it was asked to.
fn noting(name: &str) -> String {
    format!("trap 'echo {name} >>/v/order; exit 0' TERM; : >/v/{name}; while :; do sleep 0.01; done")
}

#[test]
fn sidecars_end_after_the_containers_the_last_one_first() {
    if !is_root() {
        return;
    }
    for (main, asked) in
        [("until [ -e /v/first -a -e /v/second ]; do sleep 0.01; done".to_owned(), false), (noting("main"), true)]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut pod = TestPod::sh(&main);
        pod.spec.grace_seconds = 60;
        pod.spec.init_containers = ["first", "second"].map(|name| container(name, &noting(name))).into();
        for sidecar in &mut pod.spec.init_containers {
            sidecar.sidecar = true;
        }
        for container in pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers) {
            let source = folder.path().into();
            container.mounts = vec![MountSpec { source, sub_path: None, target: "/v".into(), read_only: false }];
        }
        pod.start();
        if asked {
            let ready = || ["main", "first", "second"].iter().all(|name| folder.path().join(name).exists());
            wait_for("all traps", || ready().then_some(()));
            control::request_stop(pod.path(), Stop { grace_seconds: 60 }).unwrap();
        }
        pod.done();
        let order = std::fs::read_to_string(folder.path().join("order")).unwrap();
        assert_eq!(order, if asked { "main\nsecond\nfirst\n" } else { "second\nfirst\n" });
    }
}

#[test]
fn a_sidecar_whose_turn_does_not_come_has_a_little_time_still() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh("trap '' TERM; echo ready; while :; do sleep 1; done");
    let mut sidecar = container("side", "trap 'exit 7' TERM; while :; do sleep 0.01; done");
    sidecar.sidecar = true;
    pod.spec.init_containers = vec![sidecar];
    pod.start().log_contains("ready");
    control::request_stop(pod.path(), Stop { grace_seconds: 1 }).unwrap();
    let status = pod.done();
    assert_eq!(status.containers[0].exit().unwrap().code, 137);
    assert_eq!(status.init_containers[0].exit().unwrap().code, 7);
}

#[test]
fn a_failed_container_is_started_again_by_policy() {
    if !is_root() {
        return;
    }
    let volume = tempfile::tempdir().unwrap();
    let mut pod = TestPod::sh("echo x >> /v/runs; [ $(wc -l < /v/runs) = 2 ]");
    pod.spec.restart_policy = RestartPolicy::OnFailure;
    pod.spec.containers[0].mounts =
        vec![MountSpec { source: volume.path().into(), sub_path: None, target: "/v".into(), read_only: false }];
    let status = pod.start().done();
    let container = &status.containers[0];
    assert_eq!((container.exit().unwrap().code, container.restart_count), (0, 1));
    assert_eq!(container.last.as_ref().unwrap().code, 1);
}

#[test]
fn a_deadline_ends_the_pod_with_its_reason() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh("exec sleep 100");
    pod.spec.active_deadline_seconds = Some(1);
    let status = pod.start().done();
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(status.containers[0].exit().unwrap().code, 143);
}

// INV-50
#[test]
fn what_a_program_leaves_behind_is_gone() {
    if !is_root() {
        return;
    }
    let marker = format!("0.{}", std::process::id());
    for namespaces in [true, false] {
        let mut pod = TestPod::sh(&format!("setsid sleep 9{marker} & sleep 0; exit 0"));
        pod.spec.isolation.namespaces = namespaces;
        pod.spec.isolation.root = if namespaces { RootKind::Overlay } else { RootKind::Host };
        assert_eq!(pod.start().exit().code, 0);
        wait_for("the leftover to go", || (!runs(&format!("9{marker}"))).then_some(()));
    }
}

fn runs(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.any(|line| line.split('\0').any(|part| part == argument))
}

#[test]
fn without_namespaces_programs_still_run() {
    let mut pod = TestPod::sh("echo plain; exit 5");
    pod.spec.isolation.namespaces = false;
    pod.spec.isolation.root = RootKind::Host;
    pod.spec.cgroup = None;
    assert_eq!(pod.start().exit().code, 5);
    assert_eq!(pod.log(), "plain\n");
}

/// Who starts pods one after the other has no more of them in the making: the kernel makes networks and groups one by one.
#[test]
fn a_start_is_over_when_what_containers_share_is_made() {
    if !is_root() || TestPod::sh("").spec.cgroup.is_none() {
        return;
    }
    for attempt in 0..20 {
        let pod = TestPod::sh("exec sleep 1000");
        pod.start();
        assert!(!pod.groups().is_empty(), "{attempt}");
    }
}

/// As on a disk that is full when the pod starts.
#[test]
fn a_pod_whose_first_status_can_not_be_written_runs_when_it_can() {
    if !is_root() {
        return;
    }
    let pod = TestPod::sh("echo ran");
    let in_the_way = pod.path().join("status.json.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    pod.start();
    wait_for("a first attempt", || {
        let log = std::fs::read_to_string(pod.path().join("shim.log")).unwrap();
        log.contains("can't write the status").then_some(())
    });
    std::fs::remove_dir(in_the_way).unwrap();
    assert_eq!((pod.exit().code, pod.log()), (0, "ran\n".to_owned()));
}

#[test]
fn output_is_kept_whole_whatever_its_size() {
    if !is_root() {
        return;
    }
    let pod = TestPod::sh("seq 1 200000; printf tail >&2");
    pod.start().done();
    let raw = std::fs::read_to_string(pod.path().join("logs/main/0.log")).unwrap();
    // A program that pauses within a line has it written in pieces: of each, what follows the time, the stream and the tag.
    let mut text = String::new();
    for (tag, piece) in raw.lines().filter_map(|line| line.split_once(" stdout ")?.1.split_once(' ')) {
        text.push_str(piece);
        text.push_str(if tag == "F" { "\n" } else { "" });
    }
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(text == expected, "{} bytes of {}", text.len(), expected.len());
    assert!(raw.lines().any(|line| line.ends_with(" stderr P tail")));
}

#[test]
fn programs_run_as_the_user_and_rights_they_were_given() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh(
        "id -u; id -g; id -G; echo out > /dev/stdout; pwd; grep NoNewPrivs /proc/self/status | tr -d '\\t'",
    );
    let container = &mut pod.spec.containers[0];
    (container.uid, container.gid, container.groups) = (12345, 23456, vec![23456, 34567]);
    container.cwd = "/new/dir".into();
    container.no_new_privileges = true;
    pod.start().done();
    assert_eq!(pod.log(), "12345\n23456\n23456 34567\nout\n/new/dir\nNoNewPrivs:1\n");
}

#[test]
fn an_ordinary_user_has_isolated_pods_too() {
    if !is_root() {
        return;
    }
    let mut pod = TestPod::sh(
        "id -u; echo x > /etc/pumice-test; cat /etc/pumice-test /etc/volcano/f; hostname; echo $$ > /tmp/y",
    );
    pod.spec.isolation.user = true;
    pod.spec.isolation.root = RootKind::OverlayByFolder;
    pod.spec.cgroup = None;
    let volume = tempfile::tempdir().unwrap();
    std::fs::set_permissions(volume.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(volume.path().join("f"), "mounted\n").unwrap();
    pod.spec.containers[0].mounts = vec![MountSpec {
        source: volume.path().into(),
        sub_path: None,
        target: "/etc/volcano".into(),
        read_only: true,
    }];
    let exit = pod.start().exit();
    assert_eq!(exit.code, 0, "{exit:?} {}", pod.log());
    assert_eq!(pod.log(), "0\nx\nmounted\npod-host\n");
    assert!(!Path::new("/etc/pumice-test").exists());
}

/// What a pod of a namespace that enforces `restricted` finds of the host.
fn allow_listed(user: bool) -> String {
    let mut pod = TestPod::sh(
        "cat /etc/shadow /root/.profile /etc/machine-id 2>/dev/null; ls -d /boot /media 2>/dev/null; id -un; \
         python3 -c 'import ssl, json; print(\"python\", len(ssl.create_default_context().get_ca_certs()) > 0)'; \
         touch /usr/x /opt/x /etc/passwd.x 2>/dev/null && echo wrote; echo mine > /tmp/mine && cat /tmp/mine; ls /tmp; \
         echo kept > $HOME/file && cat $HOME/file; mount | grep -c ' / '; cat /data/given",
    );
    pod.spec.isolation = Isolation { namespaces: true, user, root: RootKind::AllowList };
    let volume = pod.path().join("v");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(volume.join("given"), "given\n").unwrap();
    let container = &mut pod.spec.containers[0];
    container.env.push(("HOME".into(), "/home/runner".into()));
    container.mounts = vec![MountSpec { source: volume, sub_path: None, target: "/data".into(), read_only: true }];
    if user {
        pod.spec.cgroup = None;
    } else {
        (container.uid, container.gid) = (33, 33);
    }
    pod.start();
    let exit = pod.exit();
    assert_eq!(exit.code, 0, "{exit:?} {}", pod.log());
    pod.log()
}

#[test]
fn of_the_host_there_are_programs_and_settings_alone() {
    if !is_root() {
        return;
    }
    let ours = "python True\nmine\nmine\nkept\n1\ngiven\n";
    assert_eq!(allow_listed(false), format!("www-data\n{ours}"));
    assert_eq!(allow_listed(true), format!("root\n{ours}"));
}
