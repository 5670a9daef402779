//! Jobs that are watched: what they are made of, what whoever watches sees of them, and what each status owes to the one before.
//!
//! Invariant: no status is missed, so every step from one to the next is a step that the machine has taken. Each of the jobs has
//! a task `t` of one pod, which things happen to, and a task `w` of two. Used by the cases about phases.

use std::collections::BTreeMap;

use pumice_testkit::{Clients, Process};
use serde_json::Value;

/// Pods of each job.
pub(super) const PODS: i64 = 3;

/// One line for each state of a Job. Of the whole object most would be its spec, which is read thousands of times.
const LINE: &str = r#"jsonpath={.metadata.name} {.spec.maxRetry} {.status}{"\n"}"#;

/// A manifest of a job, one of several in a file. `spec` is what it has beside its tasks.
pub(super) fn manifest(name: &str, annotations: &str, spec: &[&str], tasks: [Task<'_>; 2]) -> String {
    let spec = spec.join("\n  ");
    let tasks = tasks.map(|task| task.manifest()).concat();
    format!(
        "---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec:
  schedulerName: volcano
  {spec}
  tasks:{tasks}
"
    )
}

/// A task of such a job: what it has beside its template, and its pods' labels, annotations, and what else their spec has.
#[derive(Default)]
pub(super) struct Task<'a> {
    pub name: &'a str,
    pub replicas: u32,
    pub more: &'a [&'a str],
    pub labels: &'a str,
    pub annotations: &'a [&'a str],
    pub pod: &'a str,
}

impl Task<'_> {
    fn manifest(&self) -> String {
        let Self { name, replicas, labels, pod, .. } = self;
        let more = self.more.join("\n    ");
        let annotations: Vec<&str> = self.annotations.iter().filter(|one| !one.is_empty()).copied().collect();
        format!(
            "
  - name: {name}
    replicas: {replicas}
    {more}
    template:
      metadata: {{labels: {{{labels}}}, annotations: {{{}}}}}
      spec: {{{pod}restartPolicy: Never, containers: [{{name: main, image: none, command: [none], resources: {{requests: {{cpu: 10m}}}}}}]}}",
            annotations.join(", ")
        )
    }
}

/// The statuses of each job in the order in which they were seen, no two in a row alike.
pub(super) type Seen = BTreeMap<String, Vec<Value>>;

/// A watch of all Jobs of the namespace.
pub(super) struct JobWatch {
    process: Process,
    /// Bytes of its log that were read.
    read: usize,
    seen: Seen,
}

impl JobWatch {
    pub fn start(clients: &Clients) -> Self {
        let mut command = clients.command(clients.kubectl_program());
        command.args(["get", "jobs.batch.volcano.sh", "--watch", "--output", LINE]);
        let process = Process::start("watch-of-jobs", &mut command, clients.scratch());
        Self { process, read: 0, seen: Seen::new() }
    }

    /// All that was seen until now.
    ///
    /// # Panics
    /// When a status can't follow the one before it.
    pub fn seen(&mut self) -> &Seen {
        let log = self.process.log();
        let news = log[self.read..].rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in news.lines() {
            let mut parts = line.splitn(3, ' ');
            let (name, retries) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let max_retry = retries.parse().unwrap_or_else(|_| panic!("the watch says {line}"));
            let status = parts.next().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
            let before = self.seen.entry(name.to_owned()).or_default();
            let last = before.last().unwrap_or(&Value::Null);
            if *last == status {
                continue;
            }
            if let Err(fault) = follows(last, &status, max_retry) {
                panic!("{name}: {fault}\nbefore: {last}\nafter:  {status}");
            }
            before.push(status);
        }
        self.read += if news.is_empty() { 0 } else { news.len() + 1 };
        &self.seen
    }
}

pub(super) fn phase(status: &Value) -> &str {
    status["state"]["phase"].as_str().unwrap_or_default()
}

pub(super) fn phases(statuses: &[Value]) -> Vec<&str> {
    statuses.iter().map(phase).collect()
}

