//! From nothing: the first `jobctl run` in a home brings up the platform of this machine.

use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};
use pumice_testkit::{Clients, Marks, Output, binary, eventually};
use serde_json::Value;
use tempfile::TempDir;

/// A user without rights.
const NOBODY: u32 = 65534;
/// What tells that a platform was started.
const STARTED: &str = "in the background";

/// The home of somebody who has set up nothing. What was started from it ends with it.
struct Home {
    directory: TempDir,
    clients: Clients,
}

impl Home {
    fn new() -> Home {
        let directory = tempfile::Builder::new().prefix("pumice-test-").tempdir().unwrap();
        let unset = ["PUMICE_DATA_DIR", "PUMICE_CONTEXT", "PUMICE_AUTOSTART", "XDG_DATA_HOME", "XDG_CONFIG_HOME"];
        // A kubeconfig that stands in the environment only is never used.
        let clients = Clients::new(Path::new("production"), directory.path());
        let clients = unset.iter().fold(clients, |clients, name| clients.with(name, ""));
        Home { directory, clients }
    }

    fn data_dir(&self) -> PathBuf {
        self.directory.path().join(".local/share/pumice")
    }

    fn jobctl<const N: usize>(&self, args: [&str; N]) -> Output {
        self.clients.run(&binary("jobctl"), args, None)
    }

    fn down(&self) -> Output {
        self.clients.run(&binary("pumice"), ["down", "--now"], None)
    }

    /// What the platform has left to be found by, if one runs.
    fn note(&self) -> Option<Value> {
        Some(serde_json::from_slice(&std::fs::read(self.data_dir().join("up.json")).ok()?).unwrap())
    }

    /// The process id of the platform.
    fn pid(&self) -> Option<Pid> {
        Some(Pid::from_raw(self.note()?["pid"].as_i64()?.try_into().unwrap()))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.data_dir().join("up.log"));
            eprintln!("--- the platform said ---\n{}\n---", log.unwrap_or_default());
        }
        self.down();
    }
}

#[test]
fn the_first_run_brings_up_a_platform_that_the_next_ones_use() {
    let home = Home::new();
    let list = home.jobctl(["list"]);
    assert_eq!(list.code, 5, "who only looks starts nothing: {list:?}");
    assert!(list.stderr.ends_with("next:  pumice up\n"), "{list:?}");
    assert!(!home.data_dir().exists());
    home.jobctl(["run", "--dry-run", "--", "echo", "hi"]).ok();
    assert!(!home.data_dir().exists(), "nothing was submitted");

    let first = home.jobctl(["run", "--", "echo", "hi"]);
    assert_eq!((first.code, first.stdout.as_str()), (0, "hi\n"), "{first:?}");
    let said: Vec<&str> = first.stderr.lines().filter(|line| line.contains(STARTED)).collect();
    assert!(matches!(said[..], [line] if line.contains("`pumice down` ends it")), "{first:?}");
    let pid = home.pid().unwrap();
    assert_eq!(getpgid(Some(pid)).unwrap(), pid, "Ctrl-C in the terminal is not for it");

    let second = home.jobctl(["run", "--", "echo", "again"]);
    assert_eq!((second.code, second.stdout.as_str()), (0, "again\n"), "{second:?}");
    assert!(!second.stderr.contains(STARTED), "{second:?}");
    let submitted = home.jobctl(["submit", "--", "true"]);
    assert!(submitted.stdout.starts_with("job/") && submitted.stderr.is_empty(), "{submitted:?}");
    assert_eq!(home.pid(), Some(pid));

    let marks = Marks::of(&home.data_dir());
    home.down().ok();
    let remains = marks.look();
    assert!(remains.is_empty(), "{remains:#?}");
    assert_eq!(home.jobctl(["list"]).code, 5);
}

#[test]
fn two_first_runs_at_once_share_one_platform() {
    let home = Home::new();
    let outputs = std::thread::scope(|scope| {
        let runs = ["a", "b"].map(|word| (word, scope.spawn(|| home.jobctl(["run", "--", "echo", word]))));
        runs.map(|(word, run)| (word, run.join().unwrap()))
    });
    for (word, output) in &outputs {
        assert_eq!((output.code, output.stdout.trim()), (0, *word), "{output:?}");
    }
    let started = outputs.iter().filter(|(_, output)| output.stderr.contains(STARTED)).count();
    assert_eq!(started, 1, "{outputs:?}");
    assert!(!home.data_dir().join("up.log.1").exists(), "a second one was started");
}

/// Puts a program elsewhere. A copy can't be run as long as a program that another thread starts at that moment holds it open.
fn link(program: &Path, to: &Path) {
    std::fs::hard_link(program, to).or_else(|_| std::fs::copy(program, to).map(drop)).unwrap();
}

