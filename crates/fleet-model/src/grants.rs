//! Where pods of a queue may be made, as which account, and with which rights.
//!
//! The executor makes pods with rights of its own, which are those of many: without this whoever may submit to one queue could run
//! beside the cluster's own services. So the server checks it when a job comes, and each executor before it makes a pod, by rules
//! of its own: a cluster need not believe the server. Pure.

use std::collections::BTreeMap;

use pumice_objects::pod_security;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// Queues that are not named.
const OTHERS: &str = "*";
/// Namespaces that nobody has without being given them: those of Kubernetes, and of what schedules.
const PROTECTED: [&str; 3] = ["kube-*", "pumice-*", "volcano-system"];
/// The account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// What queues may do, by queue; `*` is for those that are not named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(BTreeMap<String, Access>);

/// What a queue may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Access {
    /// Namespaces of its pods; one that ends in `*` stands for all that begin so. Without any: all but those of Kubernetes and of
    /// the platform.
    pub namespaces: Vec<String>,
    /// Accounts of its pods. Without any: `default`, which has no rights where nobody gave it some.
    pub service_accounts: Vec<String>,
    /// What its pods may ask for.
    pub pods: PodLevel,
    /// Folders of nodes that its pods may mount, with all that is in them.
    pub host_folders: Vec<String>,
}

/// What pods may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodLevel {
    /// What profile `baseline` of the Pod Security Standards allows.
    #[default]
    Baseline,
    /// Anything: the host's files, network and devices, too.
    Privileged,
}

/// What a queue may not do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotGranted {
    #[error("namespace: queue {queue} may not use {namespace:?}: use {allowed}, or ask an operator")]
    Namespace { queue: String, namespace: String, allowed: String },
    #[error("podSpec.serviceAccountName: queue {queue} may not use {account:?}: use {allowed}, or ask an operator")]
    Account { queue: String, account: String, allowed: String },
    #[error(
        "podSpec.{field}: it reaches beyond the pod, which queue {queue} may not: leave it out, or ask an operator"
    )]
    Privileged { queue: String, field: String },
}

impl Grants {
    /// Every queue may have pods that ask for anything.
    pub fn privileged() -> Self {
        Self([(OTHERS.to_owned(), Access { pods: PodLevel::Privileged, ..Access::default() })].into())
    }

    fn of(&self, queue: &str) -> Option<&Access> {
        self.0.get(queue).or_else(|| self.0.get(OTHERS))
    }

    /// Whether a queue's pods may be made in a namespace.
    ///
    /// # Errors
    /// Where they may be made instead.
    pub fn check_namespace(&self, queue: &str, namespace: &str) -> Result<(), NotGranted> {
        let named = self.of(queue).map_or(&[][..], |access| &access.namespaces);
        let fits = match named {
            [] => !PROTECTED.iter().any(|pattern| matches(pattern, namespace)),
            named => named.iter().any(|pattern| matches(pattern, namespace)),
        };
        if fits {
            return Ok(());
        }
        let allowed = if named.is_empty() { "one of your own".to_owned() } else { named.join(", ") };
        Err(NotGranted::Namespace { queue: queue.to_owned(), namespace: namespace.to_owned(), allowed })
    }

    /// Whether a queue may have such pods.
    ///
    /// # Errors
    /// The first field that it may not have.
    pub fn check_pod(&self, queue: &str, spec: &Value) -> Result<(), NotGranted> {
        let access = self.of(queue);
        let accounts = access.map_or(&[][..], |access| &access.service_accounts);
        // The field that is deprecated counts where the other is empty, as in Kubernetes.
        let mut named = ["serviceAccountName", "serviceAccount"].into_iter().filter_map(|field| spec[field].as_str());
        let account = named.find(|name| !name.is_empty()).unwrap_or(DEFAULT_ACCOUNT);
        let fits = match accounts {
            [] => account == DEFAULT_ACCOUNT,
            accounts => accounts.iter().any(|known| known == account),
        };
        if !fits {
            let allowed = if accounts.is_empty() { DEFAULT_ACCOUNT.to_owned() } else { accounts.join(", ") };
            return Err(NotGranted::Account { queue: queue.to_owned(), account: account.to_owned(), allowed });
        }
        let folders = access.map_or(&[][..], |access| &access.host_folders);
        match pod_security::first_forbidden_field(spec, |path| folders.iter().any(|folder| is_within(folder, path))) {
            Some(field) if access.is_none_or(|access| access.pods == PodLevel::Baseline) => {
                Err(NotGranted::Privileged { queue: queue.to_owned(), field })
            }
            _ => Ok(()),
        }
    }
}

