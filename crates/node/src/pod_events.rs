//! What Events about pods point at, and those about their images, in a kubelet's words.
//!
//! Invariant: an image that is there already makes no Event, unlike with a kubelet: a hundred thousand pods of one image would write as
//! many that nobody reads. Of pods that wait for the same pull, the one whose pull it is has its Events.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use pumice_clock as clock;
use pumice_cluster::events::{Occurrence, Severity};
use pumice_images::provide::ProvideError;
use pumice_units::{GoDuration, with_causes};

use crate::pod_spec::ephemeral;

/// A pod, or the container of it that is named.
pub(crate) fn about(pod: &Pod, container: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        field_path: container.map(|container| field_path(pod, container)),
        ..ObjectReference::default()
    }
}

fn field_path(pod: &Pod, container: &str) -> String {
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let list = if init.into_iter().any(|init| init.name == container) {
        "initContainers"
    } else if ephemeral::of(pod).iter().any(|added| added.name == container) {
        "ephemeralContainers"
    } else {
        "containers"
    };
    format!("spec.{list}{{{container}}}")
}

/// What becomes of an image that a registry is asked for.
#[derive(Debug)]
pub(crate) enum ImageEvent<'a> {
    Pulling {
        image: &'a str,
    },
    Pulled {
        image: &'a str,
        took: Duration,
        /// With the wait for others' pulls.
        waited: Duration,
        size_bytes: u64,
    },
    Failed {
        image: &'a str,
        error: &'a ProvideError,
    },
}

impl ImageEvent<'_> {
    pub(crate) fn occurrence(&self, about: ObjectReference) -> Occurrence {
        let (severity, reason, message) = self.words();
        Occurrence { about, severity, reason: reason.to_owned(), message, at: clock::now() }
    }

    fn words(&self) -> (Severity, &'static str, String) {
        match self {
            ImageEvent::Pulling { image } => (Severity::Normal, "Pulling", format!("Pulling image {image:?}")),
            ImageEvent::Pulled { image, took, waited, size_bytes } => {
                let (took, waited) = (whole_millis(*took), whole_millis(*waited));
                let size = format!("Image size: {size_bytes} bytes.");
                let message =
                    format!("Successfully pulled image {image:?} in {took} ({waited} including waiting). {size}");
                (Severity::Normal, "Pulled", message)
            }
            ImageEvent::Failed { image, error } => match error {
                ProvideError::BackOff { message, .. } => {
                    (Severity::Normal, "BackOff", format!("Back-off pulling image {image:?}: {message}"))
                }
                ProvideError::Never { .. } | ProvideError::NotGranted { .. } => {
                    (Severity::Warning, "ErrImageNeverPull", with_causes(error))
                }
                ProvideError::Name { .. } => (Severity::Warning, "InspectFailed", with_causes(error)),
                ProvideError::Pull { source, .. } => {
                    let message = format!("Failed to pull image {image:?}: {}", with_causes(source));
                    (Severity::Warning, "Failed", message)
                }
                error => {
                    (Severity::Warning, "Failed", format!("Failed to pull image {image:?}: {}", with_causes(error)))
                }
            },
        }
    }
}

/// As Go writes it.
fn whole_millis(duration: Duration) -> GoDuration {
    GoDuration::from_millis(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_pointed_at_in_its_list() {
        let pod = serde_json::json!({"metadata": {"name": "p"}, "spec": {"initContainers": [{"name": "i"}],
            "containers": [{"name": "c"}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let path = |container| about(&pod, container).field_path;
        assert_eq!(path(Some("c")).as_deref(), Some("spec.containers{c}"));
        assert_eq!(path(Some("i")).as_deref(), Some("spec.initContainers{i}"));
        assert_eq!(path(None), None);
    }

    #[test]
    fn pulls_are_told_in_a_kubelets_words() {
        let (took, waited) = (Duration::from_micros(1_234_567), Duration::from_secs(62));
        let never = ProvideError::Never { name: "docker.io/library/a:1".into() };
        let back_off = ProvideError::BackOff { name: "docker.io/library/a:1".into(), message: "no".into() };
        let cases = [
            (ImageEvent::Pulling { image: "a:1" }, "Normal Pulling Pulling image \"a:1\""),
            (
                ImageEvent::Pulled { image: "a:1", took, waited, size_bytes: 7 },
                "Normal Pulled Successfully pulled image \"a:1\" in 1.234s (1m2s including waiting). Image size: 7 bytes.",
            ),
            (
                ImageEvent::Failed { image: "a:1", error: &back_off },
                "Normal BackOff Back-off pulling image \"a:1\": no",
            ),
            (
                ImageEvent::Failed { image: "a:1", error: &never },
                "Warning ErrImageNeverPull the image docker.io/library/a:1 is not on this machine, and imagePullPolicy is Never",
            ),
        ];
        for (event, expected) in cases {
            let (severity, reason, message) = event.words();
            assert_eq!(format!("{severity:?} {reason} {message}"), expected);
        }
    }
}
