//! What is looked at of an object to know whether it may leave.
//!
//! Invariant: read from the object alone. A Volcano Job that was aborted has not ended: it can be resumed.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::PodStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use pumice_api::batch::{JobPhase, JobStatus};
use pumice_api::flow::{FlowPhase, JobFlowStatus};
use pumice_api::names::AFTER;

use crate::batch_job;
use crate::job::After;

/// An object, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// When it ended; none while it may go on.
    pub ended_at: Option<Timestamp>,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// Whether it says by itself when it is to be removed.
    pub has_own_ttl: bool,
    /// Whether results are recorded that are found by way of it, or go with it.
    pub records_results: bool,
    pub controller: Option<Controller>,
    /// Names of the Jobs that it waits for, of a Job that has not ended.
    pub awaits: Vec<String>,
}

/// What controls an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Controller {
    /// A Job, Volcano's or of `batch/v1`.
    Job {
        uid: String,
    },
    Other,
}

impl Controller {
    fn of(metadata: &ObjectMeta) -> Option<Self> {
        let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let is_job = owner.kind == "Job" && owner.api_version.starts_with("batch");
        Some(if is_job { Self::Job { uid: owner.uid.clone() } } else { Self::Other })
    }
}

/// What matters of a Volcano Job's spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTerms {
    /// Whether it has a time to live after its end.
    pub has_own_ttl: bool,
    /// Whether its shards record results.
    pub records_results: bool,
}

/// Reads a Volcano Job. It ended when its phase last changed; one that has not ended may still wait for others.
pub fn job(metadata: &ObjectMeta, terms: JobTerms, status: &JobStatus) -> Work {
    let has_ended = status.state.phase.as_ref().is_some_and(JobPhase::is_finished);
    let ended_at = status.state.last_transition_time.as_ref();
    let after = if has_ended {
        None
    } else {
        let text = metadata.annotations.as_ref().and_then(|all| all.get(AFTER));
        text.and_then(|text| After::read(text).ok())
    };
    Work {
        awaits: after.iter().flat_map(After::jobs).map(str::to_owned).collect(),
        has_own_ttl: terms.has_own_ttl,
        records_results: terms.records_results,
        ..read(metadata, has_ended, ended_at)
    }
}

/// A Job of `batch/v1`.
pub fn batch_job(job: &batch::Job) -> Work {
    let status = job.status.as_ref();
    let ended_at = status.and_then(|status| {
        let conditions = status.conditions.iter().flatten().filter(|one| one.status == "True");
        conditions.filter(|one| batch_job::is_end(&one.type_)).find_map(|one| one.last_transition_time.as_ref())
    });
    let has_own_ttl = job.spec.as_ref().is_some_and(|spec| spec.ttl_seconds_after_finished.is_some());
    Work { has_own_ttl, ..read(&job.metadata, batch_job::outcome(job).is_some(), ended_at) }
}

/// A JobFlow. It ended when the last of its Jobs did.
pub fn flow(metadata: &ObjectMeta, status: &JobFlowStatus) -> Work {
    let has_ended = matches!(status.state.phase, Some(FlowPhase::Succeed | FlowPhase::Failed));
    let ended_at = status.job_status_list.iter().filter_map(|job| job.end_timestamp.as_ref()).max_by_key(|time| time.0);
    read(metadata, has_ended, ended_at)
}

/// A pod. It ended when the last of its containers did; one that none ever ran in, when it was made.
pub fn pod(metadata: &ObjectMeta, status: &PodStatus) -> Work {
    let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let containers = status.container_statuses.iter().flatten();
    let ends = containers.filter_map(|one| one.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    read(metadata, has_ended, ends.max_by_key(|time| time.0))
}

/// What has ended without saying when is as old as itself.
fn read(metadata: &ObjectMeta, has_ended: bool, ended_at: Option<&Time>) -> Work {
    let ended_at = ended_at.or(metadata.creation_timestamp.as_ref()).map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Work {
        ended_at: has_ended.then_some(ended_at),
        is_leaving: metadata.deletion_timestamp.is_some(),
        controller: Controller::of(metadata),
        ..Work::default()
    }
}
