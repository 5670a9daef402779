//! Jobs on kube-apiserver and kube-controller-manager, with our scheduler, controllers and simulated nodes.
#![allow(clippy::unwrap_used)] // a test may panic

use pumice_testkit::{RealKube, eventually};

/// Complete: there is no admission here that would fill anything in.
const JOB: &str = r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: three}
spec:
  schedulerName: volcano
  queue: default
  minAvailable: 3
  maxRetry: 3
  tasks:
  - {name: a, replicas: 1, minAvailable: 1, template: &template {metadata: {annotations: {pumice.sh/simulated-duration: 2s}}, spec: {restartPolicy: Never, containers: [{name: main, image: none, resources: {requests: {cpu: "1"}}}]}}}
  - {name: b, replicas: 1, minAvailable: 1, template: *template}
  - {name: c, replicas: 1, minAvailable: 1, template: *template}
"#;

#[test]
fn a_job_is_scheduled_runs_and_completes() {
    let cluster = RealKube::with_pumice(2);
    eventually("there is a queue that is open", || {
        let queue = cluster.get("queues.scheduling.volcano.sh", "default").ok_or("no queue")?;
        if queue["status"]["state"] == "Open" { Ok(()) } else { Err(queue["status"].to_string()) }
    });
    cluster.kubectl_with_input(["create", "-f", "-"], JOB).ok();
    cluster.wait_for_phase("three", "Running");
    for pod in cluster.list("pods") {
        assert!(pod["spec"]["nodeName"].as_str().is_some_and(|node| node.starts_with("sim-")), "{pod}");
    }
    let job = cluster.wait_for_phase("three", "Completed");
    assert_eq!(job["status"]["succeeded"], 3, "{}", job["status"]);
    assert_eq!(job["status"]["retryCount"].as_i64().unwrap_or(0), 0, "{}", job["status"]);
}
