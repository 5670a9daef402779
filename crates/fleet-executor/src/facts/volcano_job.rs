//! What the executor reads of Volcano Jobs of Volcano jobs, and of their pods.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use pumice_fleet_model::names::{former_pod_name, pod_name};
use serde_json::Value;

use pumice_ledger::{RunId, TimeMs};

use super::{Kind, PodFacts, PodPhase, at, cut_off_of, is_named};
use crate::labels::{QUEUE_LABEL, RUN_LABEL};

/// What a pod has to end in that does not say it, milliseconds.
const GRACE_SECS: i64 = 30;

impl PodFacts {
    /// The facts of a Job of a run; nothing where it is of none.
    #[must_use]
    pub fn of_job(job: &DynamicObject) -> Option<Self> {
        let metadata = &job.metadata;
        let labels = metadata.labels.as_ref()?;
        let run: RunId = labels.get(RUN_LABEL)?.parse().ok()?;
        let name = metadata.name.clone().filter(|name| is_named(name, run))?;
        let status = &job.data["status"];
        let state = &status["state"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let created = metadata.creation_timestamp.as_ref().map_or(TimeMs(0), at);
        let changed = text(&state["lastTransitionTime"]).parse::<jiff::Timestamp>();
        let deletion = metadata.deletion_timestamp.as_ref().map(|time| at(time).plus(grace_ms(&job.data["spec"])));
        let phase = phase(state["phase"].as_str().unwrap_or_default());
        Some(Self {
            run,
            kind: Kind::Job,
            queue: labels.get(QUEUE_LABEL).cloned().unwrap_or_default(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name,
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            node: String::new(),
            phase,
            cut_off_ms: cut_off_of(metadata),
            since: changed.map_or(created, |time| TimeMs(time.as_millisecond())),
            deletion,
            init_since: None,
            reason: if phase == PodPhase::Failed { word(state) } else { String::new() },
            message: if phase == PodPhase::Failed { message(state, status) } else { String::new() },
            containers: Vec::new(),
        })
    }

    /// The facts of a pod of a Volcano job that failed; nothing of any other pod.
    #[must_use]
    pub fn of_failed_member(pod: &Pod) -> Option<Self> {
        let run: RunId = pod.metadata.labels.as_ref()?.get(RUN_LABEL)?.parse().ok()?;
        let name = pod.metadata.name.as_deref()?;
        let follows = |of: String| name.strip_prefix(&of).is_some_and(|rest| rest.starts_with('-'));
        let is_member = follows(pod_name(run)) || follows(former_pod_name(run));
        let facts = Self::read(pod, run)?;
        (is_member && facts.phase == PodPhase::Failed).then_some(facts)
    }
}

/// Where a run is whose Job is in this phase. One that is being ended is where it was, until it has ended.
fn phase(phase: &str) -> PodPhase {
    match phase {
        "" | "Pending" | "Restarting" => PodPhase::Pending,
        "Running" | "Completing" => PodPhase::Running,
        "Completed" => PodPhase::Succeeded,
        "Failed" | "Aborted" | "Terminated" => PodPhase::Failed,
        _ => PodPhase::Unknown,
    }
}

/// One word on how it failed.
fn word(state: &Value) -> String {
    let said = |field: &str| state[field].as_str().filter(|text| !text.is_empty());
    said("reason").or(said("phase")).unwrap_or_default().to_owned()
}

/// How it failed, for people.
fn message(state: &Value, status: &Value) -> String {
    let said = |field: &str| state[field].as_str().filter(|text| !text.is_empty());
    let how = [said("reason"), said("message")].into_iter().flatten().collect::<Vec<_>>().join(": ");
    let phase = said("phase").unwrap_or_default();
    let mut text = format!("the Volcano Job is {phase}");
    if !how.is_empty() {
        text = format!("{text}: {how}");
    }
    match status["failed"].as_i64().unwrap_or(0) {
        0 => text,
        failed => format!("{text}; pods that failed: {failed}"),
    }
}

/// The longest that a pod of a Job may take to end.
fn grace_ms(spec: &Value) -> i64 {
    let graces = spec["tasks"].as_array().into_iter().flatten().map(|task| {
        let said = task.pointer("/template/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
        said.unwrap_or(GRACE_SECS)
    });
    graces.max().unwrap_or(GRACE_SECS).saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str, change: impl FnOnce(&mut Value)) -> DynamicObject {
        let run = "00000000000000000000000001-2";
        let mut job = json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": { "name": name, "namespace": "n", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { RUN_LABEL: run, QUEUE_LABEL: "q" } },
            "spec": { "tasks": [
                { "template": { "spec": { "terminationGracePeriodSeconds": 90 } } }, { "template": {} }] },
        });
        change(&mut job);
        serde_json::from_value(job).expect("a job")
    }

