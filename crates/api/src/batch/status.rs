//! What the job controller observed of a Job.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::wire;

/// Observed state of a job.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    /// Where the job is in its life.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub state: JobState,
    /// Copy of the spec's value when the controller last looked.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub min_available: i32,
    /// Pods by phase, for each task.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub task_status_count: BTreeMap<String, TaskState>,
    /// Pending pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub pending: i32,
    /// Running pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub running: i32,
    /// Succeeded pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub succeeded: i32,
    /// Failed pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub failed: i32,
    /// Pods being deleted.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub terminating: i32,
    /// Pods whose node does not report.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub unknown: i32,
    /// Incarnation of the job; each kill of the whole job adds one, and events of older pods count no more.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub version: i32,
    /// Restarts so far.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub retry_count: i32,
    /// From creation to the end, queueing included; a Go duration string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_duration: Option<String>,
    /// What the controller made for the job: `plugin-<name>` and `volume-pvc-<claim>`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub controlled_resources: BTreeMap<String, String>,
    /// Phases passed, at most one entry each, newest last.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub conditions: Vec<JobCondition>,
    /// Containers that get more memory than the template says, because pods of those indices were killed for want of it.
    /// At most 32 KiB of text in all. Not in Volcano.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub memory_raises: Vec<MemoryRaise>,
    /// Pods that failed and were made again by the retries of their task. At most 32 KiB of text in all. Not in Volcano.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub pod_retries: Vec<PodRetry>,
}

/// How often the pods of a task were made again, by index.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodRetry {
    /// The task.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub task: String,
    /// Indices, each with its number of retries unless that is 1: `0-3,7:2`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub indices: String,
}

/// How often the memory of a container was raised, by pod index.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryRaise {
    /// The task.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub task: String,
    /// The container.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub container: String,
    /// Indices, each with its number of raises unless that is 1: `0-3,7:2`.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub indices: String,
}

/// Where a job is.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobState {
    /// The phase. Absent = the controller has not seen the job yet.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    pub phase: Option<JobPhase>,
    /// One CamelCase word.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub reason: String,
    /// A sentence for people.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub message: String,
    /// Last change of the status, not only of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// Pods of one task.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskState {
    /// Pod phase to number of pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub phase: BTreeMap<String, i32>,
}

/// When the job entered a phase.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobCondition {
    /// The phase.
    #[schemars(schema_with = "wire::any_word")]
    pub status: JobPhase,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

word_enum! {
    /// Phases of a job.
    closed pub enum JobPhase {
        /// Waiting to be admitted and scheduled, or fell back under its minimum.
        Pending = "Pending",
        /// Being suspended.
        Aborting = "Aborting",
        /// Suspended; can be resumed.
        Aborted = "Aborted",
        /// At least the minimum is running or has ended.
        Running = "Running",
        /// Pods are released for a retry.
        Restarting = "Restarting",
        /// Being completed by policy.
        Completing = "Completing",
        /// Success.
        Completed = "Completed",
        /// Being terminated.
        Terminating = "Terminating",
        /// Ended by policy or by the controller.
        Terminated = "Terminated",
        /// Retries exhausted, or too few successes.
        Failed = "Failed",
    }
}

impl JobPhase {
    /// True when the job will never run again.
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Terminated)
    }
}
