//! The JobTemplate: a Job that flows make by name.

use crate::batch::JobSpec;
use crate::wire;

custom_resource! {
    /// A Job to be made by JobFlows. Its spec is the Job's.
    pub struct JobTemplate {
        /// The Job.
        pub spec: JobSpec = "spec",
        /// What was made of it.
        pub status: JobTemplateStatus = "status",
    }
    group: "flow.volcano.sh", version: "v1alpha1", plural: "jobtemplates", singular: "jobtemplate",
    short_names: ["jt"], scope: NamespaceResourceScope, cluster_scoped: false
}

/// What was made of a template.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTemplateStatus {
    /// Names of the Jobs.
    #[serde(default, deserialize_with = "wire::or_default", skip_serializing_if = "wire::is_default")]
    pub job_depends_on_list: Vec<String>,
}
