//! What goes wrong with pods, told as Kubernetes Events about them.
//!
//! Invariant: the ordinary course of a pod is told by its status alone, for a write more for each pod would cost more than it
//! tells. Trouble that goes on is counted by the recorder, so it may be told again each time.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pumice_clock as clock;
use pumice_cluster::events::{Occurrence, Severity};

use crate::agent::pods::Pods;
use crate::agent::pods::entry::{End, Entry, Stage};
use crate::agent::start::StartError;
use crate::pod_events;
use crate::pod_status::{SHIM_LOST, SHIM_LOST_MESSAGE};
use crate::survivors;
use pumice_shim::status::{
    ContainerState, ContainerStatus, DEADLINE_EXCEEDED, Exit, START_ERROR, ShimStatus, TERMINATED,
};

/// Attempts of a pod to start that may fail for want of a claim's volume before that is trouble: one is made for it meanwhile.
const UNBOUND_BEFORE_TROUBLE: u32 = 2;

/// One thing to tell of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The container that it is about, if it is one's.
    pub container: Option<String>,
    pub severity: Severity,
    pub reason: String,
    pub message: String,
}

impl Trouble {
    /// Of the whole pod.
    pub(super) fn of_pod(reason: &str, message: impl fmt::Display) -> Trouble {
        let (reason, message) = (reason.to_owned(), message.to_string());
        Trouble { container: None, severity: Severity::Warning, reason, message }
    }

    pub(super) fn of_container(container: &str, reason: &str, message: impl fmt::Display) -> Trouble {
        Trouble { container: Some(container.to_owned()), ..Trouble::of_pod(reason, message) }
    }

    /// Nothing that anybody has to look at, for once.
    pub(super) fn normal(self) -> Trouble {
        Trouble { severity: Severity::Normal, ..self }
    }
}

impl Pods {
    /// Records an Event about `pod`, or about the container that the trouble names.
    pub(super) fn record(&self, pod: &Pod, trouble: Trouble) {
        let about = pod_events::about(pod, trouble.container.as_deref());
        let Trouble { severity, reason, message, .. } = trouble;
        self.context.events.record(Occurrence { about, severity, reason, message, at: clock::now() });
    }

    /// Tells why a pod did not start this time.
    pub(super) fn tell_of_start(&self, uid: &str, error: &StartError) {
        let Some(entry) = self.pods.get(uid) else { return };
        let Some(pod) = entry.pod() else { return };
        if let Some(trouble) = of_start(error, entry.start_failures) {
            self.record(pod, trouble);
        }
    }

    /// Tells how a pod came to its end, if that was no ordinary one.
    pub(super) fn tell_of_end(&self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        if let (Some(pod), Some(trouble)) = (entry.pod(), of_end(entry)) {
            self.record(pod, trouble);
        }
    }
}

/// How often it is told that something of a pod can't be ended.
const SURVIVORS_EVERY: Duration = Duration::from_secs(60);

impl Pods {
    /// Tells of a pod of which something is left although all of it was killed.
    pub(super) fn tell_of_survivors(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let now = clock::monotonic();
        if entry.stage != Stage::Running || entry.gone_by.is_none_or(|at| at > now) {
            return;
        }
        entry.gone_by = Some(now + SURVIVORS_EVERY);
        let left = survivors::of_pod(&entry.dir);
        if left.is_empty() {
            return;
        }
        let message = format!("error killing pod: {}", survivors::sentence(&left));
        tracing::warn!(namespace = entry.namespace, pod = entry.name, message, "a pod does not end");
        if let Some(pod) = entry.pod().cloned() {
            self.record(&pod, Trouble::of_pod("FailedKillPod", message));
        }
    }
}

/// Why a pod did not start, in a kubelet's words, after so many failures before.
fn of_start(error: &StartError, failures: u32) -> Option<Trouble> {
    match error {
        // The API server, which would not take an event either.
        StartError::Fetch(_) => None,
        error if error.is_unbound() && failures < UNBOUND_BEFORE_TROUBLE => None,
        error if error.is_mount() => Some(Trouble::of_pod("FailedMount", error.message())),
        StartError::Filter { .. } | StartError::Prepare { .. } | StartError::Shim(_) => Some(Trouble::of_pod(
            "FailedCreatePodSandBox",
            format!("Failed to create pod sandbox: {}", error.message()),
        )),
        error => Some(Trouble::of_pod("Failed", format!("Error: {}", error.message()))),
    }
}

fn of_end(entry: &Entry) -> Option<Trouble> {
    match &entry.stage {
        Stage::Ended(End::Rejected { reason, message }) => Some(Trouble::of_pod(reason, message)),
        Stage::Ended(End::Lost) => Some(Trouble::of_pod(SHIM_LOST, SHIM_LOST_MESSAGE)),
        Stage::Ended(End::ShimReported) => {
            let shim = entry.shim.as_ref()?;
            let trouble = Trouble::of_pod(shim.reason.as_ref()?, shim.message.as_deref().unwrap_or_default());
            // Somebody has asked for this end.
            let asked_for = [DEADLINE_EXCEEDED, TERMINATED].contains(&trouble.reason.as_str());
            Some(if asked_for { trouble.normal() } else { trouble })
        }
        _ => None,
    }
}

/// What is wrong with runs of containers, by what their shim says now and said before.
pub(super) fn of_runs(pod: &Pod, before: Option<&ShimStatus>, now: &ShimStatus) -> Vec<Trouble> {
    let news = now.all().flat_map(|container| {
        let known = before.and_then(|before| before.container(&container.name));
        [not_started(container, known), held_back(pod, container, known)]
    });
    news.flatten().collect()
}

