//! What each component may do, and the neighbours of it that it may not.

use pumice_api::names::{
    ADMISSION_CONFIGURATION, ADMISSION_SECRET, HISTORY_LEASE, NAMESPACE_SYSTEM, USER_ADMISSION, USER_CONTROLLERS,
    USER_EXECUTOR, USER_GC, USER_HISTORY, USER_NODE, USER_SCHEDULER,
};
use pumice_auth::{Attributes, Identity, Policy, Target, built_in};

const JOBS: &str = "batch.volcano.sh";
const GROUPS: &str = "scheduling.volcano.sh";
const COORDINATION: &str = "coordination.k8s.io";

#[derive(Debug, Clone, Copy)]
struct Request {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: Option<&'static str>,
}

const fn to(
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: Option<&'static str>,
) -> Request {
    Request { verb, group, resource, subresource }
}

fn may(identity: &Identity, request: Request) -> bool {
    let Request { verb, group, resource, subresource } = request;
    let target = Target::Resource { group, resource, subresource, namespace: Some("default"), name: Some("x") };
    Policy::new(built_in()).decide(identity, &Attributes { verb, target }).is_allowed()
}

fn check(user: &str, allowed: &[Request], denied: &[Request]) {
    let identity = Identity::new(user, Vec::<String>::new());
    for request in allowed {
        assert!(may(&identity, *request), "{user} may not {request:?}");
    }
    for request in denied {
        assert!(!may(&identity, *request), "{user} may {request:?}");
    }
}

#[test]
fn the_scheduler_binds_and_reports() {
    check(
        USER_SCHEDULER,
        &[
            to("watch", "", "pods", None),
            to("create", "", "pods", Some("binding")),
            to("patch", "", "pods", Some("status")),
            to("patch", "", "pods", None),
            to("delete", "", "pods", None),
            to("list", "policy", "poddisruptionbudgets", None),
            to("watch", "topology.volcano.sh", "hypernodes", None),
            to("watch", "nodeinfo.volcano.sh", "numatopologies", None),
            to("patch", "shard.volcano.sh", "nodeshards", Some("status")),
            to("watch", "pumice.sh", "reservations", None),
            to("list", "", "nodes", None),
            to("update", GROUPS, "podgroups", Some("status")),
            to("create", GROUPS, "queues", None),
            to("update", GROUPS, "queues", Some("status")),
            to("create", "", "events", None),
            to("update", COORDINATION, "leases", None),
        ],
        &[
            to("create", "", "pods", None),
            to("update", "shard.volcano.sh", "nodeshards", None),
            to("create", "pumice.sh", "reservations", None),
            to("get", "", "secrets", None),
            to("update", JOBS, "jobs", None),
            to("update", "", "nodes", None),
        ],
    );
}

#[test]
fn the_executor_makes_pods_and_reads_no_secrets() {
    check(
        USER_EXECUTOR,
        &[
            to("list", "", "nodes", None),
            to("watch", "", "events", None),
            to("create", "", "pods", None),
            to("delete", "", "pods", None),
            to("create", "", "services", None),
            to("create", "networking.k8s.io", "ingresses", None),
            to("create", JOBS, "jobs", None),
            to("delete", JOBS, "jobs", None),
            to("get", "", "pods", Some("log")),
            to("patch", "", "nodes", None),
        ],
        &[
            to("get", "", "secrets", None),
            to("create", "", "pods", Some("binding")),
            to("patch", "", "pods", Some("status")),
            to("update", "", "nodes", None),
            to("update", JOBS, "jobs", None),
            to("patch", JOBS, "jobs", Some("status")),
            to("create", "batch", "jobs", None),
        ],
    );
}

#[test]
fn the_controllers_own_jobs_and_their_children() {
    check(
        USER_CONTROLLERS,
        &[
            to("update", JOBS, "jobs", Some("status")),
            to("create", "", "pods", None),
            to("delete", "", "pods", None),
            to("create", "", "secrets", None),
            to("create", "", "persistentvolumeclaims", None),
            to("delete", GROUPS, "podgroups", None),
            to("watch", "scheduling.k8s.io", "podgroups", None),
            to("watch", "scheduling.k8s.io", "workloads", None),
            to("delete", "bus.volcano.sh", "commands", None),
            to("watch", "", "nodes", None),
            to("create", "topology.volcano.sh", "hypernodes", None),
            to("patch", "topology.volcano.sh", "hypernodes", Some("status")),
            to("delete", "shard.volcano.sh", "nodeshards", None),
            to("patch", "shard.volcano.sh", "nodeshards", Some("status")),
            to("create", "pumice.sh", "resourceprofiles", None),
            to("patch", "pumice.sh", "resourceprofiles", None),
        ],
        &[
            to("create", "", "pods", Some("binding")),
            to("update", "", "pods", Some("status")),
            to("update", "", "nodes", None),
            to("create", "bus.volcano.sh", "commands", None),
            to("delete", "pumice.sh", "resourceprofiles", None),
            to("delete", "", "namespaces", None),
        ],
    );
}

#[test]
fn admission_only_reads() {
    let reads: [Request; 4] = [
        to("get", GROUPS, "queues", None),
        to("list", GROUPS, "podgroups", None),
        to("watch", "", "namespaces", None),
        to("get", "scheduling.k8s.io", "priorityclasses", None),
    ];
    let others: Vec<Request> = ["create", "update", "patch", "delete"]
        .into_iter()
        .flat_map(|verb| reads.map(|read| Request { verb, ..read }))
        .collect();
    check(USER_ADMISSION, &reads, &others);
    check(USER_ADMISSION, &[], &[to("get", "", "pods", None), to("get", "", "secrets", None)]);
}

