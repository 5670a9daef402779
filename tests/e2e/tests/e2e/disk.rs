//! What pods may keep on the node's disk is kept to, with real processes.

use pumice_testkit::{Platform, eventually};

/// A pod that writes so many MiB into a file and stays.
fn pod(name: &str, file: &str, mebibytes: u32, more: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 600
  volumes: [{{name: scratch, emptyDir: {{sizeLimit: 4Mi}}}}]
  containers:
  - name: main
    image: pumice.sh/host
    command: [sh, -c, 'trap \"\" TERM; head -c {mebibytes}M /dev/zero > {file}; while :; do sleep 1000; done']
    volumeMounts: [{{name: scratch, mountPath: /scratch}}]
{more}
---
"
    )
}

fn limit(quantity: &str) -> String {
    format!("    resources: {{limits: {{ephemeral-storage: {quantity}}}}}")
}

#[test]
fn a_pod_that_keeps_more_on_disk_than_it_may_is_evicted() {
    let platform = Platform::new();
    let idle = "  - {name: other, image: pumice.sh/host, command: [sleep, \"1000\"], \
                resources: {limits: {ephemeral-storage: 100Mi}}}";
    let manifests = [
        pod("volume", "/scratch/big", 5, ""),
        pod("all", "/big", 8, &limit("6Mi")),
        pod("container", "/big", 8, &format!("{}\n{idle}", limit("6Mi"))),
        pod("modest", "/scratch/big", 3, &limit("6Mi")),
    ];
    platform.kubectl_with_input(["create", "-f", "-"], &manifests.concat()).ok();
    let evicted = [
        ("volume", "Usage of EmptyDir volume \"scratch\" exceeds the limit \"4Mi\". "),
        ("all", "Pod ephemeral local storage usage exceeds the total limit of containers 6Mi. "),
        ("container", "Container main exceeded its local ephemeral storage limit \"6Mi\". "),
    ];
    for (name, message) in evicted {
        let status = eventually(&format!("{name} is evicted"), || {
            let status = platform.get("pod", name).unwrap()["status"].take();
            if status["phase"] == "Failed" { Ok(status) } else { Err(status.to_string()) }
        });
        assert_eq!((&status["reason"], &status["message"]), (&"Evicted".into(), &message.into()), "{status}");
        assert_eq!(status["containerStatuses"][0]["restartCount"], 0, "nothing is started again: {status}");
        eventually(&format!("an event tells of {name}"), || {
            let events = platform.list("events");
            let told = events.iter().any(|event| {
                event["reason"] == "Evicted"
                    && event["type"] == "Warning"
                    && event["involvedObject"]["name"] == name
                    && event["message"] == message
            });
            if told { Ok(()) } else { Err(format!("{events:?}")) }
        });
    }
    assert_eq!(platform.get("pod", "modest").unwrap()["status"]["phase"], "Running");
}
