//! A disk that fills under a platform stops writes, and nothing else: no process of ours ends, and what was accepted is
//! carried out when there is room again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_testkit::{Clients, Output, Process, SmallDisk, binary, eventually, eventually_within};
use serde_json::Value;

const DISK_MEGABYTES: u64 = 96;
/// Jobs that run while the disk fills; more by `PUMICE_FULL_DISK_JOBS`.
const JOBS: usize = 24;
const JOBS_VARIABLE: &str = "PUMICE_FULL_DISK_JOBS";
/// How long it may take until a full disk has writes refused: the store may have room in its file for hundreds of small objects.
const REFUSED_WITHIN: Duration = Duration::from_secs(180);
/// How long all jobs may take after there is room again.
const COMPLETE_WITHIN: Duration = Duration::from_secs(180);

/// A platform whose data, log and audit log are on a small disk.
pub(crate) struct Trial {
    up: Option<Process>,
    pub clients: Clients,
    pub disk: SmallDisk,
    background: bool,
    audit: bool,
}

impl Trial {
    fn new(background: bool, audit: bool) -> Trial {
        Trial::on(SmallDisk::new(DISK_MEGABYTES), background, audit)
    }

    pub fn on(disk: SmallDisk, background: bool, audit: bool) -> Trial {
        let data = disk.path().join("data");
        let clients = Clients::new(&data.join("kubeconfig"), disk.beside()).with("PUMICE_DATA_DIR", data);
        let mut trial = Trial { up: None, clients, disk, background, audit };
        trial.up();
        trial
    }

    fn data(&self) -> PathBuf {
        self.disk.path().join("data")
    }

    fn up(&mut self) {
        let mut command = self.command();
        if self.background {
            let output = command.arg("--background").output().unwrap();
            assert!(output.status.success(), "{output:?}");
        } else {
            let mut up = Process::start("up", &mut command, &self.disk.path());
            eventually("the platform is up", || match up.ended() {
                None if self.data().join("up.json").exists() => Ok(()),
                _ => Err(up.tail()),
            });
            self.up = Some(up);
        }
    }

    fn command(&self) -> Command {
        let mut command = self.clients.command(&binary("pumice"));
        command.args(["up", "--port", "0", "--log", "info"]);
        if self.audit {
            command.arg("--audit-log").arg(self.disk.path().join("audit.log"));
        }
        command
    }

    fn pid(&self) -> i32 {
        let note: Value = serde_json::from_slice(&fs::read(self.data().join("up.json")).unwrap()).unwrap();
        i32::try_from(note["pid"].as_i64().unwrap()).unwrap()
    }

    fn log(&self) -> PathBuf {
        if self.background { self.data().join("up.log") } else { self.disk.path().join("up.log") }
    }

    fn pumice(&self, words: &[&str]) -> Output {
        self.clients.run(&binary("pumice"), words, None)
    }

    fn metric(&self, name: &str) -> f64 {
        let page = self.clients.kubectl(["get", "--raw", "/metrics"]).ok();
        page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0.0)
    }

    /// The phase of each Job, and how often it was in each.
    fn phases(&self) -> BTreeMap<String, usize> {
        let mut phases = BTreeMap::new();
        for job in self.clients.list("jobs.batch.volcano.sh") {
            let phase = job["status"]["state"]["phase"].as_str().unwrap_or("none");
            *phases.entry(phase.to_owned()).or_default() += 1;
        }
        phases
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the log at this moment ---\n{}\n---", fs::read_to_string(self.log()).unwrap_or_default());
        }
        let _ = self.pumice(&["down"]);
    }
}

fn job(name: &str, script: &str) -> String {
    format!(
        "apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}}}
spec:
  minAvailable: 1
  maxRetry: 0
  tasks:
  - replicas: 1
    name: main
    template:
      spec:
        restartPolicy: Never
        terminationGracePeriodSeconds: 0
        containers:
        - name: main
          image: pumice.sh/host
          command: [sh, -c, '{script}']
          resources: {{requests: {{cpu: 10m}}}}
---
"
    )
}

