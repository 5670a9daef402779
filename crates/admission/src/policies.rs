//! The rules as policies that the API server evaluates itself, for clusters that want no webhook, or none on the path of pods.
//!
//! Invariant: lists of names (events, actions, plugins, schedulers) are those of the rules: they are put in when the policies
//! are printed. A policy sees one object, so that this is a part of the rules: what is there and what is not stands in the
//! files. Printed by `pumice admission policies`.

use pumice_api::bus::{Action, Event};
use pumice_machines::plugins;

use crate::job::policies::{ACTIONS, EVENTS};

const PODS: &str = include_str!("../policies/pods.yaml");
const OBJECTS: &str = include_str!("../policies/objects.yaml");

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

impl Policies {
    /// Policies for pods, YAML.
    pub fn pods(&self) -> String {
        self.fill(PODS)
    }

    /// Policies for jobs, queues and the like, YAML.
    pub fn objects(&self) -> String {
        self.fill(OBJECTS)
    }

    fn fill(&self, template: &str) -> String {
        let others = format!(
            "{{matchExpressions: [{{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, {}]}}]}}",
            self.namespace
        );
        template
            .replace("NAMESPACES", &others)
            .replace("SCHEDULERS", &list(self.schedulers.iter().map(String::as_str)))
            .replace("TRUSTED", &list(self.trusted.iter().map(String::as_str)))
            .replace("EVENTS", &list(EVENTS.iter().map(Event::as_str)))
            .replace("ACTIONS", &list(ACTIONS.iter().map(Action::as_str)))
            .replace("PLUGINS", &list(plugins::KNOWN.iter().copied()))
    }
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

    fn documents() -> Vec<Value> {
        let policies = Policies {
            schedulers: vec!["volcano".into(), "it's".into()],
            trusted: vec!["system:pumice:controllers".into()],
            namespace: "volcano-system".into(),
        };
        let text = format!("{}---\n{}", policies.pods(), policies.objects());
        for word in ["NAMESPACES", "SCHEDULERS", "TRUSTED", "EVENTS", "ACTIONS", "PLUGINS"] {
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
}
