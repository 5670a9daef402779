//! Admission as a process of its own: its certificate, and what happens while it is away.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pumice_testkit::{RealKube, eventually};
use serde_json::Value;

const REGISTRATIONS: [&str; 2] = ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"];
const SECRET: [&str; 5] = ["get", "secret", "pumice-admission", "-n", "volcano-system"];

fn job(name: &str) -> String {
    format!(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  tasks:\n  - replicas: 1\n    \
         template: {{spec: {{containers: [{{name: main, image: none}}]}}}}\n"
    )
}

/// A control plane with definitions and admission, and nothing else of ours.
fn with_admission(flags: &[&str]) -> RealKube {
    let mut cluster = RealKube::new();
    cluster.install();
    let queue =
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: default}\nspec: {weight: 1}\n";
    cluster.kubectl_with_input(["create", "-f", "-"], queue).ok();
    cluster.start_admission(flags);
    cluster
}

/// What of the Secret tells one certificate from another.
fn certificate(cluster: &RealKube) -> String {
    let text = cluster.kubectl(SECRET.iter().chain(&["-o", "jsonpath={.data.tls\\.crt}"])).ok();
    assert!(!text.is_empty());
    text
}

/// Not one request fails while the certificate and its authority are replaced again and again, with two instances that want
/// to replace it. The API server asks the first; the second was killed on its way.
#[test]
fn the_certificate_is_replaced_under_load() {
    let mut cluster = with_admission(&["--certificate-every", "5s", "--certificate-settle", "3s"]);
    let second: Vec<String> = cluster.args_of("admission");
    let port = second.iter().position(|arg| arg == "--port").expect("a port");
    let second: Vec<&str> = second.iter().enumerate().map(|(at, arg)| if at == port + 1 { "0" } else { arg }).collect();
    cluster.start_component("second", "system:pumice:admission", &second);
    cluster.crash_and_restart("second");
    let is_over = AtomicBool::new(false);
    let (sent, mut seen) = (AtomicUsize::new(0), vec![certificate(&cluster)]);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..2)
            .map(|sender| {
                let (cluster, is_over, sent) = (&cluster, &is_over, &sent);
                scope.spawn(move || {
                    let mut failures = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        // Many requests of one process, a dry run so that nothing piles up.
                        let jobs: Vec<String> = (0..20).map(|index| job(&format!("j-{sender}-{index}"))).collect();
                        let args = ["create", "--dry-run=server", "-f", "-"];
                        let output = cluster.kubectl_with_input(args, &jobs.join("---\n"));
                        sent.fetch_add(output.stdout.lines().count(), Ordering::Relaxed);
                        failures.extend((output.code != 0).then_some(output.stderr));
                    }
                    failures
                })
            })
            .collect();
        eventually("there were four certificates", || {
            let now = certificate(&cluster);
            if seen.last() != Some(&now) {
                seen.push(now);
            }
            if seen.len() >= 4 { Ok(()) } else { Err(format!("{}", seen.len())) }
        });
        is_over.store(true, Ordering::Relaxed);
        senders.into_iter().flat_map(|sender| sender.join().expect("a sender")).collect()
    });
    println!("{} creates, {} certificates, {} failures", sent.into_inner(), seen.len(), failures.len());
    assert_eq!(failures, Vec::<String>::new());
}