#[test]
fn who_is_not_root_gets_one_too() {
    let home = Home::new();
    // What cargo has built may be where nobody else can look.
    let programs = ["jobctl", "pumice"].map(|name| (binary(name), home.directory.path().join(name)));
    for (built, own) in &programs {
        link(built, own);
    }
    std::os::unix::fs::chown(home.directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let as_nobody = |args: &[&str]| {
        let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
        let args = [&[&user, &group, "--clear-groups", programs[0].1.to_str().unwrap()], args].concat();
        home.clients.run(Path::new("setpriv"), args, None)
    };
    let first = as_nobody(&["run", "--", "echo", "hi"]);
    assert_eq!((first.code, first.stdout.as_str()), (0, "hi\n"), "{first:?}");
    let owner = std::fs::metadata(home.data_dir().join("store.redb")).unwrap().uid();
    assert_eq!(owner, NOBODY);
}

#[test]
fn what_a_crash_left_is_no_platform() {
    let home = Home::new();
    home.jobctl(["run", "--name", "before", "--", "true"]).ok();
    let pid = home.pid().unwrap();
    kill(pid, Signal::SIGKILL).unwrap();
    // A process keeps its sockets until the last of its threads has ended.
    let address = home.note().unwrap()["url"].as_str().unwrap().trim_start_matches("https://").to_owned();
    eventually("nobody listens there", || match TcpStream::connect(&address) {
        Ok(_) => Err("somebody does".to_owned()),
        Err(_) => Ok(()),
    });
    assert!(home.pid().is_some(), "its note stays");
    let after = home.jobctl(["run", "--name", "after", "--", "echo", "hi"]);
    assert_eq!((after.code, after.stdout.as_str()), (0, "hi\n"), "{after:?}");
    assert!(after.stderr.contains(STARTED), "{after:?}");
    assert!(home.jobctl(["list"]).ok().contains("before"));
    assert!(home.data_dir().join("up.log.1").exists(), "what the first one said is kept");
}

#[test]
fn none_is_started_where_that_is_switched_off_or_another_is_named() {
    let home = Home::new();
    let jobctl = |clients: &Clients, flags: &[&str]| {
        let args = [flags, &["run", "--", "true"]].concat();
        clients.run(&binary("jobctl"), args, None)
    };
    let elsewhere = home.directory.path().join("elsewhere");
    let elsewhere = elsewhere.to_str().unwrap();
    let off = home.clients.clone().with("PUMICE_AUTOSTART", "0");
    let directory = home.clients.clone().with("PUMICE_DATA_DIR", elsewhere);
    let pod = home.clients.clone().with("VC_TASK_INDEX", "0");
    for (what, output, code) in [
        ("switched off", jobctl(&off, &[]), 5),
        ("$PUMICE_DATA_DIR", jobctl(&directory, &[]), 5),
        ("--data-dir", jobctl(&home.clients, &["--data-dir", elsewhere]), 5),
        ("--kubeconfig", jobctl(&home.clients, &["--kubeconfig", "missing"]), 2),
        ("in a pod", jobctl(&pod, &[]), 5),
    ] {
        assert_eq!(output.code, code, "{what}: {output:?}");
        assert!(output.stderr.contains("\nnext:  "), "{what}: {output:?}");
        assert!(!Path::new(elsewhere).exists() && !home.data_dir().exists(), "{what}: {output:?}");
    }
}

#[test]
fn a_start_that_fails_is_told_with_its_last_words_and_the_next_command() {
    let home = Home::new();
    std::fs::create_dir_all(home.data_dir()).unwrap();
    std::fs::write(home.data_dir().join("store.redb"), "no store".repeat(1000)).unwrap();
    let broken = home.jobctl(["run", "--", "true"]);
    assert_eq!(broken.code, 5, "{broken:?}");
    for word in ["none could be started", "up.log says\n", "store.redb", "\nnext:  pumice up\n"] {
        assert!(broken.stderr.contains(word), "{word}: {}", broken.stderr);
    }
    assert_eq!(home.pid(), None);

    // Not even root may make a directory there.
    let denied = home.clients.clone().with("XDG_DATA_HOME", "/proc/nowhere");
    let denied = denied.run(&binary("jobctl"), ["run", "--", "true"], None);
    assert_eq!(denied.code, 5, "{denied:?}");
    assert!(denied.stderr.contains("none could be started: create the data directory"), "{}", denied.stderr);

    std::fs::remove_dir_all(home.data_dir()).unwrap();
    let alone = home.directory.path().join("jobctl");
    link(&binary("jobctl"), &alone);
    let output = home.clients.clone().with("PATH", "").run(&alone, ["run", "--", "true"], None);
    assert_eq!(output.code, 5, "{output:?}");
    assert!(output.stderr.contains("there is no program pumice to start one"), "{}", output.stderr);
}
