//! What the machine sees of tenants' pods: who their processes are, and whose files they write. Needs root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use pumice_testkit::{Platform, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::make_namespace;

/// Folders that everybody may walk to, and the tenants of them.
struct World {
    platform: Platform,
    files: TempDir,
}

impl World {
    /// Alice and Bob are in group 5000, whose folder it is; Carol is not. Nothing where pods can't be other users.
    fn new() -> Option<World> {
        if !nix::unistd::Uid::effective().is_root() {
            eprintln!("not run: a tenant's pods are its user, which takes root");
            return None;
        }
        let world = World { platform: Platform::new(), files: tempfile::tempdir().unwrap() };
        let node = world.platform.list("nodes")[0].to_string();
        if node.contains("restricted") {
            eprintln!("not run: this machine lacks what the profile restricted needs");
            return None;
        }
        fs::set_permissions(world.files.path(), Permissions::from_mode(0o755)).unwrap();
        world.folder("team", 0, 5000, 0o2770);
        let people: [(&str, u32, &[i64]); 3] = [("alice", 4001, &[5000]), ("bob", 4002, &[5000]), ("carol", 4003, &[])];
        for (name, uid, groups) in people {
            let home = world.folder(name, uid, uid, 0o700);
            let labels = json!({"pumice.sh/tenant": name, "pod-security.kubernetes.io/enforce": "restricted"});
            make_namespace(&world.platform, name, &labels);
            let tenant = json!({
                "apiVersion": "pumice.sh/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
                "spec": {"user": name, "uid": uid, "gid": uid, "groups": groups, "namespace": name,
                    "home": {"mountPath": format!("/home/{name}"), "hostPath": home},
                    "volumes": [{"mountPath": "/team", "hostPath": world.path("team")}]},
            });
            world.platform.kubectl_with_input(["create", "-f", "-"], &tenant.to_string()).ok();
        }
        Some(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn folder(&self, name: &str, uid: u32, gid: u32, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn create(&self, namespace: &str, name: &str, script: &str, more: &Value) {
        let mut container = json!({"name": "main", "image": "pumice.sh/host", "command": ["/bin/sh", "-c", script]});
        container["volumeMounts"] = more["mounts"].clone();
        let spec = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container],
            "volumes": more["volumes"]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.platform.kubectl_with_input(["create", "-n", namespace, "-f", "-"], &pod.to_string()).ok();
    }

    fn wait(&self, namespace: &str, name: &str, phases: &[&str]) {
        eventually(&format!("pod {name} is {phases:?}"), || {
            let pod = self.platform.kubectl(["get", "pod", name, "-n", namespace, "-o", "json"]);
            let pod: Value = serde_json::from_str(&pod.stdout).unwrap_or_default();
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            if phases.contains(&phase) { Ok(()) } else { Err(pod["status"].to_string()) }
        });
    }

    /// What a pod says that ends by itself.
    fn output(&self, namespace: &str, name: &str, script: &str, more: &Value) -> String {
        self.create(namespace, name, script, more);
        self.wait(namespace, name, &["Succeeded", "Failed"]);
        self.platform.kubectl(["logs", name, "-n", namespace]).ok()
    }
}

/// The words of a line of `/proc/PID/status` of the process with this word in its arguments.
fn status_of(marker: &str, lines: &[&str]) -> Vec<Vec<String>> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_it = |path: &Path| {
        let arguments = fs::read(path.join("cmdline")).unwrap_or_default();
        // The program itself, not a shell that has its text.
        arguments.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes())
    };
    let process = processes.into_iter().find(|path| is_it(path)).expect("the pod's process");
    let status = fs::read_to_string(process.join("status")).unwrap();
    let words = |line: &&str| -> Vec<String> {
        let found = status.lines().find_map(|text| text.strip_prefix(*line)).unwrap();
        found.split_whitespace().map(str::to_owned).collect()
    };
    lines.iter().map(words).collect()
}

