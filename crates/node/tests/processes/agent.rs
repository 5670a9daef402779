//! The agent against the embedded API server, with real pods.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::Api;
use kube::api::DeleteParams;
use nix::sys::stat::Mode;
use pumice_linux::cgroup::Hierarchy;
use pumice_node::tear_down;
use serde_json::json;

use crate::harness::{cgroup, is_root, wait_for};
use crate::node::{NODE, TestNode, sh};

fn container(pod: &Pod) -> ContainerStatus {
    pod.status.clone().unwrap().container_statuses.unwrap()[0].clone()
}

fn exit(pod: &Pod) -> (i32, String) {
    let end = container(pod).state.unwrap().terminated.unwrap();
    (end.exit_code, end.reason.unwrap())
}

fn waits_for(reason: &str) -> impl Fn(&Pod) -> bool {
    let reason = reason.to_owned();
    move |pod| {
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let waiting = containers.and_then(|list| list[0].state.as_ref()?.waiting.as_ref()?.reason.clone());
        waiting.as_deref() == Some(&reason)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_reports_logs_and_goes() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let pod = node.sh("p", "echo hello; echo $MY_IP; exit 3").await;
    let ended = node.phase("p", "Failed").await;
    assert_eq!(exit(&ended), (3, "Error".into()));
    let status = ended.status.unwrap();
    assert!(status.start_time.is_some() && status.pod_ip.is_some() && status.host_ip.is_some());
    let conditions = status.conditions.unwrap();
    assert!(conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "False"));
    assert_eq!(node.log("p", "main").await, "hello\n\n");
    assert!(node.pod_dir(&pod).exists());
    node.delete("p", &DeleteParams::default()).await;
    node.gone(&pod).await;
}

/// Most pods run by the time that anybody could read it.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_takes_long_is_told_of() {
    if !is_root() {
        return;
    }
    let node = TestNode::with_image_map("").await;
    let map = node.data_dir.path().join("images.yaml");
    std::fs::remove_file(&map).unwrap();
    nix::unistd::mkfifo(&map, Mode::S_IRWXU).unwrap();
    // Who reads it waits for its end as long as it is open.
    let held_up = std::fs::OpenOptions::new().read(true).write(true).open(&map).unwrap();
    node.sh("p", "exit 0").await;
    let waiting = node.pod("p", "being started", waits_for("ContainerCreating")).await;
    assert_eq!(waiting.status.unwrap().phase.as_deref(), Some("Pending"));
    drop(held_up);
    node.phase("p", "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_is_registered_with_what_it_has() {
    let node = TestNode::start().await;
    let nodes: Api<Node> = Api::all(node.admin.clone());
    let found = loop {
        let found =
            nodes.get_opt(NODE).await.unwrap().filter(|n| n.status.as_ref().is_some_and(|s| s.conditions.is_some()));
        match found {
            Some(found) => break found,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(found.metadata.labels.unwrap()["kubernetes.io/hostname"], NODE);
    let status = found.status.unwrap();
    assert_eq!(status.allocatable.unwrap()["cpu"].0, "100");
    assert!(status.conditions.unwrap().iter().any(|c| c.type_ == "Ready" && c.status == "True"));
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_and_files_come_from_objects() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let spec = json!({
        "containers": [{"name": "main", "image": "x",
            "args": ["/bin/sh", "-c", "echo $A $(B) $IP; cat /etc/volcano/worker.host; hostname"],
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
                {"name": "B", "value": "b"},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            ],
            "volumeMounts": [{"name": "v", "mountPath": "/etc/volcano"}]}],
        "volumes": [{"name": "v", "configMap": {"name": "c"}}],
    });
    node.create("p", spec).await;
    let waiting = node.pod("p", "waiting for its ConfigMap", waits_for("CreateContainerConfigError")).await;
    let message = container(&waiting).state.unwrap().waiting.unwrap().message.unwrap();
    assert_eq!(message, "MountVolume.SetUp failed for volume \"v\": ConfigMap \"c\" not found");
    node.config_map("c", json!({"k": "v", "worker.host": "w-0\nw-1\n"})).await;
    let ended = node.phase("p", "Succeeded").await;
    let address = ended.status.unwrap().pod_ip.unwrap();
    assert_eq!(node.log("p", "main").await, format!("v b {address}\nw-0\nw-1\np\n"));
}

/// The node of these tests offers 100 CPUs, whatever the machine has.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_may_offer_more_than_the_machine_has() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    for (name, cpu) in [("large", "64"), ("small", "500m")] {
        let mut container = sh("sleep 1000");
        container["resources"] = json!({"requests": {"cpu": cpu}});
        node.create(name, json!({"containers": [container]})).await;
    }
    for (name, shares) in [("large", "65536\n"), ("small", "512\n")] {
        let pod = node.phase(name, "Running").await;
        // Where the kernel shares out CPU time, it is by what was asked for.
        for group in cpu_groups(pod.metadata.uid.as_deref().unwrap()) {
            assert_eq!(std::fs::read_to_string(group.join("cpu.shares")).unwrap(), shares, "{name}");
            assert_eq!(std::fs::read_to_string(group.join("main/cpu.shares")).unwrap(), shares, "{name}");
        }
    }
}

