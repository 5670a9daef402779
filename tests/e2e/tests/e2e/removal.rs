//! What pods and claims leave is removed, whatever its shape, and never at the cost of the platform.
//!
//! `PUMICE_REMOVAL_ENTRIES` says how many entries the widest tree has, such as 1000000; its times are printed.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use pumice_testkit::{Platform, Remains, Setup, binary, eventually, eventually_within};
use serde_json::{Value, json};

const LEVELS: u32 = 30_000;
/// What a process that removes a tree may take beside what its program takes anyway.
const MEMORY_KIB_MAX: i64 = 10 << 10;

fn pod(name: &str, policy: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": policy, "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [{
                "name": "main", "image": "pumice.sh/host", "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
        },
    })
}

fn apply(platform: &Platform, object: &Value) -> String {
    platform.kubectl_with_input(["apply", "-f", "-"], &object.to_string()).ok();
    let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
    platform.get(kind, name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn phase(platform: &Platform, name: &str, wanted: &str) {
    eventually(&format!("{name} is {wanted}"), || {
        let pod = platform.get("pod", name).ok_or("no pod")?;
        if pod["status"]["phase"] == wanted { Ok(()) } else { Err(pod["status"].to_string()) }
    });
}

fn is_gone(platform: &Platform, name: &str) {
    eventually(&format!("{name} is gone"), || platform.get("pod", name).map_or(Ok(()), |pod| Err(pod.to_string())));
}

/// A pod that starts and ends: the platform goes on.
fn another_runs(platform: &Platform, name: &str) {
    apply(platform, &pod(name, "Never", "true"));
    phase(platform, name, "Succeeded");
}

/// Makes nested folders where no path is long enough.
fn nest(path: &Path, levels: u32, name: &str) {
    let name = CString::new(name).unwrap();
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut folder = open(path, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(folder.as_fd(), name.as_c_str(), Mode::S_IRWXU).unwrap();
        folder = openat(folder.as_fd(), name.as_c_str(), flags, Mode::empty()).unwrap();
    }
}

/// Platforms of these tests keep their data in memory: a disk may take milliseconds for each of so many folders.
fn platform() -> Platform {
    Platform::start_in_memory(Setup::default())
}

fn queued(platform: &Platform) -> Vec<PathBuf> {
    let folders = ["node/removing", "volumes/.removing"].map(|folder| fs::read_dir(platform.data_dir().join(folder)));
    folders.into_iter().flatten().flatten().flatten().map(|entry| entry.path()).collect()
}

fn nothing_is_queued(platform: &Platform) {
    eventually("all is removed", || {
        let left = queued(platform);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

fn set_aside(platform: &Platform) -> Vec<Value> {
    let output = platform.run(&binary("pumice"), ["node", "list", "--set-aside", "-o", "json"], None).ok();
    serde_json::from_str(&output).unwrap()
}

const NESTING: &str = "python3 -c 'import os;[(os.mkdir(\"d\"),os.chdir(\"d\")) for _ in range(30000)]'";

#[test]
fn a_pod_with_thirty_thousand_levels_is_removed_and_the_platform_goes_on() {
    let mut platform = platform();
    for (name, folder) in [("layers", "$(mktemp -d)"), ("volume", "/data")] {
        apply(&platform, &pod(name, "Never", &format!("cd {folder} && {NESTING}")));
        phase(&platform, name, "Succeeded");
        platform.kubectl(["delete", "pod", name]).ok();
        is_gone(&platform, name);
    }
    another_runs(&platform, "next");
    nothing_is_queued(&platform);
    assert_eq!(set_aside(&platform), [] as [Value; 0]);
    // As an earlier version left it, which could not remove it.
    let left = platform.data_dir().join("node/pods/0a0a0a0a-left");
    platform.crash();
    fs::create_dir_all(left.join("c/main/0/upper")).unwrap();
    nest(&left.join("c/main/0/upper"), LEVELS, "d");
    platform.up();
    another_runs(&platform, "after");
    eventually("what was left is removed", || if left.exists() { Err("it is there".to_owned()) } else { Ok(()) });
    nothing_is_queued(&platform);
    let remains = platform.tear_down();
    assert!(remains.is_empty(), "{remains:#?}");
}

/// Enough entries for a crash to come into the middle of their removal.
const WIDE: usize = 30_000;

/// A platform that was killed in the middle of a removal of so many trees.
fn cut_short(trees: usize) -> Platform {
    let mut platform = platform();
    let removing = platform.data_dir().join("node/removing");
    let wide: Vec<PathBuf> = (0..trees).map(|i| removing.join(format!("pod_default_wide_{i}"))).collect();
    platform.crash();
    for tree in &wide {
        fs::create_dir_all(tree).unwrap();
        (0..WIDE).for_each(|i| drop(fs::File::create(tree.join(i.to_string())).unwrap()));
        nest(tree, LEVELS, "d");
    }
    platform.up();
    eventually("a removal is under way", || {
        let begun = wide.iter().any(|tree| fs::read_dir(tree).is_ok_and(|entries| entries.count() <= WIDE));
        if begun { Ok(()) } else { Err("not begun".to_owned()) }
    });
    platform.crash();
    assert!(!queued(&platform).is_empty(), "it was cut short");
    platform
}

#[test]
fn a_removal_that_is_cut_short_is_taken_up_again() {
    let mut platform = cut_short(2);
    platform.up();
    another_runs(&platform, "next");
    nothing_is_queued(&platform);
    assert_eq!(set_aside(&platform), [] as [Value; 0]);
}

/// Also the group of the platform goes, though what removes ends only when it notices that nobody listens any more.
#[test]
fn a_removal_that_is_cut_short_leaves_nothing_after_down() {
    // A release build needs a second for two, after which `down` says what it does.
    let mut platform = cut_short(6);
    let marks = platform.marks();
    let down = platform.down(["--now"]);
    assert!(down.stderr.contains("Ctrl-C leaves the rest to the next pumice up"), "{down:?}");
    assert_eq!(marks.look(), Remains::default());
    assert_eq!(queued(&platform), [] as [PathBuf; 0]);
}

#[test]
fn a_container_that_restarts_with_such_layers_is_started_again() {
    let platform = platform();
    let uid = apply(
        &platform,
        &pod(
            "again",
            "OnFailure",
            &format!("[ -e /data/seen ] && exit 0; touch /data/seen; cd /tmp; {NESTING}; exit 1"),
        ),
    );
    phase(&platform, "again", "Succeeded");
    assert_eq!(platform.get("pod", "again").unwrap()["status"]["containerStatuses"][0]["restartCount"], 1);
    let layers = platform.data_dir().join("node/pods").join(&uid).join("c");
    eventually("its layers are removed", || if layers.exists() { Err("they are there".to_owned()) } else { Ok(()) });
    nothing_is_queued(&platform);
    assert_eq!(set_aside(&platform), [] as [Value; 0]);
}

#[test]
fn a_claim_with_such_a_folder_goes_with_its_volume() {
    let platform = platform();
    apply(
        &platform,
        &json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "scratch"},
            "provisioner": "pumice.sh/folder", "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        }),
    );
    apply(
        &platform,
        &json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "deep"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "scratch", "resources": {"requests": {"storage": "1Mi"}}},
        }),
    );
    let mut writer = pod("writer", "Never", &format!("cd /data && {NESTING}"));
    writer["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "deep"}}]);
    apply(&platform, &writer);
    phase(&platform, "writer", "Succeeded");
    platform.kubectl(["delete", "pod", "writer"]).ok();
    platform.kubectl(["delete", "pvc", "deep"]).ok();
    eventually("its volume is gone", || {
        let volumes = platform.list("persistentvolumes");
        if volumes.is_empty() { Ok(()) } else { Err(format!("{volumes:?}")) }
    });
    assert!(!platform.data_dir().join("volumes/default/deep").exists());
    nothing_is_queued(&platform);
    another_runs(&platform, "next");
}

fn chattr(flag: &str, path: &Path) -> bool {
    Command::new("chattr").args(["-R", "-f", flag]).arg(path).status().is_ok_and(|status| status.success())
}

/// Whatever becomes of the test, its folder can be removed.
struct Freed(PathBuf);

impl Drop for Freed {
    fn drop(&mut self) {
        chattr("-i", &self.0);
    }
}

// INV-51
#[test]
fn what_can_not_be_removed_is_set_aside_told_and_removed_when_asked_for() {
    let platform = Platform::new();
    let uid = apply(&platform, &pod("stuck", "Never", "mkdir -p /data/a/b; echo kept > /data/a/b/file"));
    phase(&platform, "stuck", "Succeeded");
    let file = platform.data_dir().join("node/pods").join(&uid).join("volumes/data/a/b/file");
    let _freed = Freed(platform.data_dir());
    if !chattr("+i", &file) {
        eprintln!("skipped: no file can be made immutable here");
        return;
    }
    platform.kubectl(["delete", "pod", "stuck"]).ok();
    is_gone(&platform, "stuck");
    another_runs(&platform, "next");
    let aside = eventually("it is set aside", || set_aside(&platform).pop().ok_or_else(|| "nothing".to_owned()));
    let path = PathBuf::from(aside["path"].as_str().unwrap());
    assert_eq!(
        (&aside["kind"], &aside["namespace"], &aside["object"]),
        (&"Pod".into(), &"default".into(), &"stuck".into())
    );
    assert!(aside["reason"].as_str().unwrap().contains("a/b/file: not permitted"), "{aside}");
    assert_eq!(fs::read_to_string(path.join("volumes/data/a/b/file")).unwrap(), "kept\n");
    eventually("an event tells of it", || {
        let events = platform.list("events");
        let told = events
            .iter()
            .any(|event| event["reason"] == "LeftoverSetAside" && event["involvedObject"]["kind"] == "Node");
        if told { Ok(()) } else { Err(format!("{events:?}")) }
    });
    let name = aside["name"].as_str().unwrap();
    let listed = platform.run(&binary("pumice"), ["node", "list", "--set-aside"], None).ok();
    assert!(listed.contains(name) && listed.contains("pod default/stuck"), "{listed}");
    let remove = || platform.run(&binary("pumice"), ["node", "remove-set-aside", name], None);
    let refused = remove();
    assert!(refused.code != 0 && refused.stderr.contains("a/b/file: not permitted"), "{refused:?}");
    assert!(chattr("-i", &path));
    remove().ok();
    assert!(!path.exists());
    assert_eq!(set_aside(&platform), [] as [Value; 0]);
    let unknown = remove();
    assert!(unknown.code != 0 && unknown.stderr.contains("next: pumice node list --set-aside"), "{unknown:?}");
}

#[test]
fn down_removes_what_a_pod_left_too() {
    let mut platform = platform();
    let uid = apply(&platform, &pod("stays", "Never", &format!("cd /tmp && {NESTING}; sleep 1000")));
    phase(&platform, "stays", "Running");
    let upper = platform.data_dir().join("node/pods").join(&uid).join("c");
    eventually("its folders are made", || if upper.exists() { Ok(()) } else { Err("not yet".to_owned()) });
    let remains = platform.tear_down();
    assert!(remains.is_empty(), "{remains:#?}");
    assert!(!upper.exists() && queued(&platform).is_empty());
}

#[test]
fn without_pods_there_are_api_and_store_and_pods_go_on() {
    let mut platform = platform();
    apply(&platform, &pod("goes-on", "Never", "while :; do date +%N > /data/tick; sleep 0.05; done"));
    phase(&platform, "goes-on", "Running");
    let tick = |platform: &Platform| {
        let pods = fs::read_dir(platform.data_dir().join("node/pods")).unwrap();
        pods.flatten().find_map(|pod| fs::read_to_string(pod.path().join("volumes/data/tick")).ok()).unwrap_or_default()
    };
    platform.stop();
    // Something that no agent starts with.
    let newer = platform.data_dir().join("node/pods/of-a-newer-version");
    fs::create_dir(&newer).unwrap();
    fs::write(newer.join("spec.json"), "{\"format\": 1000000}").unwrap();
    let refused = Command::new(binary("pumice"))
        .args(["up", "--port", "0", "--data-dir"])
        .arg(platform.data_dir())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    platform.up_with(&["--without-pods"]);
    assert!(platform.log().contains("off by --without-pods: pods that run go on"), "{}", platform.log());
    assert_eq!(platform.get("pod", "goes-on").unwrap()["status"]["phase"], "Running");
    let before = tick(&platform);
    eventually("the pod goes on", || if tick(&platform) == before { Err(before.clone()) } else { Ok(()) });
    let status = platform.run(&binary("pumice"), ["status"], None);
    assert!(status.stdout.contains("off by --without-pods"), "{status:?}");
    platform.stop();
    fs::remove_dir_all(&newer).unwrap();
    platform.up();
    platform.kubectl(["delete", "pod", "goes-on", "--now"]).ok();
    is_gone(&platform, "goes-on");
}

/// The most memory that the removal of a tree took, in KiB, its program included.
fn peak_kib(tree: &Path) -> i64 {
    let measure = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=2); \
                   print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";
    let mut command = Command::new("python3");
    let output =
        command.args(["-c", measure]).arg(binary("pumice")).args(["shim", "--remove"]).arg(tree).output().unwrap();
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    told.trim().parse().unwrap_or_else(|_| panic!("{told}{said}"))
}

/// Makes a tree in a folder.
type Shape = fn(&Path);

// INV-51
#[test]
fn a_removal_takes_little_memory_whatever_the_shape() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let shapes: [(&str, Shape); 3] = [
        ("deep", |path| nest(path, LEVELS, &"n".repeat(255))),
        ("wide", |path| (0..50_000).for_each(|i| drop(fs::File::create(path.join(i.to_string())).unwrap()))),
        ("both", |path| {
            for i in 0..300 {
                fs::create_dir(path.join(i.to_string())).unwrap();
                nest(&path.join(i.to_string()), 100, "d");
            }
        }),
    ];
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let least = peak_kib(&empty);
    for (name, make) in shapes {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        make(&path);
        let most = peak_kib(&path);
        println!("{name}: {} KiB more than the {least} KiB of the program", most - least);
        assert!(most - least < MEMORY_KIB_MAX, "{name}: {most} KiB, {least} KiB without a tree");
        assert!(!path.exists());
    }
}

