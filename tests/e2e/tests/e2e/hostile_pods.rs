//! Hostile pods of each kind, many at once, and the platform killed in the middle: it answers, it starts again, and who has
//! nothing to do with them runs on.
//!
//! `PUMICE_HOSTILE_PODS` says how many of a kind (50 for the figures of a release); with it the bounds are those that are
//! promised, without it they are such that a loaded machine keeps them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::libc::{SCHED_BATCH, SCHED_OTHER};
use pumice_jobs::Connection;
use pumice_jobs::platform::target::Target;
use pumice_testkit::{Platform, Setup, eventually};
use serde_json::json;

use crate::procfs::memory_kib;

/// Pods of a kind where nobody asks for more.
const PODS: usize = 3;
/// Pause between two reads of the person who looks on.
const PAUSE: Duration = Duration::from_millis(20);

/// What hostile pods do.
struct Kind {
    name: &'static str,
    /// The program, a line of Python.
    python: &'static str,
    /// Memory of each pod.
    memory: &'static str,
}

const DEEP: Kind = Kind {
    name: "deep",
    python: r#"import os, time; [(os.mkdir("d"), os.chdir("d")) for _ in range(30000)]; time.sleep(600)"#,
    memory: "256Mi",
};

const WIDE: Kind = Kind {
    name: "wide",
    python: r#"import os, time; [open(f"/f{n}", "w").close() for n in range(20000)]; time.sleep(600)"#,
    memory: "256Mi",
};

const LONG_PATHS: Kind = Kind {
    name: "long-paths",
    python: r#"import os, time; [(os.mkdir("n" * 200), os.chdir("n" * 200)) for _ in range(60)]; open("f", "wb").write(bytes(1 << 20)); time.sleep(600)"#,
    memory: "64Mi",
};

const FORKS: Kind = Kind {
    name: "forks",
    python: r#"
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(600)
    except OSError:
        time.sleep(1)
"#,
    memory: "64Mi",
};

const MEMORY: Kind = Kind {
    name: "memory",
    python: r#"
held = []
while True:
    held.append(bytearray(1 << 20))
"#,
    memory: "64Mi",
};

const LOGS: Kind = Kind {
    name: "logs",
    python: r#"
import time
for _ in range(100000):
    print("x" * 100)
time.sleep(600)
"#,
    memory: "64Mi",
};

const DEAF: Kind = Kind {
    name: "deaf",
    python: r#"
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(600)
"#,
    memory: "64Mi",
};

const HOST_FILES: Kind = Kind {
    name: "host-files",
    python: r#"
import os, time
while True:
    for attempt in (lambda: os.fchmod(0, 0), lambda: os.chmod("/proc/self/exe", 0), lambda: os.chmod("/proc/1/exe", 0),
                    lambda: open("/etc/resolv.conf", "a").write("nameserver 192.0.2.1\n"), lambda: os.chmod("/dev/null", 0)):
        try:
            attempt()
        except OSError:
            pass
    time.sleep(0.01)
"#,
    memory: "64Mi",
};

const SILENT_PEERS: Kind = Kind {
    name: "silent-peers",
    python: r#"
import os, socket, ssl, time
context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
open_connections = []
for _ in range(100):
    try:
        plain = socket.create_connection((os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])), timeout=5)
        open_connections.append(context.wrap_socket(plain))
    except OSError:
        pass
time.sleep(600)
"#,
    memory: "128Mi",
};

