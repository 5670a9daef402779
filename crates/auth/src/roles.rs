//! The roles of the platform's own components, as data.
//!
//! Invariant: least rights: a component has what it calls and no more, and none but the garbage
//! collector has a wildcard. Read by the API server's builder and by the right's own tests.

use std::sync::{Arc, LazyLock};

use pumice_api::names::{
    ADMISSION_CONFIGURATION, ADMISSION_SECRET, HISTORY_LEASE, NAMESPACE_SYSTEM, USER_ADMISSION, USER_CONTROLLERS,
    USER_EXECUTOR, USER_GC, USER_HISTORY, USER_NODE, USER_SCHEDULER,
};

use crate::identity::{AUTHENTICATED, UNAUTHENTICATED};
use crate::rbac::{Grant, Role, Rule, Scope, Subject};

/// The role of components that have their certificates renewed, as they are of our authority.
pub(crate) const ROLE_RENEWALS: &str = "system:pumice:renewals";
/// The role that the controllers need only where no controller manager is.
pub(crate) const ROLE_WORKLOADS: &str = "system:pumice:controllers-workloads";

/// A rule on resources, as a line of a table.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

/// The line that allows `verbs` on `resources` of `groups`.
pub(crate) const fn on(
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Line {
    Line { groups, resources, verbs }
}

impl Line {
    /// The rule in the form that roles have.
    pub(crate) fn rule(&self) -> Rule {
        Rule {
            verbs: owned(self.verbs),
            api_groups: owned(self.groups),
            resources: owned(self.resources),
            ..Rule::default()
        }
    }
}

const CORE: &[&str] = &[""];
const BATCH: &[&str] = &["batch.volcano.sh"];
const FLOW: &[&str] = &["flow.volcano.sh"];
const SCHEDULING: &[&str] = &["scheduling.volcano.sh"];
const BUS: &[&str] = &["bus.volcano.sh"];
const OURS: &[&str] = &["pumice.sh"];

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["update", "patch"];
const EDIT: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

const EVENTS: Line = on(&["", "events.k8s.io"], &["events"], &["create", "update", "patch"]);
const LEASES: Line = on(&["coordination.k8s.io"], &["leases"], &["get", "list", "watch", "create", "update", "patch"]);
const PRIORITY_CLASSES: Line = on(&["scheduling.k8s.io"], &["priorityclasses"], READ);

/// The ConfigMap of each namespace with the authorities that pods trust.
const AUTHORITIES: &str = "kube-root-ca.crt";
/// A certificate for who asks, in place of his own.
const RENEWALS: Line = on(&["certificates.pumice.sh"], &["renewals"], &["create"]);

const SCHEDULER: &[Line] = &[
    on(CORE, &["pods", "nodes", "namespaces", "resourcequotas"], READ),
    // Victims are deleted, gates removed.
    on(CORE, &["pods"], &["patch", "delete"]),
    on(&["policy"], &["poddisruptionbudgets"], READ),
    on(&["topology.volcano.sh"], &["hypernodes"], READ),
    on(&["nodeinfo.volcano.sh"], &["numatopologies"], READ),
    on(&["shard.volcano.sh"], &["nodeshards"], READ),
    on(OURS, &["reservations"], READ),
    on(&["shard.volcano.sh"], &["nodeshards/status"], WRITE),
    on(CORE, &["persistentvolumeclaims", "persistentvolumes"], &["get", "list", "watch", "patch"]),
    on(&["storage.k8s.io"], &["storageclasses", "csinodes"], READ),
    on(&["resource.k8s.io"], &["resourceclaims"], &["get", "list", "watch", "update"]),
    // The second one is asked for since Kubernetes 1.36 when a claim's devices are written.
    on(&["resource.k8s.io"], &["resourceclaims/status", "resourceclaims/binding"], &["update"]),
    on(&["resource.k8s.io"], &["deviceclasses", "resourceslices"], READ),
    on(CORE, &["pods/binding", "bindings"], &["create"]),
    on(CORE, &["pods/status"], &["patch"]),
    on(BATCH, &["jobs"], READ),
    on(SCHEDULING, &["podgroups"], &["get", "list", "watch", "update", "patch"]),
    on(SCHEDULING, &["podgroups/status", "queues/status"], WRITE),
    on(SCHEDULING, &["queues"], &["get", "list", "watch", "create"]),
    PRIORITY_CLASSES,
    EVENTS,
    LEASES,
];

const CONTROLLERS: &[Line] = &[
    on(BATCH, &["jobs"], EDIT),
    on(BATCH, &["jobs/status", "jobs/finalizers", "cronjobs/status", "cronjobs/finalizers"], WRITE),
    on(BATCH, &["cronjobs"], READ),
    on(FLOW, &["jobflows", "jobtemplates"], READ),
    // Finished ones leave, as long as their namespace wants.
    on(FLOW, &["jobflows"], &["delete"]),
    on(CORE, &["namespaces"], READ),
    on(FLOW, &["jobflows/status", "jobflows/finalizers", "jobtemplates/status"], WRITE),
    on(CORE, &["pods"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
    on(CORE, &["configmaps", "secrets", "services", "persistentvolumeclaims"], EDIT),
    on(CORE, &["nodes"], READ),
    on(&["topology.volcano.sh"], &["hypernodes"], EDIT),
    on(&["topology.volcano.sh"], &["hypernodes/status"], WRITE),
    on(&["shard.volcano.sh"], &["nodeshards"], EDIT),
    on(&["shard.volcano.sh"], &["nodeshards/status"], WRITE),
    // What is learned of jobs.
    on(OURS, &["resourceprofiles"], &["get", "list", "watch", "create", "patch"]),
    // Directories are read, and Tenants follow; none is ever deleted.
    on(OURS, &["directories"], READ),
    on(OURS, &["directories/status"], WRITE),
    on(OURS, &["tenants"], &["get", "list", "watch", "create", "patch"]),
    // What owns pods whose PodGroups are made here.
    on(&["apps"], &["replicasets", "statefulsets", "daemonsets"], READ),
    on(&["batch"], &["jobs"], &["get"]),
    on(CORE, &["replicationcontrollers"], &["get"]),
    on(&["scheduling.k8s.io"], &["podgroups", "workloads"], READ),
    on(&["networking.k8s.io"], &["networkpolicies"], &["get", "list", "watch", "create", "delete"]),
    on(SCHEDULING, &["podgroups", "queues"], EDIT),
    on(SCHEDULING, &["podgroups/status", "queues/status"], WRITE),
    // What a Tenant has: its namespace, its users' rights there, its quota. Nothing of it is deleted but rights.
    on(OURS, &["tenants"], READ),
    on(OURS, &["tenants/status"], WRITE),
    on(CORE, &["namespaces"], &["create", "patch"]),
    on(CORE, &["resourcequotas"], &["get", "list", "watch", "create", "patch"]),
    on(&["networking.k8s.io"], &["networkpolicies"], &["patch"]),
    on(&["rbac.authorization.k8s.io"], &["rolebindings"], &["get", "list", "watch", "create", "patch", "delete"]),
    on(&["rbac.authorization.k8s.io"], &["clusterroles"], &["bind"]),
    on(BUS, &["commands"], &["get", "list", "watch", "delete"]),
    PRIORITY_CLASSES,
    EVENTS,
    LEASES,
];

/// Kubernetes' own kinds, which are the controller manager's where there is one.
const WORKLOADS: &[Line] = &[
    on(&["apps"], &["controllerrevisions", "deployments", "replicasets", "statefulsets"], EDIT),
    on(&["apps"], &["deployments/status", "replicasets/status", "statefulsets/status"], WRITE),
    on(&["batch"], &["cronjobs", "jobs"], EDIT),
    on(&["batch"], &["cronjobs/status", "jobs/status"], WRITE),
];

const ADMISSION: &[Line] =
    &[on(SCHEDULING, &["queues", "podgroups"], READ), on(CORE, &["namespaces"], READ), PRIORITY_CLASSES];

/// Admission tells the API server where it is. A create has no name that could be looked at.
const REGISTRATION: Line = on(
    &["admissionregistration.k8s.io"],
    &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
    &["get", "list", "watch", "update"],
);
/// Its certificate, in the namespace of the components.
const CERTIFICATE: Line = on(CORE, &["secrets"], &["get", "list", "watch", "update"]);

/// What is written down, and what pods use.
const HISTORY: &[Line] = &[
    on(&["batch", "batch.volcano.sh"], &["jobs"], READ),
    on(SCHEDULING, &["podgroups"], READ),
    on(CORE, &["pods"], READ),
    on(&["metrics.k8s.io"], &["pods"], &["list"]),
];
/// Of several instances one writes.
const HISTORYS_LEASE: Line = on(&["coordination.k8s.io"], &["leases"], &["get", "update"]);

/// Pods of the fleet's jobs, and what stands beside them.
const EXECUTOR: &[Line] = &[
    on(CORE, &["nodes", "events"], READ),
    on(CORE, &["pods"], &["get", "list", "watch", "create", "delete"]),
    // What people of the fleet ask for: logs, and cordons.
    on(CORE, &["pods/log"], &["get"]),
    on(CORE, &["nodes"], &["patch"]),
    on(CORE, &["services"], &["create"]),
    on(&["networking.k8s.io"], &["ingresses"], &["create"]),
    // Whole jobs, where the cluster runs them.
    on(BATCH, &["jobs"], &["get", "list", "watch", "create", "delete"]),
    // What pods use, where the cluster measures it.
    on(&["metrics.k8s.io"], &["pods"], &["list"]),
];

/// Simulated nodes, of which one process is many. They run nothing, so no pod's objects are theirs to read.
const NODE: &[Line] = &[
    on(CORE, &["nodes"], &["get", "list", "watch", "create", "update", "patch"]),
    on(CORE, &["nodes/status", "pods/status"], WRITE),
    on(CORE, &["pods"], &["get", "list", "watch", "delete"]),
    EVENTS,
    LEASES,
];

/// What the agent of each node may do besides: what it may do with its own Node and Lease, its pods and their objects is decided
/// object by object.
const AGENT: &[Line] = &[
    // How far its pods are confined, and whom they reach.
    on(CORE, &["namespaces"], READ),
    on(&["networking.k8s.io"], &["networkpolicies"], READ),
    RENEWALS,
    EVENTS,
];

const GC: &[Line] = &[
    on(&["*"], &["*"], &["get", "list", "watch", "delete", "patch"]),
    on(CORE, &["namespaces/finalize", "namespaces/status"], &["update"]),
];

/// Paths that tell a client what the server is.
const DISCOVERY_PATHS: &[&str] =
    &["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/"];
/// Paths that tell anybody whether the server lives.
const PUBLIC_PATHS: &[&str] =
    &["/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*", "/version", "/version/"];

/// Paths that tell how the server does.
const MONITORING_PATHS: &[&str] =
    &["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*"];
/// Who may read them: a group of every cluster.
const MONITORING: &str = "system:monitoring";

/// What the agent of any node may do, whatever its pods are.
pub fn node_rules() -> &'static [Rule] {
    static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
        let authorities = named(on(CORE, &["configmaps"], READ), AUTHORITIES);
        AGENT.iter().map(Line::rule).chain([authorities]).collect()
    });
    &RULES
}

