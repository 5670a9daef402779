//! What became of jobs, asked of real platforms: after the jobs are gone, across crashes, and while the database is away.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use pumice_testkit::{Platform, Postgres, Process, Setup, binary, eventually};
use serde_json::Value;

/// Crashes of one test.
const CRASHES: u64 = 6;
/// What `jobctl` ends with while the database is not open.
const UNREACHABLE: i32 = 5;

/// `jobctl history ARGS -o json`.
fn history(platform: &Platform, args: &[&str]) -> Value {
    let text = platform.jobctl([&["history"], args, &["-o", "json"]].concat()).ok();
    serde_json::from_str(&text).unwrap()
}

/// Waits until the history has jobs by these names, each once and in its phase, and no others.
fn has(platform: &Platform, wanted: &BTreeMap<String, &str>) -> Vec<Value> {
    let listed = eventually("the history has each job once", || {
        let told = platform.jobctl(["history", "-o", "json"]);
        if told.code == UNREACHABLE {
            return Err(told.stderr);
        }
        let listed: Value = serde_json::from_str(&told.ok()).unwrap();
        let items = listed["items"].as_array().unwrap().clone();
        let mut found: Vec<(&str, &str)> = items
            .iter()
            .map(|job| (job["metadata"]["name"].as_str().unwrap(), job["phase"].as_str().unwrap()))
            .collect();
        found.sort_unstable();
        let wanted: Vec<(&str, &str)> = wanted.iter().map(|(name, phase)| (name.as_str(), *phase)).collect();
        if found == wanted { Ok(items) } else { Err(format!("{found:?}, wanted {wanted:?}")) }
    });
    for name in wanted.keys() {
        let job = history(platform, &[name]);
        let attempts = job["attempts"].as_array().unwrap();
        let seen: Vec<_> = attempts.iter().map(|one| (one["phase"].as_str().unwrap(), &one["exitCode"])).collect();
        assert_eq!(seen, [("Succeeded", &0.into())], "{job:#}");
        assert_eq!(job["tasks"][0]["succeeded"], 1, "{job:#}");
    }
    listed
}

