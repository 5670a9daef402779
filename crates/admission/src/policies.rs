//! The rules as policies that the API server evaluates itself, for clusters that want no webhook, or none on the path of pods.
//!
//! Invariant: lists of names (events, actions, plugins, schedulers) are those of the rules: they are put in when the policies
//! are printed. A policy sees one object, so that this is a part of the rules: what is there and what is not stands in the
//! files. Printed by `pumice admission policies`.

use pumice_api::bus::{Action, Event};
use pumice_api::names::{TENANT, service_account_user};
use pumice_machines::plugins;

use serde_json::json;

use crate::job::policies::{ACTIONS, EVENTS};

mod tenant_pods;

const PODS: &str = include_str!("../policies/pods.yaml");
const OBJECTS: &str = include_str!("../policies/objects.yaml");
const TENANTS: &str = include_str!("../policies/tenants.yaml");
/// What YAML has from one document to the next.
const BETWEEN: &str = "\n---\n";
/// Lists of the rules of tenants, by the words that stand for them.
const LISTS: &[(&str, &[&str])] = &[
    ("VOLUMES", &["configMap", "secret", "emptyDir", "downwardAPI", "projected", "image", "persistentVolumeClaim"]),
    ("SOURCES", &["configMap", "secret", "downwardAPI", "serviceAccountToken", "clusterTrustBundle"]),
    (
        "NOTES",
        &["pumice.sh/accelerators", "volcano.sh/gpu-index", "volcano.sh/predicate-time", "nvidia.com/gpu.devices"],
    ),
    (
        "OLD_PROFILES",
        &[
            "seccomp.security.alpha.kubernetes.io/",
            "container.seccomp.security.alpha.kubernetes.io/",
            "container.apparmor.security.beta.kubernetes.io/",
        ],
    ),
    (
        "PLATFORM_TAINTS",
        &[
            "node.kubernetes.io/unschedulable",
            "node.kubernetes.io/out-of-service",
            "node.kubernetes.io/disk-pressure",
            "node.kubernetes.io/pid-pressure",
            "node.kubernetes.io/network-unavailable",
        ],
    ),
    (
        "OF_CLUSTER",
        &[
            "Node",
            "Namespace",
            "PersistentVolume",
            "Tenant",
            "Directory",
            "Queue",
            "HyperNode",
            "StorageClass",
            "ClusterRole",
        ],
    ),
];
/// The queues that a tenant may use, as its namespace says it.
const QUEUES: &str =
    "(namespaceObject.metadata.?annotations.orValue({})[?'pumice.sh/tenant-queues'].orValue('default').split(','))";

/// What differs from cluster to cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// The schedulers whose pods are ours. The first is that of jobs that name none.
    pub schedulers: Vec<String>,
    /// Users who make jobs in the name of others, and say in whose.
    pub trusted: Vec<String>,
    /// Namespace of the components, where nothing is judged.
    pub namespace: String,
}

/// Which policies a cluster has that fill in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutating {
    /// Since Kubernetes 1.36.
    V1,
    /// Kubernetes 1.34 and 1.35, where it is turned on.
    V1Beta1,
    /// None: the webhook fills in.
    Absent,
}

impl Policies {
    /// Policies for pods, YAML.
    pub fn pods(&self) -> String {
        self.fill(PODS)
    }

    /// Policies for jobs, queues and the like, YAML.
    pub fn objects(&self) -> String {
        self.fill(OBJECTS)
    }

    /// Policies for what is in tenants' namespaces, for these namespaces, and for Tenants, YAML.
    pub fn tenants(&self, mutating: Mutating) -> String {
        let filled = |text: &str| self.fill(text);
        let variables = tenant_pods::VARIABLES.iter().map(|variable| (variable.name.to_owned(), filled(variable.is)));
        let findings = tenant_pods::RULES.iter().map(|rule| (rule.finding(), filled(rule.at)));
        let expressions = |all: &mut dyn Iterator<Item = (String, String)>| -> String {
            all.map(|(name, text)| item(&json!({ "name": name, "expression": text }))).collect()
        };
        let rules = tenant_pods::RULES.iter().map(|rule| {
            item(&json!({ "expression": format!("variables.{}.size() == 0", rule.finding()), "messageExpression": rule.message() }))
        });
        let text = self
            .fill(TENANTS)
            .replace("  # POD_VARIABLES\n", &expressions(&mut variables.into_iter()))
            .replace("  # POD_FINDINGS\n", &expressions(&mut findings.into_iter()))
            .replace("  # POD_RULES\n", &rules.collect::<String>());
        let documents = text.split(BETWEEN).filter(|document| mutating != Mutating::Absent || !fills_in(document));
        let documents = documents.map(|document| match mutating {
            Mutating::V1Beta1 if fills_in(document) => document.replacen(".io/v1\n", ".io/v1beta1\n", 1),
            _ => document.to_owned(),
        });
        documents.collect::<Vec<_>>().join(BETWEEN)
    }