/// What holds on every server: the components' roles, discovery for everybody with credentials,
/// health for everybody.
pub fn built_in() -> Vec<Grant> {
    let components = [
        (USER_SCHEDULER, SCHEDULER),
        (USER_CONTROLLERS, CONTROLLERS),
        (USER_ADMISSION, ADMISSION),
        (USER_HISTORY, HISTORY),
        (USER_EXECUTOR, EXECUTOR),
        (USER_NODE, NODE),
        (USER_GC, GC),
    ];
    let mut grants: Vec<Grant> = components
        .into_iter()
        .map(|(user, lines)| {
            let rules = lines.iter().map(Line::rule).collect();
            grant(Subject::User(user.to_owned()), user, rules)
        })
        .collect();
    for user in [USER_SCHEDULER, USER_CONTROLLERS, USER_ADMISSION, USER_HISTORY] {
        grants.push(grant(Subject::User(user.to_owned()), ROLE_RENEWALS, vec![RENEWALS.rule()]));
    }
    grants.extend(admission_of_a_cluster());
    grants.push(lease_of_the_history());
    let workloads = WORKLOADS.iter().map(Line::rule).collect();
    grants.push(grant(Subject::User(USER_CONTROLLERS.to_owned()), ROLE_WORKLOADS, workloads));
    for group in [AUTHENTICATED, UNAUTHENTICATED] {
        let rules = vec![path_rule(PUBLIC_PATHS)];
        grants.push(grant(Subject::Group(group.to_owned()), "system:public-info-viewer", rules));
    }
    let monitoring = Subject::Group(MONITORING.to_owned());
    grants.push(grant(monitoring, "system:monitoring", vec![path_rule(MONITORING_PATHS)]));
    let everybody = || Subject::Group(AUTHENTICATED.to_owned());
    grants.push(grant(everybody(), "system:discovery", vec![path_rule(DISCOVERY_PATHS)]));
    let asking = [
        on(&["authentication.k8s.io"], &["selfsubjectreviews"], &["create"]),
        on(&["authorization.k8s.io"], &["selfsubjectaccessreviews", "selfsubjectrulesreviews"], &["create"]),
    ];
    grants.push(grant(everybody(), "system:basic-user", asking.iter().map(Line::rule).collect()));
    // Whoever has to plan around them.
    let reservations = on(OURS, &["reservations"], READ).rule();
    grants.push(grant(everybody(), "system:pumice:reservation-viewer", vec![reservations]));
    grants
}

