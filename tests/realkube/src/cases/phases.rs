//! What whoever watches a Job sees of it, whatever policy acts.

use std::collections::BTreeMap;
use std::time::Duration;

use pumice_testkit::{Clients, Process, eventually_within};
use serde_json::Value;

use super::create;

/// What happens to the one pod of the task `t`: the event, and the pod's annotations that bring it about by themselves.
const EVENTS: [(&str, &str); 7] = [
    ("PodFailed", "pumice.sh/simulated-duration: 3s, pumice.sh/simulated-exit-code: \"3\""),
    ("exitCode", "pumice.sh/simulated-duration: 3s, pumice.sh/simulated-exit-code: \"3\""),
    ("*", "pumice.sh/simulated-duration: 3s, pumice.sh/simulated-exit-code: \"3\""),
    ("OOMKilled", "pumice.sh/simulated-duration: 3s, pumice.sh/simulated-oom: \"true\""),
    ("TaskCompleted", "pumice.sh/simulated-duration: 3s"),
    ("PodEvicted", ""),
    ("JobUpdated", ""),
];

/// The action, the phase that it leads through, and the one where it ends, if it ends the job.
const ACTIONS: [(&str, &str, Option<&str>); 6] = [
    ("AbortJob", "Aborting", Some("Aborted")),
    ("TerminateJob", "Terminating", Some("Terminated")),
    ("CompleteJob", "Completing", Some("Completed")),
    ("RestartJob", "Restarting", None),
    ("RestartTask", "Restarting", None),
    ("RestartPod", "Restarting", None),
];

/// Many jobs at once take their time on a busy machine.
const WITHIN: Duration = Duration::from_secs(240);

struct Case {
    name: String,
    event: &'static str,
    action: &'static str,
    through: &'static str,
    end: Option<&'static str>,
    manifest: String,
}

/// Events by actions, as policies of the job and of the task, with pods that are gone at once when they are deleted, and such as take
/// two seconds.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, (event, annotations)) in EVENTS.into_iter().enumerate() {
        for (action, through, end) in ACTIONS {
            // Of no single task: such an action would restart nothing.
            let whole = event == "JobUpdated";
            if whole && matches!(action, "RestartTask" | "RestartPod") {
                continue;
            }
            for (of_task, slow) in [(false, false), (false, true), (true, false), (true, true)] {
                if whole && of_task {
                    continue;
                }
                let name = format!("p{number}-{}-{}{}", action.to_lowercase(), u8::from(of_task), u8::from(slow));
                let rule = if event == "exitCode" { "exitCode: 3".to_owned() } else { format!("event: \"{event}\"") };
                let policies = format!("policies: [{{{rule}, action: {action}}}]");
                let (of_job, of_task) = if of_task { (String::new(), policies) } else { (policies, String::new()) };
                let stop = if slow { "pumice.sh/simulated-stop-duration: 2s" } else { "" };
                let comma = if slow && !annotations.is_empty() { ", " } else { "" };
                let task = |task: &str, replicas: u32, more: &str, annotations: &str| {
                    format!(
                        "
  - name: {task}
    replicas: {replicas}
    {more}
    template:
      metadata: {{labels: {{event: e{number}, task: {task}}}, annotations: {{{annotations}}}}}
      spec: {{restartPolicy: Never, containers: [{{name: main, image: none, command: [none], resources: {{requests: {{cpu: 10m}}}}}}]}}"
                    )
                };
                let acted_on = task("t", 1, &of_task, &format!("{annotations}{comma}{stop}"));
                let rest = task("w", 2, "", stop);
                let manifest = format!(
                    "---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}, labels: {{event: e{number}}}}}
spec:
  schedulerName: volcano
  minAvailable: 3
  maxRetry: 3
  {of_job}
  tasks:{acted_on}{rest}
"
                );
                cases.push(Case { name, event, action, through, end, manifest });
            }
        }
    }
    cases
}

