//! `pumice up` itself: ready, private, refused when it has to be, and going on where it was.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use pumice_testkit::{Platform, Setup, binary, eventually};

#[test]
fn it_writes_a_private_kubeconfig_that_stock_kubectl_takes() {
    let platform = Platform::new();
    let mode = std::fs::metadata(platform.data_dir().join("kubeconfig")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(platform.kubectl(["get", "nodes"]).ok().contains("Ready"));
    assert!(platform.kubectl(["get", "queues"]).ok().contains("default"));
}

#[test]
fn a_stranger_is_refused() {
    let platform = Platform::new();
    let kubeconfig = std::fs::read_to_string(platform.data_dir().join("kubeconfig")).unwrap();
    let anonymous: String = kubeconfig
        .lines()
        .filter(|line| !line.contains("client-certificate-data") && !line.contains("client-key-data"))
        .map(|line| format!("{line}\n"))
        .collect();
    let path = platform.file("anonymous.kubeconfig", anonymous);
    let output = platform.kubectl(["--kubeconfig", path.to_str().unwrap(), "get", "--raw", "/api/v1/pods"]);
    assert_ne!(output.code, 0, "{output:?}");
    assert!(!output.stdout.contains("PodList"), "{output:?}");
}

#[test]
fn a_second_one_on_the_same_directory_is_refused() {
    let platform = Platform::new();
    let second = up(&["--port", "0", "--data-dir", platform.data_dir().to_str().unwrap()]);
    assert_ne!(second.0, 0);
    assert!(second.1.contains(platform.data_dir().to_str().unwrap()), "{}", second.1);
    assert!(second.1.contains(&platform.pid().unwrap().to_string()), "names who holds it: {}", second.1);
    platform.kubectl(["get", "nodes"]).ok();
}

#[test]
fn a_taken_port_is_refused_by_name() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let platform = Platform::new();
    let other = platform.scratch().join("other");
    let (code, text) = up(&["--port", &port, "--data-dir", other.to_str().unwrap()]);
    assert_ne!(code, 0);
    assert!(text.contains(&port), "{text}");
    assert!(text.contains("--port"), "says what to do: {text}");
}

#[test]
fn a_corrupt_directory_is_refused_and_left_alone() {
    let mut platform = Platform::new();
    assert_eq!(platform.stop(), 0);
    let store = platform.data_dir().join("store.redb");
    let good = std::fs::read(&store).unwrap();
    for (what, bytes) in [
        ("garbage", b"this is not a store".repeat(1000)),
        ("truncated", good[..good.len() / 3].to_vec()),
        ("empty", Vec::new()),
    ] {
        std::fs::write(&store, &bytes).unwrap();
        let (code, text) = up(&["--port", "0", "--data-dir", platform.data_dir().to_str().unwrap()]);
        assert_ne!(code, 0, "{what}: {text}");
        assert!(text.contains("store.redb"), "{what}: names the file: {text}");
        assert_eq!(std::fs::read(&store).unwrap(), bytes, "{what}: the file was changed");
    }
    std::fs::write(&store, good).unwrap();
    platform.up();
    platform.kubectl(["get", "nodes"]).ok();
}

#[test]
fn a_restart_goes_on_where_it_was() {
    let mut platform = Platform::new();
    platform.kubectl_with_input(["create", "-f", "-"], &config_map("kept", "b")).ok();
    platform.jobctl(["run", "--name", "before", "--", "true"]).ok();
    assert_eq!(platform.stop(), 0);
    platform.up();
    assert_eq!(platform.get("configmap", "kept").unwrap()["data"]["a"], "b");
    platform.wait_for_phase("before", "Completed");
    platform.jobctl(["run", "--name", "after", "--", "true"]).ok();
}

// INV-48
#[test]
fn pods_outlive_a_clean_stop_and_are_adopted() {
    let mut platform = Platform::new();
    let go = platform.scratch().join("go");
    let wait_for_go = format!("until [ -e {} ]; do sleep 0.05; done; echo went on", go.display());
    let manifest = job_with_host_path("outlives", &wait_for_go, platform.scratch().to_str().unwrap());
    platform.kubectl_with_input(["apply", "-f", "-"], &manifest).ok();
    platform.wait_for_phase("outlives", "Running");
    assert_eq!(platform.stop(), 0);
    std::fs::write(&go, "").unwrap();
    platform.up();
    platform.wait_for_phase("outlives", "Completed");
    assert!(platform.jobctl(["logs", "outlives"]).ok().contains("went on"));
    let restarts =
        platform.get("pod", "outlives-main-0").unwrap()["status"]["containerStatuses"][0]["restartCount"].clone();
    assert_eq!(restarts, 0);
}