    fn fill(&self, template: &str) -> String {
        let others = format!(
            "{{matchExpressions: [{{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, {}]}}]}}",
            self.namespace
        );
        let lists = LISTS
            .iter()
            .fold(template.to_owned(), |text, (word, items)| text.replace(word, &list(items.iter().copied())));
        lists
            .replace("COMPONENT", &by_component(&self.namespace))
            .replace("QUEUES", QUEUES)
            .replace("NAMESPACES", &others)
            .replace("TENANTS", &format!("{{matchExpressions: [{{key: {TENANT}, operator: Exists}}]}}"))
            .replace("SCHEDULERS", &list(self.schedulers.iter().map(String::as_str)))
            .replace("TRUSTED", &list(self.trusted.iter().map(String::as_str)))
            .replace("EVENTS", &list(EVENTS.iter().map(Event::as_str)))
            .replace("ACTIONS", &list(ACTIONS.iter().map(Action::as_str)))
            .replace("PLUGINS", &list(plugins::KNOWN.iter().copied()))
    }
}

/// Whether a component, of these in `namespace`, or an administrator asks, as the API server of `pumice up` tells them: a tenant's service
/// accounts are the tenant. CEL.
fn by_component(namespace: &str) -> String {
    let accounts = ["kube-system", namespace].map(|namespace| quoted(&service_account_user(namespace, "")));
    format!(
        "(request.userInfo.username.startsWith('system:serviceaccount:') \
         ? [{}].exists(prefix, request.userInfo.username.startsWith(prefix)) \
         : request.userInfo.username.startsWith('system:') || 'system:masters' in request.userInfo.?groups.orValue([]))",
        accounts.join(", ")
    )
}

/// Whether a document is a policy that fills in, or its binding.
fn fills_in(document: &str) -> bool {
    document.contains("\nkind: MutatingAdmission")
}

/// An item of a list of a policy's `spec`, as YAML. JSON is YAML, too.
fn item(value: &serde_json::Value) -> String {
    format!("  - {value}\n")
}

/// A list of texts in CEL.
fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts.map(quoted).collect();
    format!("[{}]", quoted.join(", "))
}

/// A text in CEL.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn policies() -> Policies {
        Policies {
            schedulers: vec!["volcano".into(), "it's".into()],
            trusted: vec!["system:pumice:controllers".into()],
            namespace: "volcano-system".into(),
        }
    }

    fn documents() -> Vec<Value> {
        let policies = policies();
        let tenants = policies.tenants(Mutating::V1);
        let text = format!("{}---\n{}---\n{tenants}", policies.pods(), policies.objects());
        for word in [
            "NAMESPACES",
            "TENANTS",
            "SCHEDULERS",
            "TRUSTED",
            "EVENTS",
            "ACTIONS",
            "PLUGINS",
            "# POD_",
            "COMPONENT",
            "QUEUES",
        ] {
            assert!(!text.contains(word), "{word} is left");
        }
        assert!(text.contains(r"['volcano', 'it\'s']") && text.contains("'RestartPartition'"), "{text}");
        text.split("\n---\n").map(|document| serde_saphyr::from_str(document).expect("YAML")).collect()
    }

    #[test]
    fn every_policy_is_bound_and_every_binding_has_its_policy() {
        let mut named = [BTreeSet::new(), BTreeSet::new()];
        let mut bound = [BTreeSet::new(), BTreeSet::new()];
        for document in documents() {
            assert_eq!(document["apiVersion"], "admissionregistration.k8s.io/v1");
            let name = document["metadata"]["name"].as_str().expect("a name").to_owned();
            match document["kind"].as_str().expect("a kind") {
                "MutatingAdmissionPolicy" => named[0].insert(name),
                "ValidatingAdmissionPolicy" => named[1].insert(name),
                "MutatingAdmissionPolicyBinding" => bound[0].insert(document["spec"]["policyName"].to_string()),
                "ValidatingAdmissionPolicyBinding" => {
                    assert_eq!(document["spec"]["validationActions"], serde_json::json!(["Deny"]), "{name}");
                    bound[1].insert(document["spec"]["policyName"].to_string())
                }
                other => panic!("{other}"),
            };
        }
        for (named, bound) in named.iter().zip(&bound) {
            let named: BTreeSet<String> = named.iter().map(|name| format!("\"{name}\"")).collect();
            assert_eq!((&named, named.len() > 3), (bound, true));
        }
    }

    #[test]
    fn a_cluster_gets_the_policies_that_it_has() {
        let of = |mutating| policies().tenants(mutating);
        let count = |text: &str, what: &str| text.matches(what).count();
        let (new, older, none) = (of(Mutating::V1), of(Mutating::V1Beta1), of(Mutating::Absent));
        let fill_in = count(&new, "\nkind: MutatingAdmission");
        assert_eq!(count(&older, ".io/v1beta1\nkind: MutatingAdmission"), fill_in);
        assert_eq!(count(&older, "\nkind: Validating"), count(&older, ".io/v1\nkind: Validating"));
        assert_eq!((count(&none, "\nkind: MutatingAdmission"), fill_in), (0, 6));
        assert_eq!(count(&none, "\nkind: Validating"), count(&new, "\nkind: Validating"));
    }

    #[test]
    fn a_refusal_names_field_reason_and_what_to_do() {
        let rule = tenant_pods::Rule { name: "run-as-user", at: "[]", says: "it's {uid}; remove the field" };
        assert_eq!(rule.finding(), "runAsUserAt");
        let message =
            r"variables.runAsUserAt[0] + ': Forbidden: ' + 'it\'s ' + string(variables.uid) + '; remove the field'";
        assert_eq!(rule.message(), message);
    }
}
