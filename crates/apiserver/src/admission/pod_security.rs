//! Pod Security: what a pod may ask for, by the profile that its namespace enforces with a label.
//!
//! One control of the profiles `baseline` and `restricted` is checked so far: a probe or hook must not say whom it asks
//! ("Host Probes / Lifecycle Hooks"). Where no profile is enforced such a pod is made with a warning; so is, anywhere, an object
//! with a template of such pods. Invariant: what asks for nothing that a profile is about costs no look at its namespace.
//!
//! <https://kubernetes.io/docs/concepts/security/pod-security-standards/>

use pumice_objects::meta;
use pumice_objects::status::Status;
use serde_json::Value;

use crate::admission::Attributes;
use crate::admission::Operation;
use crate::stored::ObjectReader;
use crate::strategies::namespace::{ENFORCE, PROFILES};

/// Fields of a container that may hold an action, and those below them.
const HANDLERS: [(&str, &[&str]); 4] =
    [("livenessProbe", &[]), ("readinessProbe", &[]), ("startupProbe", &[]), ("lifecycle", &["postStart", "preStop"])];

/// Refuses a pod that its namespace's profile forbids, or says what a profile would, also of templates of pods.
pub(crate) fn check(write: &Attributes<'_>, object: &Value, warnings: &mut Vec<String>) -> Result<(), Status> {
    if write.operation != Operation::Create || !write.subresource.is_empty() {
        return Ok(());
    }
    let is_pod = &*write.descriptor.storage == "pods";
    let pods = if is_pod { vec![object] } else { templates(object) };
    let found: Vec<_> = pods.into_iter().flat_map(|pod| hosts(&pod["spec"])).collect();
    if found.is_empty() {
        return Ok(());
    }
    let containers: Vec<String> = found.iter().map(|(container, _)| format!("{container:?}")).collect();
    let hosts: Vec<String> = found.iter().flat_map(|(_, hosts)| hosts).map(|host| format!("{host:?}")).collect();
    let uses = if found.len() == 1 { "container" } else { "containers" };
    let detail = format!("probe or lifecycle host ({uses} {} uses host {})", containers.join(", "), hosts.join(", "));
    let namespace = ObjectReader::get(write.store, "namespaces", "", write.namespace);
    let profile = namespace.as_ref().and_then(|namespace| namespace["metadata"]["labels"][ENFORCE].as_str());
    let (profile, effect) = match profile.filter(|profile| PROFILES.contains(profile)) {
        Some(profile) if is_pod => {
            let cause = format!("violates PodSecurity \"{profile}:latest\": {detail}");
            return Err(Status::forbidden(write.resource(), meta::name(object), cause));
        }
        Some(profile) => (profile, "the pods are refused"),
        None => ("baseline", "it is asked from within the pod's network"),
    };
    warnings.push(format!("would violate PodSecurity \"{profile}:latest\": {detail}; {effect}"));
    Ok(())
}

/// The templates of the pods that an object makes: those of a workload, a Job's tasks, a template, and of what makes such.
pub(crate) fn templates(object: &Value) -> Vec<&Value> {
    let spec = &object["spec"];
    let makers = [object, spec, &spec["jobTemplate"]["spec"]];
    let of_maker = makers.into_iter().flat_map(|maker| {
        let tasks = maker["tasks"].as_array().into_iter().flatten();
        tasks.chain([maker]).map(|maker| &maker["template"])
    });
    of_maker.collect()
}

/// The containers whose probes and hooks name a host, with those hosts.
fn hosts(spec: &Value) -> Vec<(&str, Vec<&str>)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers = lists.into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten());
    let found = containers.map(|container| {
        let handlers = HANDLERS.into_iter().flat_map(|(field, below)| match below {
            [] => vec![&container[field]],
            below => below.iter().map(|hook| &container[field][hook]).collect(),
        });
        let actions = handlers.flat_map(|handler| [&handler["httpGet"], &handler["tcpSocket"]]);
        let hosts = actions.filter_map(|action| action["host"].as_str()).filter(|host| !host.is_empty()).collect();
        (container["name"].as_str().unwrap_or_default(), hosts)
    });
    found.filter(|(_, hosts): &(&str, Vec<&str>)| !hosts.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_place_that_names_a_host_is_found() {
        let host = |host: &str| json!({"httpGet": {"port": 1, "host": host}});
        let spec = json!({
            "initContainers": [{"name": "i", "startupProbe": {"tcpSocket": {"port": 1, "host": "a"}}}],
            "containers": [
                {"name": "quiet", "livenessProbe": {"httpGet": {"port": 1}}, "readinessProbe": host(""),
                    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}}},
                {"name": "c", "livenessProbe": host("b"), "readinessProbe": host("c"),
                    "lifecycle": {"postStart": host("d"), "preStop": {"tcpSocket": {"port": 1, "host": "e"}}}},
            ],
        });
        assert_eq!(hosts(&spec), [("i", vec!["a"]), ("c", vec!["b", "c", "d", "e"])]);
        for template in [
            json!({"template": {"spec": spec}}),
            json!({"spec": {"template": {"spec": spec}}}),
            json!({"spec": {"tasks": [{"name": "a"}, {"template": {"spec": spec}}]}}),
            json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}),
            json!({"spec": {"jobTemplate": {"spec": {"tasks": [{"template": {"spec": spec}}]}}}}),
        ] {
            let found = templates(&template).into_iter().flat_map(|template| hosts(&template["spec"]));
            assert_eq!(found.count(), 2, "{template}");
        }
        for nothing in
            [json!({}), json!({"containers": [{"name": "c", "lifecycle": null}]}), json!({"containers": [7]})]
        {
            assert!(hosts(&nothing).is_empty(), "{nothing}");
        }
    }
}
