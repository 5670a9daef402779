//! Tenants as administrators look after them, and what their users may do. On simulated nodes, so that no root is needed.
//!
//! `PUMICE_TENANTS=5000` makes as many in the test that says how long they take.

use std::time::Instant;

use pumice_testkit::{Clients, Output, Platform, Setup, binary, eventually};
use serde_json::{Value, json};

/// Tenants whose time is measured, unless the environment says otherwise.
const MANY: usize = 1000;

fn platform() -> Platform {
    let flags = ["--local-node=false", "--simulated-nodes=1", "--simulated-node-shape=cpu=4,memory=16Gi"];
    Platform::start(Setup { flags: flags.map(str::to_owned).to_vec() })
}

fn tenant(platform: &Platform, args: &[&str]) -> Output {
    platform.run(&binary("pumice"), ["tenant"].iter().chain(args), None)
}

/// The least Tenant there is.
fn least(name: &str, uid: u32, namespace: &str) -> String {
    format!(
        "apiVersion: pumice.sh/v1alpha1\nkind: Tenant\nmetadata: {{name: {name}}}\nspec: {{user: {name}, uid: {uid}, gid: {uid}, \
         groups: [5000], namespace: {namespace}}}\n"
    )
}

fn apply(platform: &Platform, manifest: &str) {
    platform.kubectl_with_input(["apply", "-f", "-"], manifest).ok();
}

fn wait_for_phase(platform: &Platform, name: &str, phase: &str) -> Value {
    eventually(&format!("tenant {name} is {phase}"), || {
        let found = platform.get("tenant", name).ok_or("no such tenant")?;
        if found["status"]["phase"] == phase { Ok(found) } else { Err(found["status"].to_string()) }
    })
}

/// Whether a user may submit jobs in a namespace.
fn may_submit(platform: &Platform, user: &str, namespace: &str) -> bool {
    let asked = ["auth", "can-i", "create", "jobs.batch.volcano.sh", "--as", user, "-n", namespace];
    platform.kubectl(asked).stdout.trim() == "yes"
}

fn becomes(what: &str, holds: impl Fn() -> bool) {
    eventually(what, || if holds() { Ok(()) } else { Err(String::new()) });
}

/// The programs of a user who has nothing but what his Tenant gives him.
fn of_user(platform: &Platform, user: &str, namespace: &str) -> Clients {
    let kubeconfig = platform.kubeconfig_without_rights(user);
    let home = platform.scratch().join(user);
    std::fs::create_dir(&home).unwrap();
    let clients = Clients::new(&kubeconfig, &home);
    clients.kubectl(["config", "set-context", "--current", "--namespace", namespace]).ok();
    clients
}