/// The statuses of each job in the order in which they were seen.
fn seen(watch: &Process) -> BTreeMap<String, Vec<Value>> {
    let log = watch.log();
    let mut seen: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for job in serde_json::Deserializer::from_str(&log).into_iter::<Value>().map_while(Result::ok) {
        let name = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        seen.entry(name).or_default().push(job["status"].clone());
    }
    seen
}

fn phase(status: &Value) -> &str {
    status["state"]["phase"].as_str().unwrap_or_default()
}

fn count(status: &Value, name: &str) -> i64 {
    status[name].as_i64().unwrap_or(0)
}

/// What is wrong with what was seen of a job so far.
fn fault(case: &Case, statuses: &[Value]) -> Result<(), String> {
    let place = |wanted: &str| statuses.iter().position(|status| phase(status) == wanted);
    let phases = || statuses.iter().map(phase).collect::<Vec<_>>();
    // On a busy machine the one pod may have ended before the others were seen to run.
    let running = place("Running").unwrap_or(0);
    let through = place(case.through).ok_or_else(|| format!("no {}: {:?}", case.through, phases()))?;
    if through < running {
        return Err(format!("{} before Running", case.through));
    }
    let status = &statuses[through];
    // What ends the whole job, or starts it over, takes the two pods of the other task along.
    let takes_all = !matches!(case.action, "RestartTask" | "RestartPod");
    let left = count(status, "pending") + count(status, "running");
    if takes_all && (left != 0 || count(status, "terminating") < 2) {
        return Err(format!("{} is told with {status}", case.through));
    }
    if !takes_all && count(status, "running") + count(status, "pending") < 2 {
        return Err(format!("{} is told with {status}", case.through));
    }
    let Some(end) = case.end else { return Ok(()) };
    let end_at = place(end).ok_or_else(|| format!("no {end}: {:?}", phases()))?;
    let last = &statuses[end_at];
    let unfinished = ["pending", "running"].iter().map(|name| count(last, name)).sum::<i64>();
    if end_at < through || unfinished != 0 { Err(format!("{end} is told with {last}")) } else { Ok(()) }
}

/// Each event by each action, at both levels.
pub fn each_phase_is_told_with_its_counts(clients: &Clients) {
    let mut command = clients.command(clients.kubectl_program());
    command.args(["get", "jobs.batch.volcano.sh", "--watch", "--output", "json"]);
    let watch = Process::start("phases", &mut command, clients.scratch());
    let cases = cases();
    let manifests: Vec<&str> = cases.iter().map(|case| case.manifest.as_str()).collect();
    create(clients, &manifests.concat());
    let of = |event: &str| cases.iter().filter(|case| case.event == event).collect::<Vec<_>>();
    let has_run = |seen: &BTreeMap<String, Vec<Value>>, case: &Case| {
        seen.get(&case.name).is_some_and(|statuses| statuses.iter().any(|status| phase(status) == "Running"))
    };
    for (event, number) in [("PodEvicted", 5), ("JobUpdated", 6)] {
        eventually_within(WITHIN, &format!("the jobs for {event} run"), || {
            let seen = seen(&watch);
            let waiting = of(event).into_iter().find(|case| !has_run(&seen, case));
            waiting.map_or(Ok(()), |case| Err(format!("{}: {:?}", case.name, seen.get(&case.name))))
        });
        if event == "PodEvicted" {
            let selector = format!("event=e{number},task=t");
            clients.kubectl(["delete", "pods", "--wait=false", "-l", &selector]).ok();
        } else {
            for case in of(event) {
                let patch = r#"{"spec": {"ttlSecondsAfterFinished": 3600}}"#;
                clients.kubectl(["patch", "jobs.batch.volcano.sh", &case.name, "--type=merge", "-p", patch]).ok();
            }
        }
    }
    eventually_within(WITHIN, "each job has been told of as it is", || {
        let seen = seen(&watch);
        let nothing = Vec::new();
        let of_case = |case: &Case| {
            let found = fault(case, seen.get(&case.name).unwrap_or(&nothing));
            found.map_err(|fault| format!("{} by {}: {fault}", case.name, case.event))
        };
        cases.iter().try_for_each(of_case)
    });
}