#[test]
fn what_became_of_jobs_is_told_when_they_are_gone() {
    let platform = Platform::new();
    platform.jobctl(["run", "--name", "good", "--", "true"]).ok();
    assert_eq!(platform.jobctl(["run", "--name", "bad-1", "--", "sh", "-c", "exit 7"]).code, 7);
    platform.jobctl(["submit", "--name", "big", "--cpu", "1000", "--", "true"]).ok();
    platform.wait_for_phase("big", "Pending");
    eventually("the reason to wait is in the history", || {
        let waits = history(&platform, &["big"])["waits"].clone();
        if waits[0]["class"] == "NotEnoughResources" { Ok(()) } else { Err(waits.to_string()) }
    });
    for job in ["good", "bad-1", "big"] {
        platform.kubectl(["delete", "jobs.batch.volcano.sh", job]).ok();
    }
    let phases = || -> BTreeMap<String, String> {
        let items = history(&platform, &[])["items"].as_array().unwrap().clone();
        let gone = items.iter().filter(|job| job["gone"].is_string());
        gone.map(|job| (job["metadata"]["name"].as_str().unwrap().into(), job["phase"].as_str().unwrap().into()))
            .collect()
    };
    let wanted = [("bad-1", "Failed"), ("big", "Deleted"), ("good", "Completed")];
    let wanted: BTreeMap<String, String> = wanted.map(|(name, phase)| (name.into(), phase.into())).into();
    eventually("all are gone", || if phases() == wanted { Ok(()) } else { Err(format!("{:?}", phases())) });

    let job = history(&platform, &["bad-1"]);
    assert_eq!((&job["attempts"][0]["exitCode"], &job["user"]), (&7.into(), &"pumice:administrator".into()), "{job:#}");
    assert!(job["started"].is_string() && job["ended"].is_string() && job["ranMs"].is_i64(), "{job:#}");
    let last = platform.jobctl(["history", "last"]).ok();
    assert!(last.contains("job big of pumice:administrator in namespace default, queue default: Deleted"), "{last}");
    assert!(last.contains("\nwaited for\n") && last.contains("NotEnoughResources"), "{last}");
    let table = platform.jobctl(["history", "--state", "failed,completed"]).ok();
    assert!(table.starts_with("NAME") && table.contains("good") && !table.contains("big"), "{table}");
    assert_eq!(platform.jobctl(["history", "b*", "-o", "name"]).ok(), "job/big\njob/bad-1\n");
    let csv = platform.jobctl(["history", "--since", "1h", "--queue", "default", "-o", "csv"]).ok();
    assert!(csv.starts_with("namespace,name,uid,") && csv.lines().count() == 4, "{csv}");
    let sums = history(&platform, &["--group-by", "phase"]);
    let sums: BTreeMap<&str, i64> = sums["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| (group["key"].as_str().unwrap(), group["jobs"].as_i64().unwrap()))
        .collect();
    assert_eq!(sums, BTreeMap::from([("Completed", 1), ("Deleted", 1), ("Failed", 1)]));
    let file = platform.scratch().join("jobs.parquet");
    platform.jobctl(["history", "-o", "parquet", "--file", file.to_str().unwrap()]).ok();
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let again = platform.jobctl(["history", "-o", "csv", "--file", file.to_str().unwrap()]);
    assert!(again.code != 0 && std::fs::read(&file).unwrap() == bytes, "nothing is overwritten: {again:?}");
    let none = platform.jobctl(["history", "never"]);
    assert_eq!((none.code, none.stderr.contains("no job never of namespace default")), (3, true), "{none:?}");
    let wrong = platform.kubectl(["get", "--raw", "/apis/history.pumice.sh/v1alpha1/jobs?since=x"]);
    assert!(wrong.stderr.contains("want a time"), "{wrong:?}");
}

#[test]
fn who_may_read_a_namespaces_jobs_may_read_their_history_and_no_others() {
    let platform = Platform::new();
    platform.jobctl(["run", "--name", "here", "--", "true"]).ok();
    let ann = platform.kubeconfig_without_rights("ann");
    let ask = |args: &[&str]| platform.jobctl([&["history", "--kubeconfig", ann.to_str().unwrap()], args].concat());
    assert_eq!(ask(&["-n", "default"]).code, 4);
    platform.kubectl(["create", "rolebinding", "ann", "--clusterrole=view", "--user=ann"]).ok();
    eventually("she may", || {
        let told = ask(&["-n", "default"]);
        if told.code == 0 && told.stdout.contains("here") { Ok(()) } else { Err(format!("{told:?}")) }
    });
    assert!(ask(&["here", "-n", "default"]).ok().contains("job here"));
    assert_eq!(ask(&["-A"]).code, 4);
    assert_eq!(ask(&["-n", "kube-system"]).code, 4);
}

// INV-29
#[test]
fn a_database_that_cannot_be_opened_keeps_nobody_from_working() {
    let mut platform = Platform::new();
    let status = |platform: &Platform| platform.run(&binary("pumice"), ["status"], None);
    assert_eq!(platform.stop(), 0);
    let file = platform.data_dir().join("history.db");
    std::fs::rename(&file, platform.scratch().join("aside")).unwrap();
    std::fs::create_dir(&file).unwrap();
    platform.up();
    platform.jobctl(["run", "--name", "anyway", "--", "true"]).ok();
    eventually("the status says why", || {
        let told = status(&platform);
        assert_eq!(told.code, 0, "work goes on: {told:?}");
        if told.stdout.contains("history          the history's database") { Ok(()) } else { Err(format!("{told:?}")) }
    });
    let refused = platform.jobctl(["history"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(refused.stderr.contains("there is no history: the history's database"), "{refused:?}");
    assert!(platform.log().contains("there is no history: jobs run on without one"));
    std::fs::remove_dir(&file).unwrap();
    has(&platform, &BTreeMap::from([("anyway".to_owned(), "Completed")]));
    assert!(status(&platform).stdout.contains("history          ok"));

    let secret = platform.run(
        &binary("pumice"),
        ["up", "--history-database-url", "postgres://me:secret@h/d", "--data-dir", "elsewhere"],
        None,
    );
    assert!(
        secret.code != 0 && secret.stderr.contains("$PGPASSWORD") && !secret.stderr.contains("secret"),
        "{secret:?}"
    );
}

#[test]
fn without_a_history_that_is_said() {
    let platform = Platform::start(Setup { flags: vec!["--history=false".into()] });
    let refused = platform.jobctl(["history"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("answers no questions about its history"), "{refused:?}");
    assert!(!platform.data_dir().join("history.db").exists());
}

/// Kills the platform again and again while jobs run, some of which are deleted a moment before.
fn crashes(flags: Vec<String>, seed: u64) {
    let mut platform = Platform::start(Setup { flags });
    let mut wanted = BTreeMap::new();
    let mut draw = seed;
    for round in 0..CRASHES {
        for n in 0..2 {
            let name = format!("stays-{round}-{n}");
            platform.jobctl(["submit", "--name", &name, "--", "sleep", "0.2"]).ok();
            wanted.insert(name, "Completed");
        }
        let name = format!("goes-{round}");
        platform.jobctl(["run", "--name", &name, "--", "true"]).ok();
        platform.kubectl(["delete", "jobs.batch.volcano.sh", &name, "--wait=false"]).ok();
        wanted.insert(name, "Completed");
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The time of the crash, not a wait for something.
        std::thread::sleep(Duration::from_millis((draw >> 33) % 300));
        platform.crash();
        platform.up();
    }
    for job in has(&platform, &wanted) {
        let goes = job["metadata"]["name"].as_str().unwrap().starts_with("goes");
        assert_eq!(job["gone"].is_string(), goes, "{job:#}");
    }
}

// INV-28
#[test]
fn crashes_leave_no_gaps_and_no_doubles_in_a_file() {
    crashes(vec![], 7);
}

// INV-28
#[test]
fn crashes_leave_no_gaps_and_no_doubles_in_postgres() {
    let postgres = Postgres::start();
    crashes(vec![format!("--history-database-url={}", postgres.url())], 11);
}

// INV-29
#[test]
fn a_postgres_that_goes_away_for_a_while_misses_nothing() {
    let mut postgres = Postgres::start();
    let platform = Platform::start(Setup { flags: vec![format!("--history-database-url={}", postgres.url())] });
    platform.jobctl(["run", "--name", "before", "--", "true"]).ok();
    has(&platform, &BTreeMap::from([("before".to_owned(), "Completed")]));
    postgres.while_down(|| {
        for name in ["stays", "goes"] {
            platform.jobctl(["run", "--name", name, "--", "true"]).ok();
        }
        platform.kubectl(["delete", "jobs.batch.volcano.sh", "goes", "before"]).ok();
        eventually("the status says so", || {
            let told = platform.run(&binary("pumice"), ["status"], None);
            assert_eq!(told.code, 0, "work goes on: {told:?}");
            if told.stdout.contains("history          it could not be written") {
                Ok(())
            } else {
                Err(format!("{told:?}"))
            }
        });
        assert_eq!(platform.jobctl(["history"]).code, 5);
    });
    let wanted = ["before", "stays", "goes"].map(|name| (name.to_owned(), "Completed"));
    for job in has(&platform, &wanted.into()) {
        assert_eq!(job["gone"].is_string(), job["metadata"]["name"] != "stays", "{job:#}");
    }
}

/// As on a cluster: its own process, its own rights and no others, a Lease, and questions from the API server alone.
#[test]
fn by_itself_it_keeps_the_history_and_answers_the_api_server_alone() {
    let platform = Platform::start(Setup { flags: vec!["--history=false".into()] });
    platform.kubectl(["create", "namespace", "volcano-system"]).ok();
    let own = platform.kubeconfig_without_rights("system:pumice:history");
    let (certificate, key, authority) = platform.certificate_files(platform.scratch());
    let file = platform.scratch().join("own-history.db");
    let mut command = Command::new(binary("pumice"));
    command.args(["history", "run", "--secure-port=0", "--requestheader-allowed-names=front-proxy"]);
    for (flag, path) in [
        ("--kubeconfig", &own),
        ("--history-file", &file),
        ("--tls-cert-file", &certificate),
        ("--tls-private-key-file", &key),
        ("--requestheader-client-ca-file", &authority),
    ] {
        command.arg(flag).arg(path);
    }
    let mut process = Process::start("history", &mut command, platform.scratch());
    let port = eventually("it says where it answers", || {
        assert_eq!(process.ended(), None, "{}", process.tail());
        let log = process.log();
        let line = log.lines().find(|line| line.contains("questions to the history are answered"));
        let port = line.and_then(|line| line.split("address=0.0.0.0:").nth(1)?.split_whitespace().next());
        port.map(str::to_owned).ok_or_else(|| process.tail())
    });
    let ask = |user: &str, path: &str| {
        let kubeconfig = platform.kubeconfig_without_rights(user);
        let server = format!("--server=https://127.0.0.1:{port}");
        platform.kubectl(["get", "--raw", path, "--kubeconfig", kubeconfig.to_str().unwrap(), &server])
    };
    platform.jobctl(["run", "--name", "job", "--", "true"]).ok();
    let path = "/apis/history.pumice.sh/v1alpha1/namespaces/default/jobs/job";
    eventually("the job is in the history", || {
        let told = ask("front-proxy", path);
        let job: Value = serde_json::from_str(&told.stdout).map_err(|_| format!("{told:?}"))?;
        if job["phase"] == "Completed" { Ok(()) } else { Err(job.to_string()) }
    });
    let group = ask("front-proxy", "/apis/history.pumice.sh/v1alpha1").ok();
    assert!(group.contains("APIResourceList") && group.contains("JobHistory"), "{group}");
    let refused = ask("somebody", path);
    assert!(refused.code != 0 && refused.stderr.contains("only the API server"), "{refused:?}");
    let lease = platform.kubectl(["get", "lease", "pumice-history", "-n", "volcano-system"]);
    assert_eq!(lease.code, 0, "{lease:?}");
    assert_eq!(process.stop(), 0, "{}", process.tail());
}

/// Only the history still knows how long jobs of that name run when the scheduler begins anew.
#[test]
fn what_the_scheduler_learned_survives_a_restart() {
    let mut platform = Platform::start(Setup { flags: vec!["--cpu=2".into()] });
    platform.jobctl(["run", "--name", "train-1", "--cpu", "2", "--", "sleep", "15"]).ok();
    platform.kubectl(["delete", "jobs.batch.volcano.sh", "train-1"]).ok();
    eventually("it is gone", || {
        let job = history(&platform, &["train-1"]);
        let pods = platform.list("pods").len();
        if job["gone"].is_string() && pods == 0 { Ok(()) } else { Err(format!("{pods} pods, {job:#}")) }
    });
    assert_eq!(platform.stop(), 0);
    platform.up();
    platform.jobctl(["submit", "--name", "train-2", "--cpu", "2", "--", "sleep", "1000"]).ok();
    platform.wait_for_phase("train-2", "Running");
    platform.jobctl(["submit", "--name", "waits", "--cpu", "2", "--", "true"]).ok();
    eventually("its start is expected when a job such as train-1 ends", || {
        let path = "/apis/why.pumice.sh/v1alpha1/namespaces/default/jobs/waits";
        let why: Value = serde_json::from_str(&platform.kubectl(["get", "--raw", path]).stdout).unwrap_or_default();
        if why["expected"]["at"].is_string() { Ok(()) } else { Err(why.to_string()) }
    });
}