#[test]
fn a_tenant_is_made_of_the_least_spec_and_mended() {
    let platform = platform();
    apply(&platform, &least("alice", 4001, "alice"));
    wait_for_phase(&platform, "alice", "Active");
    let namespace = platform.get("namespace", "alice").unwrap();
    let metadata = &namespace["metadata"];
    assert_eq!(metadata["labels"]["pumice.sh/tenant"], "alice");
    assert_eq!(metadata["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    assert_eq!(metadata["annotations"]["pumice.sh/tenant-uid"], "4001");
    assert_eq!(metadata["annotations"]["pumice.sh/tenant-groups"], "5000");
    assert!(may_submit(&platform, "alice", "alice") && !may_submit(&platform, "alice", "default"));

    platform.kubectl(["delete", "rolebindings", "-n", "alice", "-l", "pumice.sh/tenant=alice"]).ok();
    becomes("the rights are back", || may_submit(&platform, "alice", "alice"));
    platform.kubectl(["annotate", "--overwrite", "namespace", "alice", "pumice.sh/tenant-uid=0"]).ok();
    platform.kubectl(["label", "namespace", "alice", "pumice.sh/tenant-", "theirs=stays"]).ok();
    eventually("what the namespace says is put right", || {
        let metadata = platform.get("namespace", "alice").unwrap()["metadata"].take();
        let (labels, annotations) = (&metadata["labels"], &metadata["annotations"]);
        assert_eq!(labels["theirs"], "stays");
        let is_right = labels["pumice.sh/tenant"] == "alice" && annotations["pumice.sh/tenant-uid"] == "4001";
        if is_right { Ok(()) } else { Err(metadata.to_string()) }
    });
    // A renamed user has what he had.
    let renamed = json!({"spec": {"user": "alice.smith"}}).to_string();
    platform.kubectl(["patch", "tenant", "alice", "--type=merge", "-p", &renamed]).ok();
    becomes("the new name has the rights", || {
        may_submit(&platform, "alice.smith", "alice") && !may_submit(&platform, "alice", "alice")
    });
}

#[test]
fn the_command_makes_lists_and_shows_tenants() {
    let platform = platform();
    let limits = ["--limit", "requests.cpu=64,pods=10", "--queue", "default", "--home", "/srv/bob:/home/bob"];
    let made = tenant(
        &platform,
        &[&["create", "bob", "--uid=4002", "--gid=4002", "--groups=5000,5001"], &limits[..]].concat(),
    );
    assert!(
        made.stdout.contains("pods of namespace bob run as uid 4002, gid 4002, other groups 5000,5001"),
        "{made:?}"
    );
    let quota = platform.kubectl(["get", "resourcequota", "-n", "bob", "-o", "json"]).ok();
    assert!(quota.contains("\"requests.cpu\": \"64\""), "{quota}");
    let listed = tenant(&platform, &["list"]).ok();
    assert!(listed.contains("bob") && listed.contains("4002") && listed.contains("Active"), "{listed}");
    assert_eq!(tenant(&platform, &["list", "-o", "name"]).ok().trim(), "tenant.pumice.sh/bob");
    let wide = tenant(&platform, &["list", "-o", "wide"]).ok();
    assert!(wide.contains("5000,5001") && wide.contains("/home/bob"), "{wide}");
    let listed: Value = serde_json::from_str(&tenant(&platform, &["list", "-o", "json"]).ok()).unwrap();
    assert_eq!(listed["items"][0]["spec"]["uid"], 4002);
    let shown = tenant(&platform, &["show", "bob"]).ok();
    for expected in ["Phase:", "Active", "/home/bob (folder /srv/bob)", "pods=10, requests.cpu=64"] {
        assert!(shown.contains(expected), "{expected:?} in {shown}");
    }
    // Nobody of that name is on this machine.
    let unknown = tenant(&platform, &["create", "no-such-user-here"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("knows no user"), "{unknown:?}");
    // This one is, and is no tenant.
    let root = tenant(&platform, &["create", "root", "--namespace", "roots"]);
    assert!(root.code != 0 && root.stderr.contains("this machine knows root: uid 0"), "{root:?}");
}

#[test]
fn what_no_tenant_may_be_is_refused_before_anything_is_made() {
    let platform = platform();
    tenant(&platform, &["create", "alice", "--uid=4001", "--gid=4001", "--home="]).ok();
    platform.kubectl(["create", "namespace", "theirs"]).ok();
    for (args, expected) in [
        (&["--uid=999", "--gid=4002"][..], "spec.uid: 999 is one of the system's"),
        (&["--uid=65534", "--gid=4002"], "spec.uid: 65534 is nobody's"),
        (&["--uid=4001", "--gid=4002"], "spec.uid: 4001 is the Tenant alice's"),
        (&["--uid=4002", "--gid=4002", "--namespace=alice"], "spec.namespace: alice is the Tenant alice's"),
        (&["--uid=4002", "--gid=4002", "--namespace=kube-system"], "spec.namespace: kube-system is the cluster's"),
        (&["--uid=4002", "--gid=4002", "--groups=5000,42"], "spec.groups[1]: 42 is one of the system's"),
        (&["--uid=4002", "--gid=4002", "--user=system:admin"], "spec.user: \"system:admin\" means something"),
        (&["--uid=4002", "--gid=4002", "--role=cluster-admin"], "spec.roles[0]: cluster-admin"),
    ] {
        let refused = tenant(&platform, &[&["create", "bob", "--home="], args].concat());
        assert!(refused.code != 0 && refused.stderr.contains(expected), "{args:?}: {refused:?}");
        assert!(platform.get("tenant", "bob").is_none() && platform.get("namespace", "bob").is_none(), "{args:?}");
    }
    // A namespace that exists is nobody's to take; whoever may give it away does.
    let refused = tenant(&platform, &["create", "bob", "--uid=4002", "--gid=4002", "--namespace=theirs", "--home="]);
    let give = "kubectl label namespace theirs pumice.sh/tenant=bob";
    assert!(refused.code != 0 && refused.stderr.contains(give), "{refused:?}");
    assert_eq!(platform.get("tenant", "bob").unwrap()["status"]["phase"], "Refused");
    assert!(!may_submit(&platform, "bob", "theirs"));
    let words: Vec<&str> = give.split(' ').skip(1).collect();
    platform.kubectl(words).ok();
    wait_for_phase(&platform, "bob", "Active");
    assert!(may_submit(&platform, "bob", "theirs"));
}

#[test]
fn a_tenant_is_suspended_resumed_and_deleted_in_two_steps() {
    let platform = platform();
    tenant(&platform, &["create", "alice", "--uid=4001", "--gid=4001", "--home="]).ok();
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: work, namespace: alice}\nspec: {accessModes: \
                 [ReadWriteMany], resources: {requests: {storage: 1Mi}}}\n";
    platform.kubectl_with_input(["create", "-f", "-"], claim).ok();
    let alice = of_user(&platform, "alice", "alice");
    alice.kubectl(["get", "jobs.batch.volcano.sh"]).ok();

    let early = tenant(&platform, &["delete", "alice"]);
    assert!(early.code != 0 && early.stderr.contains("pumice tenant suspend alice"), "{early:?}");
    let changed = json!({"spec": {"uid": 4009}}).to_string();
    let changed = platform.kubectl(["patch", "tenant", "alice", "--type=merge", "-p", &changed]);
    assert!(changed.code != 0 && changed.stderr.contains("spec.uid: it can be changed only while"), "{changed:?}");

    let suspended = tenant(&platform, &["suspend", "alice"]).ok();
    assert!(suspended.contains("its running pods stay"), "{suspended}");
    assert_eq!(platform.get("tenant", "alice").unwrap()["status"]["phase"], "Suspended");
    let refused = alice.kubectl(["get", "jobs.batch.volcano.sh"]);
    assert!(refused.code != 0 && refused.stderr.contains("Forbidden"), "{refused:?}");
    tenant(&platform, &["resume", "alice"]).ok();
    alice.kubectl(["get", "jobs.batch.volcano.sh"]).ok();

    tenant(&platform, &["suspend", "alice"]).ok();
    let deleted = tenant(&platform, &["delete", "alice"]).ok();
    assert!(deleted.contains("its namespace alice with its claims and all data stays"), "{deleted}");
    assert!(platform.get("tenant", "alice").is_none() && platform.get("namespace", "alice").is_some());
    platform.kubectl(["get", "persistentvolumeclaim", "work", "-n", "alice"]).ok();
    assert!(!may_submit(&platform, "alice", "alice"));
    // Whoever makes it again has it all again.
    tenant(&platform, &["create", "alice", "--uid=4001", "--gid=4001", "--home="]).ok();
    alice.kubectl(["get", "persistentvolumeclaim", "work"]).ok();
}

#[test]
fn jobs_of_a_suspended_tenant_stop_and_go_on() {
    let platform = platform();
    tenant(&platform, &["create", "alice", "--uid=4001", "--gid=4001", "--home="]).ok();
    let alice = of_user(&platform, "alice", "alice");
    submit(&alice, "endless").ok();
    alice.wait_for_phase("endless", "Running");
    let suspended = tenant(&platform, &["suspend", "alice", "--stop"]).ok();
    assert!(suspended.contains("its running pods end"), "{suspended}");
    let running = || {
        let pods = platform.kubectl(["get", "pods", "-n", "alice", "-o", "json"]).ok();
        let pods: Value = serde_json::from_str(&pods).unwrap();
        pods["items"].as_array().unwrap().iter().filter(|pod| pod["status"]["phase"] == "Running").count()
    };
    becomes("no pod runs", || running() == 0);
    tenant(&platform, &["resume", "alice"]).ok();
    alice.wait_for_phase("endless", "Running");
    assert_eq!(running(), 1);
}

fn submit(clients: &Clients, name: &str) -> Output {
    let manifest = format!(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  minAvailable: 1\n  queue: default\n  \
         tasks:\n  - name: t\n    replicas: 1\n    template:\n      spec: {{restartPolicy: Never, securityContext: {{runAsNonRoot: true, \
         seccompProfile: {{type: RuntimeDefault}}}}, containers: [{{name: main, image: any, securityContext: \
         {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}, resources: {{requests: {{cpu: 1, memory: \
         1Gi}}}}}}]}}\n"
    );
    clients.kubectl_with_input(["create", "-f", "-"], &manifest)
}

#[test]
fn a_tenants_user_works_in_his_namespace_and_sees_no_other() {
    let platform = platform();
    for (name, uid) in [("alice", "--uid=4001"), ("bob", "--uid=4002")] {
        tenant(&platform, &["create", name, uid, "--gid=5000", "--groups=", "--home="]).ok();
    }
    let (alice, bob) = (of_user(&platform, "alice", "alice"), of_user(&platform, "bob", "bob"));
    submit(&alice, "hers").ok();
    submit(&bob, "his").ok();
    alice.wait_for_phase("hers", "Running");
    bob.wait_for_phase("his", "Running");
    for words in [
        &["get", "jobs.batch.volcano.sh", "-n", "bob"][..],
        &["get", "pods", "--all-namespaces"],
        &["get", "secrets", "-n", "default"],
        &["get", "tenants"],
        &["get", "nodes"],
        &["get", "namespaces"],
        &["delete", "namespace", "alice"],
        &["label", "namespace", "alice", "pumice.sh/tenant=bob", "--overwrite"],
        &["annotate", "namespace", "alice", "pumice.sh/tenant-uid=0", "--overwrite"],
        &["create", "rolebinding", "mine", "--clusterrole=admin", "--user=alice"],
        &["create", "quota", "mine", "--hard=pods=1000"],
        &["delete", "rolebindings", "--all"],
        &["patch", "tenant", "alice", "--type=merge", "-p", "{\"spec\":{\"uid\":4002}}"],
        &["create", "serviceaccount", "spy", "-n", "bob"],
    ] {
        let refused = alice.kubectl(words);
        assert!(refused.code != 0 && refused.stderr.to_lowercase().contains("forbidden"), "{words:?}: {refused:?}");
    }
}

#[test]
fn many_are_imported_at_once_and_again() {
    let platform = platform();
    let many = std::env::var("PUMICE_TENANTS").map_or(MANY, |number| number.parse().unwrap());
    let row = |index: usize| format!("user{index},{},{},5000 5001\n", 10_000 + index, 10_000 + index);
    let table: String = (0..many).map(row).collect();
    let good = platform.file("users.csv", format!("name,uid,gid,groups\n{table}")).display().to_string();
    let begun = Instant::now();
    let imported = tenant(&platform, &["import", &good]).ok();
    let written = begun.elapsed();
    assert_eq!(imported.trim(), format!("{many} made, 0 changed, 0 as they were, 0 refused"));
    eventually("all are active", || {
        let listed = tenant(&platform, &["list"]).ok();
        let active = listed.lines().filter(|line| line.contains("Active")).count();
        if active == many { Ok(()) } else { Err(format!("{active} are")) }
    });
    println!("{many} tenants: written in {written:?}, all active after {:?}", begun.elapsed());
    assert!(may_submit(&platform, "user999", "user999"));
    let again = tenant(&platform, &["import", &good]).ok();
    assert_eq!(again.trim(), format!("0 made, 0 changed, {many} as they were, 0 refused"));

    // Each refusal is told with its line, and does not keep the others.
    let mixed =
        "name,uid,gid,groups\nuser0,10000,10000,5000\nbad,999,10000,\ntaken,10001,10001,\nnew,20000,20000,5000\n";
    let mixed = platform.file("mixed.csv", mixed).display().to_string();
    let told = tenant(&platform, &["import", &mixed]);
    assert_eq!((told.code, told.stdout.trim()), (2, "1 made, 1 changed, 0 as they were, 2 refused"), "{told:?}");
    for expected in ["mixed.csv:3 (bad): ", "spec.uid: 999", "mixed.csv:4 (taken): ", "is the Tenant user1's"] {
        assert!(told.stderr.contains(expected), "{expected:?} in {told:?}");
    }
    let changed = platform.get("tenant", "user0").unwrap();
    assert_eq!(changed["spec"]["groups"], json!([5000]));
}
