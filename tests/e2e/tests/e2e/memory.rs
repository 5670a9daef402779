//! Programs that need more memory than they ask for: killed by the kernel, raised, and right from the start the next time.

use std::path::Path;

use pumice_testkit::{Output, Platform, Setup, eventually};
use serde_json::Value;

/// Keeps a block of 300 MB in memory, as a real program does.
const NEEDS_300_MB: &str = "dd if=/dev/zero of=/dev/null bs=300M count=1";
/// Takes more and more.
const LEAKS: &str = "x=0123456789; while :; do x=$x$x; done";

/// A job of one pod that runs `command` with a limit of 100Mi.
fn job(name: &str, annotations: &str, command: &str) -> String {
    format!(
        r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  name: {name}
  annotations: {{{annotations}}}
spec:
  tasks:
  - name: hungry
    replicas: 1
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: main
          image: pumice.sh/host
          command: [sh, -c, "{command}"]
          resources: {{requests: {{memory: 100Mi}}, limits: {{memory: 100Mi}}}}
"#
    )
}

/// The same beside a pod that runs until a file is in a folder that both see as `/mnt`.
fn beside_another(job: &str, folder: &Path) -> String {
    let shared = format!("        volumes: [{{name: shared, hostPath: {{path: {}}}}}]\n", folder.display());
    let mounted = "          volumeMounts: [{name: shared, mountPath: /mnt}]\n";
    let steady = r#"
  - name: steady
    replicas: 1
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: main
          image: pumice.sh/host
          command: [sh, -c, "until [ -e /mnt/done ]; do sleep 0.05; done"]
"#;
    format!("{}\n{mounted}{shared}{}{mounted}{shared}", job.trim_end(), &steady[1..])
}

fn run(platform: &Platform, manifest: &str) -> Output {
    platform.jobctl_with_input(["run", "-f", "-"], manifest)
}

