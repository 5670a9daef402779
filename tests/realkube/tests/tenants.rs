//! Whose pods are whose, on a real Kubernetes: each way round it is tried as the tenant's user.

use pumice_realkube::tenant_attempts::Attempts;
use pumice_realkube::tenant_ways::{ANNOTATIONS, Expected, LAWFUL, NAMESPACE, Request, TENANT, WAYS, Way};
use pumice_testkit::{Clients, RealKube, binary, eventually};
use serde_json::{Value, json};

/// More than a tenant's user has, so that rules hold and not rights.
const RIGHTS: &str = r#"---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: edits, namespace: alice},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: more, namespace: alice}, rules: [
 {apiGroups: [""], resources: [pods/ephemeralcontainers, pods/status, pods/binding, bindings, events, pods], verbs: ["*"]},
 {apiGroups: [apps], resources: [daemonsets], verbs: ["*"]}, {apiGroups: [events.k8s.io], resources: [events], verbs: ["*"]},
 {apiGroups: [batch.volcano.sh, scheduling.volcano.sh, bus.volcano.sh, resource.k8s.io], resources: ["*"], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: more, namespace: alice},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: more}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: own-namespace}, rules: [
 {apiGroups: [""], resources: [namespaces, namespaces/status], resourceNames: [alice], verbs: ["*"]},
 {apiGroups: [pumice.sh], resources: [tenants], resourceNames: [alice], verbs: [get, delete]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: own-namespace},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: own-namespace}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]}
---
{apiVersion: v1, kind: Node, metadata: {name: node-1}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: bare}, handler: bare}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: none.example.com}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: team}, spec: {weight: 1}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: other}, spec: {weight: 1}}
"#;

/// A control plane with a tenant's namespace as the controller of Tenants makes it, and the tenant's user.
fn with_tenant() -> (RealKube, Clients) {
    let mut cluster = RealKube::new();
    cluster.install();
    let annotations: serde_json::Map<String, Value> =
        ANNOTATIONS.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": NAMESPACE, "labels": { "pumice.sh/tenant": "alice" }, "annotations": annotations },
    });
    cluster.kubectl_with_input(["create", "-f", "-"], &namespace.to_string()).ok();
    for manifest in [RIGHTS, TENANT] {
        cluster.kubectl_with_input(["create", "-f", "-"], manifest).ok();
    }
    let get = ["get", "serviceaccount", "default", "-n", NAMESPACE];
    eventually("there is a service account", || match cluster.kubectl(get).code {
        0 => Ok(()),
        _ => Err(String::new()),
    });
    let tenant = Clients::new(&cluster.kubeconfig_of("alice"), cluster.scratch());
    (cluster, tenant)
}

/// Puts the policies of tenants into force.
fn install_policies(cluster: &RealKube) {
    let policies = cluster.run(&binary("pumice"), ["admission", "policies", "tenants"], None).ok();
    cluster.kubectl_with_input(["create", "-f", "-"], &policies).ok();
}

/// Tries ways until what was set is in force, and then all of them; prints how many are held.
fn all_are_held(attempts: &Attempts<'_>, ways: &[&Way]) {
    // Policies and webhooks take a moment to be looked at, each its own: what was made before is in nobody's way.
    let (mut round, mut before) = (0, usize::MAX);
    eventually("what was set is in force", || {
        round += 1;
        let name = format!("{}-{round}", attempts.round);
        let first = Attempts { tenant: attempts.tenant.clone(), administrator: attempts.administrator, round: &name };
        first.make_base()?;
        let quick = ways.iter().filter(|way| !matches!(way.request, Request::Workload(..)));
        let unheld: Vec<String> = quick.filter_map(|way| first.unheld(way)).collect();
        // What is not in force by the third time is said below.
        let is_done = unheld.is_empty() || round > 2 && unheld.len() == before;
        before = unheld.len();
        if is_done { Ok(()) } else { Err(unheld.join("\n")) }
    });
    attempts.make_base().expect("a pod");
    let unheld: Vec<String> = ways.iter().filter_map(|way| attempts.unheld(way)).collect();
    println!("{}: {} tried, {} held", attempts.round, ways.len(), ways.len() - unheld.len());
    assert_eq!(unheld, Vec::<String>::new(), "{} ways are open", unheld.len());
    let refused: Vec<String> = LAWFUL
        .iter()
        .filter_map(|(name, request)| attempts.send(name, *request).err().map(|told| format!("{name}: {told}")))
        .collect();
    assert_eq!(refused, Vec::<String>::new(), "lawful requests are refused");
}

/// Each way succeeds without rules, and is held by policies with nothing of ours running.
#[test]
fn every_way_is_held_by_policies() {
    let (cluster, tenant) = with_tenant();
    let open = Attempts { tenant: tenant.clone(), administrator: &cluster, round: "open" };
    open.make_base().expect("a pod");
    let failed: Vec<String> = WAYS.iter().filter_map(|way| open.unsuccessful(way)).collect();
    println!("open: {} tried, {} succeed", WAYS.len(), WAYS.len() - failed.len());
    assert_eq!(failed, Vec::<String>::new(), "ways that lead nowhere anyhow");
    install_policies(&cluster);
    let policies = Attempts { tenant, administrator: &cluster, round: "policies" };
    all_are_held(&policies, &WAYS.iter().collect::<Vec<_>>());
    the_second_lock_holds_alone(&policies);
}

/// Whatever is forced is judged again: without the policy that fills in, nothing passes that says something else.
fn the_second_lock_holds_alone(attempts: &Attempts<'_>) {
    let delete = ["delete", "mutatingadmissionpolicybinding", "pumice-tenant-pods", "pumice-tenant-events"];
    attempts.administrator.kubectl(delete).ok();
    let is_forced = |way: &&Way| {
        matches!(way.expected, Expected::Forced(..))
            && !matches!(way.request, Request::Workload(..) | Request::Ephemeral(_))
    };
    let forced: Vec<&Way> = WAYS.iter().filter(is_forced).collect();
    let mut round = 0;
    eventually("nothing is filled in any more", || {
        round += 1;
        let round = format!("lock-{round}");
        let alone = Attempts { tenant: attempts.tenant.clone(), administrator: attempts.administrator, round: &round };
        let passed: Vec<&str> =
            forced.iter().filter(|way| alone.send(way.name, way.request).is_ok()).map(|way| way.name).collect();
        if passed.is_empty() { Ok(()) } else { Err(passed.join(", ")) }
    });
    println!("second lock: {} tried, {} held", forced.len(), forced.len());
}
