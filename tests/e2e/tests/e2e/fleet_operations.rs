//! Operating a fleet: its metrics, `pumice fleet doctor`, and what a running server takes in anew.

use std::collections::BTreeMap;

use pumice_testkit::{Fleet, Output, binary, eventually};
use serde_json::{Value, json};

/// What the doctor says, to the administrator unless it is told an identity.
fn doctor(fleet: &Fleet, args: &[&str]) -> Output {
    let administrator = fleet.administrator().display().to_string();
    let identity = if args.contains(&"--identity") { vec![] } else { vec!["--identity", &administrator] };
    let all = ["fleet", "doctor", "--server", &fleet.url].into_iter().chain(args.iter().copied()).chain(identity);
    fleet.run(&binary("pumice"), all, None)
}

fn check<'r>(report: &'r Value, name: &str) -> &'r Value {
    let all = report["checks"].as_array().unwrap();
    all.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

/// Names, kinds and help, without what changes.
fn heads(page: &str) -> String {
    let mut heads: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("# ")) {
        let name = line.split(' ').nth(2).unwrap();
        heads.entry(name).or_default().push(line);
    }
    heads.into_values().flatten().map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_fleet_that_does_well_says_so_and_shows_its_numbers() {
    let fleet = Fleet::up(&["--clusters", "1", "--nodes", "2"]);
    let report = eventually("the doctor is content", || {
        let said = doctor(&fleet, &["--json"]);
        let report: Value = serde_json::from_str(&said.stdout).map_err(|_| format!("{said:?}"))?;
        let there =
            report["checks"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "executor cluster-1"));
        if said.code == 0 && there { Ok(report) } else { Err(format!("{report:#}")) }
    });
    for name in
        ["server", "TLS", "clock", "identity", "leader", "database", "log", "executor cluster-1", "pools", "stuck"]
    {
        assert_eq!(check(&report, name)["level"], "ok", "{report:#}");
    }
    let text = doctor(&fleet, &[]).ok();
    assert!(text.contains("administrator of pumice:administrators") && text.ends_with('\n'), "{text}");

    let administrator = fleet.administrator().display().to_string();
    let (code, page) = fleet.curl("/metrics", &["--cert", &administrator]);
    assert_eq!(code, "200", "{page}");
    assert_eq!(pumice_metrics::lint(&page), Vec::<String>::new());
    insta::assert_snapshot!(heads(&page));
    assert!(
        page.contains("armada_cluster_capacity{cluster=\"cluster-1\",pool=\"default\",resourceType=\"nodes\"} 2\n")
    );
    assert_eq!(fleet.curl("/metrics", &[]).0, "401", "strangers are told nothing");
    assert_eq!(fleet.curl("/pumice/fleet/standing", &[]).0, "401");

    // Nobody there.
    let nowhere = ["fleet", "doctor", "--server", "https://127.0.0.1:1", "--identity", &administrator];
    let away = fleet.run(&binary("pumice"), nowhere, None);
    assert_eq!(away.code, 3, "{away:?}");
    assert!(away.stdout.contains("FAILED  server") && away.stdout.contains("nobody answers there"), "{away:?}");
}

#[test]
fn an_executors_side_is_looked_at_with_its_identity() {
    let platform = pumice_testkit::Platform::new();
    let fleet = Fleet::server(&[]);
    let identity = fleet.identity(&["--executor", "east"]);
    let identity = identity.to_str().unwrap();
    let kubeconfig = platform.kubeconfig_of("administrator");
    let args = ["--json", "--identity", identity, "--kubeconfig", kubeconfig.to_str().unwrap()];
    let said = doctor(&fleet, &args);
    let report: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    for name in ["certificate", "server", "TLS", "identity", "protocol", "cluster", "rights"] {
        assert_eq!(check(&report, name)["level"], "ok", "{report:#}");
    }
    // The platform has none of the fleet's priority classes until somebody makes them.
    assert_eq!(check(&report, "priority classes")["level"], "failed", "{report:#}");
    assert_eq!(said.code, 1, "{said:?}");
    for name in ["armada-default", "armada-preemptible", "armada-resilient"] {
        let class = json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": { "name": name }, "value": 1000 });
        platform.kubectl_with_input(["apply", "-f", "-"], &class.to_string()).ok();
    }
    let said = doctor(&fleet, &args);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(check(&report, "priority classes")["level"], "ok", "{report:#}");
    assert_eq!(check(&report, "executor east")["level"], "warning", "it has not come: {report:#}");
    assert_eq!(said.code, 0, "{said:?}");

    let stranger = platform.kubeconfig_without_rights("stranger");
    let args = ["--json", "--identity", identity, "--kubeconfig", stranger.to_str().unwrap()];
    let report: Value = serde_json::from_str(&doctor(&fleet, &args).stdout).unwrap();
    let rights = check(&report, "rights");
    assert_eq!(rights["level"], "failed", "{report:#}");
    assert!(rights["do"].as_str().unwrap().contains("pumice roles executor"), "{rights}");
}

#[test]
fn a_configuration_that_changes_counts_at_once_and_one_that_is_wrong_does_not() {
    let fleet = Fleet::server_with("{}");
    let token =
        |secret: &str| fleet.run(&binary("pumice"), ["fleet", "hash", "--token"], Some(secret)).ok().trim().to_owned();
    let ask = |secret: &str| fleet.curl("/v1/queue/none", &["-H", &format!("Authorization: Bearer {secret}")]).0;
    let write = |users: Value| {
        // As editors and Kubernetes do: a new file takes the old one's name.
        let next = fleet.file("fleet.yaml.next", &json!({ "auth": { "users": users } }).to_string());
        std::fs::rename(next, fleet.config()).unwrap();
    };
    let (one, two) = (token("first-secret"), token("second-secret"));
    assert_eq!(ask("first-secret"), "401");
    write(json!([{ "name": "one", "token": one }]));
    eventually("the first is known", || {
        (ask("first-secret") == "404").then_some(()).ok_or_else(|| fleet.process().tail())
    });
    write(json!([{ "name": "two", "token": "no hash" }]));
    eventually("the mistake is said", || {
        let said = fleet.process().log().contains("what it said before counts");
        said.then_some(()).ok_or_else(|| fleet.process().tail())
    });
    assert_eq!(ask("first-secret"), "404", "it counts as before");
    write(json!([{ "name": "two", "token": two }]));
    eventually("the second is known", || {
        (ask("second-secret") == "404").then_some(()).ok_or_else(|| fleet.process().tail())
    });
    assert_eq!(ask("first-secret"), "401");

    // A signal makes a certificate anew; those who trusted the first one trust it.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(fleet.process().pid()), nix::sys::signal::Signal::SIGHUP)
        .unwrap();
    eventually("it has another certificate", || {
        let said = fleet.process().log().contains("a new certificate");
        said.then_some(()).ok_or_else(|| fleet.process().tail())
    });
    assert_eq!(ask("second-secret"), "404");
}
