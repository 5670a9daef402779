//! Volcano's CronJob: Jobs made at the times of a schedule.
//!
//! Field by field the Go type; that the schedule and the time zone can be read is admission's to check.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::JobSpec;
use crate::wire;

custom_resource! {
    /// Makes a Job whenever its schedule says so.
    pub struct CronJob {
        /// When, and what.
        pub spec: CronJobSpec = "spec",
        /// What was made.
        pub status: CronJobStatus = "status",
    }
    group: "batch.volcano.sh", version: "v1alpha1", plural: "cronjobs", singular: "cronjob",
    short_names: ["cronvcjob", "cronvj"], scope: NamespaceResourceScope, cluster_scoped: false
}

/// When Jobs are made, and which.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["jobTemplate", "schedule"]))]
pub struct CronJobSpec {
    /// Five fields, or a word such as `@hourly` or `@every 10m`.
    #[serde(default, deserialize_with = "wire::or_default")]
    pub schedule: String,
    /// IANA name of the time zone the schedule is in. Absent = the controller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Seconds after its time in which a Job may still be made. Absent = any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,
    /// What happens while an earlier Job has not ended. Absent = `Allow`.
    #[serde(default, deserialize_with = "wire::word", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Allow"))]
    pub concurrency_policy: Option<ConcurrencyPolicy>,
    /// Makes no Jobs while true; those that were made go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub suspend: Option<bool>,
    /// The Jobs.
    #[serde(default, deserialize_with = "wire::or_default")]
    pub job_template: JobTemplateSpec,
    /// Completed Jobs that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 3))]
    pub successful_jobs_history_limit: Option<i32>,
    /// Failed and terminated Jobs that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 1))]
    pub failed_jobs_history_limit: Option<i32>,
}

/// A Job to be made.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTemplateSpec {
    /// Labels and annotations of the Job; its name is made.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(schema_with = "template_metadata")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub spec: JobSpec,
}

/// The members of metadata that the schema of an embedded template keeps.
fn template_metadata(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let words = serde_json::json!({ "type": "object", "additionalProperties": { "type": "string" } });
    schemars::json_schema!({
        "type": "object",
        "properties": {
            "annotations": words,
            "finalizers": { "type": "array", "items": { "type": "string" } },
            "labels": words,
            "name": { "type": "string" },
            "namespace": { "type": "string" },
        },
    })
}

/// What a CronJob has made.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronJobStatus {
    /// Jobs that have not ended.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub active: Vec<ObjectReference>,
    /// The time for which a Job was made last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// When a Job last completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,
}

word_enum! {
    /// What happens at a time of the schedule while an earlier Job has not ended.
    closed pub enum ConcurrencyPolicy {
        /// Another one is made.
        Allow = "Allow",
        /// None is made.
        Forbid = "Forbid",
        /// The earlier one is deleted first.
        Replace = "Replace",
    }
}
