//! The env plugin: `VC_TASK_INDEX` and `VK_TASK_INDEX` in every container. It takes no arguments.

use k8s_openapi::api::core::v1::PodSpec;

use super::{PodPlace, add_env, variable};

/// Both names are in use: the first since v1.1, the second in older manifests.
const NAMES: [&str; 2] = ["VK_TASK_INDEX", "VC_TASK_INDEX"];

pub(super) fn shape_pod(place: &PodPlace<'_>, pod: &mut PodSpec) {
    add_env(pod, &NAMES.map(|name| variable(name, place.index.to_string())));
}