/// While nobody answers, what is ours waits, and what is others' goes on; it comes back with the same certificate.
#[test]
fn while_it_is_away_only_our_kinds_wait() {
    let mut cluster = with_admission(&[]);
    cluster.kubectl_with_input(["create", "-f", "-"], &job("before")).ok();
    let first = certificate(&cluster);
    let flags: Vec<String> = cluster.args_of("admission");
    cluster.stop_component("admission");
    let output = cluster.kubectl_with_input(["create", "-f", "-"], &job("meanwhile"));
    assert!(output.stderr.contains("failed calling webhook \"mutatejob.volcano.sh\""), "{output:?}");
    // A pod with a budget would be sent.
    let pod = |scheduler: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{generateName: p-, annotations: {{volcano.sh/jdb-min-available: \"200%\"}}}}\n\
             spec: {{schedulerName: {scheduler}, containers: [{{name: main, image: none}}]}}\n"
        )
    };
    for scheduler in ["volcano", "default-scheduler"] {
        cluster.kubectl_with_input(["create", "-f", "-"], &pod(scheduler)).ok();
    }
    // What is there can be labelled, and go.
    cluster.kubectl(["label", "jobs.batch.volcano.sh", "before", "any=thing"]).ok();
    cluster.kubectl(["delete", "jobs.batch.volcano.sh", "before"]).ok();
    let inside = ["create", "-n", "kube-system", "-f", "-"];
    cluster.kubectl_with_input(inside, &job("system")).ok();

    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    cluster.start_component("admission", "system:pumice:admission", &flags);
    eventually("jobs are taken again", || {
        let output = cluster.kubectl_with_input(["create", "-f", "-"], &job("after"));
        if output.code == 0 { Ok(()) } else { Err(output.stderr) }
    });
    assert_eq!(certificate(&cluster), first);
}

/// Taken away, or damaged, both come back.
#[test]
fn what_it_keeps_is_made_again() {
    let cluster = with_admission(&[]);
    let bundle = |kind: &str| {
        let found = cluster.get(kind, "pumice-admission")?;
        let hooks = found["webhooks"].as_array()?;
        let bundles: Vec<&Value> = hooks.iter().map(|hook| &hook["clientConfig"]["caBundle"]).collect();
        assert!(bundles.windows(2).all(|two| two[0] == two[1]), "{found}");
        bundles[0].as_str().map(str::to_owned)
    };
    let first = REGISTRATIONS.map(bundle);
    assert!(first.iter().all(Option::is_some), "{first:?}");
    cluster.kubectl(["delete", REGISTRATIONS[0], "pumice-admission"]).ok();
    let nobody = r#"[{"op": "remove", "path": "/webhooks/0"}]"#;
    cluster.kubectl(["patch", REGISTRATIONS[1], "pumice-admission", "--type=json", "-p", nobody]).ok();
    let hooks =
        |kind: &str| cluster.get(kind, "pumice-admission").and_then(|all| Some(all["webhooks"].as_array()?.len()));
    for (kind, wanted) in [(REGISTRATIONS[0], 7), (REGISTRATIONS[1], 7)] {
        eventually(&format!("{kind} is whole again"), || match hooks(kind) {
            Some(count) if count == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    // Another certificate, and the API server is told whom to trust.
    let (old, patch) = (certificate(&cluster), r#"{"data": {"tls.key": null}}"#);
    cluster.kubectl(["patch", "secret", "pumice-admission", "-n", "volcano-system", "--type=merge", "-p", patch]).ok();
    eventually("there is another certificate", || match certificate(&cluster) {
        now if now != old => Ok(()),
        _ => Err(String::new()),
    });
    eventually("jobs are taken", || {
        let output = cluster.kubectl_with_input(["create", "--dry-run=server", "-f", "-"], &job("any"));
        if output.code == 0 { Ok(()) } else { Err(output.stderr) }
    });
    assert_ne!(REGISTRATIONS.map(bundle), first);
}

/// No admission of ours at all: the API server judges by itself.
#[test]
fn policies_stand_in_for_webhooks() {
    let mut cluster = RealKube::new();
    cluster.install();
    let policies = cluster.run(&pumice_testkit::binary("pumice"), ["admission", "policies"], None).ok();
    cluster.kubectl_with_input(["create", "-f", "-"], &policies).ok();
    let refusal =
        |manifest: &str| cluster.kubectl_with_input(["create", "--dry-run=server", "-f", "-"], manifest).stderr;
    let filled = |manifest: &str| {
        let args = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        serde_json::from_str::<Value>(&cluster.kubectl_with_input(args, manifest).ok()).expect("JSON")
    };
    let pod = |annotations: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{{annotations}}}}}\n\
             spec: {{schedulerName: volcano, containers: [{{name: main, image: none}}]}}\n"
        )
    };
    let queue = |name: &str, spec: &str| {
        format!("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {spec}\n")
    };
    let flow = |flows: &str| {
        format!(
            "apiVersion: flow.volcano.sh/v1alpha1\nkind: JobFlow\nmetadata: {{name: f}}\nspec: {{flows: {flows}}}\n"
        )
    };
    let with = |from: &str, to: &str| job("bad").replace(from, to);
    // New policies take a moment to be looked at, each its own.
    for (manifest, words) in [
        (pod(r#"volcano.sh/jdb-min-available: "100%""#), "invalid value <\"100%\"> for volcano.sh/jdb-min-available"),
        (
            pod(r#"volcano.sh/jdb-min-available: "1", volcano.sh/jdb-max-unavailable: "1""#),
            "not allow configure multiple annotations",
        ),
        (with("spec:\n  tasks", "spec:\n  minAvailable: 2\n  tasks"), "should not be greater than total replicas"),
        (
            with("replicas: 1", "replicas: 1\n    minAvailable: 2"),
            "'minAvailable' is greater than 'replicas' in task: default0",
        ),
        (with("spec:\n  tasks", "spec:\n  queue: root\n  tasks"), "can not submit job to root queue"),
        (with("spec:\n  tasks", "spec:\n  plugins: {wings: []}\n  tasks"), "unable to find job plugin: wings"),
        (
            with(
                "spec:\n  tasks",
                "spec:\n  policies: [{event: PodFailed, action: AbortJob}, {events: [PodFailed], action: RestartJob}]\n  tasks",
            ),
            "duplicate event across different policy",
        ),
        (
            with("spec:\n  tasks", "spec:\n  policies: [{exitCode: 0, action: AbortJob}]\n  tasks"),
            "0 is not a valid error code",
        ),
        (queue("q", "{guarantee: {resource: {cpu: 3}}, deserved: {cpu: 2500m}}"), "must be >= guarantee"),
        (queue("q", "{capability: {memory: 1Gi}, deserved: {memory: 1025Mi}}"), "must be <= capability"),
        (queue("q", "{parent: q}"), "cannot use itself as parent"),
        (flow("[{name: a, dependsOn: {targets: [b]}}]"), "vertex is not defined"),
    ] {
        eventually(words, || match refusal(&manifest) {
            told if told.contains(words) => Ok(()),
            told => Err(told),
        });
    }
    // Good ones pass, and are filled in.
    let filled_job = filled(&with("spec:\n  tasks", "spec:\n  plugins: {mpi: []}\n  tasks").replace("bad", "good"));
    let spec = &filled_job["spec"];
    assert_eq!((&spec["queue"], &spec["schedulerName"]), (&"default".into(), &"volcano".into()), "{filled_job}");
    assert_eq!((&spec["minAvailable"], &spec["maxRetry"]), (&1.into(), &3.into()), "{filled_job}");
    assert_eq!((&spec["tasks"][0]["name"], &spec["tasks"][0]["minAvailable"]), (&"default0".into(), &1.into()));
    assert!(spec["plugins"].get("svc").is_some() && spec["plugins"].get("ssh").is_some(), "{filled_job}");
    assert_eq!(filled_job["metadata"]["annotations"]["pumice.sh/user"], "pumice:administrator", "{filled_job}");
    let gated =
        filled(&pod(r#"scheduling.volcano.sh/queue-allocation-gate: "true", volcano.sh/jdb-max-unavailable: "20%""#));
    assert_eq!(gated["spec"]["schedulingGates"][0]["name"], "scheduling.volcano.sh/queue-allocation-gate", "{gated}");
    let filled_queue =
        filled(&queue("q", "{capability: {cpu: 4}, deserved: {cpu: 3}, guarantee: {resource: {cpu: 2500m}}}"));
    assert_eq!((&filled_queue["spec"]["weight"], &filled_queue["spec"]["reclaimable"]), (&1.into(), &true.into()));
    filled(&flow("[{name: a}, {name: b, dependsOn: {targets: [a]}}]"));
    let annotated = ["annotate", "namespace", "default", "scheduling.volcano.sh/queue-name=team"];
    cluster.kubectl(annotated).ok();
    let group =
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 1}\n";
    eventually("groups go to the queue of their namespace", || match filled(group)["spec"]["queue"].as_str() {
        Some("team") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // What is there can grow, and not become another one.
    cluster.kubectl_with_input(["create", "-f", "-"], &job("there")).ok();
    let change = |patch: &str| cluster.kubectl(["patch", "jobs.batch.volcano.sh", "there", "--type=json", "-p", patch]);
    let replace = |path: &str, value: &str| format!(r#"[{{"op": "replace", "path": "{path}", "value": {value}}}]"#);
    change(&replace("/spec/tasks/0/replicas", "3")).ok();
    let output = change(&replace("/spec/maxRetry", "9"));
    assert!(output.stderr.contains("job updates may not change fields other than"), "{output:?}");
    let output = change(&replace("/metadata/annotations/pumice.sh~1user", "\"bob\""));
    assert!(output.stderr.contains("is written by the platform"), "{output:?}");
    cluster.kubectl_with_input(["create", "-f", "-"], &queue("default", "{weight: 1}")).ok();
    let output = cluster.kubectl(["delete", "queue", "default"]);
    assert!(output.stderr.contains("`default` queue can not be deleted"), "{output:?}");
}