/// Otherwise busy pods have its answers wait for half a second at a time.
#[test]
fn the_platform_has_cpu_time_of_its_own() {
    let group = |pid: i32| {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        groups.lines().find_map(|line| line.split_once(":cpu:").map(|(_, path)| path.to_owned()))
    };
    if !nix::unistd::Uid::effective().is_root() || group(std::process::id().cast_signed()).as_deref() != Some("/") {
        eprintln!(
            "not run: needs root, and CPU time shared out by control groups of version 1 that nobody else has set"
        );
        return;
    }
    let mut platform = Platform::new();
    for _ in 0..2 {
        let group = group(platform.pid().unwrap()).unwrap();
        assert!(group.starts_with("/pumice/") && group.ends_with("/agent.process"), "{group}");
        let threads = std::fs::read_dir(format!("/proc/{}/task", platform.pid().unwrap())).unwrap();
        let stats = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap());
        let policies: BTreeSet<String> = stats.map(|stat| policy(&stat)).collect();
        assert_eq!(policies, [SCHED_BATCH.to_string()].into(), "of all its threads");
        platform.crash();
        platform.up();
    }
    let container = json!({"name": "main", "image": "pumice.sh/host", "command": ["cat", "/proc/self/stat"]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "policy"},
        "spec": {"restartPolicy": "Never", "containers": [container]}});
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
    let stat = eventually("its program has ended", || match platform.kubectl(["logs", "policy"]) {
        log if log.code == 0 && !log.stdout.is_empty() => Ok(log.stdout),
        log => Err(log.stderr),
    });
    assert_eq!(policy(&stat), SCHED_OTHER.to_string(), "of a pod's program");
    let remains = platform.tear_down();
    assert!(remains.is_empty(), "{remains:#?}");
}

/// By which policy the kernel gives a thread CPU time, of its `stat`: the 41st field, counted from behind the name, which may
/// hold anything (`proc_pid_stat(5)`).
fn policy(stat: &str) -> String {
    let behind_name = stat.rsplit_once(')').unwrap().1;
    behind_name.split_whitespace().nth(38).unwrap().to_owned()
}

#[test]
fn trees_without_end() {
    besiege(&DEEP);
    besiege(&WIDE);
}

#[test]
fn files_behind_long_paths() {
    besiege(&LONG_PATHS);
}

#[test]
fn processes_without_end() {
    besiege(&FORKS);
}

#[test]
fn memory_without_end() {
    besiege(&MEMORY);
}

#[test]
fn logs_without_end() {
    besiege(&LOGS);
}

#[test]
fn programs_that_do_not_end() {
    besiege(&DEAF);
}

#[test]
fn attempts_at_the_hosts_files() {
    let before = modes();
    besiege(&HOST_FILES);
    assert_eq!(modes(), before, "the host's own files are as they were");
}

#[test]
fn connections_that_say_nothing() {
    besiege(&SILENT_PEERS);
}

/// The modes of what pods must not reach.
fn modes() -> Vec<u32> {
    use std::os::unix::fs::MetadataExt as _;
    let paths = [Path::new("/dev/null").to_owned(), pumice_testkit::binary("pumice"), "/etc/resolv.conf".into()];
    paths.iter().map(|path| std::fs::metadata(path).unwrap().mode()).collect()
}

fn asked_for() -> Option<usize> {
    std::env::var("PUMICE_HOSTILE_PODS").ok().map(|text| text.parse().expect("PUMICE_HOSTILE_PODS is a number"))
}

fn besiege(kind: &Kind) {
    let pods = asked_for().unwrap_or(PODS);
    let flags = ["--cpu=64", "--memory=256Gi", "--pods=200"].map(str::to_owned).to_vec();
    let mut platform = Platform::start(Setup { flags });
    let trigger = platform.scratch().join("end");
    platform.kubectl_with_input(["create", "-f", "-"], &bystander(platform.scratch())).ok();
    phase(&platform, "bystander", "Running");
    let idle = memory_kib(platform.pid().unwrap(), "VmRSS");
    let mut slowest = Vec::new();
    let mut largest = 0;

    let reader = Reader::start(&platform);
    platform.kubectl_with_input(["create", "-f", "-"], &hostile(kind, pods)).ok();
    eventually("the hostile pods have started", || {
        let left = platform.list("pods").iter().filter(|pod| pod["status"]["phase"] == "Pending").count();
        if left == 0 { Ok(()) } else { Err(format!("{left} wait")) }
    });
    let mut starts = vec![newcomer(&platform, "during")];
    slowest.push(reader.stop());
    largest = memory_kib(platform.pid().unwrap(), "VmHWM").max(largest);

    platform.crash();
    platform.up();
    starts.push(newcomer(&platform, "after-kill"));

    let reader = Reader::start(&platform);
    platform.kubectl(["delete", "pods", "--selector=kind=hostile", "--wait=false", "--grace-period=1"]).ok();
    starts.push(newcomer(&platform, "while-they-go"));
    slowest.push(reader.stop());
    largest = memory_kib(platform.pid().unwrap(), "VmHWM").max(largest);
    platform.crash();
    platform.up();
    eventually("the hostile pods are gone", || {
        let left = platform.list("pods").iter().filter(|pod| pod["metadata"]["labels"]["kind"] == "hostile").count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
    });
    largest = memory_kib(platform.pid().unwrap(), "VmHWM").max(largest);

    std::fs::write(trigger, "").unwrap();
    let ended = phase(&platform, "bystander", "Failed");
    let state = &ended["status"]["containerStatuses"][0];
    assert_eq!((&state["state"]["terminated"]["exitCode"], &state["restartCount"]), (&7.into(), &0.into()), "{ended}");

    let (slowest, start) = (slowest.into_iter().max().unwrap(), starts.into_iter().max().unwrap());
    println!(
        "{} x {pods}: a get took {slowest:.1?} (p99), another pod {start:.1?} to its end, memory {idle} -> {largest} KiB",
        kind.name
    );
    if asked_for().is_some() {
        assert!(slowest < Duration::from_millis(200), "{}: p99 of a get is {slowest:?}", kind.name);
        assert!(start < Duration::from_secs(5), "{}: another pod took {start:?}", kind.name);
        assert!(largest < idle + idle / 2 + (64 << 10), "{}: {idle} KiB idle, {largest} KiB at most", kind.name);
    }
    let remains = platform.tear_down();
    assert!(remains.is_empty(), "{}: {remains:#?}", kind.name);
}

