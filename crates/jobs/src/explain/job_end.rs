//! How and why a job ended, in sentences: what its own state says, how its pods failed, and for whom they were evicted.
//!
//! Invariant: what is said is what the objects and events say; where they can't be asked, less is said and nothing fails.
//! Called by `jobctl get`, `why` and `run`.

use pumice_api::batch::Job;
use pumice_api::bus::Action;
use pumice_api::names;

use crate::error::Error;
use crate::job::pod::place_in;
use crate::job::{Counts, JobRef, PodFailure, end_of, pod_failures};
use crate::lookup::events::{self, Wanted};
use crate::lookup::pods;
use crate::platform::connection::Connection;

/// What Volcano's controllers, and ours, write of an action: with what it reacted to after a colon, if a policy took it.
const ACTION: &str = "Start to execute action ";

/// What there is to say of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndReport {
    /// Why it is in its phase, by its own state.
    pub because: Option<String>,
    /// The containers that failed, the first one first.
    pub failures: Vec<PodFailure>,
    /// Pods that were evicted, and for whom; the oldest first.
    pub evictions: Vec<String>,
}

/// Asks for all of it.
pub async fn fetch(connection: &Connection, job: &JobRef, state: &Job) -> Result<EndReport, Error> {
    let failures = failures(state, pod_failures(&pods::failed_pods(connection, job).await?));
    Ok(EndReport { because: because(state), failures, evictions: evictions(connection, job, state).await })
}

/// Failures with the memory that the job asked for, where their pods don't say it.
pub fn failures(state: &Job, mut failures: Vec<PodFailure>) -> Vec<PodFailure> {
    let name = state.metadata.name.as_deref().unwrap_or_default();
    for failure in failures.iter_mut().filter(|failure| failure.memory.is_none()) {
        let task = place_in(name, &failure.pod).map(|(task, _)| task);
        let spec = state.spec.tasks.iter().find(|spec| Some(spec.name.as_str()) == task);
        let container = |one: &k8s_openapi::api::core::v1::Container| one.name == failure.container;
        let containers = spec.and_then(|spec| spec.template.spec.as_ref()).map(|spec| &spec.containers);
        let limits =
            containers.and_then(|all| all.iter().find(|one| container(one))?.resources.as_ref()?.limits.as_ref());
        failure.memory = limits.and_then(|limits| limits.get("memory")).map(|memory| memory.0.clone());
    }
    failures
}

/// Pods of the job that were evicted. A fleet tells no events, and who may not read them learns nothing of them.
pub async fn evictions(connection: &Connection, job: &JobRef, state: &Job) -> Vec<String> {
    if connection.is_fleet() {
        return Vec::new();
    }
    let group = names::pod_group_name(&job.name, state.metadata.uid.as_deref().unwrap_or_default());
    let found = events::of_reason(
        connection,
        Wanted { namespace: &job.namespace, kind: "PodGroup", name: &group, reason: "Evict" },
    )
    .await;
    found.unwrap_or_default().iter().map(|event| eviction(&job.name, &event.message)).collect()
}

/// An eviction, as the scheduler writes it down: with the pod in front, or by Volcano without.
fn eviction(job: &str, message: &str) -> String {
    match message.split_once(": ") {
        Some((pod, receipt)) if place_in(job, pod).is_some() => format!("pod {pod} was evicted: {receipt}"),
        _ => format!("a pod was evicted: {message}"),
    }
}

/// Why a job that has ended, or is suspended, has or is: what its state says beside its phase.
pub fn because(state: &Job) -> Option<String> {
    end_of(state)?;
    let now = &state.status.state;
    let (reason, message) = (now.reason.as_str(), now.message.as_str());
    if let Some(action) = message.strip_prefix(ACTION) {
        return match action.split_once(": ") {
            Some((action, cause)) => Some(format!("its policy asks for {action} on {cause}")),
            None => action_in_words(action).map(str::to_owned),
        };
    }
    match (reason, message) {
        // That all is well needs no reason.
        ("PodsSucceeded", _) | ("", "") => None,
        // That the only pod did not succeed is told by the pod.
        ("TooFewSuccesses", _) if Counts::of(state).total <= 1 && Counts::of(state).failed > 0 => None,
        (reason, "") => action_in_words(reason).map(str::to_owned).or_else(|| Some(reason.to_owned())),
        (_, message) => Some(message.to_owned()),
    }
}

/// What an action that somebody asked for is called. That a suspended job was suspended is said by its phase.
fn action_in_words(action: &str) -> Option<&'static str> {
    match Action::from(action) {
        Action::TerminateJob => Some("it was cancelled"),
        Action::CompleteJob => Some("it was told to complete"),
        _ => None,
    }
}

