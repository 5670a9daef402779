//! A Volcano Job from manifest to result, through `jobctl` and stock `kubectl`.

use std::os::unix::fs::PermissionsExt;

use pumice_testkit::{Platform, Setup, binary, eventually};
use serde_json::Value;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

fn example_file(name: &str) -> String {
    format!("{EXAMPLES}/{name}")
}

#[test]
fn a_gang_starts_together_and_its_members_meet_by_name() {
    let platform = Platform::start_with_images(&[("pumice.sh/rendezvous", &binary("rendezvous"))]);
    platform.jobctl(["run", "-f", &example_file("gang.yaml")]).ok();
    let logs = platform.jobctl(["logs", "gang"]).ok();
    assert_eq!(logs.matches("met all 3 members").count(), 3, "{logs}");
    let pods = platform.list("pods");
    let mut addresses: Vec<_> = pods.iter().map(|pod| pod["status"]["podIP"].as_str().unwrap_or("")).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 3, "each has an address of its own: {addresses:?}");
}

#[test]
fn the_policy_starts_a_failed_job_again() {
    let platform = Platform::new();
    platform.jobctl(["run", "-f", &example_file("restart.yaml")]).ok();
    let job = platform.wait_for_phase("restart", "Completed");
    assert_eq!(job["status"]["retryCount"], 1, "{}", job["status"]);
    assert_eq!(job["status"]["succeeded"], 1, "{}", job["status"]);
    assert!(platform.jobctl(["logs", "restart"]).ok().contains("second attempt"));
}

// INV-49
#[test]
fn a_job_killed_for_memory_says_so() {
    let platform = Platform::new();
    let output = platform.jobctl(["run", "-f", &example_file("out-of-memory.yaml")]);
    assert_eq!(output.code, 137, "{output:?}");
    let pod = platform.get("pod", "out-of-memory-greedy-0").unwrap();
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((ended["reason"].as_str(), ended["exitCode"].as_i64()), (Some("OOMKilled"), Some(137)), "{pod}");
    platform.wait_for_phase("out-of-memory", "Failed");
}

#[test]
fn a_pod_killed_for_memory_is_started_again_with_more() {
    let platform = Platform::new();
    let output = platform.jobctl(["run", "-f", &example_file("scale-up-memory.yaml")]);
    assert_eq!(output.code, 0, "{output:?}");
    let job = platform.wait_for_phase("scale-up-memory", "Completed");
    assert_eq!(job["status"]["memoryRaises"][0]["indices"], "0", "{}", job["status"]);
    assert_eq!(job["status"]["retryCount"], Value::Null, "it costs no retry: {}", job["status"]);
    let pod = platform.get("pod", "scale-up-memory-hungry-0").unwrap();
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!((&resources["limits"]["memory"], &resources["requests"]["memory"]), (&"64Mi".into(), &"64Mi".into()));
    let events = platform.list("events");
    let told = events.iter().find(|event| event["reason"] == "MemoryRaised").map(|event| event["message"].clone());
    assert!(
        told.as_ref()
            .and_then(Value::as_str)
            .is_some_and(|text| text.contains("task hungry, pod 0") && text.contains("64Mi instead of 32Mi")),
        "{told:?}"
    );
}