/// The kernel may give each session as much CPU time as the next one, and each shim is one.
#[tokio::test(flavor = "multi_thread")]
async fn shims_share_a_group_of_cpu_time_and_the_agent_has_one() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    node.sh("p", "exec sleep 1000").await;
    let pod = node.phase("p", "Running").await;
    let shim = node.shim_pid(&pod).to_string();
    for group in cpu_groups(pod.metadata.uid.as_deref().unwrap()) {
        let members = |group: &Path| std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
        assert!(members(&group.with_file_name("shims.processes")).lines().any(|pid| pid == shim), "{shim}");
        wait_for("the program in its own group", || (!members(&group.join("main")).is_empty()).then_some(()));
        let shares = |name: &str| -> u64 {
            let text = std::fs::read_to_string(group.with_file_name(name)).unwrap();
            text.trim().parse().unwrap()
        };
        assert!(shares("agent.process/cpu.shares") > shares("cpu.shares"), "the agent weighs more than all pods");
    }
}

/// The control group of a pod of any node, where there are some of the first version.
fn cpu_groups(uid: &str) -> Vec<PathBuf> {
    let Some(Hierarchy::V1 { cpu: Some(root), .. }) = cgroup("any").map(|group| group.hierarchy) else { return vec![] };
    let nodes: Vec<_> = std::fs::read_dir(root.join("pumice")).unwrap().flatten().collect();
    let groups: Vec<_> = nodes.iter().map(|node| node.path().join(uid)).filter(|group| group.exists()).collect();
    assert_eq!(groups.len(), 1, "{uid}");
    groups
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_means_what_the_map_says() {
    if !is_root() {
        return;
    }
    let node = TestNode::with_image_map(
        "'tf:*': {command: [/bin/echo, from-map]}\nlacking: {command: [echo, instead], replaceCommand: true}\n",
    )
    .await;
    node.create("known", json!({"containers": [{"name": "main", "image": "tf:1", "args": ["args"]}]})).await;
    let lacking = json!([{"name": "main", "image": "lacking:2", "command": ["/no/such/program"]}]);
    node.create("replaced", json!({"containers": lacking})).await;
    node.create("unknown", json!({"containers": [{"name": "main", "image": "nginx:1.14"}]})).await;
    node.phase("known", "Succeeded").await;
    assert_eq!(node.log("known", "main").await, "from-map args\n");
    node.phase("replaced", "Succeeded").await;
    assert_eq!(node.log("replaced", "main").await, "instead\n");
    let pod = node.pod("unknown", "waiting for its image", waits_for("ErrImageNeverPull")).await;
    let message = container(&pod).state.unwrap().waiting.unwrap().message.unwrap();
    assert!(message.contains("images.yaml") && message.contains("nginx:1.14"), "{message}");
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
}

// INV-49
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_over_its_memory_is_oom_killed() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let mut container = sh("x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}");
    container["resources"] = json!({"limits": {"memory": "20Mi"}});
    node.create("p", json!({"containers": [container]})).await;
    let ended = node.phase("p", "Failed").await;
    assert_eq!(exit(&ended), (137, "OOMKilled".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_fit_is_refused() {
    let node = TestNode::start().await;
    let mut container = sh("true");
    container["resources"] = json!({"requests": {"cpu": "101"}});
    let pod = node.create("p", json!({"containers": [container]})).await;
    let refused = node.phase("p", "Failed").await;
    assert_eq!(refused.status.unwrap().reason.as_deref(), Some("OutOfcpu"));
    node.delete("p", &DeleteParams::default()).await;
    node.gone(&pod).await;
}

/// Runs within a pod: listens on the port that all peers use, and says hello to each of them by name.
#[test]
fn meeting_entry() {
    let Some(peers) = std::env::var_os("MEETING_PEERS") else { return };
    let listener = TcpListener::bind("0.0.0.0:7777").unwrap();
    let peers: Vec<String> = peers.to_str().unwrap().split(',').map(str::to_owned).collect();
    for peer in &peers {
        let mut stream = wait_for(peer, || TcpStream::connect((peer.as_str(), 7777)).ok());
        writeln!(stream, "hello {peer}").unwrap();
    }
    let heard: Vec<String> =
        peers.iter().map(|_| BufReader::new(listener.accept().unwrap().0).lines().next().unwrap().unwrap()).collect();
    println!("heard {}", heard.join("; "));
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_meet_on_one_port_by_name() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let program = std::env::current_exe().unwrap();
    let names = ["job-a-0", "job-a-1", "job-b-0"];
    for name in names {
        let peers = format!("job-a-0.job,job-a-1.job.default.svc,job-b-0.job.default.svc.cluster.local,{name}");
        let spec = json!({"hostname": name, "subdomain": "job", "containers": [{"name": "main", "image": "x",
            "command": [program, "--exact", "agent::meeting_entry", "--nocapture"],
            "env": [{"name": "MEETING_PEERS", "value": peers}]}]});
        node.create(name, spec).await;
    }
    for name in names {
        node.phase(name, "Succeeded").await;
        assert_eq!(node.log(name, "main").await.matches("hello").count(), 4, "{}", node.log(name, "main").await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_gets_its_grace() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let dir = tempfile::tempdir().unwrap();
    let volume = json!([{"name": "v", "hostPath": {"path": dir.path()}}]);
    let mut polite = sh("trap 'echo bye > /v/bye; exit 0' TERM; echo > /v/ready; sleep 100 & wait");
    polite["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let pod = node.create("p", json!({"containers": [polite], "volumes": volume})).await;
    wait_for("the pod", || dir.path().join("ready").exists().then_some(()));
    node.delete("p", &DeleteParams::default()).await;
    node.gone(&pod).await;
    assert_eq!(std::fs::read_to_string(dir.path().join("bye")).unwrap(), "bye\n");

    let deaf = node.sh("deaf", "trap '' TERM; while :; do sleep 1; done").await;
    node.phase("deaf", "Running").await;
    node.delete("deaf", &DeleteParams::default().grace_period(0)).await;
    node.gone(&deaf).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_outlive_the_agent_and_are_adopted() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    let dir = tempfile::tempdir().unwrap();
    let lines = dir.path().join("lines");
    let volume = json!([{"name": "v", "hostPath": {"path": dir.path()}}]);
    for index in 0..20 {
        let script = format!("while [ ! -e /v/go-{} ]; do sleep 0.02; done; echo {index} >> /v/lines", index % 3);
        let mut container = sh(&script);
        container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        node.create(&format!("p{index}"), json!({"containers": [container], "volumes": volume})).await;
    }
    node.phase("p0", "Running").await;
    node.phase("p1", "Running").await;
    std::fs::write(dir.path().join("go-0"), "").unwrap();
    node.kill_agent().await;
    // These end while nobody looks; those that were not started yet start later.
    std::fs::write(dir.path().join("go-1"), "").unwrap();
    wait_for("a pod to end without the agent", || {
        std::fs::read_to_string(&lines).ok().filter(|text| text.contains("1\n"))
    });
    node.start_agent().await;
    std::fs::write(dir.path().join("go-2"), "").unwrap();
    for index in 0..20 {
        node.phase(&format!("p{index}"), "Succeeded").await;
    }
    let mut found: Vec<u32> =
        std::fs::read_to_string(lines).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, (0..20).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_while_the_agent_was_away_is_ended() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    let forced = node.sh("forced", "exec sleep 1000").await;
    let asked = node.sh("asked", "exec sleep 1000").await;
    node.phase("forced", "Running").await;
    node.phase("asked", "Running").await;
    node.stop_agent().await;
    assert!(TestNode::links().contains(&node.bridge()), "running pods keep the bridge");
    node.delete("forced", &DeleteParams::default().grace_period(0)).await;
    node.delete("asked", &DeleteParams::default()).await;
    node.start_agent().await;
    node.gone(&forced).await;
    node.gone(&asked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_shim_fails_the_pod() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    let pod = node.sh("p", "exec sleep 1000").await;
    node.phase("p", "Running").await;
    let pid = nix::unistd::Pid::from_raw(node.shim_pid(&pod));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let failed = node.phase("p", "Failed").await;
    assert_eq!(failed.status.as_ref().unwrap().reason.as_deref(), Some("ShimLost"));
    assert_eq!(exit(&failed), (137, "ShimLost".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_leaves_nothing() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    for index in 0..5 {
        node.sh(&format!("p{index}"), "exec sleep 1000").await;
    }
    for index in 0..5 {
        node.phase(&format!("p{index}"), "Running").await;
    }
    let bridge = node.bridge();
    assert!(TestNode::links().contains(&bridge));
    node.handle().drain(Duration::from_secs(5)).await;
    let ended = node.phase("p0", "Failed").await;
    assert_eq!(exit(&ended).0, 143);
    assert_eq!(ended.status.as_ref().unwrap().reason.as_deref(), Some("Terminated"));
    node.stop_agent().await;
    assert!(!TestNode::links().contains(&bridge));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&*node.data_dir.path().to_string_lossy()));
    for root in ["/sys/fs/cgroup/memory/pumice", "/sys/fs/cgroup/cpu/pumice"] {
        let groups = std::fs::read_dir(root).into_iter().flatten().flatten();
        let left: Vec<_> = groups.filter(|group| holds(&group.path(), ended.metadata.uid.as_ref().unwrap())).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_teardown_ended_is_told_later() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    node.sh("ended", "echo kept").await;
    node.sh("running", "exec sleep 1000").await;
    node.phase("ended", "Succeeded").await;
    node.phase("running", "Running").await;
    let bridge = node.bridge();
    node.stop_agent().await;
    let torn_down = tear_down(&node.data_dir.path().join("data"), Some(Duration::ZERO), |_, _| {}).unwrap();
    assert_eq!((torn_down.ended, torn_down.unended.len()), (1, 0));
    assert!(!TestNode::links().contains(&bridge));
    node.start_agent().await;
    let running = node.phase("running", "Failed").await;
    assert_eq!((exit(&running).0, running.status.unwrap().reason.as_deref()), (137, Some("Terminated")));
    assert_eq!(node.log("ended", "main").await, "kept\n");
}

fn holds(group: &Path, uid: &str) -> bool {
    group.join(uid).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_pods_starts_and_ends() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    for index in 0..60 {
        let spec = json!({"subdomain": "crowd", "containers": [sh("hostname")]});
        node.create(&format!("p{index}"), spec).await;
    }
    for index in 0..60 {
        node.phase(&format!("p{index}"), "Succeeded").await;
        assert_eq!(node.log(&format!("p{index}"), "main").await, format!("p{index}\n"));
    }
}

/// Runs within a network namespace of its own, which stands for the world outside this host.
#[test]
fn outside_entry() {
    let Some(address) = std::env::var_os("OUTSIDE_ADDRESS") else { return };
    let address = address.to_str().unwrap().to_owned();
    println!("ready");
    let listener = wait_for("the outside's address", || TcpListener::bind((address.as_str(), 7000)).ok());
    println!("met {}", listener.accept().unwrap().1.ip());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_reach_the_outside_in_the_hosts_name() {
    if !is_root() {
        return;
    }
    let node = TestNode::start().await;
    if node.handle().capabilities().notes.iter().any(|note| note.contains("address translation")) {
        eprintln!("not run: this kernel translates no addresses");
        return;
    }
    let program = std::env::current_exe().unwrap();
    // Another run of this test may go on beside this one.
    let own = std::process::id();
    let (link, network) = (format!("pmt{own}"), format!("198.51.{}", 100 + own % 100));
    let (near, far) = (format!("{network}.1"), format!("{network}.2"));
    let mut outside = std::process::Command::new("unshare");
    let mut outside = outside
        .arg("--net")
        .arg(program)
        .args(["--exact", "agent::outside_entry", "--nocapture"])
        .env("OUTSIDE_ADDRESS", &far)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(outside.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.ends_with("ready")));
    let ip = |line: String| {
        let done = std::process::Command::new("ip")
            .args(line.split(' '))
            .status()
            .expect("needs ip: apt-get install iproute2");
        assert!(done.success(), "ip {line}");
    };
    let pid = outside.id();
    ip(format!("link add {link} type veth peer name pmout netns {pid}"));
    ip(format!("addr add {near}/30 dev {link}"));
    ip(format!("link set {link} up"));
    let inside = std::process::Command::new("nsenter")
        .args([
            "-t",
            &pid.to_string(),
            "-n",
            "sh",
            "-c",
            &format!("ip addr add {far}/30 dev pmout && ip link set pmout up"),
        ])
        .status();
    assert!(inside.unwrap().success());
    let mut pod = sh("");
    pod["command"] = json!([
        "/bin/bash",
        "-c",
        format!("for i in $(seq 100); do (exec 3<>/dev/tcp/{far}/7000) && exit 0; sleep 0.05; done; exit 1")
    ]);
    node.create("p", json!({"containers": [pod]})).await;
    node.phase("p", "Succeeded").await;
    assert!(said.any(|line| line.contains(&format!("met {near}"))));
    outside.wait().unwrap();
}