#[test]
fn what_a_pod_uses_is_shown() {
    let platform = Platform::new();
    let script = "x=$(head -c 60000000 /dev/zero | tr \"\\0\" x); echo ${#x}; sleep 1000";
    platform.jobctl(["submit", "--name", "holds", "--memory", "200Mi", "--", "sh", "-c", script]).ok();
    eventually("its memory is seen", || {
        let top = platform.jobctl(["top", "-o", "json"]).ok();
        let loads: serde_json::Value = serde_json::from_str(&top).unwrap();
        let used = loads[0]["used"]["memoryBytes"].as_u64().unwrap_or(0);
        if (60_000_000..200 << 20).contains(&used) { Ok(()) } else { Err(top) }
    });
    let pods = platform.kubectl(["top", "pods", "--no-headers"]).ok();
    let fields: Vec<&str> = pods.split_whitespace().collect();
    assert!(fields.len() == 3 && fields[0].starts_with("holds-") && fields[2].ends_with("Mi"), "{pods}");
    let nodes = platform.kubectl(["top", "nodes"]).ok();
    assert!(nodes.lines().count() == 2 && nodes.contains("MEMORY(%)"), "{nodes}");
}

/// A thousand pods are to have the machine's memory, and not their shims; nor a platform that does nothing.
#[test]
fn shims_and_a_small_platform_take_no_huge_pages_and_pods_may() {
    let platform = Platform::new();
    let status = std::fs::read_to_string(format!("/proc/{}/status", platform.pid().unwrap())).unwrap();
    assert!(status.contains("THP_enabled:\t0"), "{status}");
    let allowed = "grep THP_enabled /proc/self/status";
    let expected = Command::new("sh").args(["-c", allowed]).output().unwrap();
    let job = platform.jobctl(["submit", "--name", "p", "--", "sh", "-c", &format!("{allowed}; sleep 1000")]).ok();
    let said = eventually("the program has said it", || {
        let output = platform.jobctl(["logs", "p"]);
        if output.stdout.contains("THP_enabled") { Ok(output.stdout) } else { Err(format!("{job} {output:?}")) }
    });
    assert_eq!(said, String::from_utf8(expected.stdout).unwrap());
    let pods = std::fs::read_dir(platform.data_dir().join("node/pods")).unwrap().flatten();
    let note = std::fs::read(pods.map(|pod| pod.path()).next().unwrap().join("shim.json")).unwrap();
    let shim = serde_json::from_slice::<serde_json::Value>(&note).unwrap()["pid"].clone();
    // What it has allocated: mappings of no file. A debug build has megabytes of addresses that were filled in at its start.
    let mut allocated = 0;
    let mut is_of_file = false;
    for line in std::fs::read_to_string(format!("/proc/{shim}/smaps")).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [range, _, _, _, inode, ..] if range.contains('-') => is_of_file = inode != "0",
            ["Anonymous:", kib, _] if !is_of_file => allocated += kib.parse::<u64>().unwrap(),
            _ => {}
        }
    }
    assert!(allocated < 2 << 10, "{allocated} KiB");
}

#[test]
fn a_pod_reaches_the_api_as_its_account() {
    let platform = Platform::new();
    platform.kubectl(["create", "serviceaccount", "robot"]).ok();
    let script = "unset KUBECONFIG; export HOME=/nonexistent; kubectl auth whoami -o name >/dev/null; kubectl get pods -o name; kubectl get secrets";
    let pod = |name: &str, host_network: bool| {
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "restartPolicy": "Never", "serviceAccountName": "robot", "hostNetwork": host_network, "schedulerName": "volcano",
            "containers": [{"name": "main", "image": "pumice.sh/host", "command": ["sh", "-c", script]}]}})
    };
    platform.kubectl(["create", "role", "reads-pods", "--verb=get,list", "--resource=pods"]).ok();
    platform.kubectl(["create", "rolebinding", "robot", "--role=reads-pods", "--serviceaccount=default:robot"]).ok();
    for (name, host_network) in [("own", false), ("hosts", true)] {
        platform.kubectl_with_input(["create", "-f", "-"], &pod(name, host_network).to_string()).ok();
        eventually("it is over", || {
            let found = platform.get("pod", name).ok_or("no such pod")?;
            let phase = found["status"]["phase"].as_str().unwrap_or_default().to_owned();
            if matches!(phase.as_str(), "Succeeded" | "Failed") { Ok(()) } else { Err(phase) }
        });
        let log = platform.kubectl(["logs", name]).ok();
        assert!(log.contains(&format!("pod/{name}")), "{log}");
        let refused = "User \"system:serviceaccount:default:robot\" cannot list resource \"secrets\"";
        assert!(log.contains(refused), "{log}");
    }
}

