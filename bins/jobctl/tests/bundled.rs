//! Records that a pod can't compute, from where they are submitted into the pod: `--dry-run` prints the job, and submitting it
//! writes the bundle, also where there is no platform; a pod is the job's own variables.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use jiff::civil::{Date, date};
use serde_json::Value;
use tempfile::TempDir;

fn jobctl(folder: &Path, args: &[&str], variables: &BTreeMap<String, String>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobctl"));
    command.args(args).current_dir(folder).env_clear().env("PATH", "/usr/bin:/bin").envs(variables);
    command.output().unwrap()
}

/// Pods, and the variables that all of them have.
fn submitted(folder: &TempDir, flags: &[&str]) -> (u64, BTreeMap<String, String>) {
    let submit = |how: &[&str]| {
        let front = ["submit", "-o", "json", "--image", "any", "--bundle-dir", "bundles", "--kubeconfig", "absent"];
        jobctl(folder.path(), &[&front, how, flags, &["--", "true"]].concat(), &BTreeMap::new())
    };
    let there = folder.path().join("bundles").exists();
    let output = submit(&["--dry-run"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("bundles is not made by --dry-run"), "{told}");
    assert_eq!(folder.path().join("bundles").exists(), there, "a dry run writes nothing");
    let refused = String::from_utf8(submit(&[]).stderr).unwrap();
    assert!(refused.contains("cannot use the kubeconfig absent"), "{refused}");
    let job: Value = serde_json::from_slice(&output.stdout).unwrap();
    let container = &job["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
    let bundles = folder.path().join("bundles");
    assert_eq!(container["volumeMounts"][0]["mountPath"], bundles.to_str().unwrap(), "pods see the folder");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let variables = container["env"].as_array().unwrap();
    let valued = variables.iter().filter(|one| one["valueFrom"].is_null());
    let variables = valued.map(|one| (text(&one["name"]), text(&one["value"]))).collect();
    (job["spec"]["tasks"][0]["replicas"].as_u64().unwrap(), variables)
}

/// What the pods print, one after the other.
fn told(folder: &TempDir, pods: u64, variables: &BTreeMap<String, String>, args: &[&str]) -> String {
    let of_pod = |pod: u64| {
        let mut variables = variables.clone();
        variables.insert("VC_TASK_INDEX".to_owned(), pod.to_string());
        let output = jobctl(folder.path(), args, &variables);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    (0..pods).map(of_pod).collect()
}

#[test]
fn rows_of_a_table_reach_their_pods() {
    let folder = TempDir::new().unwrap();
    let rows: String = (0..10).map(|row| format!("{{\"lr\": 0.{row}, \"name\": \"run {row}\"}}\n")).collect();
    std::fs::write(folder.path().join("grid.jsonl"), rows).unwrap();
    let flags = ["--params", "grid.jsonl", "--key", "name", "--rows-per-task", "4"];
    let (pods, variables) = submitted(&folder, &flags);
    assert_eq!((pods, variables["PUMICE_SHARDS"].as_str()), (3, "v1 chunk=4 bundle=params rows=10 columns=lr,name"));
    let echo = ["shard", "exec", "--", "sh", "-c", "echo $PUMICE_SHARD_INDEX $PUMICE_PARAM_LR $0", "{name}"];
    let all: String = (0..10).map(|row| format!("{row} 0.{row} run {row}\n")).collect();
    assert_eq!(told(&folder, pods, &variables, &echo), all);
    let bundle = |variables: &BTreeMap<String, String>| {
        let (root, run) = variables["PUMICE_BUNDLE"].rsplit_once('/').unwrap();
        (root.to_owned(), run.to_owned())
    };
    let ((root, run), (again, other)) = (bundle(&variables), bundle(&submitted(&folder, &flags).1));
    assert!(root == again && run != other, "the same table is the same bundle, and each job has a run of its own");
}

#[test]
fn a_calendar_that_is_too_long_for_a_rule_travels_too() {
    let folder = TempDir::new().unwrap();
    let all = std::iter::successors(Some(date(1990, 1, 1)), |day| day.tomorrow().ok()).take(20_000);
    // A little over a third of the days, without a pattern that a rule could say in short.
    let days: Vec<Date> =
        (0_u64..).zip(all).filter(|(n, _)| (n * n * 31 + n * 7) % 101 % 11 < 4).map(|(_, day)| day).collect();
    let text: String = days.iter().map(|day| format!("{day}\n")).collect();
    std::fs::write(folder.path().join("days.txt"), &text).unwrap();
    let per_task = (days.len() / 2).to_string();
    let flags = ["--days", "1990-01-01:2050-01-01", "--calendar", "days.txt", "--days-per-task", &per_task];
    let (pods, variables) = submitted(&folder, &flags);
    assert!(variables["PUMICE_SHARDS"].contains("bundle=day"), "{variables:?}");
    assert_eq!(told(&folder, pods, &variables, &["shard", "list"]), text);
    let first = told(&folder, 1, &variables, &["shard", "env"]);
    assert!(first.contains(&format!("export PUMICE_DAY='{}'\n", days[0])), "{first}");
}

/// A kubeconfig of a cluster that nobody is.
const ELSEWHERE: &str = "
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u, namespace: lab}}]
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: none}}]
";

