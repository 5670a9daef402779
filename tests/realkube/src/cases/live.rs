//! What a Job's spec, and its queue's, say of its life, and what of it may change meanwhile.

use pumice_testkit::{Clients, eventually};
use serde_json::Value;

use super::{create, group_conditions, job, pods_in, status, wait_for_running};

fn patch(clients: &Clients, kind: &str, name: &str, patch: &str) {
    clients.kubectl(["patch", kind, name, "--type=merge", "-p", patch]).ok();
}

fn patch_job(clients: &Clients, name: &str, change: &str) {
    patch(clients, "jobs.batch.volcano.sh", name, change);
}

fn reason(job: &Value) -> &str {
    job["status"]["state"]["reason"].as_str().unwrap_or_default()
}

/// `suspend`, from the start and in the middle; by the annotation, too.
pub fn a_job_is_suspended_by_its_spec(clients: &Clients) {
    create(clients, &job("held", "suspend: true\n  minAvailable: 2", "replicas: 2", ""));
    let held = clients.wait_for_phase("held", "Aborted");
    assert_eq!(reason(&held), "Suspended");
    assert!(clients.list("pods").is_empty() && clients.list("podgroups.scheduling.volcano.sh").is_empty());
    patch_job(clients, "held", r#"{"spec": {"suspend": false}}"#);
    clients.wait_for_phase("held", "Running");
    wait_for_running(clients, 2);
    for (suspend, resume) in [
        (r#"{"spec": {"suspend": true}}"#, r#"{"spec": {"suspend": null}}"#),
        (
            r#"{"metadata": {"annotations": {"pumice.sh/suspend": "true"}}}"#,
            r#"{"metadata": {"annotations": {"pumice.sh/suspend": null}}}"#,
        ),
    ] {
        patch_job(clients, "held", suspend);
        clients.wait_for_phase("held", "Aborted");
        assert_eq!(pods_in(clients, "Running"), 0);
        patch_job(clients, "held", resume);
        let job = clients.wait_for_phase("held", "Running");
        assert_eq!(status(&job, "retryCount"), 0, "{}", job["status"]);
        wait_for_running(clients, 2);
    }
}

/// `activeDeadlineSeconds`, counted from when the job first runs.
pub fn a_job_fails_when_its_time_is_over(clients: &Clients) {
    let short = "pumice.sh/simulated-duration: 1s";
    create(clients, &job("short", "activeDeadlineSeconds: 60\n  minAvailable: 1", "replicas: 1", short));
    create(clients, &job("long", "activeDeadlineSeconds: 2\n  minAvailable: 2", "replicas: 2", ""));
    let long = clients.wait_for_phase("long", "Failed");
    assert_eq!(reason(&long), "DeadlineExceeded", "{}", long["status"]);
    clients.wait_for_phase("short", "Completed");
    eventually("nothing of it runs", || match pods_in(clients, "Running") {
        0 => Ok(()),
        found => Err(format!("{found} pods")),
    });
}

/// `maxRunningJobs` of a Queue: the third job waits, says why, and runs when one has ended.
pub fn a_queue_runs_so_many_jobs_at_a_time(clients: &Clients) {
    create(
        clients,
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: two-jobs}\nspec: {weight: 1, maxRunningJobs: 2}\n",
    );
    for name in ["first", "second", "third"] {
        create(clients, &job(name, "queue: two-jobs\n  minAvailable: 1", "replicas: 1", ""));
        if name != "third" {
            clients.wait_for_phase(name, "Running");
        }
    }
    eventually("its group says why it waits", || match group_conditions(clients) {
        told if told.contains("queue two-jobs runs as many jobs as it may at a time: 2 of 2") => Ok(()),
        told => Err(told),
    });
    clients.kubectl(["delete", "jobs.batch.volcano.sh", "first"]).ok();
    clients.wait_for_phase("third", "Running");
}

/// Retries, time after the end, policies; and the queue, while nothing runs.
pub fn a_live_job_changes_what_needs_no_other_pods(clients: &Clients) {
    for (name, cpu) in [("changes-from", "1"), ("changes-to", "8")] {
        let queue = format!("metadata: {{name: {name}}}\nspec: {{weight: 1, capability: {{cpu: {cpu}}}}}\n");
        create(clients, &format!("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\n{queue}"));
    }
    create(clients, &job("moves", "queue: changes-from\n  minAvailable: 2", "replicas: 2", ""));
    eventually("it waits for its queue", || match group_conditions(clients) {
        told if told.contains("changes-from") => Ok(()),
        told => Err(told),
    });
    patch_job(clients, "moves", r#"{"spec": {"queue": "changes-to"}}"#);
    clients.wait_for_phase("moves", "Running");
    wait_for_running(clients, 2);
    let late = clients.kubectl([
        "patch",
        "jobs.batch.volcano.sh",
        "moves",
        "--type=merge",
        "-p",
        r#"{"spec": {"queue": "changes-from"}}"#,
    ]);
    assert!(late.stderr.contains("may only change while none of its pods runs"), "{late:?}");
    let policies = r#"[{"event": "PodEvicted", "action": "CompleteJob"}]"#;
    let change = format!(r#"{{"spec": {{"maxRetry": 9, "ttlSecondsAfterFinished": 600, "policies": {policies}}}}}"#);
    patch_job(clients, "moves", &change);
    clients.kubectl(["delete", "pod", "moves-w-0", "--wait=false"]).ok();
    clients.wait_for_phase("moves", "Completed");
}

/// Whoever looks at a job that has no room sees that it is pending.
pub fn a_new_job_says_soon_that_it_waits(clients: &Clients) {
    create(clients, &job("no-room", "minAvailable: 500", "replicas: 500", ""));
    let job = clients.wait_for_phase("no-room", "Pending");
    assert_eq!(status(&job, "minAvailable"), 500, "{}", job["status"]);
}

/// `retries` of a step: the first two Jobs fail, and so does the flow with the second.
pub fn a_flow_makes_a_job_again_that_has_failed(clients: &Clients) {
    create(
        clients,
        r#"
apiVersion: flow.volcano.sh/v1alpha1
kind: JobTemplate
metadata: {name: fails}
spec:
  schedulerName: volcano
  minAvailable: 1
  tasks:
  - name: w
    replicas: 1
    template:
      metadata: {annotations: {pumice.sh/simulated-duration: 1s, pumice.sh/simulated-exit-code: "3"}}
      spec: {restartPolicy: Never, containers: [{name: main, image: none, command: [none]}]}
---
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata: {name: again}
spec: {flows: [{name: fails, retries: 1}]}
"#,
    );
    let flow = eventually("the flow has failed", || {
        let flow = clients.get("jobflows", "again").ok_or("no flow")?;
        if flow["status"]["state"]["phase"] == "Failed" { Ok(flow) } else { Err(flow["status"].to_string()) }
    });
    let course = flow["status"]["jobStatusList"][0]["runningHistories"].as_array().cloned().unwrap_or_default();
    let failures = course.iter().filter(|one| one["state"] == "Failed").count();
    assert_eq!(failures, 2, "{flow}");
    assert!(clients.get("jobs.batch.volcano.sh", "again-fails").is_some(), "the last one stays");
}

/// `pumice.sh/scale-down: pending-first`: the first pod waits for room, the others run.
pub fn pods_that_wait_leave_first_if_a_job_says_so(clients: &Clients) {
    create(
        clients,
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: two-cores}\nspec: {weight: 1, capability: {cpu: 2}}\n",
    );
    let shrinks = job("shrinks", "queue: two-cores\n  minAvailable: 1", "replicas: 3\n    minAvailable: 1", "");
    let shrinks =
        shrinks.replace("{name: shrinks}", "{name: shrinks, annotations: {pumice.sh/scale-down: pending-first}}");
    create(clients, &shrinks);
    wait_for_running(clients, 2);
    // Its place goes to the one that waits, or to its successor: until it is the one of the lowest index that waits.
    let phase = |name: &str| clients.get("pod", name).map(|pod| pod["status"]["phase"].clone());
    eventually("the first one waits", || {
        let phases = ["shrinks-w-0", "shrinks-w-1", "shrinks-w-2"].map(phase);
        let wanted = ["Pending", "Running", "Running"].map(|phase| Some(Value::from(phase)));
        let waits = phases[1..].contains(&Some(Value::from("Pending")));
        if waits && phases[0] == Some(Value::from("Running")) {
            // kubectl's wait takes a pod of the same name that is made at once for the one it deleted.
            clients.kubectl(["delete", "pod", "shrinks-w-0", "--wait=false"]).ok();
        }
        if phases == wanted { Ok(()) } else { Err(format!("{phases:?}")) }
    });
    let change = r#"[{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 2}]"#;
    clients.kubectl(["patch", "jobs.batch.volcano.sh", "shrinks", "--type=json", "-p", change]).ok();
    eventually("the one that waits is gone", || match phase("shrinks-w-0") {
        None => Ok(()),
        phase => Err(format!("{phase:?}")),
    });
    wait_for_running(clients, 2);
    assert!(phase("shrinks-w-1").is_some() && phase("shrinks-w-2").is_some());
}