// INV-50
#[test]
fn tearing_down_leaves_nothing() {
    let mut platform = Platform::start(Setup::default());
    platform.jobctl(["submit", "--name", "endless", "--", "sleep", "1000"]).ok();
    platform.wait_for_phase("endless", "Running");
    let now = platform.marks().look();
    assert!(!now.processes.is_empty() && now.interfaces.len() >= 2 && !now.cgroups.is_empty(), "{now:#?}");
    let remains = platform.tear_down();
    assert!(remains.is_empty(), "{remains:#?}");
}

#[test]
fn a_full_disk_is_an_error_and_not_an_end() {
    let Some(disk) = SmallDisk::mount() else { return };
    let data = disk.path.join("data");
    let mut child = Command::new(binary("pumice"))
        .args(["up", "--port", "0", "--data-dir", data.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("up is ready", || data.join("up.json").exists().then_some(()).ok_or_else(String::new));
    let kubectl =
        |args: &[&str]| Command::new("kubectl").args(args).env("KUBECONFIG", data.join("kubeconfig")).output().unwrap();
    let create = |name: &str, size: usize| {
        let path = disk.outside.join("manifest");
        std::fs::write(&path, config_map(name, &"x".repeat(size))).unwrap();
        kubectl(&["create", "-f", path.to_str().unwrap()])
    };
    assert!(create("first", 1).status.success());
    fill(&disk.path.join("ballast"));
    let refused = (0..100).find_map(|i| {
        let output = create(&format!("big-{i}"), 900_000);
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    });
    let refused = refused.expect("a disk of 64 MiB that is filled takes no 100 objects of 0.9 MB");
    assert!(refused.contains("space") || refused.contains("full"), "{refused}");
    assert!(kubectl(&["get", "configmap", "first"]).status.success(), "reads go on");
    std::fs::remove_file(disk.path.join("ballast")).unwrap();
    eventually("writes go on when there is room again", || {
        let output = create("second", 1);
        output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
    });
    assert!(kubectl(&["get", "configmap", "first"]).status.success(), "nothing is lost");
    let down = Command::new(binary("pumice")).args(["down", "--data-dir", data.to_str().unwrap()]).status().unwrap();
    assert!(down.success());
    assert!(child.wait().unwrap().success());
}

fn fill(path: &std::path::Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    let block = vec![1u8; 64 << 10];
    while file.write_all(&block).is_ok() {}
}

/// A file system of 64 MiB, unmounted when dropped.
struct SmallDisk {
    path: std::path::PathBuf,
    outside: std::path::PathBuf,
}

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let outside = std::env::temp_dir().join(format!("pumice-small-disk-{}", std::process::id()));
        let path = outside.join("disk");
        std::fs::create_dir_all(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(&path).status();
        if !mounted.is_ok_and(|status| status.success()) {
            assert!(std::env::var_os("CI").is_none(), "CI has to be able to mount a small disk");
            eprintln!("left out: no right to mount a small disk");
            return None;
        }
        Some(SmallDisk { path, outside })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A test that failed has left its platform running.
        let data = self.path.join("data");
        if data.is_dir() {
            let _ = Command::new(binary("pumice")).args(["down", "--now", "--data-dir"]).arg(data).output();
        }
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        let _ = std::fs::remove_dir_all(&self.outside);
    }
}

fn up(flags: &[&str]) -> (i32, String) {
    let output = Command::new(binary("pumice")).arg("up").args(flags).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn config_map(name: &str, text: &str) -> String {
    let object =
        serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": text}});
    object.to_string()
}

fn job_with_host_path(name: &str, script: &str, path: &str) -> String {
    format!(
        r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}}}
spec:
  minAvailable: 1
  tasks:
  - name: main
    replicas: 1
    template:
      spec:
        restartPolicy: Never
        volumes: [{{name: host, hostPath: {{path: "{path}"}}}}]
        containers:
        - name: main
          image: pumice.sh/host
          command: [sh, -c, '{script}']
          volumeMounts: [{{name: host, mountPath: "{path}"}}]
          resources: {{requests: {{cpu: 10m, memory: 8Mi}}}}
"#
    )
}
