//! Whose pods are whose, on a real Kubernetes: each way round it is tried as the tenant's user.

use pumice_realkube::tenant_attempts::Attempts;
use pumice_realkube::tenant_ways::{ANNOTATIONS, LAWFUL, NAMESPACE, WAYS};
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
 {apiGroups: [batch.volcano.sh, scheduling.volcano.sh], resources: ["*"], verbs: ["*"]}]}
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
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: none.example.com}
---
{apiVersion: pumice.sh/v1alpha1, kind: Tenant, metadata: {name: alice}, spec: {user: alice, uid: 4001, gid: 4002, namespace: alice}}
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
    cluster.kubectl_with_input(["create", "-f", "-"], RIGHTS).ok();
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

/// Tries every way, once what is tried first is held, and prints a table of them.
fn all_are_held(attempts: &Attempts<'_>) {
    // Policies and webhooks take a moment to be looked at, each its own: what was made before is in nobody's way.
    let mut round = 0;
    eventually("what was set is in force", || {
        round += 1;
        let round = format!("{}-{round}", attempts.round);
        let first = Attempts { tenant: attempts.tenant.clone(), administrator: attempts.administrator, round: &round };
        first.make_base()?;
        let quick = WAYS.iter().filter(|way| !way.name.contains("-set") && !way.name.contains("deployment"));
        let unheld: Vec<String> = quick.filter_map(|way| first.unheld(way)).take(1).collect();
        if unheld.is_empty() { Ok(()) } else { Err(unheld.join("\n")) }
    });
    attempts.make_base().expect("a pod");
    let unheld: Vec<String> = WAYS.iter().filter_map(|way| attempts.unheld(way)).collect();
    println!("{}: {} tried, {} held", attempts.round, WAYS.len(), WAYS.len() - unheld.len());
    assert_eq!(unheld, Vec::<String>::new(), "{} ways are open", unheld.len());
    let refused: Vec<String> = LAWFUL
        .iter()
        .filter_map(|(name, request)| attempts.send(name, *request).err().map(|told| format!("{name}: {told}")))
        .collect();
    assert_eq!(refused, Vec::<String>::new(), "lawful requests are refused");
}

/// With nothing of ours running.
#[test]
fn policies_alone_hold_every_way() {
    let (cluster, tenant) = with_tenant();
    let attempts = |round| Attempts { tenant: tenant.clone(), administrator: &cluster, round };
    let open = attempts("open");
    open.make_base().expect("a pod");
    let failed: Vec<String> = WAYS.iter().filter_map(|way| open.unsuccessful(way)).collect();
    assert_eq!(failed, Vec::<String>::new(), "ways that lead nowhere anyhow");
    println!("open: {} tried, {} succeed", WAYS.len(), WAYS.len());
    install_policies(&cluster);
    all_are_held(&attempts("policies"));
}
