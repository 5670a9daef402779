//! Pod Security: what a pod may ask for, by the profiles that the labels of its namespace choose.
//!
//! Pods beyond what is enforced are refused, when they are made and when an image in them changes; who makes such pods, or
//! an object with templates of them, is warned; the audit log notes both. Where nothing is enforced nor warned of, a pod whose
//! probes or hooks say whom they ask is made with a warning all the same. The profiles are [`pumice_objects::pod_security`].
//!
//! Invariant: a pod costs one look at the labels of its namespace; where these are silent and nothing is enforced by default,
//! the only other thing is a walk over its probes and hooks. An object without templates, and an update that changes nothing of
//! them, costs not even that look.

mod existing_pods;

use pumice_objects::meta;
use pumice_objects::pod_security::{Policy, Profile, VersionedProfile, Violations, probe_hosts, violations};
use pumice_objects::status::Status;
use serde_json::Value;

use crate::admission::{Attributes, Operation, Tenancy};
use crate::json_scan::field;

/// The profile that was enforced, in the audit log.
const ENFORCE_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";
/// What is beyond the profile of the label `audit`, in the audit log.
const AUDIT_VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";

/// Refuses a pod that its namespace's profile forbids; warns of it and notes it as the namespace wants, also of templates. Of a
/// namespace, names its pods that a new profile forbids.
pub(crate) fn check(
    write: &Attributes<'_>,
    object: &Value,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    if !["", "ephemeralcontainers"].contains(&write.subresource) {
        return Ok(());
    }
    match &*write.descriptor.storage {
        "namespaces" => {
            if let Some(old) = old {
                existing_pods::warn(write, object, old, warnings);
            }
            Ok(())
        }
        "pods" if old.is_none_or(|old| runs_other_images(object, old)) => {
            check_pods(write, object, &[object], warnings)
        }
        "pods" => Ok(()),
        _ => {
            let templates = templates(object);
            if templates.is_empty() || old.is_some_and(|old| self::templates(old) == templates) {
                return Ok(());
            }
            check_pods(write, object, &templates, warnings)
        }
    }
}

fn check_pods(
    write: &Attributes<'_>,
    object: &Value,
    pods: &[&Value],
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let is_pod = &*write.descriptor.storage == "pods";
    // Labels that can't be read are refused when they are written; of older ones the profile is `restricted`.
    let policy = Policy::of_namespace(write.namespace, &labels(write), write.default_pod_security);
    if is_pod && let Some(annotations) = write.annotations {
        annotations.set(ENFORCE_POLICY, policy.enforce.to_string());
    }
    if policy.is_privileged() {
        warn_of_probe_hosts(write, pods, warnings);
        return Ok(());
    }
    let without: Vec<Value> =
        if is_tenants(write, pods) { pods.iter().map(|pod| without_host_folders(pod)).collect() } else { Vec::new() };
    let shown: Vec<&Value> = without.iter().collect();
    let mut judged = Judged { pods: if without.is_empty() { pods } else { &shown }, found: Vec::new() };
    if let Some(annotations) = write.annotations
        && let Some(text) = judged.text(policy.audit)
    {
        annotations.set(AUDIT_VIOLATIONS, format!("would violate {text}"));
    }
    if is_pod && let Some(text) = judged.text(policy.enforce) {
        return Err(Status::forbidden(write.resource(), meta::name(object), format!("violates {text}")));
    }
    match judged.text(policy.warn) {
        Some(text) => warnings.push(format!("would violate {text}")),
        None if policy.enforce.profile == Profile::Privileged && policy.warn.profile == Profile::Privileged => {
            warn_of_probe_hosts(write, pods, warnings);
        }
        None => {}
    }
    Ok(())
}

/// Whether these are pods of a tenant that mount folders of nodes: which it may is its Tenant's to say, whatever the profile.
fn is_tenants(write: &Attributes<'_>, pods: &[&Value]) -> bool {
    pods.iter().any(|pod| host_folders(pod).next().is_some())
        && write.tenants.is_some_and(|tenants| matches!(tenants.tenancy(write.namespace), Tenancy::Of(_)))
}

fn host_folders(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["volumes"].as_array().into_iter().flatten().filter(|volume| !volume["hostPath"].is_null())
}

