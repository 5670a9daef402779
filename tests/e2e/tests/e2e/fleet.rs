//! `jobctl` with a fleet: the same verbs, words and tables as with a platform, through the real programs.

use std::io::{BufRead, BufReader, Read};

use pumice_testkit::{Fleet, Platform, Setup, eventually};
use serde_json::Value;

/// Amounts of a pod that fits everywhere.
const SMALL: [&str; 4] = ["--cpu", "100m", "--memory", "32Mi"];

/// A fleet of two simulated clusters, that ada knows as `grid`.
fn grid() -> Fleet {
    let fleet = Fleet::up(&["--clusters", "2", "--nodes", "5"]);
    let added = fleet.known();
    assert!(added.stderr.contains(&format!("grid is fleet {}, queue research", fleet.url)), "{added:?}");
    assert!(added.stderr.contains("others can read the private key"), "{added:?}");
    fleet
}

/// A job of simulated pods, which end by themselves.
fn simulated(name: &str, pods: u32, exit_code: u32) -> String {
    format!(
        r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}, labels: {{team: a}}}}
spec:
  minAvailable: 1
  minSuccess: {pods}
  tasks:
  - name: main
    replicas: {pods}
    template:
      metadata:
        annotations: {{pumice.sh/simulated-duration: 100ms, pumice.sh/simulated-exit-code: "{exit_code}"}}
      spec:
        containers:
        - {{name: main, image: busybox, command: [work], resources: {{requests: {{cpu: 100m, memory: 32Mi}}}}}}
"#
    )
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_researcher_works_as_on_a_platform() {
    let fleet = grid();
    let file = |name: &str, content: &str| fleet.file(name, content).display().to_string();
    let contexts = fleet.jobctl(["context", "list"]).ok();
    assert!(contexts.contains("grid") && contexts.contains("queue research"), "{contexts}");
    let queues = fleet.jobctl(["queue", "list"]).ok();
    assert!(queues.starts_with("NAME") && queues.contains("research   Open") && queues.contains("ada"), "{queues}");

    // Three pods, to their end.
    let three = file("three.yaml", &simulated("three", 3, 0));
    assert_eq!(fleet.jobctl(["submit", "-f", &three]).ok(), "job/three\n");
    fleet.jobctl(["wait", "three", "--timeout", "60s"]).ok();
    let listed = fleet.jobctl(["list"]).ok();
    assert!(listed.contains("three") && listed.contains("Completed"), "{listed}");
    let three = json(&fleet.jobctl(["get", "three", "-o", "json"]).ok());
    assert_eq!((&three["status"]["succeeded"], &three["spec"]["queue"]), (&3.into(), &"research".into()), "{three}");
    assert_eq!(three["metadata"]["annotations"]["pumice.sh/user"], "ada", "{three}");
    assert_eq!(three["metadata"]["labels"]["team"], "a", "{three}");
    for (flags, found) in
        [(["-l", "team=a"], true), (["-l", "team=b"], false), (["--me", "-A"], true), (["--user", "bob"], false)]
    {
        let names = fleet.jobctl(["list", "-o", "name"].into_iter().chain(flags)).ok();
        assert_eq!(names.contains("job/three"), found, "{flags:?}: {names}");
    }
    // The name is taken, for good.
    let again = fleet.jobctl(["submit", "-f", &file("again.yaml", &simulated("three", 3, 0))]);
    assert_eq!(again.code, 6, "{again:?}");

    // One that fails says how. Its pods are simulated, and nobody has their logs.
    let fails = file("fails.yaml", &simulated("fails", 2, 3));
    let run = fleet.jobctl(["run", "-f", &fails]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stderr.contains("job fails failed: 0 of 2 pods succeeded, 2 failed"), "{run:?}");
    assert!(run.stderr.contains("pod fails-main-0 ended with exit code 3"), "{run:?}");
    let logs = fleet.jobctl(["logs", "fails", "--pod", "main-1"]);
    assert!(logs.code == 5 && logs.stderr.contains("cannot read logs: node \"sim-0"), "{logs:?}");
    let retried = fleet.jobctl(["retry", "--all", "--failed"]);
    assert_eq!(retried.stdout, "job/fails-r2\n", "{retried:?}");
    assert_eq!(fleet.jobctl(["wait", "fails-r2", "--timeout", "60s"]).code, 1);

    // One that is too large waits and says why; cancelled, it is over.
    fleet.jobctl(["submit", "--name", "large", "--cpu", "1000", "--memory", "1Gi", "--", "work"]).ok();
    eventually("it is told why the job waits", || {
        let why = fleet.jobctl(["why", "large"]);
        if why.stdout.contains("cpu") { Ok(()) } else { Err(format!("{why:?}")) }
    });
    assert_eq!(json(&fleet.jobctl(["why", "large", "-o", "json"]).ok())["stage"], "Queued");
    let cancelled = fleet.jobctl(["cancel", "large"]);
    assert!(cancelled.code == 0 && cancelled.stderr.contains("job large terminated"), "{cancelled:?}");
    assert_eq!(fleet.jobctl(["wait", "large"]).code, 7);
    assert!(fleet.jobctl(["why", "large"]).ok().contains("the job terminated: cancelled by ada"));
}

