//! Whoever ends a pod gives it its grace, and says so; what can't be ended is told. With real processes.

use std::path::Path;

use pumice_testkit::{Platform, eventually};
use serde_json::Value;

/// Counts its signals, and takes a while after the first one to write down what it has.
const SAVES: &str = r#"#!/bin/sh
n=0
trap 'n=$((n+1))' TERM
: > "$1.ready"
while [ $n = 0 ]; do sleep 0.02; done
for step in 1 2 3 4 5 6 7 8 9 10; do sleep 0.03; done
echo "saved after $n" >> "$1"
"#;

/// A platform with that program in its scratch folder.
fn platform() -> Platform {
    let platform = Platform::new();
    platform.file("saves.sh", SAVES);
    platform
}

/// One pod of ten records, which follow each other.
const MANY_RECORDS: [&str; 6] = ["--days", "2024-01-01:2024-01-10", "--calendar", "all", "--days-per-task", "10"];

fn wait_for_file(path: &Path) -> String {
    eventually(&format!("{} is there", path.display()), || {
        std::fs::read_to_string(path).ok().filter(|text| !text.is_empty()).ok_or_else(|| "not yet".to_owned())
    })
}

fn wait_until_ready(file: &Path) {
    wait_until_there(&file.with_extension("ready"));
}

fn wait_until_there(file: &Path) {
    eventually(&format!("{} is there", file.display()), || {
        file.exists().then_some(()).ok_or_else(|| "not yet".to_owned())
    });
}

/// A pod that runs `script` with the test's folder.
fn create_pod(platform: &Platform, name: &str, script: &str, grace_seconds: u64) {
    let folder = platform.scratch().display();
    let manifest = format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: {grace_seconds}
  volumes: [{{name: folder, hostPath: {{path: {folder}}}}}]
  containers:
  - name: main
    image: pumice.sh/host
    command: [sh, -c, '{script}']
    volumeMounts: [{{name: folder, mountPath: {folder}}}]
"
    );
    platform.kubectl_with_input(["create", "-f", "-"], &manifest).ok();
}

fn status(platform: &Platform, pod: &str) -> Value {
    platform.get("pod", pod).map(|mut pod| pod["status"].take()).unwrap_or_default()
}

fn wait_for_phase(platform: &Platform, pod: &str, phase: &str) -> Value {
    eventually(&format!("pod {pod} is {phase}"), || {
        let status = status(platform, pod);
        if status["phase"] == phase { Ok(status) } else { Err(status.to_string()) }
    })
}

#[test]
fn a_script_whose_child_catches_the_signal_has_time_to_save() {
    let platform = platform();
    let script = "#!/bin/bash\n#SBATCH --signal=TERM@60\nsh saves.sh \"$PWD/$1\"\necho not reached >> \"$1\"\n";
    platform.file("s.sh", script);
    let own = |name: &str| platform.scratch().join(name);

    let timed_out = platform.jobctl(["run", "--timeout", "5s", "s.sh", "timeout"]);
    assert_ne!(timed_out.code, 0, "{timed_out:?}");
    assert_eq!(wait_for_file(&own("timeout")), "saved after 1\n", "{timed_out:?}");

    // One program of an array, of many that follow each other in a pod.
    for (name, flags) in [("cancel", [].as_slice()), ("array", MANY_RECORDS.as_slice())] {
        let words = ["submit", "--name", name].into_iter().chain(flags.iter().copied()).chain(["s.sh", name]);
        platform.jobctl(words).ok();
        wait_until_ready(&own(name));
        platform.jobctl(["cancel", "--yes", name]).ok();
        assert_eq!(wait_for_file(&own(name)), "saved after 1\n", "{name}");
    }

    let line = format!("sh {0}/saves.sh {0}/delete; echo not reached", platform.scratch().display());
    create_pod(&platform, "deleted", &line, 3600);
    wait_until_ready(&own("delete"));
    platform.kubectl(["delete", "pod", "deleted"]).ok();
    assert_eq!(wait_for_file(&own("delete")), "saved after 1\n");
}

#[test]
fn a_kill_of_the_platform_takes_nothing_of_a_grace() {
    let mut platform = Platform::new();
    let program = r#"#!/bin/sh
n=0
trap 'n=$((n+1)); : > "$1.told"' TERM
: > "$1.ready"
until [ -e "$1.go" ]; do sleep 0.02; done
echo "saved after $n" >> "$1"
"#;
    platform.file("waits.sh", program);
    let own = |name: &str| platform.scratch().join(name);
    let (down, up) = (own("down"), own("up"));
    for name in ["down", "up"] {
        create_pod(&platform, name, &format!("exec sh {0}/waits.sh {0}/{name}", platform.scratch().display()), 3600);
        wait_until_ready(&own(name));
    }
    platform.kubectl(["delete", "pod", "down", "up", "--wait=false"]).ok();
    // Both were told to end.
    wait_until_there(&down.with_extension("told"));
    wait_until_there(&up.with_extension("told"));
    platform.crash();
    // One ends its saving while there is no platform, the other one when the next has found it.
    std::fs::write(down.with_extension("go"), "").unwrap();
    assert_eq!(wait_for_file(&down), "saved after 1\n");
    platform.up();
    let gone = |pod: &str| {
        eventually("the pod is gone", || platform.get("pod", pod).map_or(Ok(()), |found| Err(found.to_string())));
    };
    gone("down");
    assert!(!up.exists(), "it still saves");
    std::fs::write(up.with_extension("go"), "").unwrap();
    assert_eq!(wait_for_file(&up), "saved after 1\n");
    gone("up");
}