fn without_host_folders(pod: &Value) -> Value {
    let mut pod = pod.clone();
    if let Some(volumes) = pod["spec"]["volumes"].as_array_mut() {
        volumes.retain(|volume| volume["hostPath"].is_null());
    }
    pod
}

/// Pods, and what each profile that was asked for forbids of them: the modes of a namespace mostly have the same one.
struct Judged<'a> {
    pods: &'a [&'a Value],
    found: Vec<(VersionedProfile, Violations)>,
}

impl Judged<'_> {
    /// Which profile forbids what, in upstream's words; nothing where the pods are within it.
    fn text(&mut self, rule: VersionedProfile) -> Option<String> {
        let known = self.found.iter().position(|(known, _)| *known == rule);
        let index = known.unwrap_or_else(|| {
            self.found.push((rule, violations(rule, self.pods)));
            self.found.len() - 1
        });
        let (_, found) = &self.found[index];
        (!found.is_empty()).then(|| format!("PodSecurity \"{rule}\": {found}"))
    }
}

/// Warns where nothing is enforced: unlike Kubernetes' nodes those here ask from within the pod's network.
fn warn_of_probe_hosts(write: &Attributes<'_>, pods: &[&Value], warnings: &mut Vec<String>) {
    if write.operation != Operation::Create {
        return;
    }
    let found = probe_hosts(pods);
    if !found.is_empty() {
        let baseline = VersionedProfile::from(Profile::Baseline);
        let effect = "it is asked from within the pod's network";
        warnings.push(format!("would violate PodSecurity \"{baseline}\": {found}; {effect}"));
    }
}

/// The labels of the write's namespace. The rest of its text is not parsed: they are looked up for each pod that is made.
fn labels(write: &Attributes<'_>) -> Value {
    let namespace = write.store.find("namespaces", "", write.namespace);
    let labels = namespace.as_ref().and_then(|namespace| field(field(&namespace.body, "metadata")?, "labels"));
    labels.and_then(|text| serde_json::from_slice(text).ok()).unwrap_or_default()
}

/// Whether an update of a pod is one that is judged: nothing else that a profile is about can change.
fn runs_other_images(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value| -> Vec<(String, String)> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        let containers = lists.into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        containers.map(|container| (text(&container["name"]), text(&container["image"]))).collect()
    };
    images(new) != images(old)
}

/// The templates of the pods that an object makes: those of a workload, a Job's tasks, a template, and of what makes such.
pub(crate) fn templates(object: &Value) -> Vec<&Value> {
    let spec = &object["spec"];
    let makers = [object, spec, &spec["jobTemplate"]["spec"]];
    let of_maker = makers.into_iter().flat_map(|maker| {
        let tasks = maker["tasks"].as_array().into_iter().flatten();
        tasks.chain([maker]).map(|maker| &maker["template"])
    });
    of_maker.filter(|template| template["spec"]["containers"].is_array()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_are_found_wherever_they_stand() {
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        for object in [
            json!({ "template": template }),
            json!({"spec": {"template": template}}),
            json!({"spec": {"tasks": [{"name": "a"}, {"template": template}]}}),
            json!({"spec": {"jobTemplate": {"spec": {"template": template}}}}),
            json!({"spec": {"jobTemplate": {"spec": {"tasks": [{"template": template}]}}}}),
        ] {
            assert_eq!(templates(&object), [&template], "{object}");
        }
        for other in [json!({}), json!({"spec": {"template": {"metadata": {}}}}), json!({"spec": {"tasks": 3}})] {
            assert_eq!(templates(&other), [&Value::Null; 0], "{other}");
        }
    }

    #[test]
    fn only_other_images_are_judged_again() {
        let pod = |image: &str| json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        let mut labelled = pod("a");
        labelled["metadata"] = json!({"labels": {"a": "b"}});
        assert!(!runs_other_images(&labelled, &pod("a")));
        assert!(runs_other_images(&pod("b"), &pod("a")));
        let mut more = pod("a");
        more["spec"]["ephemeralContainers"] = json!([{"name": "e", "image": "a"}]);
        assert!(runs_other_images(&more, &pod("a")));
    }
}
