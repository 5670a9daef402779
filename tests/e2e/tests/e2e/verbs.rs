//! The verbs of `jobctl` beside submitting and waiting, through the real binary on a real platform.

use std::io::Write as _;
use std::process::{Command, Stdio};

use pumice_testkit::{Platform, Setup, binary, eventually};
use serde_json::Value;

/// A platform whose pods run nothing and last as long as they are told.
fn simulated(nodes: u32) -> Platform {
    let flags = ["--simulated-nodes", &nodes.to_string(), "--local-node=false"];
    Platform::start(Setup { flags: flags.iter().map(|flag| (*flag).to_owned()).collect() })
}

fn submit(platform: &Platform, name: &str, replicas: u32, annotations: &str) {
    let manifest = format!(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: {name}, labels: {{team: {name}}}}}\n\
         spec:\n  minAvailable: 1\n  tasks:\n  - name: t\n    replicas: {replicas}\n    template:\n      metadata: {{annotations: {{{annotations}}}}}\n\
         \x20     spec:\n        restartPolicy: Never\n        containers: [{{name: main, image: host, resources: {{requests: {{cpu: 500m, memory: 1Gi}}}}}}]\n"
    );
    platform.jobctl_with_input(["submit", "-f", "-"], &manifest).ok();
}

fn json(platform: &Platform, args: &[&str]) -> Value {
    serde_json::from_str(&platform.jobctl(args).ok()).unwrap()
}

#[test]
fn jobs_are_chosen_by_patterns_labels_and_states() {
    let platform = simulated(4);
    for index in 0..12 {
        submit(&platform, &format!("sweep-{index}"), 1, "");
    }
    submit(&platform, "other", 2, "pumice.sh/simulated-duration: 10ms");
    platform.wait_for_phase("other", "Completed");
    eventually("all run", || {
        let running = platform.jobctl(["list", "--state", "running", "-o", "name"]).ok();
        if running.lines().count() == 12 { Ok(()) } else { Err(running) }
    });
    let names = |args: &[&str]| platform.jobctl([&["list", "-o", "name"], args].concat()).ok();
    assert_eq!(names(&["sweep-?", "--sort", "name", "--limit", "2"]), "job/sweep-0\njob/sweep-1\n");
    assert_eq!(names(&["--state", "ended"]), "job/other\n");
    assert_eq!(names(&["-l", "team=other"]), "job/other\n");
    assert_eq!(names(&["--limit", "1"]), names(&["last"]));
    assert_eq!(names(&["--queue", "no-such"]), "");
    assert_eq!(names(&["--since", "1h"]).lines().count(), 13);
    let csv = platform.jobctl(["list", "other", "-o", "csv", "--columns", "name,state,total,ok,fail"]).ok();
    assert_eq!(csv, "name,state,total,ok,fail\nother,Completed,2,2,0\n");
    assert!(!platform.jobctl(["list"]).ok().contains('\u{1b}'), "no colours in a pipe");

    let preview = platform.jobctl(["cancel", "sweep-*", "--dry-run"]).ok();
    assert!(preview.starts_with("would cancel 12 jobs: sweep-0, ") && preview.contains(" and 2 more"), "{preview}");
    assert_eq!(platform.jobctl(["get", "sweep-1*", "-o", "name"]).ok().lines().count(), 3);
    let several = platform.jobctl(["why", "sweep-*"]);
    assert_eq!(several.code, 2, "{several:?}");
    assert!(several.stderr.contains("next:  jobctl list 'sweep-*'"), "{several:?}");
    let none = platform.jobctl(["cancel", "nothing-*"]);
    assert_eq!(none.code, 3, "{none:?}");

    let cancelled = platform.jobctl(["cancel", "sweep-1*", "-o", "name"]).ok();
    assert_eq!(cancelled.lines().count(), 3);
    platform.jobctl(["cancel", "--all", "--state", "active", "--yes"]).ok();
    assert_eq!(names(&["--state", "active"]), "");
}

