//! `docs/installing.md` can be followed, and the components work with the rights that come of it.

use std::path::Path;
use std::process::Command;

use pumice_testkit::{RealKube, binary, eventually};
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const NAMESPACE: &str = "volcano-system";
const NODES: usize = 4;

/// The commands (`$ ...`) of the document's `console` blocks.
fn commands() -> Vec<String> {
    let text = std::fs::read_to_string(format!("{ROOT}/docs/installing.md")).expect("the document");
    let blocks = text.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}

fn follow(cluster: &RealKube, commands: &[String]) -> String {
    let bins = binary("pumice").parent().expect("a folder").display().to_string();
    let script = format!("set -euxo pipefail\nPATH='{bins}':$PATH\ncd {ROOT}\n{}\n", commands.join("\n"));
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]);
    bash.env("KUBECONFIG", cluster.kubeconfig()).env("HOME", cluster.scratch());
    let output = bash.output().expect("bash");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
    said(&output.stdout)
}

/// What a pod of a Deployment would run, and as whom.
fn program(cluster: &RealKube, deployment: &str) -> (String, Vec<String>) {
    let text = cluster.kubectl(["get", "deployment", deployment, "-n", NAMESPACE, "-o", "json"]).ok();
    let object: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
    let spec = &object["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    assert_eq!(container["command"], serde_json::json!(["pumice"]));
    let args = container["args"].as_array().expect("arguments").iter();
    let args = args.map(|arg| arg.as_str().expect("a text").to_owned()).collect();
    (spec["serviceAccountName"].as_str().expect("an account").to_owned(), args)
}

/// Runs what the Deployments say, with the tokens of their service accounts; only where they listen is the test's own.
fn run_deployments(cluster: &mut RealKube) {
    for (name, listeners) in [
        ("scheduler", &["--listen-address=127.0.0.1:0", "--healthz-address=127.0.0.1:0"][..]),
        ("controllers", &["--listen-address=127.0.0.1:0", "--healthz-address=127.0.0.1:0"]),
        ("admission", &["--healthz-address=127.0.0.1:0"]),
    ] {
        let (account, args) = program(cluster, &format!("pumice-{name}"));
        let kubeconfig = cluster.kubeconfig_of_account(NAMESPACE, &account);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(listeners.iter().copied()).collect();
        if name == "admission" {
            cluster.start_admission_with(kubeconfig, &args);
        } else {
            cluster.start_component_with(name, kubeconfig, &args);
        }
    }
}

#[test]
fn what_the_document_says_makes_a_cluster_that_works() {
    let mut cluster = RealKube::new();
    let commands = commands();
    let (install, look) = commands.split_at(4);
    follow(&cluster, install);
    // A second time changes nothing.
    let again = follow(&cluster, install);
    let unchanged = again.lines().filter(|line| line.ends_with(" unchanged")).count();
    assert!(unchanged > 20 && !again.contains("created"), "{again}");
    run_deployments(&mut cluster);
    let roles = cluster.run(&binary("pumice"), ["roles", "nodes", "--users"], None).ok();
    cluster.kubectl_with_input(["apply", "-f", "-"], &roles).ok();
    let count = NODES.to_string();
    cluster.start_component("nodes", "system:pumice:node", &["node", "simulated", "--nodes", &count]);
    eventually("leases are held and there are queues", || {
        let said = follow(&cluster, look);
        let all = ["volcano ", "vc-controller-manager ", "default "].iter().all(|word| said.contains(word));
        if all { Ok(()) } else { Err(said) }
    });

    // A life of everything: a flow makes jobs with plugins, in the name of who made the flow.
    let manifest = r#"
apiVersion: flow.volcano.sh/v1alpha1
kind: JobTemplate
metadata: {name: t}
spec:
  minAvailable: 2
  plugins: {svc: [], ssh: [], env: []}
  policies: [{event: PodEvicted, action: RestartJob}]
  tasks:
  - name: w
    replicas: 2
    template:
      metadata: {annotations: {pumice.sh/simulated-duration: 1s}}
      spec: {restartPolicy: Never, containers: [{name: main, image: none, command: [none]}]}
---
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata: {name: f}
spec: {jobRetainPolicy: retain, flows: [{name: t}]}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "@every 1s"
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      minAvailable: 1
      tasks:
      - name: w
        replicas: 1
        template:
          metadata: {annotations: {pumice.sh/simulated-duration: 1s}}
          spec: {restartPolicy: Never, containers: [{name: main, image: none, command: [none]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: bare}
spec:
  replicas: 2
  selector: {matchLabels: {app: bare}}
  template:
    metadata: {labels: {app: bare}}
    spec: {schedulerName: volcano, containers: [{name: main, image: none}]}
"#;
    cluster.kubectl_with_input(["create", "-f", "-"], manifest).ok();
    let job = cluster.wait_for_phase("f-t", "Completed");
    let by = &job["metadata"]["annotations"]["pumice.sh/user"];
    assert_eq!(by, "pumice:administrator", "the controllers' service account is trusted to say so: {job}");
    eventually("the flow has succeeded", || {
        let flow = cluster.get("jobflows.flow.volcano.sh", "f").ok_or("no flow")?;
        if flow["status"]["state"]["phase"] == "Succeed" { Ok(()) } else { Err(flow.to_string()) }
    });
    eventually("a job of the schedule completes", || {
        let jobs = cluster.list("jobs.batch.volcano.sh");
        let done = |job: &Value| {
            let name = job["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with("tick-") && job["status"]["state"]["phase"] == "Completed"
        };
        if jobs.iter().any(done) { Ok(()) } else { Err(format!("{} jobs", jobs.len())) }
    });
    eventually("the pods of others run", || {
        let running =
            cluster.kubectl(["get", "pods", "-l", "app=bare", "-o", "jsonpath={.items[*].status.phase}"]).ok();
        if running == "Running Running" { Ok(()) } else { Err(running) }
    });
    for process in
        cluster.processes().filter(|process| ["scheduler", "controllers", "admission"].contains(&process.name()))
    {
        let log = process.log();
        assert!(
            !log.contains("forbidden") && !log.contains("cannot "),
            "{}: rights are missing\n{log}",
            process.name()
        );
    }
}

/// Volcano's flags for its certificate: files, which somebody else replaces.
#[test]
fn admission_shows_a_certificate_of_files() {
    let mut cluster = RealKube::new();
    cluster.install();
    let directory = cluster.scratch().to_owned();
    let (certificate, key, authority) = cluster.certificate_files(&directory.join("webhook"));
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let flags =
        [flag("tls-cert-file", &certificate), flag("tls-private-key-file", &key), flag("ca-cert-file", &authority)];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    cluster.start_admission(&flags);
    let secret = cluster.kubectl(["get", "secret", "pumice-admission", "-n", NAMESPACE]);
    assert!(secret.stderr.contains("NotFound"), "none of its own is made: {secret:?}");
    // Another certificate of the same authority.
    let before = std::fs::read(&certificate).expect("a certificate");
    cluster.certificate_files(&directory.join("webhook"));
    assert_ne!(std::fs::read(&certificate).expect("a certificate"), before);
    eventually("the other one is shown", || {
        let log = cluster.processes().find(|process| process.name() == "admission").map(pumice_testkit::Process::log);
        let log = log.unwrap_or_default();
        if log.contains("another certificate is shown") { Ok(()) } else { Err(log) }
    });
    let queue = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {weight: 1}\n";
    cluster.kubectl_with_input(["create", "-f", "-"], queue).ok();
}
