//! A job's pod as plain data: which shard it is, where it ran, how it ended.
//!
//! Invariant: what a pod ended with is its first failed container's word, else its main container's. Pure.
//! Called by `lookup`, `logs` and the Python extension.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use pumice_api::names;
use serde::Serialize;

use super::outcome::pod_failures;

/// The reason of a container that was killed for memory.
const OOM_KILLED: &str = "OOMKilled";
/// The variable with the number of the attempt, from 1; the job plugin `env` sets it.
pub(crate) const ATTEMPT: &str = "PUMICE_ATTEMPT";

/// Where a pod is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PodDocument {
    pub name: String,
    /// Its uid: a pod made again has the same name and another uid.
    pub uid: String,
    pub task: String,
    /// Its index in the task; nothing for a pod that the job's controller did not make.
    pub index: Option<u32>,
    /// Which run of its index it is, from 1; nothing for a pod that is not told.
    pub attempt: Option<u32>,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// Why, in a word, such as `OOMKilled` or `Evicted`; may be empty.
    pub reason: String,
    /// The same in a sentence; may be empty.
    pub message: String,
    /// The exit code, once it ended.
    pub exit_code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Whether it was killed because it needed more memory than it had asked for.
    pub oom: bool,
    /// Its node; empty while it waits.
    pub node: String,
    /// When it began to run.
    pub started: Option<Timestamp>,
    pub finished: Option<Timestamp>,
    /// What it wrote that is gone with it, in a sentence; may be empty.
    pub discarded: String,
}

impl PodDocument {
    /// What a Pod object says.
    pub fn of(pod: &Pod) -> Self {
        let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.clone()).unwrap_or_else(|| "Pending".to_owned());
        let failure = pod_failures(std::slice::from_ref(pod)).into_iter().next();
        let containers = || status.into_iter().flat_map(|status| status.container_statuses.iter().flatten());
        let ended = if phase == "Succeeded" { containers().next().and_then(terminated) } else { None };
        let (reason, message) = match &failure {
            Some(failure) => (failure.reason.clone(), failure.message.clone()),
            None => (
                status.and_then(|status| status.reason.clone()).unwrap_or_default(),
                status.and_then(|status| status.message.clone()).unwrap_or_default(),
            ),
        };
        PodDocument {
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            task: label(names::TASK_SPEC).unwrap_or_default(),
            index: label(names::TASK_INDEX).and_then(|index| index.parse().ok()),
            attempt: attempt(pod),
            oom: reason == OOM_KILLED,
            exit_code: failure.as_ref().map(|failure| failure.exit_code).or(ended.map(|ended| ended.exit_code)),
            signal: failure.as_ref().and_then(|failure| failure.signal),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            started: containers().filter_map(started).min(),
            finished: match phase.as_str() {
                "Succeeded" | "Failed" => {
                    containers().filter_map(|one| Some(terminated(one)?.finished_at.as_ref()?.0)).max()
                }
                _ => None,
            },
            discarded: discarded(pod),
            phase,
            reason,
            message,
        }
    }
}

fn discarded(pod: &Pod) -> String {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut told = conditions.filter(|condition| condition.type_ == names::FILES_DISCARDED);
    told.next().and_then(|condition| condition.message.clone()).unwrap_or_default()
}

/// Which run of its index a pod is, from 1, if it says so.
pub(crate) fn attempt(pod: &Pod) -> Option<u32> {
    let variables = pod.spec.as_ref()?.containers.first()?.env.as_ref()?;
    variables.iter().find(|variable| variable.name == ATTEMPT)?.value.as_ref()?.parse().ok()
}

fn terminated(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

fn started(container: &ContainerStatus) -> Option<Timestamp> {
    let state = container.state.as_ref()?;
    let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    running.or(terminated(container).and_then(|ended| ended.started_at.as_ref())).map(|at| at.0)
}

/// The task and index that a job's controller wrote into the name of a pod.
pub fn place_in<'p>(job: &str, pod: &'p str) -> Option<(&'p str, u32)> {
    let (task, index) = pod.strip_prefix(job)?.strip_prefix('-')?.rsplit_once('-')?;
    Some((task, index.parse().ok()?))
}