/// The shims of pods that run, as their directories name them.
fn shims(data: &Path) -> BTreeMap<String, i32> {
    let pods = fs::read_dir(data.join("node/pods")).unwrap().flatten();
    let shims = pods.filter_map(|pod| {
        let note: Value = serde_json::from_slice(&fs::read(pod.path().join("shim.json")).ok()?).ok()?;
        Some((pod.file_name().into_string().ok()?, i32::try_from(note["pid"].as_i64()?).ok()?))
    });
    shims.collect()
}

fn lives(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

fn rides_out(background: bool, audit: bool) {
    let trial = Trial::new(background, audit);
    let clients = &trial.clients;
    let pid = trial.pid();
    let jobs = std::env::var(JOBS_VARIABLE).ok().and_then(|count| count.parse().ok()).unwrap_or(JOBS);
    let talker = job("talker", "while :; do date; sleep 0.01; done");
    clients.kubectl_with_input(["create", "-f", "-"], &talker).ok();
    clients.wait_for_phase("talker", "Running");
    let shim = *shims(&trial.data()).values().next().unwrap();
    let all: String = (0..jobs).map(|number| job(&format!("j{number}"), "echo begun; sleep 0.5; echo done")).collect();
    clients.kubectl_with_input(["create", "-f", "-"], &all).ok();
    eventually("some jobs are done", || {
        let phases = trial.phases();
        if phases.get("Completed").is_some_and(|done| *done > 2) { Ok(()) } else { Err(format!("{phases:?}")) }
    });

    let full = trial.disk.fill();
    let mut tried = 0;
    let mut write = || {
        tried += 1;
        clients.kubectl(["create", "configmap", &format!("try-{tried}")])
    };
    let refused = eventually_within(REFUSED_WITHIN, "writes are refused", || match write() {
        output if output.stderr.contains("full") => Ok(output),
        output => Err(format!("{output:?}")),
    });
    assert!(refused.stderr.contains("disk under the data directory is full"), "{refused:?}");
    assert_eq!(clients.list("jobs.batch.volcano.sh").len(), jobs + 1, "reads go on");
    eventually("status says that the last commit failed", || {
        // A small one may still find room in the store's file, and then the last commit did not fail.
        write();
        let status = trial.pumice(&["status"]);
        let parts = ["the last commit failed", "are free on the disk of the store"];
        if status.code == 1 && parts.iter().all(|part| status.stdout.contains(part)) {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    });
    let mut tried = 0;
    let advice = eventually("a job is refused", || {
        // What ends meanwhile may leave a little room, until that is filled, too.
        tried += 1;
        let output = clients.run(&binary("jobctl"), ["submit", "--name", &format!("late-{tried}"), "--", "true"], None);
        if output.code == 0 { Err(format!("{output:?}")) } else { Ok(output) }
    });
    assert!(advice.stderr.contains("next:  pumice status"), "{advice:?}");
    let accepted = jobs + tried - 1;
    eventually("the log loses lines", || {
        let lost = trial.metric("pumice_log_lines_lost_total");
        write();
        if lost > 0.0 { Ok(()) } else { Err(format!("{lost} lost")) }
    });
    assert!(lives(pid) && lives(shim), "somebody ended");
    drop(full);

    let begun = Instant::now();
    loop {
        let phases = trial.phases();
        let done = phases.get("Completed").copied().unwrap_or(0);
        if done >= accepted {
            break;
        }
        let hopeless = phases.contains_key("Failed") || phases.contains_key("Aborted");
        if hopeless || begun.elapsed() > COMPLETE_WITHIN {
            let pods: Vec<Value> = clients.list("pods").iter().map(|pod| pod["status"].clone()).collect();
            panic!("{done} of {accepted} jobs are completed: {phases:?} {pods:#?}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(lives(pid) && lives(shim), "somebody ended");
    assert_eq!(trial.pid(), pid, "it is the same platform");
    eventually("the platform's log tells of lost lines", || {
        let log = fs::read_to_string(trial.log()).unwrap();
        if log.contains("lines of this log were lost") { Ok(()) } else { Err(log) }
    });
    eventually("the pod's log tells of lost lines", || {
        let log = clients.run(&binary("jobctl"), ["logs", "talker"], None).stdout;
        if log.contains("lines of output were lost here") { Ok(()) } else { Err(format!("{} bytes", log.len())) }
    });
    let status = eventually("all is well", || {
        let status = trial.pumice(&["status"]);
        if status.code == 0 { Ok(status) } else { Err(status.stdout) }
    });
    assert!(status.stdout.contains("store-room       ok"), "{status:?}");
}

// INV-55
#[test]
fn it_is_ridden_out_in_the_foreground() {
    rides_out(false, false);
}

#[test]
fn it_is_ridden_out_in_the_background_with_an_audit_log() {
    rides_out(true, true);
}

/// The two other combinations, where somebody asks for more jobs than an ordinary run has.
#[test]
fn it_is_ridden_out_with_the_audit_log_in_either_place() {
    if std::env::var_os(JOBS_VARIABLE).is_some() {
        rides_out(false, true);
        rides_out(true, false);
    }
}

// INV-56
/// A quiet platform may write nothing for hours after there is room again.
#[test]
fn a_log_tells_of_lost_lines_though_no_other_line_comes() {
    let (disk, data) = (SmallDisk::new(DISK_MEGABYTES), tempfile::tempdir().unwrap());
    let clients = Clients::new(&data.path().join("kubeconfig"), data.path()).with("PUMICE_DATA_DIR", data.path());
    let mut command = clients.command(&binary("pumice"));
    let api = Process::start("api", command.args(["apiserver", "--port", "0", "--log", "info"]), &disk.path());
    let note = data.path().join("up.json");
    eventually("the API server is up", || note.exists().then_some(()).ok_or_else(|| api.tail()));
    let full = disk.fill();
    let lost = || {
        let page = clients.kubectl(["get", "--raw", "/metrics"]).ok();
        page.lines().any(|line| line.strip_prefix("pumice_log_lines_lost_total ").is_some_and(|count| count != "0"))
    };
    eventually("a line is lost", || {
        // The log tells that it was opened anew.
        kill(Pid::from_raw(api.pid()), Signal::SIGHUP).unwrap();
        if lost() { Ok(()) } else { Err(api.tail()) }
    });
    drop(full);
    eventually("the log tells of it", || match api.log() {
        log if log.contains("lines of this log were lost") => Ok(()),
        log => Err(log),
    });
}

#[test]
fn a_start_without_room_says_how_much_is_missing_and_leaves_nothing_behind() {
    let disk = SmallDisk::new(DISK_MEGABYTES);
    let data = disk.path().join("data");
    let clients = Clients::new(&data.join("kubeconfig"), disk.beside()).with("PUMICE_DATA_DIR", &data);
    let up = |more: &[&str]| clients.run(&binary("pumice"), [&["up", "--port", "0"], more].concat(), None);
    fs::create_dir(&data).unwrap();
    let full = disk.fill();
    for more in [&[][..], &["--background"]] {
        let refused = up(more);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("is full") && refused.stderr.contains("MB are missing"), "{refused:?}");
    }
    let left: Vec<_> = fs::read_dir(&data).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| name == "start.lock" || name == "lock"), "{left:?}");
    let status = clients.run(&binary("pumice"), ["status"], None);
    assert_eq!(status.code, 3, "{status:?}");
    drop(full);
    up(&["--background"]).ok();
    clients.run(&binary("pumice"), ["down"], None).ok();
}
