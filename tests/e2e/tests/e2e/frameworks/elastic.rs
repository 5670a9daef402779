//! A job that gets more and fewer workers while it works: nothing is lost, nothing done twice, nothing started again.

use pumice_testkit::{Platform, Setup, eventually};
use serde_json::{Value, json};

const PROGRAM: &str = include_str!("elastic.py");

fn manifest() -> String {
    let container = |arguments: &[&str]| {
        let command: Vec<_> = ["python3", "-c", PROGRAM].iter().chain(arguments).collect();
        json!({"name": "main", "image": "pumice.sh/host", "command": command})
    };
    let template =
        |arguments: &[&str]| json!({"spec": {"restartPolicy": "Never", "containers": [container(arguments)]}});
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "elastic"},
        "spec": {
            "minAvailable": 2,
            "plugins": {"svc": []},
            // Any of these would show a worker that left on purpose as a failure.
            "policies": [{"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"}],
            "tasks": [
                {"name": "worker", "replicas": 2, "minAvailable": 1, "template": template(&["elastic-coordinator-0.elastic"])},
                {"name": "coordinator", "replicas": 1, "minAvailable": 1, "template": template(&[]),
                 "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]},
            ],
        },
    })
    .to_string()
}

/// How often it was started again, and its version, which moves when all its pods are ended.
fn starts(job: &Value) -> (i64, i64) {
    let count = |name: &str| job["status"][name].as_i64().unwrap_or(0);
    (count("retryCount"), count("version"))
}

#[test]
fn a_job_that_grows_and_shrinks_while_it_works_does_everything_once() {
    let platform = Platform::start(Setup { flags: ["--cpu", "8"].map(str::to_owned).to_vec() });
    let file = platform.file("elastic.json", manifest());
    platform.kubectl(["apply", "-f", file.to_str().unwrap()]).ok();
    platform.wait_for_phase("elastic", "Running");
    let uid = |pod: &str| {
        // A job runs before its last pods are made.
        let pod = eventually(pod, || platform.get("pod", pod).ok_or_else(|| "not there".to_owned()));
        pod["metadata"]["uid"].clone()
    };
    let stay = ["elastic-coordinator-0", "elastic-worker-0"];
    let before = stay.map(uid);

    for (workers, next) in [(2, 4), (4, 1), (1, 3)] {
        eventually(&format!("work is done by {workers} workers"), || {
            let logs = platform.kubectl(["logs", "elastic-coordinator-0"]).stdout;
            if logs.contains(&format!("enough done by {workers} workers")) { Ok(()) } else { Err(logs) }
        });
        // Not at the end: completing deletes a worker that is still about to leave.
        assert_eq!(stay.map(uid), before, "nobody was started again");
        let patch = format!(r#"[{{"op": "replace", "path": "/spec/tasks/0/replicas", "value": {next}}}]"#);
        let patched =
            platform.kubectl(["patch", "jobs.batch.volcano.sh", "elastic", "--type=json", "-p", &patch, "-o", "json"]);
        let job: Value = serde_json::from_str(&patched.ok()).unwrap();
        assert_eq!(starts(&job), (0, 0), "{}", job["status"]);
    }
    let job = platform.wait_for_phase("elastic", "Completed");

    let logs = platform.kubectl(["logs", "elastic-coordinator-0"]).ok();
    // Two, two more; three of them leave; two more.
    assert!(logs.contains("pieces done once") && logs.contains(" 6 workers joined"), "{logs}");
    // Completing ends what is left, which counts as a version.
    assert_eq!(starts(&job), (0, 1), "{}", job["status"]);
}
