//! What is told to the API server about pods: their status, and that nothing of them is left.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use pumice_cluster::{Failure, failure, write};
use serde::Serialize;

use crate::confinement::allotment::ANNOTATION;

/// The end of one call.
pub(crate) struct CallDone {
    pub uid: String,
    pub call: Call,
    pub result: Result<(), Failure>,
}

/// What a call was about.
pub(crate) enum Call {
    Status(Box<PodStatus>),
    Finalize,
}

#[derive(Debug, Serialize)]
struct StatusPatch<'p> {
    metadata: PatchedPod<'p>,
    status: &'p PodStatus,
}

#[derive(Debug, Serialize)]
struct PatchedPod<'p> {
    uid: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<BTreeMap<&'static str, String>>,
}

/// Who it is about.
pub(crate) struct Subject {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Subject {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Replaces the status of this very pod, not of a later one of its name, and notes its accelerators.
    pub(crate) async fn write_status(self, status: Box<PodStatus>, accelerators: Option<String>) -> CallDone {
        let annotations = accelerators.map(|text| BTreeMap::from([(ANNOTATION, text)]));
        let patch = StatusPatch { metadata: PatchedPod { uid: &self.uid, annotations }, status: &status };
        let written =
            write::merge_unread::<Pod>(&self.client, &self.namespace, &self.name, Some("status"), &patch).await;
        let result = written.map_err(|error| self.sorted("write a pod's status", &error));
        CallDone { uid: self.uid, call: Call::Status(status), result }
    }

    /// Removes the object of a pod of which no process is left.
    pub(crate) async fn finalize(self) -> CallDone {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        let result = self.pods().delete(&self.name, &params).await;
        let result = result.map(drop).map_err(|error| self.sorted("remove a pod", &error));
        CallDone { uid: self.uid, call: Call::Finalize, result }
    }

    fn sorted(&self, operation: &str, error: &kube::Error) -> Failure {
        let failure = failure(error);
        if !matches!(failure, Failure::NotFound) {
            tracing::warn!(namespace = self.namespace, pod = self.name, error = %error, "can't {operation}, will try again");
        }
        failure
    }
}