/// Starts another pod and says how long it took to its end.
fn newcomer(platform: &Platform, name: &str) -> Duration {
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  containers:\n  \
         - {{name: main, image: pumice.sh/host, command: [\"true\"]}}\n"
    );
    let begin = Instant::now();
    platform.kubectl_with_input(["create", "-f", "-"], &manifest).ok();
    phase(platform, name, "Succeeded");
    begin.elapsed()
}

fn phase(platform: &Platform, pod: &str, wanted: &str) -> serde_json::Value {
    eventually(&format!("pod {pod} is {wanted}"), || {
        let found = platform.get("pod", pod).ok_or("no such pod")?;
        if found["status"]["phase"] == wanted { Ok(found) } else { Err(found["status"].to_string()) }
    })
}

/// A person who reads one pod again and again, over one connection.
struct Reader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl Reader {
    fn start(platform: &Platform) -> Reader {
        let (path, stop) = (platform.data_dir().join("kubeconfig"), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(read_until(&path, &stopped))
        });
        Reader { stop, thread }
    }

    /// Ends the reading; gives the 99th percentile of what a read took.
    fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let mut times = self.thread.join().unwrap();
        times.sort_unstable();
        times[(times.len() * 99 / 100).min(times.len() - 1)]
    }
}

async fn read_until(kubeconfig: &Path, stop: &AtomicBool) -> Vec<Duration> {
    let target = Target::Kubeconfig { path: kubeconfig.to_owned(), context: None };
    let connection = Connection::open(target, None).await.unwrap();
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let request = http::Request::get("/api/v1/namespaces/default/pods/bystander").body(Vec::new()).unwrap();
        let begin = Instant::now();
        connection.client().request_text(request).await.unwrap();
        times.push(begin.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    times
}

/// A pod that ends with its own code when a file appears.
fn bystander(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: bystander}}
spec:
  restartPolicy: Never
  volumes: [{{name: host, hostPath: {{path: \"{folder}\"}}}}]
  containers:
  - name: main
    image: pumice.sh/host
    command: [sh, -c, 'until [ -e {folder}/end ]; do sleep 0.2; done; exit 7']
    volumeMounts: [{{name: host, mountPath: \"{folder}\"}}]
"
    )
}

fn hostile(kind: &Kind, pods: usize) -> String {
    let Kind { name, python, memory } = kind;
    let program = serde_json::Value::from(*python);
    let mut manifests = String::new();
    for index in 0..pods {
        write!(
            manifests,
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}-{index}, labels: {{kind: hostile}}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: pumice.sh/host
    command: [python3, -c, {program}]
    resources: {{requests: {{cpu: 10m}}, limits: {{memory: {memory}}}}}
---
"
        )
        .unwrap();
    }
    manifests
}