#[test]
fn a_job_is_suspended_resumed_and_tried_again() {
    let platform = simulated(2);
    submit(&platform, "long", 2, "");
    platform.wait_for_phase("long", "Running");
    assert!(platform.jobctl(["suspend", "long"]).stderr.contains("job long suspended"));
    assert!(platform.jobctl(["suspend", "long"]).stderr.contains("had already been suspended"));
    assert!(platform.jobctl(["resume", "long"]).stderr.contains("job long goes on"));
    platform.wait_for_phase("long", "Running");
    assert!(platform.jobctl(["resume", "long"]).stderr.contains("is not suspended"));
    let early = platform.jobctl(["retry", "long"]);
    assert_eq!(early.code, 6, "{early:?}");
    assert!(early.stderr.contains("next:  jobctl cancel long"), "{early:?}");

    submit(&platform, "bad", 1, "pumice.sh/simulated-duration: 10ms, pumice.sh/simulated-exit-code: \"3\"");
    assert_ne!(platform.jobctl(["wait", "bad"]).code, 0);
    let phase = platform.get("jobs.batch.volcano.sh", "bad").unwrap()["status"]["state"]["phase"].clone();
    assert_eq!(platform.jobctl(["retry", "bad"]).ok(), "job/bad-r2\n", "{phase}");
    platform.jobctl(["wait", "bad-r2"]);
    assert_eq!(platform.jobctl(["retry", "bad-r2"]).ok(), "job/bad-r3\n");
    let third = platform.get("jobs.batch.volcano.sh", "bad-r3").unwrap();
    assert_eq!(third["metadata"]["labels"]["pumice.sh/retry-of"], "bad");
    let nothing = platform.jobctl(["retry", "long", "--failed"]);
    assert_eq!(nothing.code, 3, "{nothing:?}");
}

#[test]
fn a_suspended_job_is_cancelled_and_an_ended_one_deleted() {
    let platform = simulated(2);
    // Suspended while it waits, and while it runs.
    for (name, replicas) in [("waits", 100), ("runs", 2)] {
        submit(&platform, name, replicas, "");
        platform.wait_for_phase(name, "Running");
        platform.jobctl(["suspend", name]).ok();
        let refused = platform.jobctl(["delete", name]);
        assert!(
            refused.code == 6 && refused.stderr.ends_with(&format!("next:  jobctl cancel {name}\n")),
            "{refused:?}"
        );
        let retried = platform.jobctl(["retry", name]);
        assert!(retried.code == 6 && retried.stderr.contains(&format!("next:  jobctl resume {name}")), "{retried:?}");
        assert_eq!(platform.jobctl(["cancel", name]).stderr, format!("job {name} terminated\n"));
        assert!(platform.jobctl(["cancel", name]).stderr.contains("had already been terminated"));
        assert!(platform.jobctl(["resume", name]).stderr.contains("there is nothing to resume"));
        let why = platform.jobctl(["why", name]).ok();
        assert_eq!(why, "the job terminated: it was cancelled\n");
        assert!(platform.jobctl(["get", name]).ok().ends_with(&format!("job {name}: it was cancelled\n")));
        assert_eq!(platform.jobctl(["delete", name]).stderr, format!("job {name} deleted\n"));
        assert_eq!(platform.jobctl(["get", name]).code, 3);
        // The name is free.
        submit(&platform, name, 1, "");
        assert_eq!(platform.jobctl(["delete", "--force", name]).stderr, format!("job {name} deleted\n"));
    }
    let left = platform.kubectl(["get", "pods,podgroups.scheduling.volcano.sh", "-o", "name"]).ok();
    assert_eq!(left, "", "nothing is left of them");
}

#[test]
fn progress_and_loads_are_told() {
    let platform = simulated(2);
    submit(&platform, "steps", 20, "pumice.sh/simulated-duration: 300ms");
    let lines = platform.jobctl(["progress", "steps", "--follow", "-o", "json"]).ok();
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((&last["succeeded"], &last["total"], &last["state"]), (&20.into(), &20.into(), &"Completed".into()));
    assert_eq!(platform.jobctl(["progress", "steps"]).ok(), "steps 100 % 20/20 ok · 0 run · 0 wait\n");

    submit(&platform, "held", 3, "");
    eventually("all three run", || {
        let held = json(&platform, &["top", "-o", "json"]);
        if held[0]["pods"] == 3 { Ok(()) } else { Err(held.to_string()) }
    });
    let top = platform.jobctl(["top", "held"]);
    assert!(top.stderr.contains("not measured"), "{top:?}");
    assert_eq!(top.stdout.lines().count(), 4, "{top:?}");
    let held = json(&platform, &["top", "-o", "json"]);
    assert_eq!(held[0]["requested"]["cpuMilli"], 1500);
    assert_eq!(held[0]["used"], Value::Null, "never a guess");
    assert_eq!(json(&platform, &["top", "node", "-o", "json"]).as_array().unwrap().len(), 2);
    let usage = json(&platform, &["usage", "-o", "json"]);
    assert_eq!((&usage[0]["name"], &usage[0]["pods"]), (&"default".into(), &3.into()));
}