/// A run that could not begin.
fn not_started(container: &ContainerStatus, known: Option<&ContainerStatus>) -> Option<Trouble> {
    let exit = latest_exit(container).filter(|exit| exit.reason == START_ERROR)?;
    if known.and_then(latest_exit) == Some(exit) {
        return None;
    }
    let why = exit.message.as_deref().unwrap_or(START_ERROR);
    Some(Trouble::of_container(&container.name, "Failed", format!("Error: {why}")))
}

/// A container that has to wait for its next run. The first one is begun at once.
fn held_back(pod: &Pod, container: &ContainerStatus, known: Option<&ContainerStatus>) -> Option<Trouble> {
    let waits = |status: &ContainerStatus| matches!(status.state, ContainerState::Waiting { .. });
    if !waits(container) || container.last.is_none() || container.restart_count == 0 {
        return None;
    }
    if known.is_some_and(|known| waits(known) && known.restart_count == container.restart_count) {
        return None;
    }
    let (meta, name) = (&pod.metadata, &container.name);
    let [pod, namespace, uid] =
        [&meta.name, &meta.namespace, &meta.uid].map(|text| text.as_deref().unwrap_or_default());
    let message = format!("Back-off restarting failed container {name} in pod {pod}_{namespace}({uid})");
    Some(Trouble::of_container(name, "BackOff", message))
}

fn latest_exit(container: &ContainerStatus) -> Option<&Exit> {
    container.exit().or(container.last.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_spec::resolve::ResolveError;
    use jiff::Timestamp;
    use serde_json::json;

    fn pod() -> Pod {
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]}});
        serde_json::from_value(pod).unwrap()
    }

    fn exit(reason: &str, second: i64) -> Exit {
        let at = Timestamp::from_second(second).unwrap();
        let message = Some("no such program".to_owned());
        Exit {
            code: 128,
            signal: None,
            reason: reason.into(),
            message,
            started_at: at,
            finished_at: at,
            discarded: None,
        }
    }

    /// A pod whose container is in a state.
    fn status(state: ContainerState, last: Option<Exit>, restart_count: u32) -> ShimStatus {
        let mut status = ShimStatus::new(["i"].into_iter(), ["c"].into_iter(), Timestamp::UNIX_EPOCH);
        status.containers[0] = ContainerStatus { name: "c".into(), state, last, restart_count };
        status
    }

    fn waiting(last: Exit, restart_count: u32) -> ShimStatus {
        let state = ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: None };
        status(state, Some(last), restart_count)
    }

    fn running(restart_count: u32) -> ShimStatus {
        let state = ContainerState::Running { started_at: Timestamp::UNIX_EPOCH, pid: None };
        status(state, Some(exit("Error", 1)), restart_count)
    }

    #[test]
    fn of_runs_only_what_is_wrong_and_new_is_told() {
        let ended = |reason: &str| status(ContainerState::Terminated(exit(reason, 1)), None, 0);
        let failed = "Failed Error: no such program";
        let back_off = "BackOff Back-off restarting failed container c in pod p_ns(u)";
        let cases: Vec<(Option<ShimStatus>, ShimStatus, Vec<&str>)> = vec![
            (None, running(0), vec![]),
            (None, ended("Completed"), vec![]),
            (Some(running(0)), ended("Error"), vec![]),
            (None, ended(START_ERROR), vec![failed]),
            (Some(ended(START_ERROR)), ended(START_ERROR), vec![]),
            (Some(running(0)), waiting(exit("Error", 2), 0), vec![]),
            (Some(running(1)), waiting(exit("Error", 3), 1), vec![back_off]),
            (Some(waiting(exit("Error", 3), 1)), waiting(exit("Error", 3), 1), vec![]),
            (Some(waiting(exit("Error", 3), 1)), waiting(exit("Error", 4), 2), vec![back_off]),
            (Some(waiting(exit(START_ERROR, 3), 1)), waiting(exit(START_ERROR, 4), 2), vec![failed, back_off]),
        ];
        for (before, now, expected) in cases {
            let told = of_runs(&pod(), before.as_ref(), &now);
            assert!(told.iter().all(|trouble| trouble.container.as_deref() == Some("c")));
            let told: Vec<_> = told.iter().map(|trouble| format!("{} {}", trouble.reason, trouble.message)).collect();
            assert_eq!(told, expected, "{:?}", now.containers[0]);
        }
    }

    #[test]
    fn why_a_pod_does_not_start_is_told_in_a_kubelets_words() {
        let told = |error: StartError, failures| {
            of_start(&error, failures).map(|trouble| format!("{}: {}", trouble.reason, trouble.message))
        };
        let missing = || ResolveError::Missing { kind: "ConfigMap", name: "m".into() };
        let unbound = || ResolveError::Unbound { claim: "c".into() }.of_volume("v");
        let full = || std::io::Error::other("disk full");
        let cases = [
            (missing().into(), 0, Some("Failed: Error: ConfigMap \"m\" not found")),
            (
                missing().of_volume("v").into(),
                0,
                Some("FailedMount: MountVolume.SetUp failed for volume \"v\": ConfigMap \"m\" not found"),
            ),
            (
                StartError::Mount { volume: "v".into(), source: full() },
                0,
                Some("FailedMount: MountVolume.SetUp failed for volume \"v\": disk full"),
            ),
            (unbound().into(), 1, None),
            (
                unbound().into(),
                2,
                Some(
                    "FailedMount: MountVolume.SetUp failed for volume \"v\": the claim \"c\" is not bound to a volume yet",
                ),
            ),
            (
                StartError::Prepare { step: "write the pod's spec", source: full() },
                0,
                Some("FailedCreatePodSandBox: Failed to create pod sandbox: can't write the pod's spec: disk full"),
            ),
        ];
        for (error, failures, expected) in cases {
            assert_eq!(told(error, failures).as_deref(), expected);
        }
    }
}