/// The commands of `jobctl` that the document shows to people who have an identity and a queue.
fn documented() -> Vec<String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md")).unwrap();
    let section = text.split("### From the command line").nth(1).unwrap();
    let section = section.split("### What differs").next().unwrap();
    section.lines().filter_map(|line| Some(format!("jobctl {}", line.strip_prefix("$ jobctl ")?))).collect()
}

#[test]
fn the_documents_commands_can_be_followed() {
    let fleet = Fleet::up(&["--clusters", "1", "--nodes", "3"]);
    fleet.queue("research", "ada");
    let identity = fleet.identity(&["--user", "ada"]);
    std::fs::copy(identity, fleet.scratch().join("ada.pem")).unwrap();
    let commands = documented();
    assert!(commands.len() > 6, "{commands:?}");
    let program = pumice_testkit::binary("jobctl");
    let folder = program.parent().unwrap().display();
    let lines = commands.join("\n").replace("https://127.0.0.1:50051", &fleet.url);
    let script = format!("set -eu\nPATH={folder}:$PATH\n{lines}\n");
    let output = fleet.run(std::path::Path::new("bash"), ["-c", &script], None);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stdout.contains("job/sweep") && output.stderr.contains("job sweep terminated"), "{output:?}");
}

#[test]
fn what_a_fleet_does_not_do_is_said_with_what_to_do_instead() {
    let fleet = grid();
    let sleeps = [&["submit", "--name", "sleeps"][..], &SMALL, &["--", "sleep", "1000"]].concat();
    fleet.jobctl(sleeps).ok();
    let submit = |flags: &[&str]| [&["submit"][..], &SMALL, flags, &["--", "true"]].concat().join(" ");
    for (line, code, said) in [
        (submit(&["--replicas", "3", "--gang", "2", "--retries", "2"]), 2, "leave --retries and --on-oom out"),
        (submit(&["--max-parallel", "1"]), 2, "leave --max-parallel out"),
        ("submit -- true".to_owned(), 2, "say --cpu and --memory"),
        (submit(&["--queue", "nobodys"]), 3, "there is no queue nobodys; the only one is research"),
        ("suspend sleeps".to_owned(), 2, "a fleet suspends no jobs\nnext:  jobctl cancel JOB"),
        (
            "delete sleeps".to_owned(),
            2,
            "a fleet forgets ended jobs by itself, and deletes none\nnext:  jobctl cancel JOB",
        ),
        ("logs sleeps --stream stderr".to_owned(), 2, "does not tell a pod's standard error from its output"),
        ("logs sleeps --previous".to_owned(), 2, "a fleet has the log of a pod's last try alone"),
        ("shell --image python".to_owned(), 2, "a fleet opens no terminals"),
        ("notebook".to_owned(), 2, "a fleet opens no notebooks"),
        ("top".to_owned(), 2, "does not measure what pods use"),
        ("watch".to_owned(), 2, "jobctl progress --follow JOB"),
        ("node list".to_owned(), 2, "the nodes of a fleet are its clusters' own"),
        ("history".to_owned(), 2, "next:  jobctl list"),
        ("queue check research --cpu 1".to_owned(), 2, "jobctl queue get research"),
        ("get nothing".to_owned(), 3, "no job nothing in namespace default"),
    ] {
        let output = fleet.jobctl(line.split_whitespace());
        assert!(output.code == code && output.stderr.contains(said), "{line}: {output:?}");
        assert!(!output.stderr.contains("panicked"), "{output:?}");
    }
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: files}\ndata: {a: b}\n";
    let long = format!("#!/bin/sh\n{}", "x".repeat(64 << 10));
    let [map, long] = [("files.yaml", map), ("long.sh", &long)].map(|(name, text)| fleet.file(name, text));
    let output = fleet.jobctl(["submit", "-f", &map.display().to_string()]);
    assert!(output.code == 2 && output.stderr.contains("a fleet takes jobs and no ConfigMap"), "{output:?}");
    let output = fleet.jobctl([&["submit"][..], &SMALL, &[&long.display().to_string()]].concat());
    let said = "has 65546 bytes; a script that travels with a job of a fleet may have 64 KiB: put it into the image";
    assert!(output.code == 2 && output.stderr.contains(said), "{output:?}");
    assert_eq!(fleet.jobctl(["list", "-o", "name"]).ok(), "job/sleeps\n", "nothing of what was refused is there");
    // Somebody else has no right to see it, and is told so.
    let bob = fleet.identity(&["--user", "bob"]).display().to_string();
    fleet.jobctl(["context", "add", "bobs", "--fleet", &fleet.url, "--identity", &bob, "--queue", "research"]).ok();
    assert_eq!(fleet.jobctl(["--context", "bobs", "list", "-o", "name"]).ok(), "");
    let denied = fleet.jobctl([&["--context", "bobs", "submit"][..], &SMALL, &["--", "true"]].concat());
    assert!(denied.code == 4 && denied.stderr.contains("bob may not submit in queue research"), "{denied:?}");
    let wrong = fleet.file("wrong.pem", "hello").display().to_string();
    let added = fleet.jobctl(["context", "add", "wrong", "--fleet", &fleet.url, "--identity", &wrong]);
    assert!(added.code == 2 && added.stderr.contains("is no identity"), "{added:?}");
}

