//! Logs that are moved away, outputs that can't be written, and who may read what lies in a data directory.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_testkit::{Clients, Platform, Process, Setup, binary, eventually};
use serde_json::Value;

/// The number of the platform's process, by its note.
fn pid(data: &Path) -> Pid {
    let note: Value = serde_json::from_slice(&fs::read(data.join("up.json")).unwrap()).unwrap();
    Pid::from_raw(i32::try_from(note["pid"].as_i64().unwrap()).unwrap())
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A platform in the background, taken down at the end.
struct Background {
    clients: Clients,
    data: PathBuf,
}

impl Background {
    fn start(directory: &Path, words: &[&str]) -> Background {
        let data = directory.join("data");
        let clients = Clients::new(&data.join("kubeconfig"), directory).with("PUMICE_DATA_DIR", &data);
        let up = [&["up", "--background", "--port", "0", "--local-node=false", "--log", "info"], words].concat();
        clients.run(&binary("pumice"), up, None).ok();
        Background { clients, data }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.clients.run(&binary("pumice"), ["down"], None);
    }
}

#[test]
fn a_hangup_opens_moved_logs_anew_and_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.log");
    let flag = format!("--audit-log={}", audit.display());
    let platform = Background::start(directory.path(), &[&flag]);
    let log = platform.data.join("up.log");
    let moved = |path: &Path| path.with_extension("log-moved");
    let before = pid(&platform.data);
    platform.clients.kubectl(["create", "configmap", "first"]).ok();
    eventually("the request is told", || if text(&audit).contains("first") { Ok(()) } else { Err(text(&audit)) });
    for path in [&log, &audit] {
        fs::rename(path, moved(path)).unwrap();
    }
    kill(before, Signal::SIGHUP).unwrap();
    for path in [&log, &audit] {
        eventually("a new file is there", || path.exists().then_some(()).ok_or_else(|| text(&moved(path))));
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    platform.clients.kubectl(["create", "configmap", "second"]).ok();
    eventually(
        "it is told in the new file",
        || if text(&audit).contains("second") { Ok(()) } else { Err(text(&audit)) },
    );
    eventually("the log goes on in the new file", || match text(&log) {
        said if said.contains("the log was opened anew") => Ok(()),
        said => Err(said),
    });
    assert!(text(&moved(&audit)).contains("first") && !text(&moved(&audit)).contains("second"));
    assert_eq!(pid(&platform.data), before);
    kill(before, None).unwrap();
}

#[test]
fn a_hangup_ends_no_process_of_ours() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let clients = Clients::new(&data.join("kubeconfig"), directory.path()).with("PUMICE_DATA_DIR", &data);
    let start = |name: &str, words: &[&str]| {
        Process::start(name, clients.command(&binary("pumice")).args(words), directory.path())
    };
    let api = start("apiserver", &["apiserver", "--port", "0"]);
    eventually("the API server is up", || data.join("up.json").exists().then_some(()).ok_or_else(|| api.tail()));
    let of = |component: &str| data.join("kubeconfigs").join(component).display().to_string();
    let info = ["--log", "info"];
    let mut all = vec![
        start("scheduler", &[&["scheduler", "run", "--kubeconfig", &of("scheduler")][..], &info].concat()),
        start("controllers", &[&["controllers", "run", "--kubeconfig", &of("controllers")][..], &info].concat()),
        start("fleet", &[&["fleet", "server", "--port", "0"][..], &info].concat()),
    ];
    // They wait for leases and listen: signals are caught before.
    eventually("the fleet is up", || match all[2].log() {
        said if said.contains("the fleet is up") => Ok(()),
        said => Err(said),
    });
    for lease in ["volcano", "vc-controller-manager"] {
        eventually("the component leads", || {
            let found = clients.kubectl(["get", "lease", "-A"]);
            if found.stdout.contains(lease) { Ok(()) } else { Err(format!("{found:?}")) }
        });
    }
    all.push(api);
    for process in &mut all {
        let log = directory.path().join(format!("{}.log", process.name()));
        fs::rename(&log, log.with_extension("moved")).unwrap();
        kill(Pid::from_raw(process.pid()), Signal::SIGHUP).unwrap();
        eventually("it goes on in a new file", || {
            assert_eq!(process.ended(), None, "{} ended", process.name());
            log.exists().then_some(()).ok_or_else(|| process.name().to_owned())
        });
    }
    for mut process in all {
        assert_eq!(process.stop(), 0, "{}", process.tail());
    }
}

