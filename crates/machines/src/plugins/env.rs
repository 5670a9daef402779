//! The env plugin: `VC_TASK_INDEX`, `VK_TASK_INDEX` and `PUMICE_ATTEMPT` in every container. It takes no arguments.

use k8s_openapi::api::core::v1::PodSpec;

use super::{PodPlace, add_env, variable};

/// Both names are in use: the first since v1.1, the second in older manifests.
const INDEX: [&str; 2] = ["VK_TASK_INDEX", "VC_TASK_INDEX"];
/// Which run of its index the pod is, from 1; not in Volcano.
const ATTEMPT: &str = "PUMICE_ATTEMPT";

pub(super) fn shape_pod(place: &PodPlace<'_>, pod: &mut PodSpec) {
    let [old, new] = INDEX.map(|name| variable(name, place.index.to_string()));
    add_env(pod, &[old, new, variable(ATTEMPT, place.attempt.to_string())]);
}