#[test]
fn ten_thousand_pods_are_submitted_and_cancelled() {
    let fleet = grid();
    let many =
        [&["submit", "--name", "many", "--replicas", "10000", "--gang", "1"][..], &SMALL, &["--", "work"]].concat();
    assert_eq!(fleet.jobctl(many).ok(), "job/many\n");
    let progress = json(&fleet.jobctl(["progress", "many", "-o", "json"]).ok());
    assert_eq!(progress["total"], 10_000, "{progress}");
    let begun = eventually("some of them run", || {
        let progress = json(&fleet.jobctl(["progress", "many", "-o", "json"]).ok());
        if progress["running"].as_u64() > Some(0) { Ok(progress) } else { Err(progress.to_string()) }
    });
    assert_eq!((&begun["succeeded"], &begun["failed"]), (&0.into(), &0.into()), "{begun}");
    assert!(fleet.jobctl(["cancel", "many"]).stderr.contains("job many terminated"));
    let ended = json(&fleet.jobctl(["get", "many", "-o", "json"]).ok());
    assert_eq!((&ended["status"]["terminated"], &ended["status"]["running"]), (&10_000.into(), &0.into()), "{ended}");
}

#[test]
fn pods_really_run_and_a_wait_outlives_the_server() {
    let platform = Platform::start(Setup::default());
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    // Pods write into a folder of their node, which both have to grant.
    let access = format!("queueAccess: {{'*': {{hostFolders: [{out}]}}}}\n");
    let mut fleet =
        Fleet::server_with(&format!("submission:\n  defaultJobLimits: {{cpu: 1, memory: 1Gi}}\n  {access}"));
    fleet.known().ok();
    let _executor = fleet.executor_with("east", &platform.data_dir().join("kubeconfig"), &access);
    let script = format!(
        "echo begun $VC_TASK_INDEX; while [ ! -e {out}/go ]; do sleep 0.1; done
         echo $PUMICE_ATTEMPT > {out}/pod-$VC_TASK_INDEX; echo; echo done"
    );
    let volume = format!("{out}:{out}");
    let flags = ["--replicas", "3", "--gang", "1", "--idempotency-key", "nightly 1", "--volume", &volume];
    let line = [&["submit"][..], &SMALL, &flags, &["--", "sh", "-c", &script]].concat();
    let name = fleet.jobctl(&line).ok();
    assert_eq!(fleet.jobctl(&line).ok(), name, "the key gives the job that is there");
    let name = name.trim().trim_start_matches("job/").to_owned();
    eventually("all of them run", || {
        let progress = json(&fleet.jobctl(["progress", &name, "-o", "json"]).ok());
        if progress["running"] == 3 { Ok(()) } else { Err(progress.to_string()) }
    });
    let waiting = std::thread::spawn({
        let mut wait = fleet.command(&pumice_testkit::binary("jobctl"));
        wait.args(["wait", &name, "--timeout", "100s"]);
        move || wait.output().unwrap()
    });
    let mut following = fleet.command(&pumice_testkit::binary("jobctl"));
    following.args(["logs", "--follow", &name, "--pod", "main-1"]);
    let mut following = following.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut followed = BufReader::new(following.stdout.take().unwrap());
    let mut lines = String::new();
    followed.read_line(&mut lines).unwrap();
    assert_eq!(lines, "begun 1\n");
    fleet.crash();
    let away = fleet.jobctl(["list"]);
    assert!(away.code == 5 && away.stderr.contains("next:  curl --insecure"), "{away:?}");
    fleet.run_again();
    std::fs::write(directory.path().join("go"), "").unwrap();
    let waited = waiting.join().unwrap();
    assert!(waited.status.success(), "{waited:?}");
    for index in 0..3 {
        let written = std::fs::read_to_string(directory.path().join(format!("pod-{index}"))).unwrap();
        assert_eq!(written, "1\n", "each ran once, with its index");
    }
    followed.read_to_string(&mut lines).unwrap();
    assert!(following.wait().unwrap().success());
    assert_eq!(lines, "begun 1\n\ndone\n", "each line once, though the server was away");
    let logs = fleet.jobctl(["logs", &name]).ok();
    let all: String =
        (0..3).map(|index| format!("[main-{index}] begun {index}\n[main-{index}] \n[main-{index}] done\n")).collect();
    assert_eq!(logs, all);
    assert_eq!(fleet.jobctl(["logs", &name, "--pod", "main-0", "--tail", "1"]).ok(), "done\n");
    asked_by_other_tools(&fleet, &platform, &name);
}

