//! `pumice backup` and `pumice restore`, with the real programs: while work goes on, onto the same machine and into another
//! directory, and what is refused.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice_testkit::{Clients, Output, Platform, Process, Setup, binary, eventually};
use serde_json::Value;

fn pumice(platform: &Platform, args: &[&str]) -> Output {
    platform.run(&binary("pumice"), args, None)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn backup(platform: &Platform, name: &str) -> PathBuf {
    let file = platform.scratch().join(name);
    let said = pumice(platform, &["backup", text(&file)]).ok();
    assert!(said.contains("objects at revision"), "{said}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "keys are in it");
    file
}

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: \"{value}\"}}\n")
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_platform_comes_back_as_it_was_at_the_backup() {
    let mut platform = Platform::new();
    platform.kubectl_with_input(["create", "-f", "-"], &config_map("kept", "before")).ok();
    platform.jobctl(["run", "--name", "done", "--", "echo", "said"]).ok();
    platform.jobctl(["run", "--name", "passed", "--", "true"]).ok();
    platform.kubectl(["delete", "jobs.batch.volcano.sh", "passed"]).ok();
    eventually("the history knows that it is gone", || {
        let told = platform.jobctl(["history", "passed"]);
        if told.stdout.contains("deleted") { Ok(()) } else { Err(format!("{told:?}")) }
    });
    platform.jobctl(["submit", "--name", "runs", "--", "sh", "-c", "echo started; sleep 1000"]).ok();
    platform.wait_for_phase("runs", "Running");
    let token = platform.kubectl(["create", "token", "default"]).ok();
    let file = backup(&platform, "while-up.backup");

    platform.kubectl_with_input(["replace", "-f", "-"], &config_map("kept", "after")).ok();
    platform.kubectl_with_input(["create", "-f", "-"], &config_map("later", "x")).ok();
    platform.jobctl(["submit", "--name", "unknown", "--", "sleep", "1000"]).ok();
    platform.wait_for_phase("unknown", "Running");
    let last = revision(&platform.get("configmap", "later").unwrap());
    let refused = pumice(&platform, &["restore", text(&file)]);
    assert!(refused.code != 0 && refused.stderr.contains("in use by process"), "{refused:?}");
    assert_eq!(platform.stop(), 0);
    let refused = pumice(&platform, &["restore", text(&file)]);
    assert!(refused.code != 0 && refused.stderr.contains("--force"), "{refused:?}");

    let said = pumice(&platform, &["restore", "--force", text(&file)]).ok();
    assert!(said.contains("before-restore-"), "{said}");
    platform.up();
    let kept = platform.get("configmap", "kept").unwrap();
    assert_eq!(kept["data"]["a"], "before");
    assert!(platform.get("configmap", "later").is_none());
    assert_eq!(platform.get("jobs.batch.volcano.sh", "done").unwrap()["status"]["state"]["phase"], "Completed");
    // On the same machine what ran goes on under the same name, and what nobody knows any more ends.
    assert_eq!(platform.wait_for_phase("runs", "Running")["status"]["retryCount"], Value::Null);
    assert!(platform.jobctl(["logs", "runs"]).ok().contains("started"));
    eventually("the pod that the backup does not know is ended", || {
        let pods = std::fs::read_dir(platform.data_dir().join("node/pods")).unwrap().count();
        if pods <= 2 { Ok(()) } else { Err(format!("{pods} pods")) }
    });
    // Who shows credentials of the old life is who he was.
    let as_robot = ["--token", token.trim(), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    let url = format!("--server={}", platform.url);
    let robot = Clients::new(Path::new("/dev/null"), platform.scratch());
    let whoami = robot.kubectl([&as_robot[..], &[&url, "--insecure-skip-tls-verify"]].concat());
    assert_eq!(whoami.ok(), "system:serviceaccount:default:default");
    // Revisions of the old life are gone, and new ones are above them.
    let path = format!("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=5&resourceVersion={last}");
    let watch = platform.kubectl(["get", "--raw", &path]);
    assert!(format!("{watch:?}").contains("Expired"), "410: {watch:?}");
    platform.kubectl_with_input(["create", "-f", "-"], &config_map("later", "again")).ok();
    let now = revision(&platform.get("configmap", "later").unwrap());
    assert!(now > last + 1_000_000_000, "{now} after {last}");
    platform.jobctl(["run", "--name", "new", "--", "true"]).ok();
}

#[test]
fn one_that_does_not_run_is_backed_up_too_and_goes_to_another_directory() {
    let mut platform = Platform::start(Setup { flags: vec!["--local-node=false".into()] });
    platform.kubectl_with_input(["create", "-f", "-"], &config_map("kept", "b")).ok();
    assert_eq!(platform.stop(), 0);
    let file = backup(&platform, "at-rest.backup");
    let again = pumice(&platform, &["backup", text(&file)]);
    assert!(again.code != 0 && again.stderr.contains("is there already"), "{again:?}");
    let nothing = pumice(&platform, &["backup", "--data-dir", "nowhere", "other.backup"]);
    assert!(nothing.code != 0 && nothing.stderr.contains("no platform in"), "{nothing:?}");
    assert!(!platform.scratch().join("other.backup").exists());

    let other = platform.scratch().join("other");
    pumice(&platform, &["restore", text(&file), "--data-dir", text(&other)]).ok();
    let mut command = Command::new(binary("pumice"));
    command.args(["up", "--port=0", "--local-node=false", "--data-dir"]).arg(&other);
    let mut process = Process::start("other-up", &mut command, platform.scratch());
    eventually("it is up", || if process.log().contains("is up at") { Ok(()) } else { Err(process.tail()) });
    let clients = Clients::new(&other.join("kubeconfig"), platform.scratch());
    assert_eq!(clients.get("configmap", "kept").unwrap()["data"]["a"], "b");
    assert_eq!(process.stop(), 0);
}

#[test]
fn a_backup_that_is_not_whole_touches_nothing() {
    let mut platform = Platform::start(Setup { flags: vec!["--local-node=false".into()] });
    let file = backup(&platform, "good.backup");
    assert_eq!(platform.stop(), 0);
    let good = std::fs::read(&file).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let mut newer = good.clone();
    newer[14] = 9;
    let store = std::fs::read(platform.data_dir().join("store.redb")).unwrap();
    for (name, bytes, wanted) in [
        ("truncated", good[..good.len() - 3].to_vec(), "it breaks off after"),
        ("damaged", flipped, "it is damaged at byte"),
        ("newer", newer, "it has format 9, newer than 2"),
        ("other", b"something else".to_vec(), "it is not a backup of Pumice"),
        ("empty", Vec::new(), "it is not a backup of Pumice"),
    ] {
        let file = platform.file(name, bytes);
        let refused = pumice(&platform, &["restore", "--force", text(&file)]);
        assert!(refused.code != 0 && refused.stderr.contains(wanted), "{name}: {refused:?}");
        assert!(refused.stderr.contains(name), "names the file: {refused:?}");
    }
    assert_eq!(std::fs::read(platform.data_dir().join("store.redb")).unwrap(), store, "the store was touched");
    platform.up();
    platform.kubectl(["get", "nodes"]).ok();
}
