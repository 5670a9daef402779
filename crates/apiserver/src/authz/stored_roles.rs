//! Stored roles and bindings into grants.
//!
//! Invariant: what can't be read gives nobody anything. A cluster role that aggregates others has its own rules and
//! theirs, whatever the depth. Called when the rights are made anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pumice_auth::{Grant, Role, Rule, Scope, Subject};
use pumice_objects::selector::LabelSelector;
use pumice_store::Object;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredRole {
    metadata: Metadata,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    aggregation_rule: AggregationRule,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregationRule {
    #[serde(default)]
    cluster_role_selectors: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredBinding {
    role_ref: RoleRef,
    #[serde(default)]
    subjects: Vec<StoredSubject>,
}

#[derive(Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct StoredSubject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

/// Every role by its namespace, empty for cluster roles, and name.
pub(super) fn roles(cluster: &[Arc<Object>], namespaced: &[Arc<Object>]) -> HashMap<(String, String), Arc<Role>> {
    let cluster: Vec<StoredRole> = cluster.iter().filter_map(|object| read(object)).collect();
    let mut roles = HashMap::new();
    for (index, role) in cluster.iter().enumerate() {
        let name = role.metadata.name.clone();
        let rules = aggregated(&cluster, index);
        roles.insert((String::new(), name.clone()), Arc::new(Role { name, rules }));
    }
    for object in namespaced {
        let Some(StoredRole { metadata: Metadata { name, .. }, rules, .. }) = read(object) else { continue };
        roles.insert((object.key.namespace.to_string(), name.clone()), Arc::new(Role { name, rules }));
    }
    roles
}

/// The rules of a cluster role, and of those that it aggregates.
fn aggregated(roles: &[StoredRole], index: usize) -> Vec<Rule> {
    let mut seen = vec![false; roles.len()];
    let (mut rules, mut queue) = (Vec::new(), vec![index]);
    while let Some(index) = queue.pop() {
        if std::mem::replace(&mut seen[index], true) {
            continue;
        }
        rules.extend(roles[index].rules.iter().cloned());
        let selectors = &roles[index].aggregation_rule.cluster_role_selectors;
        for selector in selectors.iter().filter_map(|selector| LabelSelector::from_json(selector).ok()) {
            let chosen = |role: &StoredRole| selector.matches(|key| role.metadata.labels.get(key).map(String::as_str));
            queue.extend(roles.iter().enumerate().filter(|(_, role)| chosen(role)).map(|(index, _)| index));
        }
    }
    rules
}

/// What the bindings give. One to a role that is not there gives nothing until it is.
pub(super) fn grants<'a>(
    roles: &HashMap<(String, String), Arc<Role>>,
    bindings: impl Iterator<Item = &'a Arc<Object>>,
) -> Vec<Grant> {
    let mut grants = Vec::new();
    for object in bindings {
        let Some(StoredBinding { role_ref, subjects }) = read::<StoredBinding>(object) else { continue };
        let namespace = &*object.key.namespace;
        let place = if role_ref.kind == "Role" { namespace } else { "" };
        let Some(role) = roles.get(&(place.to_owned(), role_ref.name)) else { continue };
        let scope = match namespace {
            "" => Scope::Cluster,
            namespace => Scope::Namespace(namespace.to_owned()),
        };
        let subjects = subjects.into_iter().filter_map(|subject| subject.known(namespace));
        grants.extend(subjects.map(|subject| Grant { subject, role: Arc::clone(role), scope: scope.clone() }));
    }
    grants
}

impl StoredSubject {
    /// A service account that does not say where it is is beside its binding.
    fn known(self, beside: &str) -> Option<Subject> {
        match self.kind.as_str() {
            "User" => Some(Subject::User(self.name)),
            "Group" => Some(Subject::Group(self.name)),
            "ServiceAccount" if self.namespace.is_empty() => Some(Subject::service_account(beside, &self.name)),
            "ServiceAccount" => Some(Subject::service_account(&self.namespace, &self.name)),
            _ => None,
        }
    }
}

fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    let read = serde_json::from_slice(&object.body);
    read.inspect_err(|error| tracing::warn!(%error, key = ?object.key, "a stored role or binding counts for nothing"))
        .ok()
}

#[cfg(test)]
mod tests {
    use pumice_auth::{Attributes, Identity, Policy, Target};
    use pumice_store::Key;
    use serde_json::json;

    use super::*;
    use crate::stored::draft;

    fn object(resource: &'static str, namespace: &str, body: &Value) -> Arc<Object> {
        let key = Key::new(resource, namespace, body["metadata"]["name"].as_str().unwrap_or_default());
        Arc::new(Object { key, revision: 1, body: draft(body).render(1) })
    }

    fn role(name: &str, resource: &str, label: &str, aggregates: Value) -> Arc<Object> {
        let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}]);
        let metadata = json!({"name": name, "labels": {"to": label}});
        object("clusterroles", "", &json!({"metadata": metadata, "rules": rules, "aggregationRule": aggregates}))
    }

    #[test]
    fn aggregates_are_followed_and_circles_end() {
        let to = |label: &str| json!({"clusterRoleSelectors": [{"matchLabels": {"to": label}}]});
        let cluster = [
            role("a", "pods", "z", to("a")),
            role("b", "secrets", "a", to("b")),
            role("c", "nodes", "b", to("a")),
            role("d", "events", "-", json!({})),
        ];
        let roles = roles(&cluster, &[]);
        let mut found: Vec<&str> =
            roles[&(String::new(), "a".to_owned())].rules.iter().map(|rule| rule.resources[0].as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, ["nodes", "pods", "secrets"]);
    }

    #[test]
    fn bindings_give_where_they_are() {
        let cluster = [role("reader", "pods", "-", json!({}))];
        let own = json!({"metadata": {"name": "own"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]});
        let roles = roles(&cluster, &[object("roles", "here", &own)]);
        let binding = |kind: &str, name: &str| {
            let subjects = json!([{"kind": "ServiceAccount", "name": "robot"}, {"kind": "Group", "name": "team"}, {"kind": "X", "name": "y"}]);
            json!({"metadata": {"name": "b"}, "roleRef": {"kind": kind, "name": name}, "subjects": subjects})
        };
        let bindings = [
            object("rolebindings", "here", &binding("ClusterRole", "reader")),
            object("rolebindings", "here", &binding("Role", "own")),
            object("rolebindings", "there", &binding("Role", "own")),
            object("rolebindings", "there", &binding("ClusterRole", "absent")),
            object("rolebindings", "there", &json!({"metadata": {"name": "broken"}})),
        ];
        let policy = Policy::new(grants(&roles, bindings.iter()));
        let may = |identity: &Identity, resource, namespace| {
            let target =
                Target::Resource { group: "", resource, subresource: None, namespace: Some(namespace), name: None };
            policy.decide(identity, &Attributes { verb: "get", target }).is_allowed()
        };
        for identity in [Identity::service_account("here", "robot"), Identity::new("ann", ["team"])] {
            assert!(may(&identity, "pods", "here") && may(&identity, "secrets", "here"), "{identity:?}");
            assert!(!may(&identity, "pods", "there") && !may(&identity, "secrets", "there"), "{identity:?}");
        }
        assert!(!may(&Identity::service_account("there", "robot"), "pods", "here"));
    }
}
