//! The rights of the components as objects of a cluster, for an administrator to apply.
//!
//! Invariant: they are those of [`built_in`] and no more, so that what holds in our API server holds on a cluster. Called by
//! `pumice roles` and by the tests on a real Kubernetes.

use pumice_api::names::{
    SERVICE_ACCOUNT_ADMISSION, SERVICE_ACCOUNT_CONTROLLERS, SERVICE_ACCOUNT_EXECUTOR, SERVICE_ACCOUNT_HISTORY,
    SERVICE_ACCOUNT_SCHEDULER, USER_ADMISSION, USER_CONTROLLERS, USER_EXECUTOR, USER_HISTORY, USER_NODE,
    USER_SCHEDULER,
};
use serde_json::{Value, json};

use crate::rbac::{Grant, Scope, Subject};
use crate::roles::{ROLE_RENEWALS, ROLE_WORKLOADS, built_in};

const RBAC: &str = "rbac.authorization.k8s.io";

/// A component that runs on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    Scheduler,
    Controllers,
    Admission,
    History,
    Executor,
    Nodes,
}

impl Component {
    /// The components that a cluster needs.
    pub const ALL: [Component; 3] = [Self::Scheduler, Self::Controllers, Self::Admission];

    /// Its user, where it shows a certificate.
    pub fn user(self) -> &'static str {
        match self {
            Self::Scheduler => USER_SCHEDULER,
            Self::Controllers => USER_CONTROLLERS,
            Self::Admission => USER_ADMISSION,
            Self::History => USER_HISTORY,
            Self::Executor => USER_EXECUTOR,
            Self::Nodes => USER_NODE,
        }
    }

    /// Its service account, where it runs in a pod.
    pub fn service_account(self) -> &'static str {
        match self {
            Self::Scheduler => SERVICE_ACCOUNT_SCHEDULER,
            Self::Controllers => SERVICE_ACCOUNT_CONTROLLERS,
            Self::Admission => SERVICE_ACCOUNT_ADMISSION,
            Self::History => SERVICE_ACCOUNT_HISTORY,
            Self::Executor => SERVICE_ACCOUNT_EXECUTOR,
            Self::Nodes => "pumice-nodes",
        }
    }
}

/// Who the components are on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identities {
    /// Service accounts, which are made too.
    ServiceAccounts,
    /// Users, by the certificates that they show.
    Users,
}

/// The namespace of the components, their service accounts if they are such, their roles, and who has them.
pub fn installation(components: &[Component], namespace: &str, identities: Identities) -> Vec<Value> {
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
    let mut grants = built_in();
    // A cluster has a controller manager, and an authority of its own.
    grants.retain(|grant| grant.role.name != ROLE_WORKLOADS && grant.role.name != ROLE_RENEWALS);
    for component in components {
        let subject = match identities {
            Identities::Users => json!({"apiGroup": RBAC, "kind": "User", "name": component.user()}),
            Identities::ServiceAccounts => {
                let name = component.service_account();
                let metadata = json!({"name": name, "namespace": namespace});
                objects.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
            }
        };
        let own = Subject::User(component.user().to_owned());
        let own = grants.iter().filter(|grant| grant.subject == own);
        objects.extend(own.flat_map(|grant| role(grant, namespace, &subject)));
    }
    objects
}

/// A role and its binding.
fn role(Grant { role, scope, .. }: &Grant, namespace: &str, subject: &Value) -> [Value; 2] {
    let (version, name) = (format!("{RBAC}/v1"), &role.name);
    let (kind, metadata) = match scope {
        Scope::Cluster => ("ClusterRole", json!({"name": name})),
        // Ours, wherever that is.
        Scope::Namespace(_) => ("Role", json!({"name": name, "namespace": namespace})),
    };
    [
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": role.rules}),
        json!({"apiVersion": version, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name}, "subjects": [subject]}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(objects: &[Value], kind: &str) -> Vec<String> {
        let of_kind = objects.iter().filter(|object| object["kind"] == kind);
        of_kind.map(|object| object["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
    }

    #[test]
    fn every_role_has_a_binding_to_its_own_account() {
        let objects = installation(&Component::ALL, "batch", Identities::ServiceAccounts);
        assert_eq!(names(&objects, "Namespace"), ["batch"]);
        let accounts = names(&objects, "ServiceAccount");
        assert_eq!(accounts, ["pumice-scheduler", "pumice-controllers", "pumice-admission"]);
        let roles = names(&objects, "ClusterRole");
        assert_eq!(roles.len(), 4, "{roles:?}");
        assert_eq!(roles, names(&objects, "ClusterRoleBinding"));
        assert_eq!(names(&objects, "Role"), names(&objects, "RoleBinding"));
        assert_eq!(names(&objects, "Role").len(), 1, "admission's Secret");
        for binding in objects.iter().filter(|object| object["kind"].as_str().is_some_and(|k| k.ends_with("Binding"))) {
            let subject = &binding["subjects"][0];
            let role = binding["roleRef"]["name"].as_str().expect("a role");
            let account = subject["name"].as_str().and_then(|name| name.strip_prefix("pumice-")).expect("an account");
            assert!(role.starts_with(&format!("system:pumice:{account}")), "{binding}");
            assert_eq!((&subject["kind"], &subject["namespace"]), (&"ServiceAccount".into(), &"batch".into()));
        }
    }

    #[test]
    fn the_rules_are_those_of_the_table_and_nobody_gets_a_wildcard() {
        let objects = installation(&[Component::Scheduler, Component::Nodes], "n", Identities::Users);
        assert!(names(&objects, "ServiceAccount").is_empty());
        let rules = |name: &str| {
            objects.iter().find(|o| o["kind"] == "ClusterRole" && o["metadata"]["name"] == name).expect("a role")["rules"].clone()
        };
        let grants = built_in();
        let grant = grants.iter().find(|grant| grant.role.name == USER_SCHEDULER).expect("the scheduler's");
        assert_eq!(rules(USER_SCHEDULER), json!(grant.role.rules));
        assert!(rules(USER_NODE).as_array().is_some_and(|rules| !rules.is_empty()));
        assert!(!json!(objects).to_string().contains("\"*\""));
    }
}