/// What events of a reason say of a job.
fn told(platform: &Platform, job: &str, reason: &str) -> Vec<String> {
    let events = platform.list("events");
    let ours = events.iter().filter(|event| event["reason"] == reason && event["involvedObject"]["name"] == job);
    ours.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

fn limit(platform: &Platform, pod: &str) -> String {
    let pod = platform.get("pod", pod).unwrap();
    pod["spec"]["containers"][0]["resources"]["limits"]["memory"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_second_run_starts_with_what_the_first_one_learned() {
    let platform = Platform::new();
    let rule = "pumice.sh/on-oom: 'factor=2,ceiling=1Gi'";
    let command = format!("{NEEDS_300_MB} && touch /mnt/done");
    let first = beside_another(&job("need-1", rule, &command), platform.scratch());
    platform.jobctl_with_input(["submit", "-f", "-"], &first).ok();
    let steady = |platform: &Platform| platform.get("pod", "need-1-steady-0").map(|pod| pod["metadata"]["uid"].clone());
    let before = eventually("the other pod is there", || steady(&platform).ok_or("not yet".to_owned()));
    let waited = platform.jobctl(["wait", "need-1"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    assert!(waited.stderr.contains("killed for memory and started again with more"), "{waited:?}");
    let ended = platform.wait_for_phase("need-1", "Completed");
    assert_eq!(ended["status"]["memoryRaises"][0]["indices"], "0:2", "{}", ended["status"]);
    assert_eq!((limit(&platform, "need-1-hungry-0").as_str(), steady(&platform)), ("400Mi", Some(before)));
    let profile =
        eventually("it is learned", || platform.list("resourceprofiles").pop().ok_or_else(|| "no profile".to_owned()));
    assert_eq!((&profile["spec"]["job"], &profile["spec"]["task"]), (&"need".into(), &"hungry".into()), "{profile}");
    let learned = &profile["status"]["containers"][0];
    assert_eq!((&learned["memory"], &learned["killed"]), (&"400Mi".into(), &"200Mi".into()), "{profile}");

    // The platform forgets nothing of it when it starts anew.
    let mut platform = platform;
    assert_eq!(platform.stop(), 0);
    platform.up();
    let second = run(&platform, &job("need-2", rule, &command));
    assert_eq!(second.code, 0, "{second:?}");
    assert!(second.stderr.contains("need-2: starts with 400Mi of memory, learned from earlier runs"), "{second:?}");
    let ended = platform.wait_for_phase("need-2", "Completed");
    assert_eq!(ended["status"]["memoryRaises"], Value::Null, "{}", ended["status"]);
    assert_eq!(limit(&platform, "need-2-hungry-0"), "400Mi");
    let message = &told(&platform, "need-2", "MemoryLearned")[0];
    assert!(message.starts_with("task hungry: container main starts with 400Mi instead of 100Mi"), "{message}");

    // Without learning it is killed as the first one was.
    let third = run(&platform, &job("need-3", &format!("{rule}, pumice.sh/learn-memory: 'off'"), &command));
    assert_eq!(third.code, 0, "{third:?}");
    assert_eq!(platform.wait_for_phase("need-3", "Completed")["status"]["memoryRaises"][0]["indices"], "0:2");
}

#[test]
fn a_leak_stops_at_the_ceiling_and_teaches_nothing() {
    let platform = Platform::new();
    let output = run(&platform, &job("leak", "pumice.sh/on-oom: 'factor=2,ceiling=150Mi'", LEAKS));
    assert_eq!(output.code, 137, "{output:?}");
    platform.wait_for_phase("leak", "Failed");
    assert_eq!(limit(&platform, "leak-hungry-0"), "150Mi");
    let told = eventually("the reason is told", || {
        told(&platform, "leak", "MemoryNotRaised").pop().ok_or("not yet".to_owned())
    });
    assert!(told.contains("gets no more: it has all it may get, 150Mi"), "{told}");
    assert_eq!(platform.list("resourceprofiles"), [Value::Null; 0]);
}

#[test]
fn a_queue_has_a_rule_for_its_jobs_and_a_job_can_turn_it_off() {
    let platform = Platform::new();
    platform.kubectl(["annotate", "queue", "default", "pumice.sh/on-oom=factor=4,ceiling=1Gi"]).ok();
    let output = run(&platform, &job("inherits", "", NEEDS_300_MB));
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(limit(&platform, "inherits-hungry-0"), "400Mi");
    let output = run(&platform, &job("off", "pumice.sh/on-oom: 'off'", NEEDS_300_MB));
    assert_eq!((output.code, limit(&platform, "off-hungry-0").as_str()), (137, "100Mi"), "{output:?}");
    let refused = platform.kubectl(["annotate", "--overwrite", "queue", "default", "pumice.sh/on-oom=a lot"]);
    assert!(refused.code != 0 && refused.stderr.contains("write for example factor=1.5"), "{refused:?}");
}

#[test]
fn a_raise_that_no_node_has_room_for_is_told_at_once() {
    let platform = Platform::start(Setup { flags: vec!["--memory".into(), "150Mi".into()] });
    let manifest = job("large", "pumice.sh/on-oom: 'factor=2'", NEEDS_300_MB);
    platform.jobctl_with_input(["submit", "-f", "-"], &manifest).ok();
    let state = eventually("the job's state says so", || {
        let job = platform.get("vcjob", "large").ok_or("no job")?;
        let state = job["status"]["state"].clone();
        if state["reason"] == "MemoryExceedsNodes" { Ok(state) } else { Err(job["status"].to_string()) }
    });
    let message = state["message"].as_str().unwrap();
    let wanted =
        "task hungry, pod 0 needs 200Mi of memory after being killed for memory, and the largest node has 150Mi";
    assert!(message.starts_with(wanted), "{message}");
    eventually("an event says so", || match told(&platform, "large", "MemoryExceedsNodes").as_slice() {
        [told] if told == message => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let why = eventually("why says it in the scheduler's words", || {
        let output = platform.jobctl(["why", "large"]);
        if output.code == 0 && output.stdout.contains("insufficient memory") {
            Ok(output.stdout)
        } else {
            Err(format!("{output:?}"))
        }
    });
    assert!(why.contains("50Mi"), "{why}");
}