#[test]
fn a_script_goes_along_and_is_the_pods_own_process() {
    let platform = Platform::start(Setup::default());
    let fleet = Fleet::server_with("submission:\n  defaultJobLimits: {cpu: 1, memory: 1Gi}\n");
    fleet.known().ok();
    let _executor = fleet.executor("east", &platform.data_dir().join("kubeconfig"));
    let said = "it's \"$100\" é $(none) \\n";
    let works = format!(
        "#!/bin/sh\n#PUMICE --cpu 100m --memory 32Mi\ncat <<'END'\n{said}\nEND\necho \"$0 $1 $2 $VC_TASK_INDEX\"\n\
         echo \"$SLURM_JOB_NAME $SLURM_NODEID/$SLURM_NNODES\"\nexit 7\n"
    );
    let path = fleet.file("works.sh", &works).display().to_string();
    let printed = fleet.jobctl(["submit", "--dry-run", "-o", "json", "--name", "printed", &path, "a b"]).ok();
    let kept = &json(&printed)["spec"]["tasks"][0]["template"]["metadata"]["annotations"]["pumice.sh/script"];
    assert_eq!(kept, works.as_str(), "nothing is beside the job");
    // As one, each by itself, and as a whole Job: some of the pods together.
    for (name, flags) in [
        ("one", &[][..]),
        ("each", &["--replicas", "2", "--gang", "1"]),
        ("whole", &["--replicas", "3", "--gang", "2"]),
    ] {
        let ran = fleet.jobctl([&["run", "--name", name][..], flags, &[&path, "a b", "--fast"]].concat());
        assert_eq!(ran.code, 7, "{name}: {ran:?}");
    }
    let logs = fleet.jobctl(["logs", "each", "--pod", "main-1"]).ok();
    assert_eq!(logs, format!("{said}\n/run/pumice/script/works.sh a b --fast 1\neach 1/2\n"));

    // Again, when the file is gone. Signals reach it, as here when its time is over, in which it has to begin, too.
    let waits = "#!/bin/sh\ntrap 'echo saved; exit 0' TERM\necho begun\nsleep 1000 & wait\n";
    let waits = fleet.file("waits.sh", waits);
    let flags = ["--name", "waits", "--timeout", "5s", "--signal", "TERM@30"];
    let ran = fleet.jobctl([&["run"][..], &SMALL, &flags, &[&waits.display().to_string()]].concat());
    assert_ne!(ran.code, 0, "{ran:?}");
    assert_eq!(fleet.jobctl(["logs", "waits"]).ok(), "begun\nsaved\n", "{ran:?}");
    std::fs::remove_file(path).unwrap();
    let again = fleet.jobctl(["retry", "one"]).ok();
    assert_eq!(again, "job/one-r2\n");
    assert_ne!(fleet.jobctl(["wait", "one-r2", "--timeout", "60s"]).code, 0);
    assert_eq!(fleet.jobctl(["logs", "one-r2"]).ok(), fleet.jobctl(["logs", "one"]).ok());
}