#[test]
fn a_job_without_room_waits_says_why_and_starts() {
    let platform = Platform::start(Setup { flags: vec!["--cpu".into(), "2".into()] });
    platform.jobctl(["submit", "--name", "hog", "--cpu", "2", "--", "sleep", "1000"]).ok();
    platform.wait_for_phase("hog", "Running");
    platform.jobctl(["submit", "--name", "waiter", "--cpu", "1", "--", "echo", "there was room"]).ok();
    let why = eventually("the reason names what is short", || {
        let output = platform.jobctl(["why", "waiter"]);
        if output.code == 0 && output.stdout.contains("cpu") { Ok(output.stdout) } else { Err(format!("{output:?}")) }
    });
    assert!(why.contains("insufficient cpu"), "{why}");
    let structured: Value = serde_json::from_str(&platform.jobctl(["why", "waiter", "-o", "json"]).ok()).unwrap();
    assert!(structured["stage"].is_string(), "{structured}");
    assert!(structured["reasons"].as_array().is_some_and(|reasons| !reasons.is_empty()), "{structured}");
    let queue = platform.run(&binary("pumice"), ["queue", "why", "default"], None).ok();
    assert!(queue.contains("1 group waits in queue default") && queue.contains("waiter"), "{queue}");
    let node: Value = {
        let name = platform.list("nodes")[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let told = platform.run(&binary("pumice"), ["node", "why", &name, "-o", "json"], None).ok();
        serde_json::from_str(&told).unwrap()
    };
    assert_eq!((&node["status"]["pods"], &node["status"]["used"]["cpu"]), (&1.into(), &2000.into()), "{node}");
    let nobody = platform.run(&binary("pumice"), ["queue", "why", "nobody"], None);
    assert!(nobody.code == 3 && nobody.stderr.contains("does not know it"), "{nobody:?}");
    platform.jobctl(["cancel", "hog"]).ok();
    platform.jobctl(["wait", "waiter", "--timeout", "60s"]).ok();
    assert!(platform.jobctl(["logs", "waiter"]).ok().contains("there was room"));
}

#[test]
fn small_jobs_go_past_a_big_one_that_can_never_fit() {
    let platform = Platform::start(Setup { flags: vec!["--cpu".into(), "2".into()] });
    let big = ["submit", "--name", "big", "--replicas", "3", "--min-available", "3", "--cpu", "1", "--", "true"];
    platform.jobctl(big).ok();
    platform.jobctl(["run", "--name", "small", "--cpu", "1", "--", "true"]).ok();
    let why = platform.jobctl(["why", "big"]).ok();
    assert!(why.contains("cpu"), "{why}");
    assert!(platform.list("pods").iter().all(|pod| pod["metadata"]["name"] != "big-main-0"), "nothing of the big one");
}

#[test]
fn run_gives_the_exit_code_of_the_job() {
    let platform = Platform::new();
    assert_eq!(platform.jobctl(["run", "--name", "fine", "--", "true"]).code, 0);
    assert_eq!(platform.jobctl(["run", "--name", "seven", "--", "sh", "-c", "exit 7"]).code, 7);
    assert_eq!(platform.jobctl(["run", "--name", "killed", "--", "sh", "-c", "kill -TERM $$"]).code, 143);
    let output = platform.jobctl(["run", "--name", "hello", "--", "echo", "hello from a pod"]);
    assert!(output.stdout.contains("hello from a pod"), "{output:?}");
}

#[test]
fn a_command_works_where_it_was_started_and_leaves_its_files() {
    let platform = Platform::new();
    let script = platform.file("train.sh", "#!/bin/sh\npwd\nls -A data || true\necho result > model\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = platform.jobctl(["run", "--", "./train.sh"]).ok();
    assert_eq!(output.trim(), platform.scratch().to_str().unwrap(), "and sees nothing of the platform's own directory");
    assert_eq!(std::fs::read_to_string(platform.scratch().join("model")).unwrap(), "result\n");
    assert!(platform.data_dir().join("store.redb").exists());
}

#[test]
fn what_is_written_through_a_link_of_the_folder_stays() {
    let platform = Platform::new();
    let (work, scratch) = (platform.scratch().join("work"), platform.scratch().join("scratch"));
    for folder in [&work, &scratch] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::write(scratch.join("log"), "").unwrap();
    std::os::unix::fs::symlink(&scratch, work.join("out")).unwrap();
    std::os::unix::fs::symlink("../scratch/log", work.join("log")).unwrap();
    let script = "echo 1 > out/a.txt; echo 2 > log; cat out/a.txt log";
    let output = platform.jobctl(["run", "--workdir", "work", "--", "sh", "-c", script]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "1\n2\n"), "{output:?}");
    assert_eq!(std::fs::read_to_string(scratch.join("a.txt")).unwrap(), "1\n");
    assert_eq!(std::fs::read_to_string(scratch.join("log")).unwrap(), "2\n");
    let told = format!("out leads to {}, which the pods share, too", scratch.display());
    assert!(output.stderr.contains(&told), "{output:?}");
    assert!(!output.stderr.contains("gone with the pod"), "{output:?}");
}

#[test]
fn what_is_gone_with_the_pod_is_told_at_the_end() {
    let platform = Platform::new();
    let work = platform.scratch().join("work");
    std::fs::create_dir(&work).unwrap();
    let script = "echo 1 > ../up.txt; echo 2 > kept.txt; mkdir /results; echo 3 > /results/a; echo 4 > ~/.hidden";
    let flags = ["run", "--name", "loser", "--workdir", "work", "--", "sh", "-c", script];
    let output = platform.jobctl(flags);
    assert_eq!(output.code, 0, "{output:?}");
    let up = platform.scratch().join("up.txt");
    let wanted = "pod loser-main-0: 2 files are gone with the pod, written where nothing is kept: ";
    let line = output.stderr.lines().find(|line| line.starts_with(wanted)).unwrap_or_else(|| panic!("{output:?}"));
    for path in ["/results/a", up.to_str().unwrap()] {
        assert!(line.contains(path), "{line}");
    }
    assert!(work.join("kept.txt").exists() && !up.exists());
    let pod = platform.get("pod", "loser-main-0").unwrap();
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|one| one["type"] == "pumice.sh/FilesDiscarded"), "{pod}");
}

