//! What `history.pumice.sh/v1alpha1` answers: jobs that were, their tasks, attempts and waits, and sums over them.
//!
//! Written by the history component, read by `jobctl` and the Python library. Unknown fields are passed over, absent ones
//! read as nothing. Times are UTC with milliseconds.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The API group under which the history answers, beside the API server's own groups.
pub const GROUP: &str = "history.pumice.sh";
/// The only version of [`GROUP`]; fields may be added to it.
pub const VERSION: &str = "v1alpha1";
/// Phase of what was gone before its end was seen.
pub const END_UNKNOWN: &str = "EndUnknown";
/// Phase of what was deleted before it ended.
pub const DELETED: &str = "Deleted";

/// Who an object of the history was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    pub name: String,
    pub namespace: String,
    pub uid: String,
}

/// A job as the history kept it; its object may be long gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobRecord {
    pub metadata: Identity,
    /// API group of the Job: `batch.volcano.sh` or `batch`.
    pub api: String,
    /// Who submitted it; empty where nobody is named.
    pub user: String,
    pub queue: String,
    pub priority_class: String,
    /// Its name without what differs from run to run.
    pub profile: String,
    /// The last phase, or [`DELETED`], or [`END_UNKNOWN`].
    pub phase: String,
    /// One CamelCase word.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// When it was made.
    pub submitted: Option<Timestamp>,
    /// When it first ran.
    pub started: Option<Timestamp>,
    /// When it ended, if that was seen.
    pub ended: Option<Timestamp>,
    /// When its object was seen to be gone.
    pub gone: Option<Timestamp>,
    /// Of an unknown end: when the job was last known to be there.
    pub unseen_from: Option<Timestamp>,
    /// From submission to its first start, in milliseconds.
    pub waited_ms: Option<i64>,
    /// From its first start to its end, in milliseconds.
    pub ran_ms: Option<i64>,
    /// Pods that it asked for.
    pub replicas: i64,
    pub succeeded: i64,
    pub failed: i64,
    pub retries: i64,
    /// CPU that all of its pods ask for together, in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory that all of its pods ask for together.
    pub memory_bytes: i64,
    /// Its tasks; only where one job is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskRecord>,
    /// Its attempts, the oldest first; only where one job is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptRecord>,
    /// Why it waited, the oldest first; only where one job is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitRecord>,
    /// Whether there are more attempts than are shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more_attempts: bool,
}

/// A task of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskRecord {
    pub name: String,
    /// Pods that it asked for.
    pub replicas: i64,
    pub succeeded: i64,
    pub failed: i64,
    /// CPU of one pod, in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory of one pod.
    pub memory_bytes: i64,
}

/// An attempt: a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttemptRecord {
    pub pod: String,
    pub uid: String,
    pub task: String,
    /// Index in the task.
    pub index: Option<i64>,
    /// Which pod of its task and index it is, from 1.
    pub attempt: i64,
    pub node: String,
    /// The last phase, or [`DELETED`], or [`END_UNKNOWN`].
    pub phase: String,
    /// Why it ended so, such as `OOMKilled`.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Exit code of its first container that failed, else 0 once it ended.
    pub exit_code: Option<i64>,
    /// Restarts of its containers in place.
    pub restarts: i64,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// When it got its node.
    pub scheduled: Option<Timestamp>,
    /// When its first container started.
    pub started: Option<Timestamp>,
    /// When it ended, if that was seen.
    pub ended: Option<Timestamp>,
    /// When its object was seen to be gone.
    pub gone: Option<Timestamp>,
    /// Of an unknown end: when the pod was last known to be there.
    pub unseen_from: Option<Timestamp>,
    /// CPU that it asked for, in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory that it asked for.
    pub memory_bytes: i64,
    /// Why and for whom it was evicted; empty if it was not.
    pub evicted: String,
    /// What it used, as far as it was sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
}

/// What was sampled of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Used {
    pub samples: i64,
    /// Mean CPU, in thousandths of a core.
    pub cpu_mean_milli: i64,
    /// Most CPU of a sample.
    pub cpu_max_milli: i64,
    pub memory_mean_bytes: i64,
    /// Most memory of a sample.
    pub memory_max_bytes: i64,
}

/// A stretch of waiting for one class of reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitRecord {
    /// The class, one CamelCase word.
    pub class: String,
    /// What was said then.
    pub summary: String,
    /// Since when.
    pub from: Option<Timestamp>,
    /// Until when; none while it waits.
    pub to: Option<Timestamp>,
}

/// Sums over the jobs of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupRecord {
    /// What they have in common.
    pub key: String,
    pub jobs: i64,
    pub failed: i64,
    pub pods: i64,
    /// Cores asked for, times the hours that they were held.
    pub core_hours: f64,
    /// GiB of memory asked for, times the hours that they were held.
    pub memory_gib_hours: f64,
    /// Half of the jobs that started waited no longer, in milliseconds.
    pub waited_p50_ms: Option<i64>,
    /// Nine of ten of them waited no longer, in milliseconds.
    pub waited_p90_ms: Option<i64>,
}

/// A page of an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// `JobHistoryList` or `GroupHistoryList`.
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub api_version: String,
    /// Where it goes on.
    #[serde(default)]
    pub metadata: PageMeta,
    #[serde(default = "Vec::new")]
    pub items: Vec<T>,
}

/// Where a list goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PageMeta {
    /// To be given as `continue`; empty at the end.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub next: String,
}
