//! Containers that are added to a pod that runs: the field `ephemeralContainers`.
//!
//! Invariant: pure. One is resolved as any container is, as the only one of a pod that otherwise is its own. Called when the agent sees
//! one that its shim does not have.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};

/// Before the field of an error about a pod that was made by [`alone`].
const OF_ALONE: &str = "spec.containers[0]";

/// Those of a pod, in its order.
pub(crate) fn of(pod: &Pod) -> &[EphemeralContainer] {
    pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_deref()).unwrap_or_default()
}

/// The pod as if `added` were its only container, with the volumes that this mounts and no others.
pub(crate) fn alone(pod: &Pod, added: &EphemeralContainer) -> Pod {
    let mut alone = pod.clone();
    if let Some(spec) = &mut alone.spec {
        let mounted = |name: &str| added.volume_mounts.iter().flatten().any(|mount| mount.name == name);
        spec.containers = vec![container(added)];
        spec.init_containers = None;
        spec.ephemeral_containers = None;
        spec.volumes = spec.volumes.take().map(|all| all.into_iter().filter(|one| mounted(&one.name)).collect());
    }
    alone
}

/// What is said of a pod that was made by [`alone`], as it is to be said of the pod whose container at `index` it is.
pub(crate) fn with_own_path(text: &str, index: usize) -> String {
    text.replace(OF_ALONE, &format!("spec.ephemeralContainers[{index}]"))
}

/// The same fields. Those that such a container may not have it does not get, whoever has stored it.
fn container(added: &EphemeralContainer) -> Container {
    let EphemeralContainer {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        name,
        security_context,
        stdin,
        stdin_once,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
        ..
    } = added.clone();
    Container {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        name,
        security_context,
        stdin,
        stdin_once,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_stands_alone_in_its_pod() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "hostNetwork": true,
            "containers": [{"name": "main"}],
            "initContainers": [{"name": "first"}],
            "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "gone"}}],
            "ephemeralContainers": [{"name": "e", "image": "i", "command": ["sh"], "tty": true,
                "targetContainerName": "main", "resources": {"limits": {"cpu": "1"}},
                "volumeMounts": [{"name": "a", "mountPath": "/a"}]}],
        }}))
        .unwrap();
        let found = serde_json::to_value(alone(&pod, &of(&pod)[0])).unwrap();
        let container = json!({"name": "e", "image": "i", "command": ["sh"], "tty": true,
            "volumeMounts": [{"name": "a", "mountPath": "/a"}]});
        assert_eq!(
            found["spec"],
            json!({"hostNetwork": true, "containers": [container], "volumes": [{"name": "a", "emptyDir": {}}]})
        );
        assert_eq!(with_own_path("spec.containers[0].image: bad", 2), "spec.ephemeralContainers[2].image: bad");
    }
}
