//! What retention reads of objects: whether they have ended and what they hang on, and nothing else.
//!
//! Invariant: what is kept of an object does not grow with what is written on it.

use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::{Job, JobStatus};
use pumice_api::flow::{JobFlow, JobFlowStatus};
use pumice_api::names::BUNDLE_VARIABLE;
use pumice_cluster::partly_read;
use pumice_machines::retention::{self, JobTerms, Work};
use serde::{Deserialize, Deserializer};

/// An object of any of the kinds.
#[derive(Clone, Debug)]
pub(crate) struct ReadObject {
    /// Namespace, name, uid and version.
    pub metadata: ObjectMeta,
    pub work: Work,
}

impl ReadObject {
    fn new(metadata: ObjectMeta, work: Work) -> Self {
        let ObjectMeta { namespace, name, uid, resource_version, .. } = metadata;
        Self { metadata: ObjectMeta { namespace, name, uid, resource_version, ..ObjectMeta::default() }, work }
    }
}

/// Declares how a kind is read: by way of its text, as far as that matters.
macro_rules! read_as {
    ($read:ident, $kind:ty, $text:literal) => {
        #[derive(Clone, Debug, Deserialize)]
        #[serde(from = $text)]
        pub(crate) struct $read(ReadObject);

        partly_read!($read, $kind, 0.metadata);

        impl From<$read> for ReadObject {
            fn from(read: $read) -> Self {
                read.0
            }
        }
    };
}

read_as!(ReadJob, Job, "JobText");
read_as!(ReadBatchJob, batch::Job, "batch::Job");
read_as!(ReadFlow, JobFlow, "FlowText");
read_as!(ReadPod, Pod, "PodText");

/// The value, or none where there is `null`, as Go writes it.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Declares a part of an object's text: each field may be absent or `null`.
macro_rules! text {
    ($($name:ident { $($field:ident: $of:ty),+ })+) => {
        $(
            #[derive(Default, Deserialize)]
            #[serde(rename_all = "camelCase")]
            struct $name {
                $(#[serde(default, deserialize_with = "or_default")] $field: $of,)+
            }
        )+
    };
}

text! {
    JobText { metadata: ObjectMeta, spec: SpecText, status: JobStatus }
    SpecText { ttl_seconds_after_finished: Option<i32>, tasks: Vec<TaskText> }
    TaskText { template: TemplateText }
    TemplateText { spec: PodSpecText }
    PodSpecText { containers: Vec<ContainerText> }
    ContainerText { env: Vec<VariableText> }
    VariableText { name: String }
    FlowText { metadata: ObjectMeta, status: JobFlowStatus }
    PodText { metadata: ObjectMeta, status: PodStatus }
}

impl SpecText {
    fn terms(&self) -> JobTerms {
        let containers = self.tasks.iter().flat_map(|task| &task.template.spec.containers);
        let mut variables = containers.flat_map(|container| &container.env);
        let records_results = variables.any(|variable| variable.name == BUNDLE_VARIABLE);
        JobTerms { has_own_ttl: self.ttl_seconds_after_finished.is_some(), records_results }
    }
}

impl From<JobText> for ReadJob {
    fn from(JobText { metadata, spec, status }: JobText) -> Self {
        let work = retention::job(&metadata, spec.terms(), &status);
        Self(ReadObject::new(metadata, work))
    }
}

impl From<batch::Job> for ReadBatchJob {
    fn from(job: batch::Job) -> Self {
        let work = retention::batch_job(&job);
        Self(ReadObject::new(job.metadata, work))
    }
}

impl From<FlowText> for ReadFlow {
    fn from(FlowText { metadata, status }: FlowText) -> Self {
        let work = retention::flow(&metadata, &status);
        Self(ReadObject::new(metadata, work))
    }
}

impl From<PodText> for ReadPod {
    fn from(PodText { metadata, status }: PodText) -> Self {
        let work = retention::pod(&metadata, &status);
        Self(ReadObject::new(metadata, work))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_go_leaves_empty_is_read_as_empty() {
        let terms = |spec: serde_json::Value| {
            let read: ReadJob =
                serde_json::from_value(json!({"metadata": {"name": "j"}, "spec": spec, "status": null})).unwrap();
            (read.0.work.has_own_ttl, read.0.work.records_results)
        };
        assert_eq!(terms(json!(null)), (false, false));
        assert_eq!(terms(json!({"tasks": null, "ttlSecondsAfterFinished": 0})), (true, false));
        assert_eq!(
            terms(json!({"tasks": [{"template": {"spec": {"containers": [{"env": null}, {"name": "c"}]}}}]})),
            (false, false)
        );
        let env = json!([{"name": "A", "value": "b"}, {"name": "PUMICE_BUNDLE", "valueFrom": {}}]);
        assert_eq!(terms(json!({"tasks": [{"template": {"spec": {"containers": [{"env": env}]}}}]})), (false, true));
        let pod: ReadPod = serde_json::from_value(json!({"metadata": {"name": "p"}, "status": null})).unwrap();
        assert_eq!(pod.0.work, Work::default());
    }
}