impl EndReport {
    /// All of it, at most so many of each kind.
    pub fn lines(&self, job: &str, most: usize) -> Vec<String> {
        let mut lines: Vec<String> = self.because.iter().map(|because| format!("job {job}: {because}")).collect();
        let failures: Vec<String> = self.failures.iter().map(PodFailure::sentence).collect();
        for (of_kind, what) in [(&failures, ""), (&self.evictions, " were evicted")] {
            lines.extend(of_kind.iter().take(most).cloned());
            if of_kind.len() > most {
                lines.push(format!("and {} more{what}", of_kind.len() - most));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(phase: &str, reason: &str, message: &str) -> Job {
        let tasks = json!([{"name": "t", "replicas": 1, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"limits": {"memory": "64Mi"}}}]}}}]);
        serde_json::from_value(json!({
            "metadata": {"name": "j"}, "spec": {"tasks": tasks},
            "status": {"state": {"phase": phase, "reason": reason, "message": message}},
        }))
        .unwrap()
    }

    #[test]
    fn the_state_of_a_job_says_why_it_ended() {
        let policy = "Start to execute action TerminateJob: PodFailed of task t, pod 0, exit code 3";
        for (phase, reason, message, because) in [
            ("Running", "", "anything", None),
            ("Completed", "PodsSucceeded", "1 of 1 pods succeeded, minAvailable is 1", None),
            ("Completed", "MinSuccess", "2 pods succeeded, minSuccess is 2", Some("2 pods succeeded, minSuccess is 2")),
            ("Completed", "CompleteJob", "Start to execute action CompleteJob", Some("it was told to complete")),
            (
                "Failed",
                "DependencyNotMet",
                "waited for job d to succeed, which is Failed",
                Some("waited for job d to succeed, which is Failed"),
            ),
            (
                "Failed",
                "DeadlineExceeded",
                "the job has run for its activeDeadlineSeconds, 5",
                Some("the job has run for its activeDeadlineSeconds, 5"),
            ),
            ("Failed", "Preempted", "", Some("Preempted")),
            ("Terminated", "TerminateJob", "Start to execute action TerminateJob", Some("it was cancelled")),
            ("Terminated", "TerminateJob", "", Some("it was cancelled")),
            (
                "Terminated",
                "TerminateJob",
                policy,
                Some("its policy asks for TerminateJob on PodFailed of task t, pod 0, exit code 3"),
            ),
            ("Aborted", "AbortJob", "Start to execute action AbortJob", None),
            ("Aborted", "Suspended", "suspend is true", Some("suspend is true")),
            ("Failed", "", "", None),
        ] {
            assert_eq!(super::because(&job(phase, reason, message)).as_deref(), because, "{phase} {message}");
        }
    }

    #[test]
    fn that_the_only_pod_failed_is_left_to_the_pod() {
        for (replicas, failed, said) in [(1, 1, false), (2, 1, true), (1, 0, true)] {
            let mut job = job("Failed", "TooFewSuccesses", "too few");
            job.spec.tasks[0].replicas = replicas;
            job.status.failed = failed;
            assert_eq!(because(&job).is_some(), said, "{replicas} {failed}");
        }
    }

    #[test]
    fn who_was_evicted_for_whom_is_said() {
        for (message, sentence) in [
            (
                "j-t-0: preempt for ns/big: more important; 0.1 core-hours lost",
                "pod j-t-0 was evicted: preempt for ns/big: more important; 0.1 core-hours lost",
            ),
            ("preempt", "a pod was evicted: preempt"),
            ("reclaim: others", "a pod was evicted: reclaim: others"),
        ] {
            assert_eq!(eviction("j", message), sentence);
        }
    }

    #[test]
    fn memory_that_a_pod_does_not_say_is_the_jobs() {
        let failed = |memory: serde_json::Value| {
            let pod = serde_json::from_value(json!({
                "metadata": {"name": "j-t-0"},
                "spec": {"containers": [{"name": "c", "resources": {"limits": memory}}]},
                "status": {"phase": "Failed", "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": {"terminated": {"exitCode": 137, "signal": 9, "reason": "OOMKilled"}}}]},
            }));
            failures(&job("Failed", "", ""), pod_failures(&[pod.unwrap()]))[0].sentence()
        };
        assert_eq!(failed(json!({"memory": "128Mi"})), "pod j-t-0 was killed for memory: it had 128 MiB");
        assert_eq!(failed(json!({})), "pod j-t-0 was killed for memory: it had 64 MiB");
    }

    #[test]
    fn many_of_a_kind_are_counted() {
        let report = EndReport {
            because: Some("why".to_owned()),
            failures: Vec::new(),
            evictions: (0..4).map(|at| format!("eviction {at}")).collect(),
        };
        assert_eq!(report.lines("j", 2), ["job j: why", "eviction 0", "eviction 1", "and 2 more were evicted"]);
    }
}