#[test]
fn queues_and_nodes_are_shown_and_nodes_cordoned() {
    let platform = simulated(2);
    assert!(platform.jobctl(["queue", "list"]).ok().contains("default"));
    assert!(platform.jobctl(["queue", "get", "default", "-o", "json"]).ok().contains("\"kind\": \"Queue\""));
    let missing = platform.jobctl(["queue", "get", "no-such"]);
    assert_eq!(missing.code, 3, "{missing:?}");
    assert!(missing.stderr.contains("next:  jobctl queue list"), "{missing:?}");
    let queue = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: small}\nspec: {weight: 1, capability: {cpu: \"4\"}}\n";
    platform.kubectl_with_input(["create", "-f", "-"], queue).ok();
    assert!(platform.jobctl(["queue", "check", "small", "--cpu", "500m", "--pods", "8"]).ok().contains("room"));
    let over = platform.jobctl(["queue", "check", "small", "--cpu", "500m", "--pods", "9"]);
    assert_eq!(over.code, 1, "{over:?}");
    assert!(over.stdout.contains("4500m cpu is more than its limit of 4"), "{over:?}");

    platform.jobctl(["node", "cordon", "sim-00001"]).ok();
    let nodes = platform.jobctl(["node", "list"]).ok();
    assert!(nodes.contains("Ready,Cordoned"), "{nodes}");
    platform.jobctl(["node", "uncordon", "sim-00001"]).ok();
    assert!(!platform.jobctl(["node", "get", "sim-00001"]).ok().contains("Cordoned"));
    assert_eq!(platform.jobctl(["node", "cordon", "no-such"]).code, 3);
    assert!(platform.jobctl(["version"]).ok().contains("server v"));
}

#[test]
fn a_user_lists_what_is_hers() {
    let platform = simulated(1);
    let ada = platform.kubeconfig_of("ada");
    let ada = ["--kubeconfig", ada.to_str().unwrap()];
    submit(&platform, "ours", 1, "");
    let list = |args: &[&str]| platform.jobctl([&["list", "-o", "name"], args].concat()).ok();
    assert_eq!(list(&[&["--me"][..], &ada].concat()), "");
    platform.jobctl([&["submit", "--name", "hers"][..], &ada, &["--", "true"]].concat()).ok();
    assert_eq!(list(&[&["--me"][..], &ada].concat()), "job/hers\n");
    assert_eq!(list(&["--me"]), "job/ours\n");
    assert_eq!(list(&["--user", "ada"]), "job/hers\n");
    assert_eq!(list(&["--user", "bob"]), "");
    assert_eq!(list(&["--sort", "name"]), "job/hers\njob/ours\n", "to ask who one is leaves no job");
    let users = platform.jobctl(["list", "-o", "csv", "--columns", "name,user", "--sort", "name"]).ok();
    assert_eq!(users, "name,user\nhers,ada\nours,pumice:administrator\n");
}

#[test]
fn bash_completes_names_that_the_platform_knows() {
    let platform = simulated(2);
    submit(&platform, "sweep-1", 1, "");
    submit(&platform, "sweep-2", 1, "pumice.sh/simulated-duration: 10ms");
    platform.wait_for_phase("sweep-1", "Running");
    platform.wait_for_phase("sweep-2", "Completed");
    // What bash does at Tab: the script's own function, with the words of the line and the place of the cursor.
    let script = r#"
        source <("$1" completion bash); shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
        _clap_complete_jobctl jobctl "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
        echo "${COMPREPLY[*]}""#;
    let program = binary("jobctl");
    let program = program.to_str().unwrap();
    for (line, wanted) in [
        (&["get", "sw"][..], "sweep-2 sweep-1"),
        (&["logs", "-f", "job/sweep-1"], "job/sweep-1"),
        (&["why", "sweep-"], "sweep-2 sweep-1"),
        (&["cancel", "s"], "sweep-1"),
        (&["retry", "s"], "sweep-2"),
        (&["resume", "s"], ""),
        (&["shell", "s"], "sweep-1"),
        (&["notebook", "job/s"], "job/sweep-1"),
        (&["get", "-n", "kube-system", "s"], ""),
        (&["list", "--queue", ""], "default root"),
        (&["run", "--queue", "def"], "default"),
        (&["queue", "get", "d"], "default"),
        (&["node", "cordon", "sim-00001"], "sim-00001"),
        (&["get", "--namespace", "kube-s"], "kube-system"),
        (&["run", "--priority", "system-n"], "system-node-critical"),
    ] {
        let args = [&["-c", script, "bash", program, "jobctl"], line].concat();
        let said = platform.run("bash".as_ref(), args, None);
        assert_eq!((said.code, said.stdout.trim_end(), said.stderr.as_str()), (0, wanted, ""), "{line:?}");
    }
}

#[test]
fn a_failed_shard_comes_to_this_machine() {
    let platform = Platform::new();
    let script = "echo here is $SHARD_FILE; exit 7";
    let run = ["run", "--name", "broken", "--replicas", "1", "--env", "SHARD_FILE=data.csv", "--", "sh", "-c", script];
    assert_eq!(platform.jobctl(run).code, 7);
    let told = platform.jobctl(["debug", "broken"]);
    for text in ["exit code 7", "attempt 1", "here is data.csv", "command: sh -c 'echo here is $SHARD_FILE; exit 7'"] {
        assert!(told.stdout.contains(text), "{text}: {told:?}");
    }
    let here = platform.jobctl(["debug", "broken", "--shard", "0", "--run"]);
    assert_eq!((here.code, here.stdout.as_str()), (7, "here is data.csv\n"), "{here:?}");
    let other = platform.jobctl(["debug", "broken", "--shard", "5"]);
    assert_eq!(other.code, 3, "{other:?}");
    assert_eq!(json(&platform, &["debug", "last", "-o", "json"])["exitCode"], 7);

    // The pod of some records runs just these.
    let script = "echo of $PUMICE_SHARD_KEY; exit $1";
    platform.jobctl(["run", "--name", "sweep", "--array", "0-2", "--", "sh", "-c", script, "sh", "{key}"]);
    let here = platform.jobctl(["debug", "sweep", "--shard", "2", "--run"]);
    assert_eq!((here.code, here.stdout.as_str()), (2, "of 2\n"), "{here:?}");
}

#[test]
fn a_retried_script_outlives_the_job_it_came_with() {
    let platform = Platform::new();
    let script = platform.file("step.sh", "#!/bin/sh\necho \"ran with $1\"\nexit 3\n");
    assert_eq!(platform.jobctl(["run", "--name", "first", script.to_str().unwrap(), "x"]).code, 3);
    assert_eq!(platform.jobctl(["retry", "first"]).ok(), "job/first-r2\n");
    assert_ne!(platform.jobctl(["wait", "first-r2"]).code, 0);
    platform.kubectl(["delete", "jobs.batch.volcano.sh", "first"]).ok();
    eventually("the first job's pods are gone", || {
        let pods = platform.kubectl(["get", "pods", "-l", "volcano.sh/job-name=first", "-o", "name"]).ok();
        if pods.trim().is_empty() { Ok(()) } else { Err(pods) }
    });
    assert_eq!(platform.jobctl(["retry", "first-r2"]).ok(), "job/first-r3\n");
    assert_ne!(platform.jobctl(["wait", "first-r3"]).code, 0);
    assert_eq!(platform.jobctl(["logs", "first-r3"]).ok(), "ran with x\n");
}

#[test]
fn ctrl_c_ends_the_wait_and_says_what_of_the_job() {
    let platform = simulated(1);
    submit(&platform, "endless", 1, "");
    platform.wait_for_phase("endless", "Running");
    let mut wait = Command::new(binary("jobctl"));
    wait.args(["progress", "--follow", "endless", "-o", "json"]).env("PUMICE_DATA_DIR", platform.data_dir());
    let mut wait = wait.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Its first line says that it listens.
    let mut first = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(wait.stdout.take().unwrap()), &mut first).unwrap();
    assert!(first.contains("endless"), "{first}");
    platform.run("kill".as_ref(), ["-INT", &wait.id().to_string()], None).ok();
    let output = wait.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("job endless goes on") && said.contains("jobctl cancel endless"), "{said}");
    platform.wait_for_phase("endless", "Running");
}

