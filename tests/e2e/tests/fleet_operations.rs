//! Operating a fleet: its metrics, `pumice fleet doctor`, and what a running server takes in anew.
#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use pumice_testkit::{Output, Process, binary, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A fleet of one process.
struct Fleet {
    folder: TempDir,
    process: Process,
    url: String,
}

impl Fleet {
    fn up(args: &[&str], config: &str) -> Fleet {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.yaml");
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new(binary("pumice"));
        command.arg("fleet").args(args).args(["--port", "0", "--data-dir"]).arg(folder.path().join("data"));
        command.arg("--config").arg(&path);
        let process = Process::start("fleet", &mut command, folder.path());
        let mut fleet = Fleet { folder, process, url: String::new() };
        fleet.url = eventually("the fleet is up", || {
            let log = fleet.process.log();
            let line = log.lines().find_map(|line| line.strip_prefix("the fleet is up at "));
            line.and_then(|line| line.split(' ').next()).map(str::to_owned).ok_or_else(|| fleet.process.tail())
        });
        fleet
    }

    fn administrator(&self) -> PathBuf {
        self.folder.path().join("data/administrator.pem")
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("fleet.yaml")
    }

    fn pumice(&self, args: &[&str]) -> Output {
        run(Command::new(binary("pumice")).args(args))
    }

    fn doctor(&self, args: &[&str]) -> Output {
        let mut command = Command::new(binary("pumice"));
        command.args(["fleet", "doctor", "--server", &self.url]).args(args);
        if !args.contains(&"--identity") {
            command.arg("--identity").arg(self.administrator());
        }
        run(&mut command)
    }

    /// The status and the body of an answer over plain HTTP.
    fn curl(&self, path: &str, args: &[&str]) -> (String, String) {
        let authority = self.folder.path().join("authority.pem");
        let shown = std::fs::read_to_string(self.administrator()).unwrap();
        let last = shown.rfind("-----BEGIN CERTIFICATE-----").unwrap();
        std::fs::write(&authority, &shown[last..]).unwrap();
        let mut command = Command::new("curl");
        command.args(["-sS", "--noproxy", "*", "-w", "\n%{http_code}", "--cacert"]).arg(authority).args(args);
        let said = run(command.arg(format!("{}{path}", self.url))).ok();
        let (body, code) = said.rsplit_once('\n').unwrap();
        (code.to_owned(), body.to_owned())
    }

    /// The page of metrics, to the administrator.
    fn metrics(&self) -> String {
        let identity = self.administrator();
        let (code, page) = self.curl("/metrics", &["--cert", identity.to_str().unwrap()]);
        assert_eq!(code, "200", "{page}");
        page
    }
}

