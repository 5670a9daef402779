//! What the executor reads of a pod: plain facts by run.
//!
//! Invariant: the label says whose pod it is, and a [`PodFacts`] is of one that also has a name of its run, of this release or of
//! those before, so that a pod somebody copied is never taken for ours. Pure; the shell calls [`PodFacts::of`] with what it
//! watches.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use pumice_fleet_model::names::{former_pod_name, pod_name};

use pumice_ledger::{RunId, TimeMs};

use crate::labels::{CUT_OFF_ANNOTATION, QUEUE_LABEL, RUN_LABEL};

mod volcano_job;

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers run.
    Pending,
    Running,
    /// All containers ended well.
    Succeeded,
    /// It ended, not well.
    Failed,
    /// Its node does not say.
    Unknown,
}

impl PodPhase {
    /// Nothing of it runs any more.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// What a run is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pod,
    /// A Volcano Job with its pods.
    Job,
}

/// A pod, or the Job of a Volcano job, as far as its run is concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFacts {
    pub run: RunId,
    pub kind: Kind,
    pub queue: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The version that this is, for writes that count only while nothing has changed.
    pub version: String,
    /// Its node; empty for none.
    pub node: String,
    pub phase: PodPhase,
    /// After how long without an answer of the server it is stopped; none for never.
    pub cut_off_ms: Option<i64>,
    /// When its status last changed.
    pub since: TimeMs,
    /// Until when it is to be gone, where it is being deleted.
    pub deletion: Option<TimeMs>,
    /// When the first init container started, while one is not through.
    pub init_since: Option<TimeMs>,
    /// One word on its status.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Containers with a status, init containers first.
    pub containers: Vec<Container>,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    pub name: String,
    pub state: ContainerState,
}

/// How a container is.
#[derive(Clone, Debug, PartialEq)]
pub enum ContainerState {
    /// It can't start yet.
    Waiting {
        /// One word.
        reason: String,
        /// For people.
        message: String,
    },
    Running,
    Ended {
        exit_code: i32,
        /// One word.
        reason: String,
        /// What it left behind.
        message: String,
    },
}

/// A warning about a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodEvent {
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl PodFacts {
    /// The facts of a pod of a run; nothing where it is of none.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<Self> {
        let run: RunId = pod.metadata.labels.as_ref()?.get(RUN_LABEL)?.parse().ok()?;
        Self::read(pod, run).filter(|facts| is_named(&facts.name, run))
    }

    fn read(pod: &Pod, run: RunId) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let name = pod.metadata.name.clone()?;
        let status = pod.status.clone().unwrap_or_default();
        let created = pod.metadata.creation_timestamp.as_ref().map_or(TimeMs(0), at);
        let (init, main) =
            (status.init_container_statuses.unwrap_or_default(), status.container_statuses.unwrap_or_default());
        let conditions = status.conditions.unwrap_or_default();
        let changes = conditions.iter().filter_map(|condition| condition.last_transition_time.as_ref());
        let starts = init.iter().chain(&main).flat_map(times);
        let since = changes.map(at).chain(starts).fold(created, TimeMs::max);
        let is_starting = init.iter().any(|one| !one.started.unwrap_or(false) && ended(one).is_none());
        let init_since = init.iter().filter_map(|one| times(one).into_iter().min()).min();
        Some(Self {
            run,
            kind: Kind::Pod,
            queue: labels.get(QUEUE_LABEL).cloned().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name,
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            version: pod.metadata.resource_version.clone().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            phase: match status.phase.as_deref() {
                Some("Running") => PodPhase::Running,
                Some("Succeeded") => PodPhase::Succeeded,
                Some("Failed") => PodPhase::Failed,
                Some("Unknown") => PodPhase::Unknown,
                _ => PodPhase::Pending,
            },
            cut_off_ms: cut_off_of(&pod.metadata),
            since,
            deletion: pod.metadata.deletion_timestamp.as_ref().map(at),
            init_since: if is_starting { init_since } else { None },
            reason: status.reason.unwrap_or_default(),
            message: status.message.unwrap_or_default(),
            containers: init.iter().chain(&main).map(container).collect(),
        })
    }
}

/// Whether a pod of this name, or a Job, may be that of the run.
fn is_named(name: &str, run: RunId) -> bool {
    name == pod_name(run) || name == former_pod_name(run)
}

fn cut_off_of(metadata: &ObjectMeta) -> Option<i64> {
    let text = metadata.annotations.as_ref()?.get(CUT_OFF_ANNOTATION)?;
    text.parse().ok().filter(|ms| *ms > 0)
}

fn at(time: &Time) -> TimeMs {
    TimeMs(time.0.as_millisecond())
}

fn ended(status: &ContainerStatus) -> Option<TimeMs> {
    let ended = status.state.as_ref()?.terminated.as_ref()?;
    Some(ended.finished_at.as_ref().map_or(TimeMs(0), at))
}

/// When it started and ended, as far as it did.
fn times(status: &ContainerStatus) -> Vec<TimeMs> {
    let Some(state) = &status.state else { return Vec::new() };
    let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    let ended = state.terminated.as_ref();
    let ends = ended.map(|ended| [ended.started_at.as_ref(), ended.finished_at.as_ref()]).unwrap_or_default();
    running.into_iter().chain(ends.into_iter().flatten()).map(at).collect()
}

fn container(status: &ContainerStatus) -> Container {
    let state = status.state.clone().unwrap_or_default();
    let state = match (state.terminated, state.running, state.waiting) {
        (Some(ended), ..) => ContainerState::Ended {
            exit_code: ended.exit_code,
            reason: ended.reason.unwrap_or_default(),
            message: ended.message.unwrap_or_default(),
        },
        (None, Some(_), _) => ContainerState::Running,
        (None, None, waiting) => {
            let waiting = waiting.unwrap_or_default();
            ContainerState::Waiting {
                reason: waiting.reason.unwrap_or_default(),
                message: waiting.message.unwrap_or_default(),
            }
        }
    };
    Container { name: status.name.clone(), state }
}

#[cfg(test)]
mod tests;
