//! Quotas and limit ranges.

use std::sync::Arc;

use pumice_apiserver::{AdmitAll, NoNodes};
use pumice_store::{Change, Draft, Expect, Key, Options, Store};
use serde_json::{Value, json};

use crate::harness::{MAPS, PODS, Server, config_map, over, pod, server};
use crate::rights::{at, binding, role, user};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn quota(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec})
}

fn asking(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

/// Waits until the quota's status says that this is used.
async fn used(server: &Server, wanted: Value) {
    server.until_that(&format!("{QUOTAS}/q"), |quota| quota["status"]["used"] == wanted).await;
}

// INV-11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[allow(clippy::disallowed_methods)]
async fn creates_at_once_never_go_over_a_quota() {
    let server = server().await;
    server.post(QUOTAS, &quota(json!({"hard": {"pods": "20", "requests.cpu": "15"}}))).await.is(201);
    let tasks: Vec<_> = (0..80)
        .map(|index| {
            let server = server.clone();
            tokio::spawn(async move { server.post(PODS, &asking(&format!("p{index}"), "500m")).await })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        let answer = task.await.expect("task");
        match answer.code.as_u16() {
            201 => made += 1,
            _ => {
                let message = answer.is(403).message().to_owned();
                let wanted = "exceeded quota: q, requested: pods=1, used: pods=20, limited: pods=20";
                assert!(message.ends_with(wanted), "{message}");
            }
        }
    }
    assert_eq!(made, 20, "the quota is used up, and not a pod over it");
    used(&server, json!({"pods": "20", "requests.cpu": "10"})).await;
}

// INV-11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[allow(clippy::disallowed_methods)]
async fn room_comes_back_at_once_and_is_never_given_twice() {
    let server = server().await;
    server.post(QUOTAS, &quota(json!({"hard": {"pods": "5"}}))).await.is(201);
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let server = server.clone();
            tokio::spawn(async move {
                let mut made = 0;
                for round in 0..40 {
                    let name = format!("p{task}-{round}");
                    let answer = server.post(PODS, &pod(&name)).await;
                    let there = server.api.store().count("pods", Some("default"));
                    assert!(there <= 5, "{there} pods, 5 are allowed");
                    if answer.code == 201 {
                        made += 1;
                        server.delete(&format!("{PODS}/{name}"), &Value::Null).await.is(200);
                    } else {
                        answer.is(403);
                    }
                }
                made
            })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        made += task.await.expect("task");
    }
    assert!(made > 40, "only {made} of 320 went through");
    used(&server, json!({"pods": "0"})).await;
    server.post(PODS, &pod("last")).await.is(201);
}

#[tokio::test]
async fn what_counts_and_what_does_not() {
    let server = server().await;
    let hard = json!({"pods": "1", "count/pods": "3", "configmaps": "2", "requests.storage": "3Gi"});
    server.post(QUOTAS, &quota(json!({ "hard": hard }))).await.is(201);
    server.post(PODS, &pod("a")).await.is(201);
    server.post(&format!("{PODS}?dryRun=All"), &pod("b")).await.is(403);
    // A pod that has ended is an object only.
    server.merge(&format!("{PODS}/a/status"), &json!({"status": {"phase": "Succeeded"}})).await.is(200);
    server.post(&format!("{PODS}?dryRun=All"), &pod("b")).await.is(201);
    server.post(PODS, &pod("b")).await.is(201);
    used(&server, json!({"pods": "1", "count/pods": "2", "configmaps": "0", "requests.storage": "0"})).await;
    // A taken name takes no room.
    server.post(MAPS, &config_map("m")).await.is(201);
    server.post(MAPS, &config_map("m")).await.is(409);
    server.post(MAPS, &config_map("n")).await.is(201);
    let refused = server.post(MAPS, &config_map("o")).await.is(403);
    let wanted = "configmaps \"o\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, \
                  limited: configmaps=2";
    assert_eq!(refused.message(), wanted);
    let claim = |storage: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}})
    };
    server.post(CLAIMS, &claim("4Gi")).await.is(403);
    server.post(CLAIMS, &claim("2Gi")).await.is(201);
    // What is raised must fit, and nothing else.
    let grown = json!({"spec": {"resources": {"requests": {"storage": "4Gi"}}}});
    let refused = server.merge(&format!("{CLAIMS}/c"), &grown).await.is(403);
    assert!(
        refused.message().contains("requested: requests.storage=2Gi, used: requests.storage=2Gi"),
        "{}",
        refused.text
    );
    // A smaller quota refuses nothing that is there.
    server.merge(&format!("{QUOTAS}/q"), &json!({"spec": {"hard": {"pods": "0", "configmaps": null}}})).await.is(200);
    server.post(MAPS, &config_map("o")).await.is(201);
    server.merge(&format!("{PODS}/b/status"), &json!({"status": {"phase": "Running"}})).await.is(200);
    server.post(PODS, &pod("c")).await.is(403);
    server.delete(&format!("{QUOTAS}/q"), &Value::Null).await.is(200);
    server.post(PODS, &pod("c")).await.is(201);
}

