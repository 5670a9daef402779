//! Fields of pods that ask for protection which nobody here gives: the client is told.
//!
//! What ignoring would make unsafe is refused by the node (`pod_spec/security.rs` of `node`); the rest only looks as if it
//! protected. Invariant: a pod that asks for none of it costs some look-ups. Called when an object is made, or its
//! templates of pods change.

use std::collections::BTreeMap;

use pumice_objects::pod_security::is_safe_sysctl;
use serde_json::Value;

use crate::admission::Attributes;
use crate::admission::Operation;
use crate::admission::pod_security::templates;

/// Lists of containers of a pod.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// Before the name of a container: the profile that it asks for, as it was asked for before there was a field.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

const CONFINED: &str = "appArmorProfile: nodes of this platform have no default profile of AppArmor, and start the pod only where they run AppArmor and it names a loaded profile";
const SYSCTLS: &str = "sysctls: a pod may not set these for itself, and nodes of this platform don't start it";
const PORTS: &str = "hostPort: nodes of this platform forward no ports without hostNetwork, and don't start the pod";
const LABELS: &str = "seLinuxOptions have no effect here: nothing is labelled";
const WINDOWS: &str = "windowsOptions have no effect here: nodes of this platform run Linux";

/// Says what of a new object, or of changed templates in it, will not protect anything.
pub(crate) fn warn(write: &Attributes<'_>, object: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if !write.subresource.is_empty() {
        return;
    }
    let is_pod = &*write.descriptor.storage == "pods";
    let pods = match write.operation {
        Operation::Create if is_pod => vec![object],
        Operation::Create => templates(object),
        // What is said of them changes with the specification alone, that of pods never.
        Operation::Update if !is_pod && old.is_some_and(|old| old["spec"] != object["spec"]) => templates(object),
        Operation::Update | Operation::Delete => return,
    };
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for pod in pods {
        look(pod, &mut |text, place| {
            let places = found.entry(text).or_default();
            if !places.contains(&place) {
                places.push(place);
            }
        });
    }
    warnings.extend(found.into_iter().map(|(text, places)| format!("{text} ({})", places.join(", "))));
}

/// Finds what a pod or a template of pods asks for in vain, and where.
fn look(pod: &Value, tell: &mut impl FnMut(&'static str, String)) {
    let spec = &pod["spec"];
    let whole = || "pod".to_owned();
    contexts(&spec["securityContext"], &whole, tell);
    let sysctls = spec["securityContext"]["sysctls"].as_array().into_iter().flatten();
    for name in sysctls.filter_map(|sysctl| sysctl["name"].as_str()).filter(|name| !is_safe_sysctl(name)) {
        tell(SYSCTLS, format!("{name:?}"));
    }
    for container in CONTAINERS.into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten()) {
        let context = &container["securityContext"];
        let place = || format!("container {:?}", container["name"].as_str().unwrap_or_default());
        contexts(context, &place, tell);
        let mut ports = container["ports"].as_array().into_iter().flatten();
        if spec["hostNetwork"] != true && ports.any(|port| port["hostPort"].as_i64().is_some_and(|number| number != 0))
        {
            tell(PORTS, place());
        }
    }
    for (key, profile) in pod["metadata"]["annotations"].as_object().into_iter().flatten() {
        let Some(container) = key.strip_prefix(APP_ARMOR) else { continue };
        match profile.as_str().unwrap_or_default() {
            profile if profile == "runtime/default" || profile.starts_with("localhost/") => {
                tell(CONFINED, format!("container {container:?}"));
            }
            _ => {}
        }
    }
}

/// What the pod and each container may say alike.
fn contexts(context: &Value, place: &dyn Fn() -> String, tell: &mut impl FnMut(&'static str, String)) {
    if matches!(context["appArmorProfile"]["type"].as_str(), Some("RuntimeDefault" | "Localhost")) {
        tell(CONFINED, place());
    }
    for (field, text) in [("seLinuxOptions", LABELS), ("windowsOptions", WINDOWS)] {
        if context[field].as_object().is_some_and(|options| !options.is_empty()) {
            tell(text, place());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(pod: &Value) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        look(pod, &mut |text, place| found.push((text, place)));
        found
    }

    #[test]
    fn each_field_is_found_where_it_stands() {
        let context = |context: Value| json!({"spec": {"containers": [{"name": "c", "securityContext": context}]}});
        let of_pod = |spec: Value| json!({ "spec": spec });
        for (pod, text, place) in [
            (of_pod(json!({"securityContext": {"appArmorProfile": {"type": "Localhost"}}})), CONFINED, "pod"),
            (of_pod(json!({"securityContext": {"sysctls": [{"name": "a", "value": "1"}]}})), SYSCTLS, "\"a\""),
            (of_pod(json!({"securityContext": {"seLinuxOptions": {"level": "s0"}}})), LABELS, "pod"),
            (of_pod(json!({"securityContext": {"windowsOptions": {"hostProcess": false}}})), WINDOWS, "pod"),
            (of_pod(json!({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]})), PORTS, "container \"c\""),
            (context(json!({"seLinuxOptions": {"level": "s0"}})), LABELS, "container \"c\""),
            (context(json!({"appArmorProfile": {"type": "RuntimeDefault"}})), CONFINED, "container \"c\""),
            (
                json!({"metadata": {"annotations": {format!("{APP_ARMOR}c"): "runtime/default"}}}),
                CONFINED,
                "container \"c\"",
            ),
            (
                json!({"metadata": {"annotations": {format!("{APP_ARMOR}c"): "localhost/p"}}}),
                CONFINED,
                "container \"c\"",
            ),
        ] {
            assert_eq!(found(&pod), [(text, place.to_owned())], "{pod}");
        }
    }

    #[test]
    fn what_asks_for_nothing_is_quiet() {
        for pod in [
            json!({}),
            json!({"spec": {"hostUsers": true, "securityContext": {"seccompProfile": {"type": "Unconfined"}, "sysctls": []}}}),
            json!({"spec": {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}}),
            json!({"spec": {"containers": [{"name": "c", "securityContext": {"procMount": "Default", "seLinuxOptions": {}}}, 7]}}),
            json!({"spec": {"hostNetwork": true, "containers": [{"name": "c", "ports": [{"hostPort": 80}, {}]}]}}),
            json!({"spec": {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}}}),
            json!({"spec": {"hostPID": true, "shareProcessNamespace": true, "containers": [{"name": "c", "ports": [{"hostPort": 0}]}]}}),
            json!({"metadata": {"annotations": {format!("{APP_ARMOR}c"): "unconfined", "x": 3}}}),
            json!({"spec": {"hostUsers": false, "containers": [{"name": "c", "securityContext": {"procMount": "Unmasked"}}]}}),
        ] {
            assert_eq!(found(&pod), [], "{pod}");
        }
    }
}