#[test]
fn down_gives_each_pod_its_grace_and_says_what_ended_it() {
    let mut platform = platform();
    let own = platform.scratch().join("job");
    let line = format!("sh {0}/saves.sh {0}/job; echo not reached", platform.scratch().display());
    platform.jobctl(["submit", "--name", "work", "--", "sh", "-c", &line]).ok();
    wait_until_ready(&own);
    create_pod(&platform, "deaf", "trap \"\" TERM; while :; do sleep 1; done", 2);
    wait_for_phase(&platform, "deaf", "Running");

    let down = platform.down(["--grace", "1h"]);
    assert_eq!((down.code, down.stdout.as_str()), (0, "pumice is down; 2 pods ended\n"), "{down:?}");
    assert!(down.stderr.contains("waiting for 1 pod to end") || down.stderr.contains("waiting for 2 pods"), "{down:?}");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "saved after 1\n");

    platform.up();
    let reason = "Pod was terminated in response to imminent node shutdown.";
    let status = wait_for_phase(&platform, "deaf", "Failed");
    assert_eq!((&status["reason"], &status["message"]), (&"Terminated".into(), &reason.into()), "{status}");
    eventually("an event tells of the shutdown", || {
        let events = platform.list("events");
        let found = events.iter().any(|event| event["reason"] == "Terminated" && event["message"] == reason);
        if found { Ok(()) } else { Err(format!("{events:?}")) }
    });
    platform.wait_for_phase("work", "Failed");
    for verb in ["debug", "history"] {
        eventually(&format!("jobctl {verb} names the shutdown"), || {
            let told = platform.jobctl([verb, "work"]);
            if told.stdout.contains("node shutdown") { Ok(()) } else { Err(format!("{told:?}")) }
        });
    }
}

#[test]
fn down_now_and_down_within_a_time_end_those_who_do_not_listen() {
    let mut platform = platform();
    for flags in [&["--grace", "1s"][..], &["--now"]] {
        create_pod(&platform, "deaf", "trap \"\" TERM; while :; do sleep 1; done", 36_000);
        wait_for_phase(&platform, "deaf", "Running");
        assert_eq!(platform.down(flags).ok(), "pumice is down; 1 pod ended\n");
        platform.up();
        let status = wait_for_phase(&platform, "deaf", "Failed");
        let end = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((&status["reason"], &end["exitCode"]), (&"Terminated".into(), &137.into()), "{status}");
        platform.kubectl(["delete", "pod", "deaf"]).ok();
    }
}

/// A control group of version 1 that is frozen, thawed and removed when dropped.
struct Frozen {
    group: std::path::PathBuf,
    pid: i32,
}

impl Frozen {
    /// Freezes the process whose arguments hold `marker`; `None` where there is no right to.
    fn process(marker: &str) -> Option<Frozen> {
        let group = Path::new("/sys/fs/cgroup/freezer").join(format!("pumice-test-{}", std::process::id()));
        if !Path::new("/sys/fs/cgroup/freezer/tasks").exists() || std::fs::create_dir(&group).is_err() {
            eprintln!("not run: needs root and a freezer of control groups of version 1");
            return None;
        }
        let is_meant = |pid: &i32| {
            let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split('\0').any(|word| word == marker)
        };
        let pid = eventually("the pod's program runs", || {
            let processes = std::fs::read_dir("/proc").unwrap().flatten();
            let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
            pids.find(is_meant).ok_or_else(|| format!("none with {marker}"))
        });
        let frozen = Frozen { group, pid };
        std::fs::write(frozen.group.join("cgroup.procs"), pid.to_string()).unwrap();
        std::fs::write(frozen.group.join("freezer.state"), "FROZEN").unwrap();
        Some(frozen)
    }

    fn thaw(&self) {
        std::fs::write(self.group.join("freezer.state"), "THAWED").unwrap();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        eventually("the group is empty", || std::fs::remove_dir(&self.group).map_err(|error| error.to_string()));
    }
}

#[test]
fn what_can_not_be_killed_is_told_and_does_not_count_as_ended() {
    let mut platform = platform();
    let marker = format!("9{}.5", std::process::id());
    create_pod(&platform, "frozen", &format!("exec sleep {marker}"), 1);
    wait_for_phase(&platform, "frozen", "Running");
    let Some(frozen) = Frozen::process(&marker) else { return };
    let named = format!("process {} (sleep) is in a frozen control group: echo THAWED > ", frozen.pid);

    platform.kubectl(["delete", "pod", "frozen", "--wait=false"]).ok();
    eventually("an event names the process", || {
        let events = platform.list("events");
        let told = |event: &Value| {
            event["reason"] == "FailedKillPod" && event["message"].as_str().is_some_and(|text| text.contains(&named))
        };
        if events.iter().any(told) { Ok(()) } else { Err(format!("{events:?}")) }
    });

    let down = platform.down(["--now"]);
    assert_eq!((down.code, down.stdout.as_str()), (1, ""), "{down:?}");
    assert!(down.stderr.contains(&format!("pod default/frozen lives on: {named}")), "{down:?}");
    assert!(Path::new(&format!("/proc/{}", frozen.pid)).exists());
    frozen.thaw();
    let down = platform.down(["--now"]);
    assert_eq!(down.code, 0, "{down:?}");
    assert!(!Path::new(&format!("/proc/{}", frozen.pid)).exists());
}