#[tokio::test]
async fn pods_must_say_what_a_quota_counts_and_scopes_choose() {
    let server = server().await;
    server.post(QUOTAS, &quota(json!({"hard": {"requests.cpu": "1", "limits.memory": "1Gi"}}))).await.is(201);
    let refused = server.post(PODS, &pod("a")).await.is(403);
    assert_eq!(
        refused.message(),
        "pods \"a\" is forbidden: failed quota: q: must specify limits.memory for: main; requests.cpu for: main"
    );
    // A range fills in what is missing, before the quota looks.
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "default": {"memory": "256Mi", "cpu": "1"}, "defaultRequest": {"cpu": "500m"},
            "max": {"cpu": "1"}},
    ]}});
    server.post(RANGES, &range).await.is(201);
    let made = server.post(PODS, &pod("a")).await.is(201);
    let resources = &made.body["spec"]["containers"][0]["resources"];
    let wanted = json!({"limits": {"cpu": "1", "memory": "256Mi"}, "requests": {"cpu": "500m", "memory": "256Mi"}});
    assert_eq!(*resources, wanted);
    let mut greedy = asking("b", "2");
    greedy["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "2"});
    let refused = server.post(PODS, &greedy).await.is(403);
    assert_eq!(refused.message(), "pods \"b\" is forbidden: maximum cpu usage per Container is 1, but limit is 2");
    used(&server, json!({"requests.cpu": "500m", "limits.memory": "256Mi"})).await;
    server.delete(&format!("{QUOTAS}/q"), &Value::Null).await.is(200);
    server.post(QUOTAS, &quota(json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]}))).await.is(201);
    let mut short = asking("short", "100m");
    short["spec"]["activeDeadlineSeconds"] = json!(10);
    server.post(PODS, &short).await.is(201);
    short["metadata"]["name"] = json!("shorter");
    server.post(PODS, &short).await.is(403);
    server.post(PODS, &asking("long", "100m")).await.is(201);
}

#[tokio::test]
async fn a_server_that_starts_counts_what_is_stored() {
    let store = Store::in_memory(Options::default()).expect("store");
    let first = over(store.clone(), Arc::new(AdmitAll), Arc::new(NoNodes)).await;
    first.post(PODS, &pod("a")).await.is(201);
    first.post(QUOTAS, &quota(json!({"hard": {"pods": "2"}}))).await.is(201);
    first.post(PODS, &pod("b")).await.is(201);
    first.api.stop().await;
    let second = over(store, Arc::new(AdmitAll), Arc::new(NoNodes)).await;
    second.post(PODS, &pod("c")).await.is(403);
    used(&second, json!({"pods": "2"})).await;
}

/// Stores a Tenant as the server of its definition would.
async fn tenant(server: &Server, per_minute: i32, burst: i32) {
    let object = json!({
        "apiVersion": "pumice.sh/v1alpha1", "kind": "Tenant", "metadata": {"name": "alice", "uid": "u"},
        "spec": {"user": "alice", "uid": 4001, "gid": 4001, "namespace": "default",
            "submissionRate": {"perMinute": per_minute, "burst": burst}},
    });
    let (store, key) = (server.api.store(), Key::new("pumice.sh/tenants", "", "alice"));
    let expect = store.get(&key).map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
    let text = object.to_string();
    let (start, rest) = text.split_once("\"uid\":\"u\"").expect("a uid");
    let (start, rest) = (format!("{start}\"uid\":\"u\",\"resourceVersion\":\""), format!("\"{rest}"));
    store.apply(Change::Put { key, draft: Draft::new(start, rest), expect }).await.expect("stored");
}

#[tokio::test]
async fn a_tenant_submits_as_fast_as_it_may() {
    let server = server().await;
    server.post(&at("roles"), &role("Role", "makes", &["create"], &["pods", "configmaps"])).await.is(201);
    let robot = json!({"kind": "ServiceAccount", "name": "default", "namespace": "default"});
    for (name, subject) in [("alice", user("alice")), ("robot", robot), ("other", user("system:pumice:controllers"))] {
        server.post(&at("rolebindings"), &binding("RoleBinding", name, "Role", "makes", &subject)).await.is(201);
    }
    let alice = server.as_user("alice");
    alice.post(PODS, &pod("before")).await.is(201);
    tenant(&server, 2, 2).await;
    alice.post(PODS, &pod("a")).await.is(201);
    alice.post(&format!("{PODS}?dryRun=All"), &pod("tried")).await.is(201);
    alice.post(PODS, &pod("b")).await.is(201);
    let refused = alice.post(PODS, &pod("c")).await.is(429);
    let seconds: u32 = refused.headers["retry-after"].to_str().expect("text").parse().expect("a number");
    assert!((1..=30).contains(&seconds), "{seconds}");
    let wanted = "tenant alice submits at most 2 jobs and pods a minute, 2 at once";
    assert!(refused.message().contains(wanted), "{}", refused.text);
    // Whoever it is of the tenant, and by an apply, too.
    server.as_user("system:serviceaccount:default:default").post(PODS, &pod("c")).await.is(429);
    // What is no work, and who is no user of the tenant.
    alice.post(MAPS, &config_map("m")).await.is(201);
    server.as_user("system:pumice:controllers").post(PODS, &pod("by-controllers")).await.is(201);
    server.post(PODS, &pod("by-administrators")).await.is(201);
    // A change counts at once, and gives nothing anew.
    tenant(&server, 60_000, 3).await;
    alice.post(PODS, &pod("c")).await.is(201);
}
