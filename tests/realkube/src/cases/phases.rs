//! What whoever watches a Job sees of it, whatever policy acts.

use std::time::Duration;

use pumice_testkit::{Clients, eventually_within};
use serde_json::Value;

use super::create;
use super::job_watch::{JobWatch, PODS, Seen, Task, count, ended, live, manifest, phase, phases};

/// How an event comes to the one pod of the task `t`.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// The pod ends by itself as these annotations say.
    Itself(&'static str),
    /// No node takes it. It is made when the others run, so that it alone is Pending for long.
    NoNode,
    Deletion,
    /// Its node is no longer for it, and somebody deletes it: a part of the group runs and the rest has no room.
    Displacement,
    /// Its container was started again. Simulated nodes never do that, so its status is written for them.
    Restarts,
    /// The Job is changed.
    Change,
}

impl By {
    /// Whether the event is about the job as a whole. The policies of its tasks are not asked then, and an action on a task or
    /// a pod would have none.
    fn is_of_the_job(self) -> bool {
        matches!(self, By::Displacement | By::Change)
    }

    /// Whether nobody has to do anything for it.
    fn is_of_itself(self) -> bool {
        matches!(self, By::Itself(_) | By::NoNode)
    }

    /// What the pod's task and its template's spec have for it.
    fn spec(self) -> (&'static str, &'static str) {
        match self {
            By::NoNode => ("dependsOn: {name: [w]}\n    minAvailable: 0", "nodeSelector: {phases: nowhere}, "),
            By::Displacement => ("", "nodeSelector: {phases: here}, "),
            _ => ("", ""),
        }
    }
}

const FAILS: By = By::Itself("pumice.sh/simulated-duration: 1s, pumice.sh/simulated-exit-code: \"3\"");

/// The events that a policy may name, exit codes among them. The others of the definition, PodRunning, OutOfSync and
/// CommandIssued, are internal: admission refuses them.
const EVENTS: [(&str, By); 10] = [
    ("Unknown", By::Displacement),
    ("PodFailed", FAILS),
    ("exitCode", FAILS),
    ("*", FAILS),
    ("OOMKilled", By::Itself("pumice.sh/simulated-duration: 1s, pumice.sh/simulated-oom: \"true\"")),
    ("TaskCompleted", By::Itself("pumice.sh/simulated-duration: 1s")),
    ("PodPending", By::NoNode),
    ("PodEvicted", By::Deletion),
    ("TaskFailed", By::Restarts),
    ("JobUpdated", By::Change),
];

/// The action, the phase that it leads through, and the one where it ends, if it ends the job. Of what a policy may ask for,
/// ResumeJob and ScaleUpMemory are missing: the one does nothing to a job whose events are looked at, which is never one that
/// was aborted, and the other leaves the job in its phase.
const ACTIONS: [(&str, &str, Option<&str>); 7] = [
    ("AbortJob", "Aborting", Some("Aborted")),
    ("TerminateJob", "Terminating", Some("Terminated")),
    ("CompleteJob", "Completing", Some("Completed")),
    ("RestartJob", "Restarting", None),
    ("RestartTask", "Restarting", None),
    ("RestartPod", "Restarting", None),
    ("RestartPartition", "Restarting", None),
];

fn is_of_pods(action: &str) -> bool {
    matches!(action, "RestartTask" | "RestartPod" | "RestartPartition")
}

/// Many jobs at once take their time on a busy machine.
const WITHIN: Duration = Duration::from_secs(240);

struct Case {
    name: String,
    /// Its place among [`EVENTS`].
    event: usize,
    action: &'static str,
    through: &'static str,
    end: Option<&'static str>,
    /// Whether the policy is the task's.
    of_task: bool,
    /// Whether its pods take five seconds to go; otherwise they are gone at once.
    slow: bool,
}

/// Events by actions, as policies of the job and of the task, with both kinds of pods.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (event, (_, by)) in EVENTS.into_iter().enumerate() {
        for (action, through, end) in ACTIONS {
            for (of_task, slow) in [(false, false), (false, true), (true, false), (true, true)] {
                if !by.is_of_the_job() || !of_task && !is_of_pods(action) {
                    let name = format!("p{event}-{}-{}{}", action.to_lowercase(), u8::from(of_task), u8::from(slow));
                    cases.push(Case { name, event, action, through, end, of_task, slow });
                }
            }
        }
    }
    cases
}

impl Case {
    fn manifest(&self) -> String {
        let (word, by) = EVENTS[self.event];
        let rule = match word {
            "exitCode" => "exitCode: 3".to_owned(),
            "PodPending" => "event: PodPending, timeout: 1s".to_owned(),
            word => format!("event: \"{word}\""),
        };
        let policies = format!("policies: [{{{rule}, action: {}}}]", self.action);
        let (of_job, of_task) = if self.of_task { ("", policies.as_str()) } else { (policies.as_str(), "") };
        let (with_task, with_pod) = by.spec();
        let partitions = match self.action {
            "RestartPartition" => "partitionPolicy: {totalPartitions: 1, partitionSize: 1}",
            _ => "",
        };
        // Before they run, these are Pending, too: their own rule comes before that of the job, and never has its time.
        let others = match by {
            By::NoNode => "policies: [{event: PodPending, action: AbortJob, timeout: 1h}]",
            _ => "",
        };
        let own = if let By::Itself(annotations) = by { annotations } else { "" };
        let stop = if self.slow { "pumice.sh/simulated-stop-duration: 5s" } else { "" };
        let minimum = format!("minAvailable: {}", if by == By::NoNode { PODS - 1 } else { PODS });
        let t = Task {
            name: "t",
            replicas: 1,
            more: &[of_task, partitions, with_task],
            labels: &format!("phases: e{}", self.event),
            annotations: &[own, stop],
            pod: with_pod,
        };
        let w = Task { name: "w", replicas: 2, more: &[others], annotations: &[stop], ..Task::default() };
        manifest(&self.name, "", &[&minimum, "maxRetry: 2", of_job], [t, w])
    }