#[test]
fn a_pod_that_fails_is_tried_as_often_as_its_job_says() {
    let platform = Platform::start(Setup::default());
    let fleet = Fleet::server(&[]);
    fleet.known().ok();
    let _executor = fleet.executor("east", &platform.data_dir().join("kubeconfig"));
    let script = "echo attempt $PUMICE_ATTEMPT; test $PUMICE_ATTEMPT = 3";
    let run = |name: &str, flags: &[&str]| {
        fleet.jobctl([&["run", "--name", name][..], &SMALL, flags, &["--", "sh", "-c", script]].concat())
    };
    let ran = run("enough", &["--retries", "2"]);
    assert!(ran.code == 0 && ran.stdout.contains("attempt 3"), "{ran:?}");
    let ran = run("few", &["--retries", "1"]);
    assert!(ran.code == 1 && ran.stdout.contains("attempt 2") && !ran.stdout.contains("attempt 3"), "{ran:?}");
    assert!(ran.stderr.contains("ended with exit code 1: it was run 2 times"), "{ran:?}");
    // What eats too much gets more; what its job does not let grow so far fails for that.
    let eats = ["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1"];
    let hungry = |name: &str, rule: &str| {
        let flags = ["--cpu", "1", "--memory", "32Mi", "--on-oom", rule];
        fleet.jobctl([&["run", "--name", name][..], &flags, &eats].concat())
    };
    assert_eq!(hungry("grows", "factor=8").code, 0);
    assert_ne!(hungry("small", "factor=2,max=64Mi").code, 0);
}

/// Armada's calls for logs and cordons, over plain HTTP.
fn asked_by_other_tools(fleet: &Fleet, platform: &Platform, name: &str) {
    let (ada, bob) = (fleet.identity(&["--user", "ada"]), fleet.identity(&["--user", "bob"]));
    let (_, told) = fleet.post(&ada, &format!("/v1/job-set/research/{name}"), "{}");
    let first = json(told.lines().next().unwrap());
    let job = first["result"]["message"]["submitted"]["jobId"].as_str().unwrap();
    let ask = |identity, more: &str| {
        let (code, said) = fleet.post(
            identity,
            "/v1/binoculars/log",
            &format!(r#"{{"jobId": "{job}", "podNamespace": "default"{more}}}"#),
        );
        (code, json(&said))
    };
    let (code, told) = ask(&ada, "");
    assert_eq!(code, "200", "{told}");
    let lines: Vec<&str> =
        told["log"].as_array().unwrap().iter().map(|line| line["line"].as_str().unwrap_or("")).collect();
    assert_eq!(lines, ["begun 0", "", "done"]);
    // On from the last line's time, which is told again.
    let last = told["log"][2]["timestamp"].as_str().unwrap();
    let (_, told) = ask(&ada, &format!(r#", "sinceTime": "{last}", "logOptions": {{"container": "main"}}"#));
    assert_eq!(told["log"].as_array().unwrap().last().unwrap()["line"], "done", "{told}");
    assert!(told["log"].as_array().unwrap().iter().all(|line| line["timestamp"].as_str().unwrap() >= last), "{told}");
    for (identity, more, code, said) in [
        (&bob, "", "403", "bob may not watch in queue research"),
        (&ada, r#", "podNumber": 2"#, "400", "has no pod 2: 0 is its last one"),
        (&ada, r#", "logOptions": {"container": "other"}"#, "400", "there is no such container"),
        (&ada, r#", "sinceTime": "yesterday""#, "400", "sinceTime: it is no time"),
    ] {
        let (found, told) = ask(identity, more);
        assert!(found == code && told["message"].as_str().unwrap().contains(said), "{more}: {found} {told}");
    }

    let nodes = platform.list("nodes");
    let node = nodes[0]["metadata"]["name"].as_str().unwrap();
    let cordon = |identity: &std::path::Path, node: &str| {
        fleet.post(identity, "/v1/binoculars/cordon", &format!(r#"{{"nodeName": "{node}"}}"#))
    };
    let (code, told) = cordon(&ada, node);
    assert!(code == "403" && told.contains("the permission cordon_nodes allows it"), "{code} {told}");
    let (code, told) = cordon(&fleet.administrator(), "none");
    assert!(code == "404" && told.contains("no cluster has a node none"), "{code} {told}");
    assert_eq!(cordon(&fleet.administrator(), node), ("200".to_owned(), "{}".to_owned()));
    let cordoned = platform.get("node", node).unwrap();
    assert_eq!(cordoned["spec"]["unschedulable"], true, "{cordoned}");
    assert_eq!(cordoned["metadata"]["labels"]["armadaproject.io/cordon-reason"], "binoculars", "{cordoned}");
}
