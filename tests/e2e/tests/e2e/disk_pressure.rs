//! Pods that fill the disk of the store are ended before the store has no room, and a disk that others filled keeps no pod out.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use pumice_testkit::{SmallDisk, eventually};
use serde_json::Value;

use crate::full_disk::Trial;

const DISK_MEGABYTES: u64 = 256;
const MB: u64 = 1 << 20;

fn free_bytes(disk: &Path) -> u64 {
    let found = nix::sys::statvfs::statvfs(disk).unwrap();
    found.blocks_available() * found.fragment_size()
}

/// Writes a file beside the data directory until so much is free.
fn leave_free(disk: &Path, name: &str, bytes: u64) {
    let mut file = File::create(disk.join(name)).unwrap();
    let zeros = vec![0; MB as usize / 4];
    while free_bytes(disk) > bytes {
        file.write_all(&zeros).unwrap();
        file.sync_data().unwrap();
    }
}

fn pod(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: pumice.sh/host
    command: [sh, -c, '{script}']
---
"
    )
}

/// The node's condition `DiskPressure`, and whether it has the taint.
fn pressure(trial: &Trial) -> (String, bool) {
    let node = trial.clients.list("nodes").remove(0);
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let condition = conditions.iter().find(|condition| condition["type"] == "DiskPressure").unwrap();
    let tainted = node["spec"]["taints"]
        .as_array()
        .is_some_and(|taints| taints.iter().any(|taint| taint["key"] == "node.kubernetes.io/disk-pressure"));
    (condition["status"].as_str().unwrap().to_owned(), tainted)
}

fn status(trial: &Trial, pod: &str) -> Value {
    trial.clients.get("pod", pod).unwrap()["status"].take()
}

fn wait_for(trial: &Trial, pod: &str, phase: &str) -> Value {
    eventually(&format!("{pod} is {phase}"), || match status(trial, pod) {
        status if status["phase"] == phase => Ok(status),
        status => Err(status.to_string()),
    })
}

#[test]
fn who_fills_the_disk_of_the_store_is_ended_before_it_is_full() {
    let trial = Trial::on(SmallDisk::new(DISK_MEGABYTES), false, false);
    let (clients, disk) = (&trial.clients, trial.disk.path());
    leave_free(&disk, "ballast", 110 * MB);
    let fill = "head -c 80M /dev/zero > /big; while head -c 500K /dev/zero >> /big; do sleep 0.3; done; sleep 1000";
    let pods = [pod("modest", "head -c 2M /dev/zero > /small; sleep 1000"), pod("writer", fill)];
    clients.kubectl_with_input(["create", "-f", "-"], &pods.concat()).ok();
    wait_for(&trial, "modest", "Running");

    let mut least = u64::MAX;
    let ended = eventually("the writer is ended", || {
        least = least.min(free_bytes(&disk));
        match status(&trial, "writer") {
            status if status["phase"] == "Failed" => Ok(status),
            status => Err(status.to_string()),
        }
    });
    assert!(least > 2 * MB, "the disk was nearly full: {least}");
    assert_eq!(ended["reason"], "Evicted", "{ended}");
    let message = ended["message"].as_str().unwrap();
    assert!(
        message.starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: ")
            && message.contains(". Container main was using ")
            && message.ends_with(", request is 0, has larger consumption of ephemeral-storage. "),
        "{message}"
    );
    eventually("the node takes no pods", || match pressure(&trial) {
        (status, true) if status == "True" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    clients.kubectl_with_input(["create", "-f", "-"], &pod("late", "true")).ok();
    assert_eq!(status(&trial, "late")["phase"], "Pending");
    eventually("the node takes pods again", || match pressure(&trial) {
        (status, false) if status == "False" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    wait_for(&trial, "late", "Succeeded");
    assert_eq!(status(&trial, "modest")["phase"], "Running", "who uses little stays");

    // Others fill the disk: pods run as before.
    let five_percent =
        nix::sys::statvfs::statvfs(&disk).map(|found| found.blocks() * found.fragment_size() / 20).unwrap();
    leave_free(&disk, "more", five_percent - 2 * MB);
    for name in ["quiet-1", "quiet-2", "quiet-3"] {
        clients.kubectl_with_input(["create", "-f", "-"], &pod(name, "sleep 2")).ok();
        wait_for(&trial, name, "Succeeded");
    }
    assert!(free_bytes(&disk) < five_percent);
    assert_eq!(pressure(&trial), ("False".to_owned(), false));
    assert_eq!(status(&trial, "modest")["phase"], "Running");
    fs::remove_file(disk.join("more")).unwrap();
}
