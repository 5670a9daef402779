//! Pods as the controllers read them: without their spec.
//!
//! Invariant: all but the spec is as the server told it. A pod is told of several times in its life, what it asks for is most
//! of its text, and the machine never looks at that. Used by the watch of pods and by the answers to their creation.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_cluster::partly_read;
use serde::Deserialize;

/// A pod whose spec was passed over.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Told")]
pub(crate) struct SlimPod(pub Pod);

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Option<PodStatus>,
}

impl From<Told> for SlimPod {
    fn from(Told { metadata, status }: Told) -> Self {
        Self(Pod { metadata, status, spec: None })
    }
}

partly_read!(SlimPod, Pod, 0.metadata);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_spec_is_missing() {
        let told = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c"}], "nodeName": "n"}, "status": {"phase": "Running", "podIP": "1.2.3.4"},
        });
        let SlimPod(slim) = serde_json::from_value(told.clone()).unwrap();
        let whole: Pod = serde_json::from_value(told).unwrap();
        assert_eq!(slim, Pod { spec: None, ..whole });
    }
}