#[test]
fn submit_list_get_wait_cancel() {
    let platform = Platform::new();
    let name = platform.jobctl(["submit", "--name", "long", "-o", "name", "--", "sleep", "1000"]).ok();
    assert!(name.trim().ends_with("long"), "{name}");
    platform.wait_for_phase("long", "Running");
    assert!(platform.jobctl(["list"]).ok().contains("Running"));
    assert!(platform.jobctl(["list", "-o", "name"]).ok().contains("long"));
    let listed: Value = serde_json::from_str(&platform.jobctl(["list", "-o", "json"]).ok()).unwrap();
    assert!(listed.to_string().contains("\"long\""), "{listed}");
    assert!(platform.jobctl(["get", "long", "-o", "yaml"]).ok().contains("kind: Job"));
    assert_eq!(platform.jobctl(["wait", "long", "--timeout", "1s"]).code, 8);
    platform.jobctl(["cancel", "long"]).ok();
    platform.wait_for_phase("long", "Terminated");
    assert_eq!(platform.jobctl(["wait", "long"]).code, 7);
    assert_eq!(platform.jobctl(["get", "no-such-job"]).code, 3);
}

#[test]
fn logs_follow_a_running_job_to_its_end() {
    let platform = Platform::new();
    let script = "for i in 1 2 3; do echo line $i; sleep 0.2; done";
    platform.jobctl(["submit", "--name", "talker", "--", "sh", "-c", script]).ok();
    let followed = platform.jobctl(["logs", "-f", "talker"]).ok();
    for line in ["line 1", "line 2", "line 3"] {
        assert!(followed.contains(line), "{followed}");
    }
    assert!(platform.kubectl(["logs", "talker-main-0"]).ok().contains("line 3"));
}

#[test]
fn suspend_and_resume_by_the_command_of_volcano() {
    let platform = Platform::new();
    platform.jobctl(["submit", "--name", "pause", "--", "sleep", "1000"]).ok();
    platform.wait_for_phase("pause", "Running");
    platform.kubectl_with_input(["create", "-f", "-"], &command("pause", "AbortJob")).ok();
    platform.wait_for_phase("pause", "Aborted");
    eventually("its pods are gone", || match platform.list("pods").len() {
        0 => Ok(()),
        n => Err(format!("{n} pods")),
    });
    platform.kubectl_with_input(["create", "-f", "-"], &command("pause", "ResumeJob")).ok();
    platform.wait_for_phase("pause", "Running");
}

/// A real process dies of the signal, so its pod fails on its way out.
#[test]
fn a_running_pod_that_is_deleted_is_made_again() {
    let platform = Platform::new();
    platform.jobctl(["submit", "--name", "whole", "--replicas", "2", "--", "sleep", "1000"]).ok();
    platform.wait_for_phase("whole", "Running");
    let pod = platform.list("pods")[0].clone();
    let name = pod["metadata"]["name"].as_str().unwrap();
    // One that waits may take the pod that comes in its place for this one, and then it waits for ever.
    platform.kubectl(["delete", "pod", name, "--wait=false"]).ok();
    eventually("another pod of that name runs", || match platform.get("pod", name) {
        Some(now) if now["metadata"]["uid"] != pod["metadata"]["uid"] && now["status"]["phase"] == "Running" => Ok(()),
        now => Err(format!("{now:?}")),
    });
    let job = platform.wait_for_phase("whole", "Running");
    assert_eq!(
        (&job["status"]["failed"], &job["status"]["retryCount"]),
        (&Value::Null, &Value::Null),
        "{}",
        job["status"]
    );
}

#[test]
fn deleting_a_job_takes_everything_of_it() {
    let platform = Platform::new();
    platform.jobctl(["submit", "--name", "gang", "--replicas", "2", "--", "sleep", "1000"]).ok();
    platform.wait_for_phase("gang", "Running");
    assert!(platform.get("configmap", "gang-svc").is_some(), "the hosts of its members");
    platform.kubectl(["delete", "jobs.batch.volcano.sh", "gang"]).ok();
    for kind in ["pods", "podgroups", "secrets", "services", "configmaps"] {
        eventually(&format!("no {kind} of the job are left"), || {
            let left: Vec<_> = platform.list(kind).into_iter().map(|o| o["metadata"]["name"].clone()).collect();
            if left.iter().all(|name| !name.as_str().is_some_and(|name| name.starts_with("gang"))) {
                Ok(())
            } else {
                Err(format!("{left:?}"))
            }
        });
    }
}

fn command(job: &str, action: &str) -> String {
    format!(
        r#"
apiVersion: bus.volcano.sh/v1alpha1
kind: Command
metadata: {{generateName: "{job}-"}}
action: {action}
target: {{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: {job}, uid: ""}}
"#
    )
}

#[test]
fn a_command_is_found_where_the_shell_would_find_it() {
    use std::os::unix::fs::PermissionsExt;

    let platform = Platform::new();
    let folder = platform.scratch().join("venv/bin");
    std::fs::create_dir_all(&folder).unwrap();
    let program = platform.file("venv/bin/only-here", "#!/bin/sh\necho found\n");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let shell = (*platform).clone().with("PATH", path);
    let jobctl = pumice_testkit::binary("jobctl");
    assert_eq!(shell.run(&jobctl, ["run", "--", "only-here"], None).ok(), "found\n");
    let other = shell.run(&jobctl, ["run", "--env", "PATH=/usr/bin:/bin", "--", "only-here"], None);
    assert_eq!(other.code, 127, "{other:?}");
    assert!(!other.stderr.contains("jobctl logs"), "it has no log: {other:?}");
}
