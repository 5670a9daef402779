//! What of a pod's security this node can't keep, and must not pass over.
//!
//! A pod that asks for a user namespace, for a profile of AppArmor, for an unmasked `/proc` or for parameters of the kernel
//! relies on getting them, so it is not started. AppArmor's `RuntimeDefault` asks for what the runtime has, and here that is
//! nothing; the API server warns of it. Invariant: pure. Called when a pod is resolved.

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SecurityContext};

/// The type of a profile that is a file on the node.
const LOCALHOST: &str = "Localhost";
/// Before the name of a container: its AppArmor profile, as it was asked for before there was a field.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The first thing that a pod relies on and does not get, in words that go on from "this node can't provide".
pub(crate) fn lacking(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let none = PodSecurityContext::default();
    let of_pod = spec.security_context.as_ref().unwrap_or(&none);
    if spec.host_users == Some(false) {
        return Some("a user namespace (hostUsers: false)".to_owned());
    }
    if let Some(sysctl) = of_pod.sysctls.iter().flatten().next() {
        return Some(format!("the sysctl {:?}", sysctl.name));
    }
    if let Some((key, _)) = pod
        .metadata
        .annotations
        .iter()
        .flatten()
        .find(|(key, profile)| key.starts_with(APP_ARMOR) && profile.starts_with("localhost/"))
    {
        return Some(format!("the AppArmor profile of annotation {key:?}"));
    }
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    containers.into_iter().find_map(|container| of_container(container, of_pod))
}

fn of_container(container: &Container, of_pod: &PodSecurityContext) -> Option<String> {
    let none = SecurityContext::default();
    let own = container.security_context.as_ref().unwrap_or(&none);
    let name = &container.name;
    // What a container says goes before what its pod says.
    let confined = own.app_armor_profile.as_ref().or(of_pod.app_armor_profile.as_ref());
    if let Some(profile) = confined.filter(|profile| profile.type_ == LOCALHOST) {
        let file = profile.localhost_profile.as_deref().unwrap_or_default();
        return Some(format!("the AppArmor profile {file:?} of container {name:?}"));
    }
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    unmasked.then(|| format!("an unmasked /proc (procMount of container {name:?})"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        let mut whole = json!({"containers": [{"name": "c"}]});
        whole.as_object_mut().expect("fields").extend(spec.as_object().cloned().expect("fields"));
        serde_json::from_value(json!({ "spec": whole })).expect("a pod")
    }

    #[test]
    fn what_a_pod_relies_on_is_named() {
        let context = |context: Value| pod(json!({"containers": [{"name": "c", "securityContext": context}]}));
        let local = json!({"type": "Localhost", "localhostProfile": "p"});
        for (pod, wanted) in [
            (pod(json!({"hostUsers": false})), "a user namespace (hostUsers: false)"),
            (pod(json!({"securityContext": {"sysctls": [{"name": "a.b", "value": "1"}]}})), "the sysctl \"a.b\""),
            (
                pod(json!({"securityContext": {"appArmorProfile": local}})),
                "the AppArmor profile \"p\" of container \"c\"",
            ),
            (context(json!({"appArmorProfile": local})), "the AppArmor profile \"p\" of container \"c\""),
            (context(json!({"procMount": "Unmasked"})), "an unmasked /proc (procMount of container \"c\")"),
            (
                pod(json!({"initContainers": [{"name": "i", "securityContext": {"procMount": "Unmasked"}}]})),
                "an unmasked /proc (procMount of container \"i\")",
            ),
        ] {
            assert_eq!(lacking(&pod).as_deref(), Some(wanted));
        }
        let mut annotated = pod(json!({}));
        annotated.metadata.annotations = Some([(format!("{APP_ARMOR}c"), "localhost/p".to_owned())].into());
        assert!(lacking(&annotated).is_some_and(|text| text.contains(APP_ARMOR)));
    }

    #[test]
    fn what_the_runtime_has_is_enough() {
        let default = json!({"type": "RuntimeDefault"});
        let local = json!({"type": "Localhost", "localhostProfile": "p"});
        for spec in [
            json!({}),
            json!({"hostUsers": true, "securityContext": {"seccompProfile": default, "appArmorProfile": default}}),
            json!({"securityContext": {"sysctls": []}}),
            json!({
                "securityContext": {"seccompProfile": local},
                "containers": [{"name": "c", "securityContext": {"seccompProfile": default, "procMount": "Default"}}],
            }),
        ] {
            assert_eq!(lacking(&pod(spec)), None);
        }
        assert_eq!(lacking(&Pod::default()), None);
    }
}
