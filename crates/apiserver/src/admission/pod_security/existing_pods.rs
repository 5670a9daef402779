//! A namespace enforces another profile: its pods that were made before stay, and whoever changed it is told of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_objects::meta;
use pumice_objects::pod_security::{Policy, Profile, VersionedProfile, violations};
use pumice_store::Object;
use serde_json::Value;

use crate::admission::Attributes;
use crate::stored::parse;

/// Most pods that are looked at: a write must not hold up others while it walks through a large namespace.
const PODS_MAX: usize = 1000;

/// Pods that break the same controls.
struct Alike {
    /// The first of them by name.
    first: String,
    count: usize,
}

/// Names the pods of a namespace that the profile which it enforces from now on forbids.
pub(super) fn warn(write: &Attributes<'_>, new: &Value, old: &Value, warnings: &mut Vec<String>) {
    let name = meta::name(new);
    let enforced =
        |object: &Value| Policy::of_namespace(name, &object["metadata"]["labels"], write.default_pod_security).enforce;
    let (enforced, before) = (enforced(new), enforced(old));
    let is_looser = enforced.version == before.version && enforced.profile <= before.profile;
    if enforced.profile == Profile::Privileged || is_looser {
        return;
    }
    warnings.extend(texts(name, &write.store.list("pods", Some(name)).items, enforced, PODS_MAX));
}

/// What is told of pods of a namespace, of which at most so many are looked at.
fn texts(namespace: &str, pods: &[Arc<Object>], enforced: VersionedProfile, pods_max: usize) -> Vec<String> {
    let looked_at = &pods[..pods.len().min(pods_max)];
    let found = violators(looked_at, enforced);
    let mut texts = Vec::new();
    if looked_at.len() < pods.len() {
        let (some, all) = (looked_at.len(), pods.len());
        texts.push(format!(
            "new PodSecurity enforce level only checked against the first {some} of {all} existing pods"
        ));
    }
    if !found.is_empty() {
        texts.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{enforced}\""
        ));
    }
    let of_pods = found.into_iter().map(|(reasons, Alike { first, count })| match count {
        1 => format!("{first}: {reasons}"),
        2 => format!("{first} (and 1 other pod): {reasons}"),
        _ => format!("{first} (and {} other pods): {reasons}", count - 1),
    });
    let mut of_pods: Vec<String> = of_pods.collect();
    of_pods.sort();
    texts.extend(of_pods);
    texts
}

/// Pods beyond a profile, by what they break.
fn violators(pods: &[Arc<Object>], rule: VersionedProfile) -> BTreeMap<String, Alike> {
    let mut found: BTreeMap<String, Alike> = BTreeMap::new();
    for pod in pods {
        let reasons = violations(rule, &[&parse(pod)]).reasons();
        if reasons.is_empty() {
            continue;
        }
        let name = &*pod.key.name;
        let alike = found.entry(reasons).or_insert_with(|| Alike { first: name.to_owned(), count: 0 });
        alike.count += 1;
        if name < alike.first.as_str() {
            name.clone_into(&mut alike.first);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use pumice_store::Key;
    use serde_json::json;

    use super::*;

    #[test]
    fn no_more_pods_than_the_most_are_looked_at() {
        let pod = |name: &str| {
            let body = json!({"metadata": {"name": name}, "spec": {"hostPID": true}}).to_string().into();
            Arc::new(Object { key: Key::new("pods", "n", name), revision: 1, body })
        };
        let pods = [pod("b"), pod("a"), pod("never")];
        let texts = |pods_max| texts("n", &pods, Profile::Baseline.into(), pods_max);
        assert_eq!(
            texts(2),
            [
                "new PodSecurity enforce level only checked against the first 2 of 3 existing pods",
                "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a (and 1 other pod): host namespaces",
            ]
        );
        assert_eq!(texts(3)[1..], ["a (and 2 other pods): host namespaces"]);
    }
}