#[test]
fn on_another_cluster_a_bundle_is_in_config_maps() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("kubeconfig"), ELSEWHERE).unwrap();
    std::fs::write(folder.path().join("one.csv"), "a\n1\n").unwrap();
    let printed = |flags: &[&str]| {
        let front = ["submit", "--dry-run", "-o", "json", "--kubeconfig", "kubeconfig"];
        jobctl(folder.path(), &[&front, flags, &["--", "true"]].concat(), &BTreeMap::new())
    };
    for (flags, namespace) in [
        (&["--params", "one.csv"][..], "lab"),
        (&["--array", "0-9"], "lab"),
        (&["--array", "0-9", "-n", "other"], "other"),
        (&["--params", "one.csv", "--no-results"], "lab"),
    ] {
        let output = printed(flags);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && told.contains("is not made by --dry-run"), "{told}");
        let job: Value = serde_json::from_slice(&output.stdout).unwrap();
        let pod = &job["spec"]["tasks"][0]["template"]["spec"];
        let account = pod["serviceAccountName"].as_str().unwrap();
        let variables = pod["containers"][0]["env"].as_array().unwrap();
        let place = variables.iter().find(|one| one["name"] == "PUMICE_BUNDLE").unwrap()["value"].as_str().unwrap();
        assert!(place.starts_with(&format!("objects:{namespace}/{account}#")), "{place}");
        assert_eq!(place.rsplit_once('#').unwrap().1.contains('/'), !flags.contains(&"--no-results"), "{place}");
    }
    let output = printed(&["--array", "0-9", "--no-results"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !text.contains("PUMICE_BUNDLE") && !text.contains("serviceAccount"), "{text}");

    // Results of more pods than the API can hold are left out, as the pods need nothing from there.
    let output = printed(&["--array", "0-10000"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !text.contains("PUMICE_BUNDLE"), "{text}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("results are not recorded") && text.contains("--bundle-dir FOLDER"), "{text}");
    // Rows that are too much for it are refused before anything is sent, and the way out is named.
    let rows: String = (0..=10_000).map(|row| format!("{row}\n")).collect();
    std::fs::write(folder.path().join("many.csv"), format!("a\n{rows}")).unwrap();
    let output = printed(&["--params", "many.csv"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("shards: 10001") && text.contains("next:  jobctl run --bundle-dir FOLDER ..."), "{text}");
    let entries = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(entries, 3, "nothing was written beside the test's own files");
}

#[test]
fn what_is_not_there_is_named() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("one.csv"), "a\n1\n").unwrap();
    let (_, mut variables) = submitted(&folder, &["--params", "one.csv"]);
    variables.insert("VC_TASK_INDEX".to_owned(), "0".to_owned());
    let failed = |variables: &BTreeMap<String, String>| {
        let output = jobctl(folder.path(), &["shard", "key"], variables);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let place = variables.remove("PUMICE_BUNDLE").unwrap();
    assert_eq!(failed(&variables).0, 2);
    variables.insert("PUMICE_BUNDLE".to_owned(), place);
    std::fs::remove_dir_all(folder.path().join("bundles/chunks")).unwrap();
    let (code, text) = failed(&variables);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("chunk") && text.contains("bundles"), "{text}");
    std::fs::remove_dir_all(folder.path().join("bundles")).unwrap();
    let (code, text) = failed(&variables);
    assert!(code == 2 && text.contains("holds no bundles"), "{code}: {text}");
}
