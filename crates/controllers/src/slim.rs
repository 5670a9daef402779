//! Pods as the controllers read them: what the machine looks at, and nothing else.
//!
//! Invariant: what is kept of a pod does not grow with what it asks for or with what servers write on it; a list of very many
//! pods, and the answers to a plan that makes or marks thousands, are in memory at once. Used by the watch of pods and by
//! the calls that bring one.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_cluster::partly_read;
use pumice_machines::job::JobPod;
use serde::Deserialize;

/// What is read of a pod.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "WithoutSpec")]
pub(crate) struct SlimPod {
    /// Namespace, name, uid and version.
    pub metadata: ObjectMeta,
    /// What it is to its Job; none if it is no Job's.
    pub of_job: Option<Box<JobPod>>,
}

/// What is most of a pod's text, its spec, is passed over.
#[derive(Deserialize)]
struct WithoutSpec {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Option<PodStatus>,
}

impl From<WithoutSpec> for SlimPod {
    fn from(WithoutSpec { metadata, status }: WithoutSpec) -> Self {
        Self::from(Pod { metadata, status, spec: None })
    }
}

impl From<Pod> for SlimPod {
    fn from(pod: Pod) -> Self {
        let of_job = JobPod::observe(&pod).map(Box::new);
        let ObjectMeta { namespace, name, uid, resource_version, .. } = pod.metadata;
        Self { metadata: ObjectMeta { namespace, name, uid, resource_version, ..ObjectMeta::default() }, of_job }
    }
}

partly_read!(SlimPod, Pod, metadata);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_says_of_a_pod_what_the_whole_pod_says() {
        let told = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "j-w-0", "namespace": "ns", "uid": "p", "resourceVersion": "7", "labels": {"a": "b"},
                "annotations": {"volcano.sh/task-spec": "w", "volcano.sh/task-index": "0", "volcano.sh/job-version": "2"},
                "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u",
                    "controller": true}]},
            "spec": {"containers": [{"name": "c"}], "nodeName": "n"},
            "status": {"phase": "Running", "podIP": "1.2.3.4"},
        });
        let whole: Pod = serde_json::from_value(told.clone()).unwrap();
        let slim: SlimPod = serde_json::from_value(told).unwrap();
        let expected = JobPod::observe(&whole).unwrap();
        assert_eq!((expected.job_uid.as_str(), expected.facts.version), ("u", 2));
        assert_eq!(slim.of_job.as_deref(), Some(&expected));
        let ObjectMeta { namespace, name, uid, resource_version, .. } = whole.metadata;
        assert_eq!(slim.metadata, ObjectMeta { namespace, name, uid, resource_version, ..ObjectMeta::default() });
    }

    #[test]
    fn a_pod_of_nobody_is_known_by_its_name_only() {
        let slim = SlimPod::from(serde_json::from_value::<Pod>(json!({"metadata": {"name": "p"}})).unwrap());
        assert_eq!((slim.metadata.name.as_deref(), slim.of_job), (Some("p"), None));
    }
}