pub(super) fn count(status: &Value, name: &str) -> i64 {
    status[name].as_i64().unwrap_or(0)
}

fn sum(status: &Value, names: &[&str]) -> i64 {
    names.iter().map(|name| count(status, name)).sum()
}

/// Pods that run, or may.
pub(super) fn live(status: &Value) -> i64 {
    sum(status, &["pending", "running", "unknown"])
}

/// Pods that have ended and stay.
pub(super) fn ended(status: &Value) -> i64 {
    sum(status, &["succeeded", "failed"])
}

/// What is wrong with a status after another one.
fn follows(before: &Value, after: &Value, max_retry: i64) -> Result<(), String> {
    let (from, to) = (phase(before), phase(after));
    if from != to && !leads_to(from, to) {
        return Err(format!("no phase is seen between {from} and {to}"));
    }
    let reason = after["state"]["reason"].as_str().unwrap_or_default();
    let (versions, retries) = match (to, reason) {
        _ if from == to => (0, 0),
        ("Restarting", "RestartJob") => (1, 1),
        ("Restarting", "ResumeJob") => (1, 0),
        ("Restarting", _) => (0, 1),
        ("Aborting" | "Terminating" | "Completing", _) => (1, 0),
        _ => (0, 0),
    };
    for (name, step) in [("version", versions), ("retryCount", retries)] {
        if count(after, name) - count(before, name) != step {
            return Err(format!("{name} should grow by {step}"));
        }
    }
    // The last restart is none: the job fails, and until then nothing goes.
    let is_last = to == "Restarting" && count(after, "retryCount") >= max_retry;
    let takes_all = match to {
        "Restarting" => matches!(reason, "RestartJob" | "ResumeJob") && !is_last,
        _ => !matches!(to, "" | "Pending" | "Running"),
    };
    if takes_all && live(after) != 0 {
        return Err(format!("pods still run in {to}"));
    }
    let is_over = matches!(to, "Aborted" | "Terminated") || (from, to) == ("Completing", "Completed");
    if is_over && count(after, "terminating") != 0 {
        return Err(format!("pods still go in {to}"));
    }
    let begins = to == "Running" && from != to;
    if begins && count(after, "running") + ended(after) < count(after, "minAvailable") {
        return Err("too few pods have started".to_owned());
    }
    if live(after) + ended(after) + count(after, "terminating") > PODS {
        return Err("a pod is counted twice".to_owned());
    }
    let condition = after["conditions"].as_array().and_then(|all| all.last()).map(|last| &last["status"]);
    if condition.is_some_and(|status| status != to) {
        return Err(format!("the last condition is not {to}"));
    }
    tasks_agree(after)
}

/// Whether the next phase may be the other one; one that is passed on the way is written, too.
fn leads_to(from: &str, to: &str) -> bool {
    let kills = matches!(to, "Restarting" | "Aborting" | "Terminating" | "Completing");
    match from {
        "" => true,
        "Pending" => kills || matches!(to, "Running" | "Completed" | "Failed"),
        "Running" => kills || matches!(to, "Pending" | "Completed" | "Failed"),
        "Restarting" => kills || matches!(to, "Pending" | "Failed"),
        "Aborting" => matches!(to, "Aborted" | "Restarting" | "Terminating"),
        "Aborted" => matches!(to, "Restarting" | "Terminating"),
        "Terminating" => to == "Terminated",
        "Completing" => to == "Completed",
        _ => false,
    }
}

/// The counts of the job are those of its tasks.
fn tasks_agree(status: &Value) -> Result<(), String> {
    for (word, name) in
        [("Pending", "pending"), ("Running", "running"), ("Succeeded", "succeeded"), ("Failed", "failed")]
    {
        let tasks = status["taskStatusCount"].as_object();
        let of_tasks: i64 = tasks.into_iter().flatten().map(|(_, task)| count(&task["phase"], word)).sum();
        if of_tasks != count(status, name) {
            return Err(format!("{of_tasks} pods of the tasks are {word}"));
        }
    }
    Ok(())
}
