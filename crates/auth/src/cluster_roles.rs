//! The cluster roles that every cluster has, for people to be bound to: `cluster-admin`, `admin`, `edit`, `view`.
//!
//! Invariant: as upstream: `view` shows no secrets and no rights, `edit` changes neither rights nor the namespace, `admin`
//! adds the rights within a namespace, and each has all of the one before. They name what is served here, Volcano's kinds
//! included. Stored by the API server at its first start.

use crate::rbac::{Role, Rule};
use crate::roles::{Line, on};

const CORE: &[&str] = &[""];
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];

/// Volcano's and our kinds that people write.
const WORK: [Line; 5] = [
    on(&["batch.volcano.sh"], &["cronjobs", "jobs"], WRITE),
    on(&["bus.volcano.sh"], &["commands"], WRITE),
    on(&["flow.volcano.sh"], &["jobflows", "jobtemplates"], WRITE),
    on(&["scheduling.volcano.sh"], &["podgroups"], WRITE),
    on(&["pumice.sh"], &["resourceprofiles"], WRITE),
];

const VIEW: &[Line] = &[
    on(CORE, &["configmaps", "persistentvolumeclaims", "pods", "serviceaccounts", "services"], READ),
    on(CORE, &["bindings", "namespaces/status", "persistentvolumeclaims/status", "pods/log", "pods/status"], READ),
    on(CORE, &["services/status"], READ),
    on(CORE, &["limitranges", "resourcequotas", "resourcequotas/status"], READ),
    on(CORE, &["replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status"], READ),
    on(CORE, &["namespaces"], READ),
    on(&["", "events.k8s.io"], &["events"], READ),
    on(&["apps"], &["controllerrevisions"], READ),
    on(&["apps"], &["deployments", "deployments/scale", "deployments/status"], READ),
    on(&["apps"], &["replicasets", "replicasets/scale", "replicasets/status"], READ),
    on(&["apps"], &["statefulsets", "statefulsets/scale", "statefulsets/status"], READ),
    on(&["batch", "batch.volcano.sh"], &["cronjobs", "cronjobs/status", "jobs", "jobs/status"], READ),
    on(&["discovery.k8s.io"], &["endpointslices"], READ),
    on(&["networking.k8s.io"], &["networkpolicies"], READ),
    on(&["policy"], &["poddisruptionbudgets", "poddisruptionbudgets/status"], READ),
    on(&["resource.k8s.io"], &["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"], READ),
    on(&["bus.volcano.sh"], &["commands"], READ),
    on(&["flow.volcano.sh"], &["jobflows", "jobflows/status", "jobtemplates", "jobtemplates/status"], READ),
    // Queues, HyperNodes and the like are the cluster's: a RoleBinding does not show them, a ClusterRoleBinding does.
    on(&["scheduling.volcano.sh"], &["podgroups", "podgroups/status", "queues", "queues/status"], READ),
    on(&["topology.volcano.sh"], &["hypernodes", "hypernodes/status"], READ),
    on(&["nodeinfo.volcano.sh"], &["numatopologies"], READ),
    on(&["shard.volcano.sh"], &["nodeshards", "nodeshards/status"], READ),
    on(&["pumice.sh"], &["reservations", "resourceprofiles"], READ),
    // Why a job waits, and how queues and nodes stand.
    on(&["why.pumice.sh"], &["jobs", "nodes", "queues"], READ),
    // What became of jobs, for who may read them while they are there.
    on(&["history.pumice.sh"], &["jobs"], READ),
];

const EDIT: &[Line] = &[
    on(CORE, &["pods/attach", "pods/exec", "pods/portforward", "secrets"], READ),
    on(CORE, &["serviceaccounts"], &["impersonate"]),
    on(CORE, &["pods", "pods/attach", "pods/exec", "pods/portforward"], WRITE),
    on(CORE, &["pods/eviction"], CREATE),
    on(CORE, &["configmaps", "persistentvolumeclaims", "secrets", "serviceaccounts", "services"], WRITE),
    on(CORE, &["replicationcontrollers", "replicationcontrollers/scale"], WRITE),
    on(CORE, &["serviceaccounts/token"], CREATE),
    on(&["apps"], &["deployments", "deployments/scale", "replicasets", "replicasets/scale"], WRITE),
    on(&["apps"], &["statefulsets", "statefulsets/scale"], WRITE),
    on(&["batch"], &["cronjobs", "jobs"], WRITE),
    on(&["", "events.k8s.io"], &["events"], WRITE),
    on(&["coordination.k8s.io"], &["leases"], ALL),
    on(&["networking.k8s.io"], &["networkpolicies"], WRITE),
    on(&["policy"], &["poddisruptionbudgets"], WRITE),
    on(&["resource.k8s.io"], &["resourceclaims", "resourceclaimtemplates"], WRITE),
];

const ADMIN: &[Line] = &[
    on(&["rbac.authorization.k8s.io"], &["rolebindings", "roles"], ALL),
    on(&["authorization.k8s.io"], &["localsubjectaccessreviews"], CREATE),
];

/// The name of the role that allows everything.
pub const CLUSTER_ADMIN: &str = "cluster-admin";

/// A cluster role that every cluster has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRole {
    pub role: Role,
    /// The role that cluster roles are added to by the label `rbac.authorization.k8s.io/aggregate-to-NAME`.
    pub gathers: bool,
    /// Into which of the others it is gathered.
    pub gathered_into: Option<&'static str>,
}

/// The cluster roles of a new cluster: `cluster-admin`, `admin`, `edit` and `view`, in this order.
pub fn default_cluster_roles() -> Vec<DefaultRole> {
    let edit: Vec<Line> = EDIT.iter().chain(&WORK).copied().collect();
    let role = |name: &str, parts: &[&[Line]]| Role {
        name: name.to_owned(),
        rules: parts.iter().copied().flatten().map(Line::rule).collect(),
    };
    let everything = Role { name: CLUSTER_ADMIN.to_owned(), rules: Rule::everything().to_vec() };
    vec![
        DefaultRole { role: everything, gathers: false, gathered_into: None },
        DefaultRole { role: role("admin", &[VIEW, &edit, ADMIN]), gathers: true, gathered_into: None },
        DefaultRole { role: role("edit", &[VIEW, &edit]), gathers: true, gathered_into: Some("admin") },
        DefaultRole { role: role("view", &[VIEW]), gathers: true, gathered_into: Some("edit") },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escalation::uncovered;

    #[test]
    fn each_role_has_all_of_the_one_before_and_view_tells_no_secrets() {
        let roles = default_cluster_roles();
        for pair in roles.windows(2) {
            let owned: Vec<&Rule> = pair[0].role.rules.iter().collect();
            assert_eq!(uncovered(&owned, &pair[1].role.rules), [], "{}", pair[0].role.name);
            assert_ne!(pair[0].role.rules, pair[1].role.rules);
        }
        let view = &roles[3].role;
        let of = |rule: &Rule| rule.resources.clone();
        assert!(
            !view.rules.iter().flat_map(of).any(|resource| resource.contains("secret") || resource.contains("role"))
        );
        assert!(view.rules.iter().all(|rule| rule.verbs == READ));
    }
}
