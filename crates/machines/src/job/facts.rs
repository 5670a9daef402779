//! What the machine needs to know of a pod, read once when the pod changes.
//!
//! Invariant: a pod counts only if a Volcano Job controls it and it carries the job's labels. Built by the shell's index,
//! read by every other part of the machine; a job of thousands of pods is stepped through these small records.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pumice_api::{kubelet, names};

use crate::job::memory::sizes;
use crate::job::restart::Mark;
use crate::job::{memory, retries};

/// Longest grace of a deletion that is believed, in seconds.
const GRACE_MAX: i64 = 366 * 24 * 3600;

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    /// Accepted, not running.
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
    /// The node does not report.
    Unknown,
}

impl PodPhase {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether the pod has ended.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// One pod of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFacts {
    pub name: String,
    pub uid: String,
    /// Name of its task.
    pub task: String,
    /// Index inside the task.
    pub index: i32,
    /// The job's `status.version` when the pod was made.
    pub version: i32,
    pub phase: PodPhase,
    /// Whether it is being deleted, by whomever.
    pub terminating_since: Option<Timestamp>,
    /// Set when we are about to delete it: the restart that wants it gone.
    pub mark: Option<Mark>,
    /// Why a kubelet refused the pod, which never started and is replaced.
    pub refused: Option<String>,
    /// Whether it failed by no fault of its own: its node was lost, or it was evicted.
    pub disrupted: bool,
    /// Containers killed for want of memory, now or before the kubelet started them again.
    pub killed: Vec<String>,
    /// How often the memory of its containers was raised when it was made.
    pub raised: Vec<(String, i64)>,
    /// How often its index had been retried when it was made.
    pub retried: i64,
    /// Exit codes of the containers, then of the init containers, that failed by themselves: before anybody stopped the pod.
    pub exit_codes: Vec<i32>,
    /// Restarts of all its containers.
    pub restarts: i32,
    /// Whether all containers are ready.
    pub ready: bool,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When its last container ended.
    pub ended_at: Option<Timestamp>,
    /// When a container last ended before a restart.
    pub restarted_at: Option<Timestamp>,
    /// When its predecessor was evicted, if a delayed policy waits for this pod to run.
    pub evicted_at: Option<Timestamp>,
}

/// A pod and the job that controls it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPod {
    /// Name of the job.
    pub job_name: String,
    /// Uid of the job.
    pub job_uid: String,
    pub facts: PodFacts,
}

impl JobPod {
    /// Reads a pod; `None` if it is no Job's.
    pub fn observe(pod: &Pod) -> Option<Self> {
        let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        if owner.kind != "Job" || !owner.api_version.starts_with("batch.volcano.sh/") {
            return None;
        }
        let annotation = |key: &str| pod.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        let label = |key: &str| pod.metadata.labels.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        let name = pod.metadata.name.clone()?;
        let index_text =
            annotation(names::TASK_INDEX).or_else(|| label(names::TASK_INDEX)).or_else(|| name.rsplit('-').next())?;
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let init = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
        let phase = read_phase(status.and_then(|status| status.phase.as_deref()));
        let refused = match (&phase, status.and_then(|status| status.reason.as_ref())) {
            (PodPhase::Failed, Some(reason)) if kubelet::is_refusal(reason) => Some(reason.clone()),
            _ => None,
        };
        // The timestamp says when the grace is over, not when it began.
        let grace =
            SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0).clamp(0, GRACE_MAX));
        let marked = annotation(names::CONTROLLER_OUT_OF_SYNC) == Some("true");
        let terminating_since =
            at(pod.metadata.deletion_timestamp.as_ref()).and_then(|end| end.checked_sub(grace).ok());
        let ended_at = containers.iter().filter_map(ended_at).max();
        let facts = PodFacts {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            task: annotation(names::TASK_SPEC).or_else(|| label(names::TASK_SPEC))?.to_owned(),
            index: index_text.parse().ok()?,
            version: annotation(names::JOB_VERSION)?.parse().ok()?,
            phase: if phase == PodPhase::Failed && was_stopped(containers, ended_at, terminating_since) {
                PodPhase::Running
            } else {
                phase
            },
            terminating_since,
            mark: marked.then(|| Mark::read(annotation(names::RESTART))),
            refused,
            disrupted: phase == PodPhase::Failed && status.is_some_and(kubelet::is_disrupted),
            killed: containers
                .iter()
                .chain(init)
                .filter(|one| is_killed(one, phase))
                .map(|one| one.name.clone())
                .collect(),
            raised: sizes::read_level(annotation(memory::MEMORY_RAISED)),
            retried: annotation(retries::RETRIED).and_then(|text| text.parse().ok()).unwrap_or(0),
            exit_codes: exit_codes(pod, stopped_at(pod, terminating_since)),
            restarts: containers.iter().chain(init).fold(0_i32, |sum, one| sum.saturating_add(one.restart_count)),
            ready: !containers.is_empty() && containers.iter().all(|one| one.ready),
            created_at: at(pod.metadata.creation_timestamp.as_ref()),
            ended_at,
            restarted_at: containers.iter().chain(init).filter_map(restarted_at).max(),
            evicted_at: annotation(names::EVICTED_AT).and_then(|text| text.parse().ok()),
            name,
        };
        Some(Self { job_name: owner.name.clone(), job_uid: owner.uid.clone(), facts })
    }
}