fn run(command: &mut Command) -> Output {
    let done = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Output { code: done.status.code().unwrap_or(-1), stdout: text(&done.stdout), stderr: text(&done.stderr) }
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
    let fleet = Fleet::up(&["up", "--clusters", "1", "--nodes", "2"], "{}");
    let report = eventually("the doctor is content", || {
        let said = fleet.doctor(&["--json"]);
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
    let text = fleet.doctor(&[]).ok();
    assert!(text.contains("administrator of pumice:administrators") && text.ends_with('\n'), "{text}");

    let page = fleet.metrics();
    assert_eq!(pumice_metrics::lint(&page), Vec::<String>::new());
    insta::assert_snapshot!(heads(&page));
    assert!(
        page.contains("armada_cluster_capacity{cluster=\"cluster-1\",pool=\"default\",resourceType=\"nodes\"} 2\n")
    );
    assert_eq!(fleet.curl("/metrics", &[]).0, "401", "strangers are told nothing");
    assert_eq!(fleet.curl("/pumice/fleet/standing", &[]).0, "401");

    // Nobody there.
    let mut command = Command::new(binary("pumice"));
    command.args(["fleet", "doctor", "--server", "https://127.0.0.1:1", "--identity"]).arg(fleet.administrator());
    let away = run(&mut command);
    assert_eq!(away.code, 3, "{away:?}");
    assert!(away.stdout.contains("FAILED  server") && away.stdout.contains("nobody answers there"), "{away:?}");
}

#[test]
fn an_executors_side_is_looked_at_with_its_identity() {
    let platform = pumice_testkit::Platform::new();
    let fleet = Fleet::up(&["server"], "{}");
    let data = fleet.folder.path().join("data");
    let identity = fleet.folder.path().join("east.pem");
    let east = fleet.pumice(&["fleet", "identity", "--executor", "east", "--data-dir", data.to_str().unwrap()]).ok();
    std::fs::write(&identity, east).unwrap();
    let identity = identity.to_str().unwrap();
    let kubeconfig = platform.kubeconfig_of("administrator");
    let args = ["--json", "--identity", identity, "--kubeconfig", kubeconfig.to_str().unwrap()];
    let said = fleet.doctor(&args);
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
    let said = fleet.doctor(&args);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(check(&report, "priority classes")["level"], "ok", "{report:#}");
    assert_eq!(check(&report, "executor east")["level"], "warning", "it has not come: {report:#}");
    assert_eq!(said.code, 0, "{said:?}");

    let stranger = platform.kubeconfig_without_rights("stranger");
    let args = ["--json", "--identity", identity, "--kubeconfig", stranger.to_str().unwrap()];
    let report: Value = serde_json::from_str(&fleet.doctor(&args).stdout).unwrap();
    let rights = check(&report, "rights");
    assert_eq!(rights["level"], "failed", "{report:#}");
    assert!(rights["do"].as_str().unwrap().contains("pumice roles executor"), "{rights}");
}

#[test]
fn a_configuration_that_changes_counts_at_once_and_one_that_is_wrong_does_not() {
    let token = |fleet: &Fleet, secret: &str| {
        let path = fleet.folder.path().join("secret");
        std::fs::write(&path, secret).unwrap();
        let input = std::fs::File::open(path).unwrap();
        run(Command::new(binary("pumice")).args(["fleet", "hash", "--token"]).stdin(input)).ok().trim().to_owned()
    };
    let fleet = Fleet::up(&["server"], "{}");
    let ask = |secret: &str| fleet.curl("/v1/queue/none", &["-H", &format!("Authorization: Bearer {secret}")]).0;
    let write = |users: Value| {
        // As editors and Kubernetes do: a new file takes the old one's name.
        let next = fleet.folder.path().join("fleet.yaml.next");
        std::fs::write(&next, json!({ "auth": { "users": users } }).to_string()).unwrap();
        std::fs::rename(next, fleet.config()).unwrap();
    };
    let (one, two) = (token(&fleet, "first-secret"), token(&fleet, "second-secret"));
    assert_eq!(ask("first-secret"), "401");
    write(json!([{ "name": "one", "token": one }]));
    eventually("the first is known", || {
        (ask("first-secret") == "404").then_some(()).ok_or_else(|| fleet.process.tail())
    });
    write(json!([{ "name": "two", "token": "no hash" }]));
    eventually("the mistake is said", || {
        let said = fleet.process.log().contains("what it said before counts");
        said.then_some(()).ok_or_else(|| fleet.process.tail())
    });
    assert_eq!(ask("first-secret"), "404", "it counts as before");
    write(json!([{ "name": "two", "token": two }]));
    eventually("the second is known", || {
        (ask("second-secret") == "404").then_some(()).ok_or_else(|| fleet.process.tail())
    });
    assert_eq!(ask("first-secret"), "401");

    // A signal makes a certificate anew; those who trusted the first one trust it.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(fleet.process.pid()), nix::sys::signal::Signal::SIGHUP).unwrap();
    eventually("it has another certificate", || {
        let said = fleet.process.log().contains("a new certificate");
        said.then_some(()).ok_or_else(|| fleet.process.tail())
    });
    assert_eq!(ask("second-secret"), "404");
}