#[test]
fn admission_keeps_its_certificate_and_its_registration() {
    let policy = Policy::new(built_in());
    let identity = Identity::new(USER_ADMISSION, Vec::<String>::new());
    let may = |verb, (group, resource), namespace, name| {
        let target = Target::Resource { group, resource, subresource: None, namespace, name };
        policy.decide(&identity, &Attributes { verb, target }).is_allowed()
    };
    let secrets = ("", "secrets");
    let here = Some(NAMESPACE_SYSTEM);
    for verb in ["get", "watch", "update"] {
        assert!(may(verb, secrets, here, Some(ADMISSION_SECRET)), "{verb}");
        assert!(!may(verb, secrets, here, Some("another")), "{verb}");
        assert!(!may(verb, secrets, Some("default"), Some(ADMISSION_SECRET)), "{verb}");
        assert!(!may(verb, secrets, None, None), "{verb}");
    }
    assert!(may("create", secrets, here, None) && !may("create", secrets, Some("default"), None));
    assert!(!may("delete", secrets, here, Some(ADMISSION_SECRET)));
    for resource in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let kind = ("admissionregistration.k8s.io", resource);
        for verb in ["watch", "update"] {
            assert!(may(verb, kind, None, Some(ADMISSION_CONFIGURATION)), "{verb}");
            assert!(!may(verb, kind, None, Some("another")), "{verb}");
        }
        assert!(may("create", kind, None, None) && !may("delete", kind, None, Some(ADMISSION_CONFIGURATION)));
    }
}

#[test]
fn the_history_reads_what_it_writes_down() {
    let reads: [Request; 4] = [
        to("watch", JOBS, "jobs", None),
        to("list", "batch", "jobs", None),
        to("watch", GROUPS, "podgroups", None),
        to("list", "", "pods", None),
    ];
    let others: Vec<Request> = ["create", "update", "patch", "delete"]
        .into_iter()
        .flat_map(|verb| reads.map(|read| Request { verb, ..read }))
        .collect();
    check(USER_HISTORY, &reads, &others);
    check(
        USER_HISTORY,
        &[to("list", "metrics.k8s.io", "pods", None)],
        &[
            to("get", "", "secrets", None),
            to("get", "", "pods", Some("log")),
            to("update", COORDINATION, "leases", None),
        ],
    );
    let policy = Policy::new(built_in());
    let identity = Identity::new(USER_HISTORY, Vec::<String>::new());
    let may = |verb, namespace, name| {
        let target = Target::Resource {
            group: COORDINATION,
            resource: "leases",
            subresource: None,
            namespace: Some(namespace),
            name,
        };
        policy.decide(&identity, &Attributes { verb, target }).is_allowed()
    };
    assert!(may("update", NAMESPACE_SYSTEM, Some(HISTORY_LEASE)) && may("create", NAMESPACE_SYSTEM, None));
    assert!(!may("update", NAMESPACE_SYSTEM, Some("volcano")) && !may("update", "default", Some(HISTORY_LEASE)));
    assert!(!may("delete", NAMESPACE_SYSTEM, Some(HISTORY_LEASE)));
}

#[test]
fn simulated_nodes_report_their_pods_and_read_nothing_of_them() {
    check(
        USER_NODE,
        &[
            to("create", "", "nodes", None),
            to("patch", "", "nodes", Some("status")),
            to("patch", "", "pods", Some("status")),
            to("delete", "", "pods", None),
            to("update", COORDINATION, "leases", None),
        ],
        &[
            to("get", "", "secrets", None),
            to("get", "", "configmaps", None),
            to("list", "", "persistentvolumes", None),
            to("create", "", "serviceaccounts", Some("token")),
            to("create", "", "pods", None),
            to("patch", "", "pods", None),
            to("create", "", "pods", Some("binding")),
            to("update", "", "secrets", None),
            to("delete", "", "nodes", None),
            to("get", JOBS, "jobs", None),
        ],
    );
}

#[test]
fn the_collector_removes_and_never_makes() {
    check(
        USER_GC,
        &[
            to("delete", JOBS, "jobs", None),
            to("list", "any.example.org", "things", None),
            to("patch", "", "pods", None),
            to("update", "", "namespaces", Some("finalize")),
        ],
        &[to("create", "", "pods", None), to("update", "", "pods", None), to("deletecollection", "", "pods", None)],
    );
}

#[test]
fn everybody_finds_out_what_the_server_is_and_no_more() {
    let policy = Policy::new(built_in());
    let get = |identity: &Identity, path| {
        policy.decide(identity, &Attributes { verb: "get", target: Target::Path(path) }).is_allowed()
    };
    let (known, unknown) = (Identity::new("ann", ["team"]), Identity::anonymous());
    for path in ["/healthz", "/readyz", "/livez/ping", "/version"] {
        assert!(get(&known, path) && get(&unknown, path), "{path}");
    }
    for path in ["/api", "/apis/batch.volcano.sh/v1alpha1", "/openapi/v3"] {
        assert!(get(&known, path) && !get(&unknown, path), "{path}");
    }
    for path in ["/metrics", "/", "/debug/pprof", "/healthzz"] {
        assert!(!get(&known, path) && !get(&unknown, path), "{path}");
    }
    check(
        "ann",
        &[
            to("create", "authorization.k8s.io", "selfsubjectaccessreviews", None),
            to("list", "pumice.sh", "reservations", None),
        ],
        &[
            to("create", "pumice.sh", "reservations", None),
            to("get", "", "pods", None),
            to("create", "authorization.k8s.io", "subjectaccessreviews", None),
        ],
    );
}
