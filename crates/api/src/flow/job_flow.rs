//! The JobFlow: which Jobs are made of which templates, and what each waits for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::batch::{JobPhase, JobSpec, TaskState};
use crate::wire;

custom_resource! {
    /// Jobs made of templates, each when those it depends on are done.
    pub struct JobFlow {
        /// The Jobs and their order.
        pub spec: JobFlowSpec = "spec",
        /// How far they are.
        pub status: JobFlowStatus = "status",
    }
    group: "flow.volcano.sh", version: "v1alpha1", plural: "jobflows", singular: "jobflow",
    short_names: ["jf"], scope: NamespaceResourceScope, cluster_scoped: false
}

/// The Jobs of a flow and their order.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobFlowSpec {
    /// The Jobs.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub flows: Vec<Flow>,
    /// Whether they are kept when the flow has succeeded. Absent = kept.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    pub job_retain_policy: Option<JobRetainPolicy>,
}

/// One Job of a flow.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["name"]))]
pub struct Flow {
    /// Name of its JobTemplate, in the flow's namespace.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(length(min = 1))]
    pub name: String,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<FlowDependsOn>,
    /// What differs from the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    /// How often its Job is made again when it has failed. Not in Volcano.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub retries: Option<i32>,
}

/// What a Job of a flow waits for.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowDependsOn {
    /// Names of other Jobs of the flow.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub targets: Vec<String>,
    /// What must hold of them. Absent = they have completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// What must hold of the Jobs that are waited for.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// These answer.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub http_get_list: Vec<HttpGet>,
    /// These take connections.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub tcp_socket_list: Vec<TcpSocket>,
    /// These have a pod in a phase.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub task_status_list: Vec<TaskStatus>,
}

/// A page of a task.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// The task.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub task_name: String,
    /// Its path.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub path: String,
    /// Its port.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(schema_with = "port")]
    pub port: i64,
    /// A header to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_header: Option<HttpHeader>,
}

/// A header of a request.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[schemars(extend("required" = ["name", "value"]))]
pub struct HttpHeader {
    /// Its name.
    #[serde(default, deserialize_with = "wire::or_default")]
    pub name: String,
    /// Its value.
    #[serde(default, deserialize_with = "wire::or_default")]
    pub value: String,
}

/// A port of a task.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["port"]))]
pub struct TcpSocket {
    /// The task.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub task_name: String,
    /// The port.
    #[serde(default, deserialize_with = "wire::or_default")]
    #[schemars(schema_with = "port")]
    pub port: i64,
}

/// A phase of a task's pods.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    /// The task.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 253))]
    pub task_name: String,
    /// The phase.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(length(max = 63))]
    pub phase: String,
}

/// Schema of a port: Go's plain `int`.
fn port(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "integer", "minimum": 0, "maximum": 65535 })
}

/// What differs from the template.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// Members of the Job's spec that replace the template's.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub job_spec: JobSpec,
}

/// How far the Jobs of a flow are, by name.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobFlowStatus {
    /// Made and not running.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub pending_jobs: Vec<String>,
    /// Running.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub running_jobs: Vec<String>,
    /// Failed.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub failed_jobs: Vec<String>,
    /// Completed.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub completed_jobs: Vec<String>,
    /// Terminated.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub terminated_jobs: Vec<String>,
    /// In any other phase; spelled as on the wire.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub un_know_jobs: Vec<String>,
    /// Each Job's course.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub job_status_list: Vec<JobOfFlow>,
    /// Each Job's counts.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub conditions: BTreeMap<String, JobRun>,
    /// Where the flow is.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub state: FlowState,
}

/// The course of one Job.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobOfFlow {
    /// Its name.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub name: String,
    /// Its phase.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "wire::any_word")]
    pub state: Option<JobPhase>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    /// Its restarts.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(range(min = 0))]
    pub restart_count: i32,
    /// The phases that it was in.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub running_histories: Vec<JobHistory>,
}

/// A time in one phase.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobHistory {
    /// Its begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    /// Its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    /// The phase.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "wire::any_word")]
    pub state: Option<JobPhase>,
}

/// One Job as it is now.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobRun {
    /// Its phase.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "wire::any_word")]
    pub phase: Option<JobPhase>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_time: Option<Time>,
    /// How long it has run, a Go duration string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_duration: Option<String>,
    /// Its pods.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub task_status_count: BTreeMap<String, TaskState>,
}

/// Where a flow is.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowState {
    /// The phase.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    pub phase: Option<FlowPhase>,
}

word_enum! {
    /// Phases of a flow; spelled as on the wire.
    closed pub enum FlowPhase {
        /// All its Jobs have completed.
        Succeed = "Succeed",
        /// It is being deleted.
        Terminating = "Terminating",
        /// One of its Jobs has failed or was terminated.
        Failed = "Failed",
        /// A Job runs or has completed.
        Running = "Running",
        /// None runs.
        Pending = "Pending",
    }
}

word_enum! {
    /// What becomes of the Jobs of a flow that has succeeded.
    closed pub enum JobRetainPolicy {
        /// They are kept.
        Retain = "retain",
        /// They are deleted.
        Delete = "delete",
    }
}
