//! A pod as the controller that owns it sees it.
//!
//! Invariant: nothing here grows with what a pod asks for; of a pod that runs for ever little is kept.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::{PodName, TRACKING};

/// The annotation that says which pods to delete first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The index of a pod of an indexed Job.
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often an index has failed before this pod, and how often without it counting.
pub(crate) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub(crate) const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    /// Not running yet.
    #[default]
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

/// How a container has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEnd {
    pub name: String,
    pub code: i32,
}

/// What of a pod its controller looks at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedPod {
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// The uid of its controlling owner.
    pub owner_uid: Option<String>,
    pub phase: PodPhase,
    /// Since when it is ready, if it is.
    pub ready_since: Option<Timestamp>,
    /// When it was made.
    pub created: Timestamp,
    /// It is being deleted.
    pub is_leaving: bool,
    /// It is being deleted, and nothing of it runs any more or ever did.
    pub is_stopped: bool,
    pub node: Option<String>,
    /// Restarts of its containers.
    pub restarts: i32,
    /// The lower, the sooner it is deleted.
    pub deletion_cost: i32,
    /// It is held until a Job has counted it.
    pub is_tracked: bool,
    /// Its index in a Job.
    pub index: Option<u32>,
    /// Failures of its index before it, and those that were ignored.
    pub index_failures: IndexFailures,
    /// Ends of its containers, in their order.
    pub ends: Vec<ContainerEnd>,
    /// When the last of them ended.
    pub finished: Option<Timestamp>,
    /// Status of its conditions by type.
    pub conditions: BTreeMap<String, String>,
}

/// How often pods of an index of a Job have failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexFailures {
    /// Failures that count towards the limit of the index.
    pub counted: i32,
    /// Failures that a rule of the Job ignores. They make the index wait all the same.
    pub ignored: i32,
}

impl IndexFailures {
    /// Failures of both sorts, as many as fit the type.
    pub fn all(self) -> i32 {
        self.counted.saturating_add(self.ignored)
    }
}

impl OwnedPod {
    /// Keeps of a pod what the machines look at; members that are missing read as if they were empty.
    pub fn observe(pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
        let number = |key: &str| annotation(key).and_then(|text| text.parse().ok());
        let status = pod.status.clone().unwrap_or_default();
        let created = metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty());
        let is_leaving = metadata.deletion_timestamp.is_some();
        let containers: Vec<&ContainerStatus> =
            [&status.init_container_statuses, &status.container_statuses].into_iter().flatten().flatten().collect();
        let terminated =
            || containers.iter().filter_map(|one| Some((one.name.clone(), one.state.as_ref()?.terminated.as_ref()?)));
        let ready = status.conditions.iter().flatten().find(|one| one.type_ == "Ready" && one.status == "True");
        let mut owners = metadata.owner_references.iter().flatten();
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            owner_uid: owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()),
            phase: phase(status.phase.as_deref()),
            ready_since: ready.map(|one| one.last_transition_time.as_ref().map_or(created, |time| time.0)),
            created,
            is_leaving,
            is_stopped: is_leaving && (metadata.deletion_grace_period_seconds == Some(0) || node.is_none()),
            node,
            restarts: containers.iter().fold(0, |sum, one| sum.saturating_add(one.restart_count)),
            deletion_cost: number(DELETION_COST).unwrap_or(0),
            is_tracked: metadata.finalizers.iter().flatten().any(|one| one == TRACKING),
            index: annotation(INDEX).and_then(|text| text.parse().ok()),
            index_failures: IndexFailures {
                counted: number(INDEX_FAILURES).unwrap_or(0),
                ignored: number(INDEX_IGNORED).unwrap_or(0),
            },
            ends: terminated().map(|(name, end)| ContainerEnd { name, code: end.exit_code }).collect(),
            finished: terminated().filter_map(|(_, end)| end.finished_at.as_ref()).map(|time| time.0).max(),
            conditions: status.conditions.iter().flatten().map(|one| (one.type_.clone(), one.status.clone())).collect(),
        }
    }

    /// The name with the uid, by which an effect means this very pod.
    pub fn id(&self) -> PodName {
        PodName { name: self.name.clone(), uid: self.uid.clone() }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether it has not ended and stays.
    pub fn is_active(&self) -> bool {
        !self.has_ended() && !self.is_leaving
    }

    /// Whether its containers are ready.
    pub fn is_ready(&self) -> bool {
        self.ready_since.is_some()
    }

    /// When it has been ready for so many seconds.
    pub fn available_at(&self, min_ready_seconds: i32) -> Option<Timestamp> {
        let since = self.ready_since?;
        since.checked_add(SignedDuration::from_secs(i64::from(min_ready_seconds.max(0)))).ok()
    }

    /// What goes first when there are too many: what is not placed, what does not run, what is not ready; then what costs
    /// least, what shares its node with most others (`beside`), what has been ready for a shorter time, what was restarted
    /// more often, what is younger.
    pub(crate) fn rank(&self, beside: usize) -> impl Ord + use<> {
        let running = match self.phase {
            PodPhase::Pending => 0,
            PodPhase::Unknown => 1,
            _ => 2,
        };
        (
            (self.node.is_some(), running, self.is_ready(), self.deletion_cost),
            Reverse(beside),
            Reverse(self.ready_since),
            Reverse(self.restarts),
            Reverse(self.created),
            self.name.clone(),
        )
    }
}

fn phase(phase: Option<&str>) -> PodPhase {
    match phase {
        None | Some("" | "Pending") => PodPhase::Pending,
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some(_) => PodPhase::Unknown,
    }
}