#[test]
fn the_removal_of_a_million_entries_holds_up_nobody() {
    let Some(entries) = std::env::var_os("PUMICE_REMOVAL_ENTRIES") else { return };
    let entries: u32 = entries.to_str().and_then(|text| text.parse().ok()).expect("a number");
    let platform = Platform::new();
    let starts = |name: &str| -> Vec<Duration> {
        let start = |i| {
            let began = Instant::now();
            another_runs(&platform, &format!("{name}{i}"));
            began.elapsed()
        };
        let mut times: Vec<Duration> = (0..15).map(start).collect();
        times.sort();
        times
    };
    let before = starts("before");
    let script = format!("cd /data && python3 -c 'for i in range({entries}): open(str(i), \"w\").close()'");
    apply(&platform, &pod("wide", "Never", &script));
    eventually_within(Duration::from_secs(900), "it is written", || {
        let pod = platform.get("pod", "wide").unwrap();
        if pod["status"]["phase"] == "Succeeded" { Ok(()) } else { Err(pod["status"].to_string()) }
    });
    let began = Instant::now();
    platform.kubectl(["delete", "pod", "wide"]).ok();
    is_gone(&platform, "wide");
    let vanished = began.elapsed();
    let during = starts("during");
    let is_under_way = !queued(&platform).is_empty();
    while !queued(&platform).is_empty() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (median, longest) = (before.len() / 2, before.len() - 1);
    println!(
        "{entries} entries: the pod was gone after {vanished:?}, all of it after {:?} (under way meanwhile: {is_under_way}); \
         another pod took {:?} (at most {:?}), {:?} (at most {:?}) before",
        began.elapsed(),
        during[median],
        during[longest],
        before[median],
        before[longest],
    );
    assert!(during[median] < before[median] + Duration::from_millis(100), "{during:?} {before:?}");
}
