//! What a tenant's pod tries to reach of the machine besides its volumes, and what it gets.
//!
//! `PUMICE_SIDE_DOOR_MOUNTS=10000` makes as many mounts while a sidecar exchanges a folder and a link.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice_testkit::{Platform, Setup, binary, eventually};
use serde_json::{Value, json};

/// Containers of one pod that mount what is exchanged.
const MOUNTS_OF_A_POD: usize = 30;
/// Mounts in all, unless the environment says otherwise.
const MOUNTS: usize = 60;

fn create(platform: &Platform, name: &str, spec: Value) {
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"restartPolicy": "Never"}});
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    platform.kubectl_with_input(["create", "-f", "-"], &pod.to_string()).ok();
}

fn sh(name: &str, script: &str) -> Value {
    json!({"name": name, "image": "pumice.sh/host", "command": ["/bin/sh", "-c", script]})
}

fn wait_for_phase(platform: &Platform, name: &str, phase: &str) {
    eventually(&format!("pod {name} is {phase}"), || {
        let pod = platform.get("pod", name).unwrap_or_default();
        if pod["status"]["phase"] == phase { Ok(()) } else { Err(pod["status"].to_string()) }
    });
}

/// What `chmod`, `chown` and `setxattr` would change.
fn state(path: &Path) -> (u32, i64, i64) {
    let found = std::fs::metadata(path).unwrap();
    (found.mode(), found.ctime(), found.ctime_nsec())
}

/// A library that tries, in whatever loads it, to change the file that runs.
fn library(platform: &Platform) -> PathBuf {
    let source = r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/stat.h>
        #include <sys/xattr.h>
        static const char *exe = "/proc/self/exe";
        static const char *outcome(int result) { return result == 0 ? "done" : strerror(errno); }
        __attribute__((constructor)) static void attempt(void) {
            printf("chmod: %s\n", outcome(chmod(exe, 04755)));
            printf("setxattr: %s\n", outcome(setxattr(exe, "user.side", "door", 4, 0)));
            printf("chown: %s\n", outcome(chown(exe, 12345, -1)));
            fflush(stdout);
        }"#;
    let source = platform.file("library.c", source);
    let library = platform.scratch().join("library.so");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(built.expect("this test needs a C compiler: apt-get install gcc").success());
    library
}

// INV-54
#[test]
fn the_platforms_own_program_and_devices_stay_as_they_are() {
    let platform = Platform::new();
    let library = library(&platform);
    let (program, null) = (binary("pumice"), Path::new("/dev/null"));
    let before = (state(&program), state(null));
    let env = json!([{"name": "LD_PRELOAD", "value": library}]);
    // What runs there is the shim's own program: it loads no library, and nobody can change its file.
    let exe =
        json!({"name": "main", "image": "pumice.sh/host", "command": ["/proc/self/exe", "--version"], "env": env});
    create(&platform, "exe", json!({"containers": [exe]}));
    wait_for_phase(&platform, "exe", "Failed");
    let is_the_shim = |said: &str| said.contains("meant to be started by the node agent") && !said.contains("chmod:");
    let log = platform.kubectl(["logs", "exe"]).ok();
    assert!(is_the_shim(&log), "was `cargo shim` run before the build? {log}");

    let mut long = sh("main", "chmod 0600 /proc/self/fd/0; exec sleep 600");
    long["env"] = env;
    create(&platform, "long", json!({"containers": [long], "terminationGracePeriodSeconds": 0}));
    wait_for_phase(&platform, "long", "Running");
    let log = platform.kubectl(["logs", "long"]).ok();
    assert!(log.contains("chmod:"), "the library tries it in other programs: {log}");
    let beside = platform.kubectl(["exec", "long", "--", "/proc/self/exe", "--version"]);
    assert!(beside.code != 0 && is_the_shim(&beside.stderr), "{beside:?}");
    let beside =
        platform.kubectl(["exec", "long", "--", "/bin/sh", "-c", "chmod 0600 /proc/self/fd/0 && echo own"]).ok();
    assert!(beside.contains("own"), "{beside}");
    assert_eq!((state(&program), state(null)), before);
}

#[test]
fn a_fork_bomb_ends_itself_only() {
    let flags = ["--pod-pids-limit", "64"].map(str::to_owned).to_vec();
    let platform = Platform::start(Setup { flags });
    let node = platform.list("nodes")[0].to_string();
    if ["no control groups", "no control group counts"].iter().any(|note| node.contains(note)) {
        eprintln!("not run: no control group counts processes here");
        return;
    }
    // The shell is told that there is room for no more, and ends.
    create(&platform, "bomb", json!({"containers": [sh("main", "while :; do sleep 600 & done")]}));
    create(&platform, "beside", json!({"containers": [sh("main", "sleep 1; exit 0")]}));
    wait_for_phase(&platform, "bomb", "Failed");
    wait_for_phase(&platform, "beside", "Succeeded");
    let log = platform.kubectl(["logs", "bomb"]).ok();
    assert!(log.contains("fork"), "{log}");
    create(&platform, "after", json!({"containers": [sh("main", "true")]}));
    wait_for_phase(&platform, "after", "Succeeded");
}

#[test]
fn a_folder_that_is_exchanged_with_a_link_is_mounted_or_nothing_is() {
    let platform = Platform::new();
    let host = platform.scratch().join("host");
    std::fs::create_dir(&host).unwrap();
    std::fs::write(host.join("secret"), "of the host").unwrap();
    let exchange = format!(
        "import ctypes, os\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         os.chdir('/v'); os.mkdir('a'); os.symlink('{}', 'b'); open('ready', 'w')\n\
         while not os.path.exists('/v/over'):\n    libc.syscall({}, -100, b'a', -100, b'b', 2)\n",
        host.display(),
        nix::libc::SYS_renameat2,
    );
    let mounts = std::env::var("PUMICE_SIDE_DOOR_MOUNTS").ok().map_or(MOUNTS, |number| number.parse().unwrap());
    for round in 0..mounts.div_ceil(MOUNTS_OF_A_POD) {
        let name = format!("race-{round}");
        let whole = json!([{"name": "v", "mountPath": "/v"}]);
        let sidecar = json!({"name": "exchange", "image": "pumice.sh/host", "restartPolicy": "Always",
            "command": ["python3", "-c", exchange], "volumeMounts": whole});
        let mut ready = sh("ready", "until [ -e /v/ready ]; do sleep 0.01; done");
        ready["volumeMounts"] = whole.clone();
        let part = json!([{"name": "v", "mountPath": "/part", "subPath": "a"}]);
        let containers = (0..MOUNTS_OF_A_POD).map(|index| {
            let mut container =
                sh(&format!("c{index}"), "if [ -e /part/secret ]; then echo of the host; fi; touch /part/mark");
            container["volumeMounts"] = part.clone();
            container
        });
        create(
            &platform,
            &name,
            json!({"initContainers": [sidecar, ready],
            "containers": containers.collect::<Vec<_>>(), "volumes": [{"name": "v", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 0}),
        );
        eventually("all containers have ended", || {
            let pod = platform.get("pod", &name).unwrap_or_default();
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            if ["Succeeded", "Failed"].contains(&phase) { Ok(()) } else { Err(pod["status"]["phase"].to_string()) }
        });
        let log = platform.kubectl(["logs", &name, "--all-containers", "--tail=-1"]).stdout;
        assert!(!log.contains("of the host"), "{log}");
        platform.kubectl(["delete", "pod", &name, "--wait=false"]).ok();
    }
    let left: Vec<_> = std::fs::read_dir(&host).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["secret"], "nothing was written on the host");
}