    const NAME: &str = "armada-00000000000000000000000001-1";
    /// As releases before this one called it.
    const FORMER: &str = "armada-00000000000000000000000001-2";

    #[test]
    fn phases_of_jobs_are_phases_of_runs() {
        for (said, is) in [
            ("", PodPhase::Pending),
            ("Pending", PodPhase::Pending),
            ("Restarting", PodPhase::Pending),
            ("Running", PodPhase::Running),
            ("Completing", PodPhase::Running),
            ("Completed", PodPhase::Succeeded),
            ("Failed", PodPhase::Failed),
            ("Aborted", PodPhase::Failed),
            ("Terminated", PodPhase::Failed),
            ("Aborting", PodPhase::Unknown),
            ("Terminating", PodPhase::Unknown),
            ("of a newer Volcano", PodPhase::Unknown),
        ] {
            let job = job(NAME, |job| job["status"]["state"]["phase"] = json!(said));
            assert_eq!(PodFacts::of_job(&job).expect("facts").phase, is, "{said}");
        }
    }

    #[test]
    fn a_failure_says_how_and_since_when() {
        let facts = PodFacts::of_job(&job(NAME, |job| {
            job["status"] = json!({ "failed": 2, "state": { "phase": "Failed", "reason": "Policy",
                "message": "task worker", "lastTransitionTime": "2026-01-01T00:00:05Z" } });
        }))
        .expect("facts");
        assert_eq!((facts.reason.as_str(), facts.kind, facts.node.as_str()), ("Policy", Kind::Job, ""));
        assert_eq!(facts.message, "the Volcano Job is Failed: Policy: task worker; pods that failed: 2");
        assert_eq!(facts.since.0 - PodFacts::of_job(&job(NAME, |_| {})).expect("facts").since.0, 5_000);
        let bare = job(NAME, |job| job["status"]["state"]["phase"] = json!("Aborted"));
        let bare = PodFacts::of_job(&bare).expect("facts");
        assert_eq!((bare.reason.as_str(), bare.message.as_str()), ("Aborted", "the Volcano Job is Aborted"));
    }

    #[test]
    fn a_job_that_goes_has_the_time_of_its_slowest_pod() {
        let facts = job(NAME, |job| job["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        let facts = PodFacts::of_job(&facts).expect("facts");
        assert_eq!(facts.deletion, Some(facts.since.plus(90_000)));
    }

    #[test]
    fn jobs_and_pods_of_others_are_none() {
        assert_eq!(PodFacts::of_job(&job("copy", |_| {})), None);
        assert_eq!(PodFacts::of_job(&job(NAME, |job| job["metadata"]["labels"] = json!({}))), None);
        let pod = |name: &str, phase: &str| -> Pod {
            let labels = json!({ RUN_LABEL: "00000000000000000000000001-2" });
            serde_json::from_value(
                json!({ "metadata": { "name": name, "labels": labels }, "status": { "phase": phase } }),
            )
            .expect("a pod")
        };
        assert!([NAME, FORMER].iter().all(|name| PodFacts::of_job(&job(name, |_| {})).is_some()));
        assert!(PodFacts::of_failed_member(&pod(&format!("{FORMER}-worker-0"), "Failed")).is_some());
        let member = format!("{NAME}-worker-0");
        assert!(PodFacts::of_failed_member(&pod(&member, "Failed")).is_some());
        for (name, phase) in [(member.as_str(), "Running"), (NAME, "Failed"), ("worker-0", "Failed")] {
            assert_eq!(PodFacts::of_failed_member(&pod(name, phase)), None, "{name} {phase}");
        }
        assert_eq!(PodFacts::of(&pod(&member, "Failed")), None, "it is not the run itself");
    }
}
