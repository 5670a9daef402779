//! Scripts of Slurm as people have them, and what `jobctl submit` makes of each: no line refuses one, and each is taken or told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What a script is known to have.
struct Known {
    source: String,
    lines: Vec<String>,
    uses: Vec<String>,
}

fn known() -> Vec<Known> {
    let mut all: Vec<Known> = Vec::new();
    for line in include_str!("scripts.txt").lines() {
        if let Some(source) = line.strip_prefix("= ") {
            all.push(Known { source: source.to_owned(), lines: Vec::new(), uses: Vec::new() });
        } else if let Some(known) = all.last_mut() {
            match line.strip_prefix("uses ") {
                Some(uses) => known.uses = uses.split(' ').map(str::to_owned).collect(),
                None if line.is_empty() => {}
                None => known.lines.push(line.to_owned()),
            }
        }
    }
    all
}

impl Known {
    /// A script of its lines, which uses what it uses.
    fn script(&self) -> String {
        let uses = self
            .uses
            .iter()
            .map(|name| if name.starts_with("SLURM") { format!("echo ${name}") } else { format!("{name} x") });
        let lines = std::iter::once("#!/bin/bash".to_owned()).chain(self.lines.iter().cloned()).chain(uses);
        lines.map(|line| line + "\n").collect()
    }
}

/// The job and what was said.
fn submitted(home: &Path, script: &str) -> (Value, String) {
    std::fs::write(home.join("job.sh"), script).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_jobctl"))
        .args(["submit", "--dry-run", "-o", "json", "job.sh"])
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}\n{script}");
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    (list["items"][0].clone(), said)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What a job asks for, in a line.
fn asked(job: &Value) -> String {
    let task = &job["spec"]["tasks"][0];
    let pod = &task["template"]["spec"];
    let requests = &pod["containers"][0]["resources"]["requests"];
    let parts = [
        ("name", &job["metadata"]["generateName"]),
        ("queue", &job["spec"]["queue"]),
        ("pods", &task["replicas"]),
        ("at a time", &task["template"]["metadata"]["annotations"]["pumice.sh/max-parallel"]),
        ("cpu", &requests["cpu"]),
        ("memory", &requests["memory"]),
        ("gpu", &requests["nvidia.com/gpu"]),
        ("seconds", &pod["activeDeadlineSeconds"]),
        ("grace", &pod["terminationGracePeriodSeconds"]),
    ];
    let said = parts.into_iter().filter(|(_, value)| !value.is_null());
    said.map(|(name, value)| format!("{name} {}", text(value))).collect::<Vec<_>>().join(", ")
}

/// The variables of the pod that the script uses, with their values.
fn set(job: &Value, known: &Known) -> Vec<(String, String)> {
    let env = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let mut set: Vec<(String, String)> = Vec::new();
    for name in &known.uses {
        let variable = env.iter().find(|variable| variable["name"] == name.as_str());
        let value = variable.map(|variable| match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some(path) => format!("<{path}>"),
            None => text(&variable["value"]),
        });
        let of_array = (name == "SLURM_ARRAY_TASK_ID" && task_ids(env)).then(|| "<of each run>".to_owned());
        // What is made up, or is this machine's.
        let value = match name.as_str() {
            "SLURM_JOB_ID" | "SLURM_JOBID" | "SLURM_ARRAY_JOB_ID" => {
                value.map(|value| format!("<{} digits>", value.len().min(9)))
            }
            "SLURM_SUBMIT_DIR" | "SLURM_SUBMIT_HOST" | "SLURM_JOB_USER" => {
                value.map(|_| "<where it was submitted>".to_owned())
            }
            _ => value,
        };
        set.extend(value.or(of_array).map(|value| (name.clone(), value)));
    }
    set
}

fn task_ids(env: &[Value]) -> bool {
    env.iter().any(|variable| variable["name"] == "SLURM_ARRAY_JOB_ID")
}

#[test]
fn real_scripts_are_taken_or_told_line_by_line() {
    let home = tempfile::tempdir().unwrap();
    let all = known();
    assert!(all.len() >= 40, "{}", all.len());
    let mut table = String::new();
    for known in &all {
        let script = known.script();
        let (job, said) = submitted(home.path(), &script);
        let set = set(&job, known);
        for name in &known.uses {
            let is_set = set.iter().any(|(known, _)| known == name);
            let is_told =
                said.lines().any(|line| line.contains(&format!("${name} ")) || line.contains(&format!(": {name} is ")));
            let starts = matches!(name.as_str(), "mpirun" | "mpiexec");
            assert!(is_set || is_told || starts, "{}: {name} is neither there nor told\n{said}", known.source);
        }
        table.push_str(&format!("{}\n  {}\n", known.source, asked(&job)));
        for (name, value) in set {
            table.push_str(&format!("  {name}={value}\n"));
        }
        for line in said.lines() {
            let line = line.strip_prefix("warning: job.sh:").unwrap();
            let (number, text) = line.split_once(": ").unwrap();
            let number: usize = number.parse().unwrap();
            table.push_str(&format!("  {} -- {text}\n", script.lines().nth(number - 1).unwrap()));
        }
        table.push('\n');
    }
    insta::assert_snapshot!(table);
}