#[test]
fn outputs_that_cannot_be_written_end_a_command_with_a_sentence() {
    let platform = Platform::start(Setup { flags: vec!["--local-node=false".into()] });
    platform.jobctl(["submit", "--name", "waits", "--", "true"]).ok();
    let commands: [(&str, &[&str]); 7] = [
        ("jobctl", &["list"]),
        ("jobctl", &["get", "waits", "-o", "yaml"]),
        ("pumice", &["status"]),
        ("pumice", &["crds"]),
        ("pumice", &["admission", "policies"]),
        ("pumice", &["job", "list"]),
        ("pumice", &["down", "--data-dir", "/nowhere/at/all"]),
    ];
    for (program, words) in commands {
        let command = || {
            let mut command = platform.command(&binary(program));
            command.args(words).stdin(Stdio::null());
            command
        };
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command().stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code().is_some_and(|code| code != 0 && code != 101), "{program} {words:?}: {output:?}");
        assert!(said.contains("No space left on device") && !said.contains("panicked"), "{program} {words:?}: {said}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command().stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Not ready, as it has no node: that is no failure to write.
        let wanted = if words == ["status"] { 1 } else { 0 };
        assert_eq!((output.status.code(), said.as_str()), (Some(wanted), ""), "{program} {words:?}");

        // Standard error may be full, too.
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let status = command().stdout(full()).stderr(full()).status().unwrap();
        assert!(status.code().is_some_and(|code| code != 101), "{program} {words:?}: {status:?}");
    }
}

#[test]
fn a_file_that_may_not_grow_fails_a_write_and_ends_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let clients = Clients::new(&directory.path().join("kubeconfig"), directory.path());
    let mut command = clients.command(Path::new("sh"));
    let output = command.args(["-c", "ulimit -f 0; exec \"$0\" crds > definitions"]).arg(binary("pumice")).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("standard output can't be written") && said.contains("File too large"), "{said}");
}

#[test]
fn a_platform_whose_outputs_are_closed_or_full_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let clients = Clients::new(&data.join("kubeconfig"), directory.path()).with("PUMICE_DATA_DIR", &data);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = clients.command(&binary("pumice"));
    command.args(["up", "--port", "0", "--local-node=false", "--log", "info"]).stdin(Stdio::null());
    command.stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(writer);
    let mut up = command.spawn().unwrap();
    eventually("it is up", || {
        data.join("up.json").exists().then_some(()).ok_or_else(|| format!("{:?}", up.try_wait()))
    });
    let page = clients.kubectl(["get", "--raw", "/metrics"]).ok();
    let lost = page.lines().find_map(|line| line.strip_prefix("pumice_log_lines_lost_total ")).unwrap();
    assert_ne!(lost, "0");
    kill(Pid::from_raw(up.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(0));
}

/// What pods see of the directory, and what is theirs; it lies in folders that are closed.
const SEEN_BY_PODS: [&str; 6] = ["hosts", "hostname", "resolv.conf", "volumes", "c", "shm"];

/// What others may do anything with, of files that are not for pods.
fn open_to_others(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        let name = entry.file_name();
        let seen = SEEN_BY_PODS.iter().any(|seen| name == *seen);
        if metadata.is_symlink() || seen {
            continue;
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            found.push(path.clone());
        }
        if metadata.is_dir() {
            open_to_others(&path, found);
        }
    }
}

// INV-59
#[test]
fn nothing_in_a_data_directory_is_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let clients = Clients::new(&data.join("kubeconfig"), directory.path()).with("PUMICE_DATA_DIR", &data);
    let pumice = |words: &[&str]| clients.run(&binary("pumice"), words, None);
    // As an administrator's shell may have it.
    let umask = "umask 000; exec \"$0\" up --background --port 0 --audit-log \"$PUMICE_DATA_DIR/audit.log\"";
    let mut command = clients.command(Path::new("sh"));
    let output = command.args(["-c", umask]).arg(binary("pumice")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("now only its owner can"), "{said}");
    assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    let umask = clients.run(&binary("jobctl"), ["run", "--name", "j", "--", "sh", "-c", "umask; sleep 0"], None);
    assert!(umask.stdout.contains("0022"), "what programs of pods start with is theirs: {umask:?}");
    let saved = directory.path().join("saved.backup");
    pumice(&["backup", saved.to_str().unwrap()]).ok();
    let mut found = Vec::new();
    open_to_others(&data, &mut found);
    assert_eq!(fs::metadata(&saved).unwrap().permissions().mode() & 0o777, 0o600);
    pumice(&["down"]).ok();
    assert_eq!(found, Vec::<PathBuf>::new());
}
