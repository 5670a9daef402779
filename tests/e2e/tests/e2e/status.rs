//! `pumice status`: what it tells, what it exits with, and how it waits.

use pumice_testkit::{Platform, Process, Setup, binary, eventually};
use serde_json::Value;

#[test]
fn it_tells_how_a_platform_does_and_exits_accordingly() {
    let mut platform = Platform::new();
    let status =
        |platform: &Platform, args: &[&str]| platform.run(&binary("pumice"), [&["status"], args].concat(), None);
    platform.jobctl(["run", "--name", "done", "--", "true"]).ok();
    platform.jobctl(["submit", "--name", "waits", "--cpu", "1000", "--", "true"]).ok();
    platform.wait_for_phase("waits", "Pending");
    let report = eventually("the queue is told", || {
        let report: Value = serde_json::from_str(&status(&platform, &["-o", "json"]).ok()).unwrap();
        if report["queues"][0]["name"] == "default" { Ok(report) } else { Err(report.to_string()) }
    });
    assert_eq!(report["ready"], true, "{report:#}");
    assert_eq!(report["server"], platform.url);
    assert_eq!((&report["nodes"]["total"], &report["nodes"]["ready"]), (&1.into(), &1.into()));
    assert_eq!(report["pods"]["Succeeded"], 1, "{report:#}");
    assert!(report["revision"].as_u64().unwrap() > 10);
    assert!(report["disk"]["freeBytes"].as_u64().unwrap() > 0 && report["disk"]["storeBytes"].as_u64().unwrap() > 0);
    let components: Vec<&str> =
        report["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(
        components,
        ["store", "store-writes", "store-room", "history", "controllers", "scheduler", "node-agent"]
    );
    let yaml = status(&platform, &["-o", "yaml"]).ok();
    assert!(yaml.contains("ready: true\n"), "{yaml}");
    let text = status(&platform, &[]).ok();
    assert!(text.starts_with("ready at https://") && text.contains("1 Succeeded"), "{text}");

    // A node whose agent says no: the platform is there, and not ready.
    let node = platform.list("nodes")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let patch =
        r#"{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Test","message":"out of order"}]}}"#;
    platform.kubectl(["patch", "node", &node, "--subresource=status", "--type=merge", "-p", patch]).ok();
    let not_ready = status(&platform, &[]);
    assert_eq!(not_ready.code, 1, "{not_ready:?}");
    assert!(not_ready.stdout.contains("out of order"), "{not_ready:?}");
    let waited = status(&platform, &["--wait", "--timeout", "1s"]);
    assert_eq!(waited.code, 1, "{waited:?}");
    // Who waits sees it come back.
    let mut command = std::process::Command::new(binary("pumice"));
    command.args(["status", "--wait", "--data-dir"]).arg(platform.data_dir());
    let mut waiting = Process::start("waiting", &mut command, platform.scratch());
    let patch = patch.replace("\"False\"", "\"True\"");
    platform.kubectl(["patch", "node", &node, "--subresource=status", "--type=merge", "-p", &patch]).ok();
    eventually("the wait ends", || waiting.ended().ok_or_else(|| waiting.tail()).map(|code| assert_eq!(code, 0)));

    assert_eq!(platform.stop(), 0);
    let gone = status(&platform, &[]);
    assert_eq!(gone.code, 3, "{gone:?}");
    assert!(gone.stderr.contains("no platform runs in") && gone.stderr.contains("pumice up"), "{gone:?}");
    let mut command = std::process::Command::new(binary("pumice"));
    command.args(["status", "--wait", "--data-dir"]).arg(platform.data_dir());
    let mut waiting = Process::start("waiting-for-up", &mut command, platform.scratch());
    platform.up();
    eventually("the wait ends", || waiting.ended().ok_or_else(|| waiting.tail()).map(|code| assert_eq!(code, 0)));
}

