//! The status that a new Job begins with.
//!
//! Invariant: it is what the job controller would write first, so that the controller has nothing to write before
//! something has happened: a job is never seen without a phase, and costs one write less.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pumice_api::batch::{JobCondition, JobPhase, JobState, JobStatus};
use serde_json::Value;

/// Pending since `now`, with the minimum that the job asks for.
pub fn first_status(job: &Value, now: Time) -> Value {
    let least = job["spec"]["minAvailable"].as_i64().and_then(|least| i32::try_from(least).ok());
    let status = JobStatus {
        min_available: least.unwrap_or(0),
        state: JobState {
            phase: Some(JobPhase::Pending),
            last_transition_time: Some(now.clone()),
            ..JobState::default()
        },
        conditions: vec![JobCondition { status: JobPhase::Pending, last_transition_time: Some(now) }],
        ..JobStatus::default()
    };
    serde_json::to_value(status).unwrap_or_default()
}