    /// The statuses that were seen of it.
    fn of<'a>(&self, seen: &'a Seen) -> &'a [Value] {
        seen.get(&self.name).map_or(&[], Vec::as_slice)
    }

    /// The first of them in a phase.
    fn first<'a>(&self, wanted: &str, seen: &'a Seen) -> Result<&'a Value, String> {
        let statuses = self.of(seen);
        let missing = || format!("{} by {}: no {wanted}: {:?}", self.name, EVENTS[self.event].0, phases(statuses));
        statuses.iter().find(|status| phase(status) == wanted).ok_or_else(missing)
    }

    /// Whether the phase was seen that the action leads through.
    ///
    /// # Panics
    /// When its counts are not those of that moment.
    fn is_told(&self, seen: &Seen) -> Result<(), String> {
        let status = self.first(self.through, seen)?;
        // What ends the whole job, or starts it over, takes the two pods of the other task along; else they run on. The one
        // that it is about goes with them, unless it has gone already, or has ended and the job with it.
        let terminating = count(status, "terminating");
        let gone = i64::from(matches!(EVENTS[self.event].1, By::Deletion | By::Displacement));
        let is_right = match (is_of_pods(self.action), self.end) {
            (true, _) => live(status) == 2 && ended(status) == 0 && terminating >= 1 - gone,
            (false, None) => live(status) == 0 && terminating >= PODS - gone,
            (false, Some(_)) => live(status) == 0 && terminating >= 2 && terminating + ended(status) >= PODS - gone,
        };
        assert!(is_right, "{}: {} is told with {status}", self.name, self.through);
        Ok(())
    }
}

/// Brings an event about, if its jobs don't by themselves, and waits until each was told of.
fn bring_about(clients: &Clients, watch: &mut JobWatch, event: usize, cases: &[Case]) {
    let (word, by) = EVENTS[event];
    let of_event = || cases.iter().filter(move |case| case.event == event);
    if !by.is_of_itself() {
        eventually_within(WITHIN, &format!("the jobs for {word} run"), || {
            let seen = watch.seen();
            of_event().try_for_each(|case| case.first("Running", seen).map(drop))
        });
    }
    let selector = format!("phases=e{event}");
    let delete = ["delete", "pods", "--wait=false", "--field-selector=status.phase=Running", "-l", &selector];
    match by {
        By::Itself(_) | By::NoNode => {}
        By::Deletion => drop(clients.kubectl(delete).ok()),
        By::Displacement => drop(clients.kubectl(["label", "nodes", "--all", "phases-"]).ok()),
        By::Change => {
            let patch = r#"{"spec": {"ttlSecondsAfterFinished": 3600}}"#;
            let names = of_event().map(|case| case.name.as_str());
            let words = ["patch", "jobs.batch.volcano.sh", "--type=merge", "-p", patch].into_iter().chain(names);
            clients.kubectl(words).ok();
        }
        By::Restarts => {
            let patch = r#"[{"op": "replace", "path": "/status/containerStatuses/0/restartCount", "value": 3}]"#;
            let pods: Vec<String> = of_event().map(|case| format!("{}-t-0", case.name)).collect();
            let words = ["patch", "pods", "--subresource=status", "--type=json", "-p", patch];
            clients.kubectl(words.into_iter().chain(pods.iter().map(String::as_str))).ok();
        }
    }
    eventually_within(WITHIN, &format!("each job has been told of as it is by {word}"), || {
        if by == By::Displacement {
            // A scheduler that has not heard of the nodes yet has put some there once more.
            clients.kubectl(delete).ok();
        }
        let seen = watch.seen();
        of_event().try_for_each(|case| case.is_told(seen))
    });
}

/// Each event by each action, at both levels. The jobs of one event come when those of the last but one have been told of: all
/// together would be much for one control plane.
pub fn each_phase_is_told_with_its_counts(clients: &Clients) {
    clients.kubectl(["label", "nodes", "--all", "phases=here"]).ok();
    let mut watch = JobWatch::start(clients);
    let cases = cases();
    for event in 0..=EVENTS.len() {
        let manifests: Vec<String> = cases.iter().filter(|case| case.event == event).map(Case::manifest).collect();
        if !manifests.is_empty() {
            create(clients, &manifests.concat());
        }
        if let Some(before) = event.checked_sub(1) {
            bring_about(clients, &mut watch, before, &cases);
        }
    }
    eventually_within(WITHIN, "each job that ends has ended", || {
        let seen = watch.seen();
        let mut ends = cases.iter().filter_map(|case| Some((case, case.end?)));
        ends.try_for_each(|(case, end)| case.first(end, seen).map(drop))
    });
}
