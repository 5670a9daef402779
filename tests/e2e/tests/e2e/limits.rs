//! Tasks of many pods: so many at once, retries by index, and jobs after jobs; with real processes.

use std::collections::BTreeSet;

use pumice_testkit::{Platform, eventually};
use serde_json::Value;

/// A job of one task whose pods run a script in a folder of the host; `job` and `task` are lines of YAML of theirs.
fn manifest(platform: &Platform, name: &str, annotations: &str, task: &str, script: &str) -> String {
    let folder = platform.scratch().display();
    format!(
        r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec:
  minAvailable: 1
  plugins: {{env: []}}
  tasks:
  - name: main
    minAvailable: 1
{task}
    template:
      spec:
        restartPolicy: Never
        volumes: [{{name: host, hostPath: {{path: "{folder}"}}}}]
        containers:
        - name: main
          image: pumice.sh/host
          workingDir: "{folder}"
          command: [sh, -c, '{script}']
          volumeMounts: [{{name: host, mountPath: "{folder}"}}]
          resources: {{requests: {{cpu: 10m, memory: 4Mi}}}}
"#
    )
}

fn submit(platform: &Platform, manifest: &str) {
    platform.kubectl_with_input(["create", "-f", "-"], manifest).ok();
}

fn lines(platform: &Platform) -> Vec<String> {
    let text = std::fs::read_to_string(platform.scratch().join("lines")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn of_twenty_processes_three_run_at_once() {
    let platform = Platform::new();
    let script = "echo + $VC_TASK_INDEX >> lines; sleep 0.2; echo - $VC_TASK_INDEX >> lines";
    submit(&platform, &manifest(&platform, "many", "", "    replicas: 20\n    maxParallel: 3", script));
    let job = platform.wait_for_phase("many", "Completed");
    assert_eq!(job["status"]["succeeded"], 20, "{}", job["status"]);
    let (mut now, mut most, mut seen) = (0, 0, BTreeSet::new());
    for line in lines(&platform) {
        let (sign, index) = line.split_once(' ').unwrap();
        if sign == "+" {
            assert!(seen.insert(index.to_owned()), "{index} runs once");
            now += 1;
        } else {
            now -= 1;
        }
        most = most.max(now);
    }
    assert_eq!((seen.len(), now), (20, 0));
    assert!((1..=3).contains(&most), "{most} ran at once");
    let refused = manifest(&platform, "gang", "", "    replicas: 20\n    maxParallel: 3", "true");
    let refused =
        platform.kubectl_with_input(["create", "-f", "-"], &refused.replace("minAvailable: 1", "minAvailable: 5"));
    assert!(refused.stderr.contains("'minAvailable' 5 is greater than 'maxParallel' 3"), "{refused:?}");
}

#[test]
fn a_process_that_fails_runs_again_and_knows_which_time_it_is() {
    let platform = Platform::new();
    let script = "echo $VC_TASK_INDEX: attempt $PUMICE_ATTEMPT | tee -a lines; \
        test $VC_TASK_INDEX != 1 || test $PUMICE_ATTEMPT = 3 || exit 7";
    let backoff = r#"pumice.sh/retry-backoff: "0s""#;
    submit(&platform, &manifest(&platform, "flaky", backoff, "    replicas: 3\n    retries: 2", script));
    let job = platform.wait_for_phase("flaky", "Completed");
    let status = &job["status"];
    assert_eq!((&status["succeeded"], &status["retryCount"]), (&3.into(), &Value::Null), "{status}");
    assert_eq!(status["podRetries"][0]["indices"], "1:2", "{status}");
    let mut lines = lines(&platform);
    lines.sort_unstable();
    assert_eq!(lines, ["0: attempt 1", "1: attempt 1", "1: attempt 2", "1: attempt 3", "2: attempt 1"]);
    assert!(platform.jobctl(["logs", "flaky"]).ok().contains("1: attempt 3"));
    eventually("each retry is told", || {
        let events = platform.list("events");
        let told = events.iter().filter(|event| event["reason"] == "PodRetried");
        let told: Vec<String> = told.map(|event| event["message"].to_string()).collect();
        let all = ["retry 1 of 2", "retry 2 of 2"].iter().all(|part| told.iter().any(|text| text.contains(part)));
        if all { Ok(()) } else { Err(format!("{told:?}")) }
    });
    let used_up = manifest(&platform, "hopeless", backoff, "    replicas: 2\n    retries: 1", "exit $VC_TASK_INDEX");
    submit(&platform, &used_up.replace("minAvailable: 1", "minAvailable: 2"));
    let job = platform.wait_for_phase("hopeless", "Failed");
    assert_eq!((&job["status"]["failed"], &job["status"]["podRetries"][0]["indices"]), (&1.into(), &"1".into()));
}

#[test]
fn a_job_begins_when_another_has_ended_as_it_should() {
    let platform = Platform::new();
    let job = |name: &str, after: &str, script: &str| {
        let after = if after.is_empty() { String::new() } else { format!(r#"pumice.sh/after: "{after}""#) };
        submit(&platform, &manifest(&platform, name, &after, "    replicas: 1", script));
    };
    job("second", "ok:first", "echo second >> lines");
    job("never", "ok:broken", "true");
    job("sweeper", "failed:broken,any:first", "true");
    let why = eventually("it says what it waits for", || {
        let output = platform.jobctl(["why", "second"]);
        if output.stdout.contains("waits for job first") { Ok(output.stdout) } else { Err(format!("{output:?}")) }
    });
    assert!(why.contains("waits for job first to succeed, which does not exist"), "{why}");
    assert!(platform.list("pods").is_empty());
    job("first", "", "sleep 0.5; echo first >> lines");
    platform.wait_for_phase("second", "Completed");
    assert_eq!(lines(&platform), ["first", "second"]);
    eventually("of two jobs one has ended", || {
        let waiting = platform.get("jobs.batch.volcano.sh", "sweeper").unwrap();
        let message = waiting["status"]["state"]["message"].clone();
        if message == "waits for job broken to fail, which does not exist" { Ok(()) } else { Err(message.to_string()) }
    });
    platform.kubectl(["delete", "jobs.batch.volcano.sh", "first"]).ok();
    job("broken", "", "exit 1");
    platform.wait_for_phase("sweeper", "Completed");
    let never = platform.wait_for_phase("never", "Failed");
    let state = &never["status"]["state"];
    assert_eq!(
        (&state["reason"], &state["message"]),
        (&"DependencyNotMet".into(), &"waited for job broken to succeed, which is Failed".into(),)
    );
    let refused = manifest(&platform, "self", r#"pumice.sh/after: "ok:self""#, "    replicas: 1", "true");
    let refused = platform.kubectl_with_input(["create", "-f", "-"], &refused);
    assert!(refused.stderr.contains("job self can't wait for itself"), "{refused:?}");
}
