//! Records that a pod can't compute, from where they are submitted into the pod: `--dry-run` writes the bundle and prints the
//! job; a pod is the job's own variables.

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
    let front = ["submit", "--dry-run", "-o", "json", "--image", "any", "--bundle-dir", "bundles"];
    let args = [&front, flags, &["--", "true"]].concat();
    let output = jobctl(folder.path(), &args, &BTreeMap::new());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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
