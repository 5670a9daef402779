//! JobSet whose pod templates name our scheduler.
//!
//! Source: kubernetes-sigs/jobset 08dfbdfd6827, pkg/controllers/jobset_controller.go: each replica of a replicated job is a batch
//! Job with labels and annotations that its pods get too; suspended and resumed with the set; after a failure all Jobs are
//! deleted and made anew with the same names.

use pumice_testkit::Clients;
use serde_json::{Value, json};

use super::operator::{Operator, Server, container};

fn replica(owner: &Value, replicated: &str, count: usize, restarts: u32) -> Value {
    let name = format!("training-{replicated}-0");
    let labels = json!({"jobset.sigs.k8s.io/jobset-name": "training", "jobset.sigs.k8s.io/replicatedjob-name": replicated,
        "jobset.sigs.k8s.io/restart-attempt": restarts.to_string(), "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
        "jobset.sigs.k8s.io/global-replicas": "2", "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/job-key": "0a1b2c", "jobset.sigs.k8s.io/job-global-index": "0"});
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": labels, "ownerReferences": [owner]},
        "spec": {"suspend": true, "parallelism": count, "completions": count, "completionMode": "Indexed", "backoffLimit": 0,
            "template": {"metadata": {"labels": labels, "annotations": labels},
                "spec": {"schedulerName": "volcano", "subdomain": "training", "restartPolicy": "Never",
                    "containers": [container("main", "1")]}}}})
}

/// Our server has no batch Jobs, so there is no JobSet on it.
pub fn jobset(clients: &Clients, server: Server) {
    if server == Server::Ours {
        return;
    }
    let operator = Operator::new(clients, server, &["get"]);
    let owner = operator.controller("jobset.x-k8s.io/v1alpha2", "JobSet", "training");
    for restarts in 0..2 {
        for (replicated, count) in [("leader", 1), ("workers", 3)] {
            let job = operator.create(&replica(&owner, replicated, count, restarts));
            let name = job["metadata"]["name"].as_str().expect("its name");
            operator.update("job", name, |job| job["spec"]["suspend"] = false.into());
        }
        let pods = format!("jobset.sigs.k8s.io/jobset-name=training,jobset.sigs.k8s.io/restart-attempt={restarts}");
        operator.wait_for_pods(&pods, "Running", 4);
        for replicated in ["leader", "workers"] {
            operator.delete("job", &format!("training-{replicated}-0"));
            operator.wait_until_gone("job", &format!("training-{replicated}-0"));
        }
        operator.wait_for_pods(&pods, "Running", 0);
    }
}