#[test]
fn contexts_name_platforms() {
    let platform = simulated(1);
    let kubeconfig = platform.data_dir().join("kubeconfig");
    let jobctl = |args: &[&str]| {
        let mut command = Command::new(binary("jobctl"));
        let output = command.args(args).env_clear().env("HOME", platform.scratch()).output().unwrap();
        std::io::stderr().write_all(&output.stderr).unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(jobctl(&["list"]).0, 5, "no platform runs in this home");
    assert_eq!(jobctl(&["context", "use", "lab"]).0, 3);
    assert_eq!(jobctl(&["context", "add", "lab", "--kubeconfig", kubeconfig.to_str().unwrap()]).0, 0);
    assert_eq!(jobctl(&["list", "--context", "lab"]).0, 0);
    assert_eq!(jobctl(&["list"]).0, 5, "a name alone is not in use");
    assert_eq!(jobctl(&["context", "use", "lab"]).0, 0);
    assert_eq!(jobctl(&["list"]).0, 0);
    assert!(jobctl(&["context", "show"]).1.starts_with("lab: "));
    assert!(jobctl(&["context", "list"]).1.contains("*"));
    assert_eq!(jobctl(&["context", "remove", "lab"]).0, 0);
    assert_eq!(jobctl(&["list"]).0, 5);
}
