//! What each component may do, and the neighbours of it that it may not.

use pumice_api::names::{
    ADMISSION_CONFIGURATION, ADMISSION_SECRET, HISTORY_LEASE, NAMESPACE_SYSTEM, USER_ADMISSION, USER_CONTROLLERS,
    USER_EXECUTOR, USER_GC, USER_HISTORY, USER_NODE, USER_SCHEDULER,
};
use pumice_auth::{Attributes, Identity, Policy, Target, built_in};

const JOBS: &str = "batch.volcano.sh";
const GROUPS: &str = "scheduling.volcano.sh";
const COORDINATION: &str = "coordination.k8s.io";

type Request = (&'static str, &'static str, &'static str, Option<&'static str>);

fn may(identity: &Identity, (verb, group, resource, subresource): Request) -> bool {
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
            ("watch", "", "pods", None),
            ("create", "", "pods", Some("binding")),
            ("patch", "", "pods", Some("status")),
            ("patch", "", "pods", None),
            ("delete", "", "pods", None),
            ("list", "policy", "poddisruptionbudgets", None),
            ("watch", "topology.volcano.sh", "hypernodes", None),
            ("watch", "nodeinfo.volcano.sh", "numatopologies", None),
            ("patch", "shard.volcano.sh", "nodeshards", Some("status")),
            ("watch", "pumice.sh", "reservations", None),
            ("list", "", "nodes", None),
            ("update", GROUPS, "podgroups", Some("status")),
            ("create", GROUPS, "queues", None),
            ("update", GROUPS, "queues", Some("status")),
            ("create", "", "events", None),
            ("update", COORDINATION, "leases", None),
        ],
        &[
            ("create", "", "pods", None),
            ("update", "shard.volcano.sh", "nodeshards", None),
            ("create", "pumice.sh", "reservations", None),
            ("get", "", "secrets", None),
            ("update", JOBS, "jobs", None),
            ("update", "", "nodes", None),
        ],
    );
}

#[test]
fn the_executor_makes_pods_and_reads_no_secrets() {
    check(
        USER_EXECUTOR,
        &[
            ("list", "", "nodes", None),
            ("watch", "", "events", None),
            ("create", "", "pods", None),
            ("delete", "", "pods", None),
            ("create", "", "services", None),
            ("create", "networking.k8s.io", "ingresses", None),
            ("create", JOBS, "jobs", None),
            ("delete", JOBS, "jobs", None),
            ("get", "", "pods", Some("log")),
            ("patch", "", "nodes", None),
        ],
        &[
            ("get", "", "secrets", None),
            ("create", "", "pods", Some("binding")),
            ("patch", "", "pods", Some("status")),
            ("update", "", "nodes", None),
            ("update", JOBS, "jobs", None),
            ("patch", JOBS, "jobs", Some("status")),
            ("create", "batch", "jobs", None),
        ],
    );
}

#[test]
fn the_controllers_own_jobs_and_their_children() {
    check(
        USER_CONTROLLERS,
        &[
            ("update", JOBS, "jobs", Some("status")),
            ("create", "", "pods", None),
            ("delete", "", "pods", None),
            ("create", "", "secrets", None),
            ("create", "", "persistentvolumeclaims", None),
            ("delete", GROUPS, "podgroups", None),
            ("watch", "scheduling.k8s.io", "podgroups", None),
            ("watch", "scheduling.k8s.io", "workloads", None),
            ("delete", "bus.volcano.sh", "commands", None),
            ("watch", "", "nodes", None),
            ("create", "topology.volcano.sh", "hypernodes", None),
            ("patch", "topology.volcano.sh", "hypernodes", Some("status")),
            ("delete", "shard.volcano.sh", "nodeshards", None),
            ("patch", "shard.volcano.sh", "nodeshards", Some("status")),
            ("create", "pumice.sh", "resourceprofiles", None),
            ("patch", "pumice.sh", "resourceprofiles", None),
        ],
        &[
            ("create", "", "pods", Some("binding")),
            ("update", "", "pods", Some("status")),
            ("update", "", "nodes", None),
            ("create", "bus.volcano.sh", "commands", None),
            ("delete", "pumice.sh", "resourceprofiles", None),
            ("delete", "", "namespaces", None),
        ],
    );
}

#[test]
fn admission_only_reads() {
    let reads: [Request; 4] = [
        ("get", GROUPS, "queues", None),
        ("list", GROUPS, "podgroups", None),
        ("watch", "", "namespaces", None),
        ("get", "scheduling.k8s.io", "priorityclasses", None),
    ];
    let others: Vec<Request> = ["create", "update", "patch", "delete"]
        .into_iter()
        .flat_map(|verb| reads.map(|(_, group, resource, subresource)| (verb, group, resource, subresource)))
        .collect();
    check(USER_ADMISSION, &reads, &others);
    check(USER_ADMISSION, &[], &[("get", "", "pods", None), ("get", "", "secrets", None)]);
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
        ("watch", JOBS, "jobs", None),
        ("list", "batch", "jobs", None),
        ("watch", GROUPS, "podgroups", None),
        ("list", "", "pods", None),
    ];
    let others: Vec<Request> = ["create", "update", "patch", "delete"]
        .into_iter()
        .flat_map(|verb| reads.map(|(_, group, resource, subresource)| (verb, group, resource, subresource)))
        .collect();
    check(USER_HISTORY, &reads, &others);
    check(
        USER_HISTORY,
        &[("list", "metrics.k8s.io", "pods", None)],
        &[("get", "", "secrets", None), ("get", "", "pods", Some("log")), ("update", COORDINATION, "leases", None)],
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
fn the_node_reports_its_pods_and_removes_them() {
    check(
        USER_NODE,
        &[
            ("create", "", "nodes", None),
            ("patch", "", "nodes", Some("status")),
            ("patch", "", "pods", Some("status")),
            ("delete", "", "pods", None),
            ("get", "", "secrets", None),
            ("get", "", "configmaps", None),
            ("update", COORDINATION, "leases", None),
        ],
        &[
            ("create", "", "pods", None),
            ("patch", "", "pods", None),
            ("create", "", "pods", Some("binding")),
            ("update", "", "secrets", None),
            ("delete", "", "nodes", None),
            ("get", JOBS, "jobs", None),
        ],
    );
}

#[test]
fn the_collector_removes_and_never_makes() {
    check(
        USER_GC,
        &[
            ("delete", JOBS, "jobs", None),
            ("list", "any.example.org", "things", None),
            ("patch", "", "pods", None),
            ("update", "", "namespaces", Some("finalize")),
        ],
        &[("create", "", "pods", None), ("update", "", "pods", None), ("deletecollection", "", "pods", None)],
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
            ("create", "authorization.k8s.io", "selfsubjectaccessreviews", None),
            ("list", "pumice.sh", "reservations", None),
        ],
        &[
            ("create", "pumice.sh", "reservations", None),
            ("get", "", "pods", None),
            ("create", "authorization.k8s.io", "subjectaccessreviews", None),
        ],
    );
}