/// Whether a path is that folder or in it. One that goes up again might leave it.
fn is_within(folder: &str, path: &str) -> bool {
    let rest = path.strip_prefix(folder.trim_end_matches('/'));
    let goes_up = path.split('/').any(|part| part == "..");
    !goes_up && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn grants() -> Grants {
        let rules = json!({
            "research": {"namespaces": ["research", "lab-*"], "serviceAccounts": ["default", "trainer"]},
            "infra": {"namespaces": ["kube-system"], "pods": "privileged"},
            "shared": {"hostFolders": ["/shared/"]},
            "*": {"namespaces": ["batch"]},
        });
        serde_json::from_value(rules).unwrap()
    }

    #[test]
    fn namespaces_are_those_that_were_given() {
        let open = Grants::default();
        for (grants, queue, namespace, fits) in [
            (&open, "q", "default", true),
            (&open, "q", "team", true),
            (&open, "q", "kube-system", false),
            (&open, "q", "kube-public", false),
            (&open, "q", "pumice-system", false),
            (&open, "q", "volcano-system", false),
            (&grants(), "research", "research", true),
            (&grants(), "research", "lab-7", true),
            (&grants(), "research", "laboratory", false),
            (&grants(), "research", "batch", false),
            (&grants(), "infra", "kube-system", true),
            (&grants(), "other", "batch", true),
            (&grants(), "other", "default", false),
        ] {
            assert_eq!(grants.check_namespace(queue, namespace).is_ok(), fits, "{queue} in {namespace}");
        }
        let said = grants().check_namespace("research", "kube-system").unwrap_err().to_string();
        assert_eq!(
            said,
            "namespace: queue research may not use \"kube-system\": use research, lab-*, or ask an operator"
        );
    }

    fn mounting(path: &str) -> Value {
        json!({ "volumes": [{ "name": "v", "hostPath": { "path": path } }] })
    }

    #[test]
    fn pods_are_within_what_was_given() {
        let open = Grants::default();
        for (grants, queue, spec, problem) in [
            (&open, "q", json!({}), None),
            (&open, "q", json!({"serviceAccountName": "default"}), None),
            (&open, "q", json!({"serviceAccountName": "admin"}), Some("serviceAccountName")),
            (&open, "q", json!({"serviceAccountName": "", "serviceAccount": "admin"}), Some("serviceAccountName")),
            (&open, "q", json!({"hostPID": true}), Some("podSpec.hostPID")),
            (&grants(), "research", json!({"serviceAccountName": "trainer"}), None),
            (&grants(), "research", json!({"volumes": [{"hostPath": {"path": "/"}}]}), Some("volumes[0].hostPath")),
            (&grants(), "shared", mounting("/shared"), None),
            (&grants(), "shared", mounting("/shared/ada"), None),
            (&grants(), "shared", mounting("/shared/../etc"), Some("volumes[0].hostPath")),
            (&grants(), "shared", mounting("/shared-too"), Some("volumes[0].hostPath")),
            (&grants(), "shared", mounting("/"), Some("volumes[0].hostPath")),
            (&grants(), "infra", json!({"hostNetwork": true}), None),
            (&grants(), "infra", json!({"serviceAccountName": "trainer"}), Some("use default")),
        ] {
            let found = grants.check_pod(queue, &spec).map_err(|problem| problem.to_string());
            match (&found, problem) {
                (Ok(()), None) => {}
                (Err(said), Some(problem)) => assert!(said.contains(problem), "{spec}: {said}"),
                _ => panic!("{queue} {spec}: {found:?}"),
            }
        }
    }
}