impl PodFacts {
    /// Whether the pod is going away: being deleted, marked to be, or to be replaced.
    pub fn is_leaving(&self) -> bool {
        self.terminating_since.is_some() || self.mark.is_some() || self.refused.is_some()
    }

    /// Whether the pod has run to its end.
    pub fn has_ended(&self) -> bool {
        self.phase.is_finished() && self.refused.is_none()
    }

    pub(super) fn existing(&self) -> crate::job::Existing {
        crate::job::Existing { name: self.name.clone(), uid: self.uid.clone() }
    }
}

fn read_phase(word: Option<&str>) -> PodPhase {
    match word {
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Unknown") => PodPhase::Unknown,
        _ => PodPhase::Pending,
    }
}

fn at(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

/// Codes of containers, then of init containers. What ended after the pod was stopped says how it took the stop; a sidecar
/// that is over was stopped when the others had ended.
fn exit_codes(pod: &Pod, stopped_at: Option<Timestamp>) -> Vec<i32> {
    let Some(status) = &pod.status else { return Vec::new() };
    let init = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let is_sidecar =
        |name: &str| init.iter().any(|one| one.name == name && one.restart_policy.as_deref() == Some("Always"));
    let init_statuses = status.init_container_statuses.iter().flatten().filter(|one| !is_sidecar(&one.name));
    let failed = |one: &ContainerStatus| {
        let code = one.state.as_ref()?.terminated.as_ref()?.exit_code;
        (code != 0 && !is_after(ended_at(one), stopped_at)).then_some(code)
    };
    status.container_statuses.iter().flatten().chain(init_statuses).filter_map(failed).collect()
}

/// When somebody began to stop the pod: who deleted or evicted it, or its deadline.
fn stopped_at(pod: &Pod, terminating_since: Option<Timestamp>) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let deadline = if status.reason.as_deref() == Some(kubelet::DEADLINE_EXCEEDED) {
        let limit = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds).map(SignedDuration::from_secs);
        at(status.start_time.as_ref()).zip(limit).and_then(|(start, limit)| start.checked_add(limit).ok())
    } else {
        None
    };
    terminating_since.into_iter().chain(at(kubelet::disrupted_at(status))).chain(deadline).min()
}

/// Whether what ended then did so after the stop. Times are of whole seconds; of what fell into the same one the stop is
/// taken for the first.
fn is_after(ended_at: Option<Timestamp>, stopped_at: Option<Timestamp>) -> bool {
    stopped_at.is_some_and(|stop| ended_at.is_none_or(|ended| ended.as_second() >= stop.as_second()))
}

/// Whether a container was killed for want of memory. In a pod that has ended only its last end counts, for what was before
/// did not end the pod.
fn is_killed(status: &ContainerStatus, phase: PodPhase) -> bool {
    let killed = |state: Option<&ContainerState>| {
        let ended = state.and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.reason.as_deref() == Some(kubelet::OOM_KILLED))
    };
    match phase {
        PodPhase::Succeeded => false,
        PodPhase::Failed => killed(status.state.as_ref()),
        _ => killed(status.state.as_ref()) || killed(status.last_state.as_ref()),
    }
}

/// Whether a pod that failed did so because it was deleted: had it been left alone it would run on, so it is not one that
/// has ended.
fn was_stopped(
    containers: &[ContainerStatus],
    ended_at: Option<Timestamp>,
    terminating_since: Option<Timestamp>,
) -> bool {
    !containers.is_empty() && is_after(ended_at, terminating_since)
}

fn ended_at(status: &ContainerStatus) -> Option<Timestamp> {
    at(status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref())
}

fn restarted_at(status: &ContainerStatus) -> Option<Timestamp> {
    at(status.last_state.as_ref()?.terminated.as_ref()?.finished_at.as_ref())
}