/// What admission needs besides where it is a server of its own: its own objects and no others.
fn admission_of_a_cluster() -> [Grant; 2] {
    let subject = || Subject::User(USER_ADMISSION.to_owned());
    let make = |line: Line| Line { verbs: &["create"], ..line }.rule();
    let registration = vec![named(REGISTRATION, ADMISSION_CONFIGURATION), make(REGISTRATION)];
    let certificate = vec![named(CERTIFICATE, ADMISSION_SECRET), make(CERTIFICATE)];
    let scope = Scope::Namespace(NAMESPACE_SYSTEM.to_owned());
    [
        grant(subject(), "system:pumice:admission-registration", registration),
        Grant { scope, ..grant(subject(), "system:pumice:admission-certificate", certificate) },
    ]
}

/// The one Lease that the history holds where it runs by itself.
fn lease_of_the_history() -> Grant {
    let subject = Subject::User(USER_HISTORY.to_owned());
    let make = Line { verbs: &["create"], ..HISTORYS_LEASE };
    let rules = vec![named(HISTORYS_LEASE, HISTORY_LEASE), make.rule()];
    Grant {
        scope: Scope::Namespace(NAMESPACE_SYSTEM.to_owned()),
        ..grant(subject, "system:pumice:history-lease", rules)
    }
}

fn named(line: Line, name: &str) -> Rule {
    Rule { resource_names: vec![name.to_owned()], ..line.rule() }
}

fn grant(subject: Subject, role: &str, rules: Vec<Rule>) -> Grant {
    Grant { subject, role: Arc::new(Role { name: role.to_owned(), rules }), scope: Scope::Cluster }
}

fn path_rule(paths: &[&str]) -> Rule {
    Rule { verbs: owned(&["get"]), non_resource_urls: owned(paths), ..Rule::default() }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