#[test]
fn a_platform_that_was_killed_is_told_from_one_that_does_not_answer() {
    let mut platform = Platform::start(Setup { flags: vec!["--local-node=false".into()] });
    let pid = platform.pid().unwrap();
    let status = |platform: &Platform| platform.run(&binary("pumice"), ["status"], None);
    // Nobody listens where the note says, while the process lives: its address is another machine's, say.
    let note = platform.data_dir().join("up.json");
    let text = std::fs::read_to_string(&note).unwrap();
    let kubeconfig = platform.data_dir().join("kubeconfig");
    let before = std::fs::read_to_string(&kubeconfig).unwrap();
    let port = platform.url.rsplit(':').next().unwrap();
    std::fs::write(&kubeconfig, before.replace(&format!(":{port}"), ":1")).unwrap();
    let silent = status(&platform);
    assert_eq!(silent.code, 3, "{silent:?}");
    assert!(silent.stderr.contains(&format!("runs (process {pid}) and does not answer")), "{silent:?}");
    let advice = platform.jobctl(["list"]);
    assert!(advice.stderr.contains("next:  pumice status"), "{advice:?}");
    std::fs::write(&kubeconfig, before).unwrap();

    platform.crash();
    assert_eq!(std::fs::read_to_string(&note).unwrap(), text, "who is killed leaves its note");
    let killed = status(&platform);
    assert_eq!(killed.code, 3, "{killed:?}");
    assert!(killed.stderr.contains("the last one ended without taking its note back"), "{killed:?}");
    assert!(killed.stderr.contains("pumice up") && killed.stderr.lines().count() == 1, "{killed:?}");
    let advice = platform.jobctl(["list"]);
    assert!(advice.stderr.contains("next:  pumice up"), "{advice:?}");
    platform.up();
}

#[test]
fn a_platform_without_nodes_is_not_ready_and_one_elsewhere_is_named_by_its_kubeconfig() {
    let platform = Platform::start(Setup { flags: vec!["--local-node=false".into()] });
    let kubeconfig = platform.data_dir().join("kubeconfig");
    let status = platform.run(&binary("pumice"), ["status", "--kubeconfig", kubeconfig.to_str().unwrap()], None);
    assert_eq!(status.code, 1, "{status:?}");
    assert!(status.stdout.contains("nodes   0 of 0 ready") && !status.stdout.contains("disk"), "{status:?}");
    let nothing = platform.run(&binary("pumice"), ["status", "--kubeconfig", "nowhere"], None);
    assert_eq!(nothing.code, 3, "{nothing:?}");
}

/// Pods of one GPU each are spread by the shipped configuration: no node is left whole, and a look says so.
#[test]
fn gpus_that_are_free_and_scattered_are_told() {
    let flags =
        ["--local-node=false", "--simulated-nodes=3", "--simulated-node-shape=cpu=4,memory=16Gi,nvidia.com/gpu=4"];
    let platform = Platform::start(Setup { flags: flags.map(str::to_owned).to_vec() });
    let manifest = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: small}\nspec:\n  minAvailable: 3\n  tasks:\n  \
                    - name: t\n    replicas: 3\n    template:\n      spec: {restartPolicy: Never, containers: [{name: main, image: any, \
                    resources: {requests: {cpu: 1, nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}}]}\n";
    platform.jobctl_with_input(["submit", "-f", "-"], manifest).ok();
    let status = |args: &[&str]| platform.run(&binary("pumice"), [&["status"], args].concat(), None).ok();
    let report = eventually("scattered GPUs are told", || {
        let report: Value = serde_json::from_str(&status(&["-o", "json"])).unwrap();
        if report["pods"]["Running"] == 3 { Ok(report) } else { Err(report.to_string()) }
    });
    let wanted = serde_json::json!([{ "resource": "nvidia.com/gpu", "free": 9, "nodes": 3, "most": 3, "whole": 4 }]);
    assert_eq!(report["scattered"], wanted, "{report:#}");
    let text = status(&[]);
    assert!(text.contains("look    9 nvidia.com/gpu are free on 3 nodes, at most 3 on one"), "{text}");
}