#[test]
fn a_tenants_processes_and_files_are_its_own_on_the_machine() {
    let Some(world) = World::new() else { return };
    let marker = format!("{}", 4_000_000 + std::process::id());
    let script = format!("echo mine > $HOME/file; echo ours > /team/alice; touch $HOME/ready; exec sleep {marker}");
    world.create("alice", "main", &script, &json!({}));
    world.wait("alice", "main", &["Running"]);
    eventually("the pod has written", || {
        if world.path("alice/ready").exists() { Ok(()) } else { Err("not yet".to_owned()) }
    });
    let found = status_of(&marker, &["Uid:", "Gid:", "Groups:", "CapEff:", "NoNewPrivs:", "Seccomp:"]);
    let all = |id: &str| vec![id.to_owned(); 4];
    let one = |text: &str| vec![text.to_owned()];
    assert_eq!(found[0], all("4001"), "real, effective, saved and file-system user");
    assert_eq!(found[1], all("4001"));
    let mut groups = found[2].clone();
    groups.retain(|group| group != "4001");
    assert_eq!(groups, one("5000"), "and its own, by fsGroup");
    assert_eq!((&found[3], &found[4], &found[5]), (&one("0000000000000000"), &one("1"), &one("2")));

    let owner = |path: &str| fs::metadata(world.path(path)).map(|found| (found.uid(), found.gid())).unwrap();
    assert_eq!(owner("alice/file"), (4001, 4001));
    assert_eq!(owner("team/alice"), (4001, 5000), "a folder of its group gives that to what is made in it");
    let beside = world.platform.kubectl(["exec", "-n", "alice", "main", "--", "/bin/sh", "-c", "id -u; id -g"]).ok();
    assert_eq!(beside.split_whitespace().collect::<Vec<_>>(), ["4001", "4001"]);

    let said =
        world.output("bob", "main", "cat /team/alice; echo too >> /team/bob && echo wrote; ls /home/alice", &json!({}));
    assert!(said.contains("ours") && said.contains("wrote"), "{said}");
    assert_eq!(owner("team/bob"), (4002, 5000));
    let said = world.output(
        "carol",
        "main",
        "cat /team/alice; touch /team/carol || echo refused; echo $HOME; id -u",
        &json!({}),
    );
    assert!(said.contains("refused") && !said.contains("ours"), "{said}");
    let says = |line: &str| said.lines().any(|said| said == line);
    assert!(says("/home/carol") && says("4003"), "{said}");
    assert!(!world.path("team/carol").exists());
}

#[test]
fn a_link_leads_out_of_no_folder() {
    let Some(world) = World::new() else { return };
    let secret = world.folder("secret", 0, 0, 0o755);
    fs::write(secret.join("word"), "of the host").unwrap();
    symlink(&secret, world.path("alice/link")).unwrap();
    make_namespace(&world.platform, "ops", &json!({}));
    let more = json!({
        "volumes": [{"name": "v", "hostPath": {"path": world.path("alice/link")}}], "mounts": [{"name": "v", "mountPath": "/m"}],
    });
    let script = "cat /m/word; echo ended";
    let said = world.output("ops", "open", script, &more);
    assert!(said.contains("of the host"), "without a Tenant it is followed: {said}");
    world.create("alice", "held", script, &more);
    // What the link means within the folder is not there, or is empty.
    eventually("the pod has ended, or waits", || {
        let pod = world.platform.kubectl(["get", "pod", "held", "-n", "alice", "-o", "json"]);
        let pod: Value = serde_json::from_str(&pod.stdout).unwrap_or_default();
        let waiting = !pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].is_null();
        let ended = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == **phase);
        if waiting || ended { Ok(()) } else { Err(pod["status"].to_string()) }
    });
    let said = world.platform.kubectl(["logs", "held", "-n", "alice"]).stdout;
    assert!(!said.contains("of the host"), "{said}");
}
