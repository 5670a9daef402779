//! Disruption budgets and evictions.

use serde_json::{Value, json};

use crate::harness::{PODS, Server, pod, server};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn budget(spec: Value) -> Value {
    let mut budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec,
    });
    budget["spec"]["selector"] = json!({"matchLabels": {"app": "x"}});
    budget
}

async fn evict(server: &Server, name: &str, options: Value) -> crate::harness::Answer {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"},
        "deleteOptions": options,
    });
    server.post(&format!("{PODS}/{name}/eviction"), &eviction).await
}

async fn running(server: &Server, name: &str, is_ready: bool) {
    let mut pod = pod(name);
    pod["metadata"]["labels"] = json!({"app": "x"});
    pod["spec"]["nodeName"] = json!("n");
    server.post(PODS, &pod).await.is(201);
    ready(server, name, is_ready).await;
}

async fn ready(server: &Server, name: &str, is_ready: bool) {
    let word = if is_ready { "True" } else { "False" };
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": word}]});
    server.merge(&format!("{PODS}/{name}/status"), &json!({ "status": status })).await.is(200);
}

/// Waits until the budget's status has these numbers: healthy, desired, expected, allowed.
async fn stands(server: &Server, wanted: [i64; 4]) {
    let fields = ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed"];
    let numbers = |budget: &Value| fields.map(|field| budget["status"][field].as_i64().unwrap_or(-1));
    server.until_that(&format!("{BUDGETS}/b"), |budget| numbers(budget) == wanted).await;
}

#[tokio::test]
async fn an_eviction_beyond_the_budget_is_refused_until_pods_are_healthy_again() {
    let server = server().await;
    for name in ["a", "b", "c"] {
        running(&server, name, true).await;
    }
    server.post(BUDGETS, &budget(json!({"minAvailable": 2}))).await.is(201);
    stands(&server, [3, 2, 3, 1]).await;
    evict(&server, "a", json!({"dryRun": ["All"]})).await.is(201);
    evict(&server, "a", Value::Null).await.is(201);
    let refused = evict(&server, "b", Value::Null).await.is(429);
    assert_eq!(refused.message(), "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(refused.body["reason"], "TooManyRequests");
    let cause = &refused.body["details"]["causes"][0];
    assert_eq!(cause["reason"], "DisruptionBudget");
    assert_eq!(cause["message"], "The disruption budget b needs 2 healthy pods and has 2 currently");
    // What goes anyway costs nothing.
    evict(&server, "a", Value::Null).await.is(201);
    running(&server, "d", true).await;
    stands(&server, [3, 2, 4, 1]).await;
    evict(&server, "b", json!({"gracePeriodSeconds": 0})).await.is(201);
    server.until(&format!("{PODS}/b"), 404).await;
    stands(&server, [2, 2, 3, 0]).await;
    evict(&server, "nobody", Value::Null).await.is(404);
    // Without a budget a pod goes.
    server.delete(&format!("{BUDGETS}/b"), &Value::Null).await.is(200);
    evict(&server, "c", Value::Null).await.is(201);
}

// INV-12
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[allow(clippy::disallowed_methods)]
async fn evictions_at_once_never_go_below_the_budget() {
    let server = server().await;
    for index in 0..24 {
        running(&server, &format!("p{index}"), true).await;
    }
    server.post(BUDGETS, &budget(json!({"minAvailable": 16}))).await.is(201);
    let tasks: Vec<_> = (0..24)
        .map(|index| {
            let server = server.clone();
            tokio::spawn(async move { evict(&server, &format!("p{index}"), Value::Null).await.code.as_u16() })
        })
        .collect();
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(task.await.expect("task"));
    }
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 8, "{codes:?}");
    assert!(codes.iter().all(|code| matches!(code, 201 | 429)), "{codes:?}");
    stands(&server, [16, 16, 24, 0]).await;
}

#[tokio::test]
async fn pods_that_are_not_ready_go_as_the_policy_says() {
    let server = server().await;
    running(&server, "a", true).await;
    running(&server, "b", false).await;
    running(&server, "c", false).await;
    server.post(BUDGETS, &budget(json!({"minAvailable": 2}))).await.is(201);
    stands(&server, [1, 2, 3, 0]).await;
    evict(&server, "b", Value::Null).await.is(429);
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    server.merge(&format!("{BUDGETS}/b"), &always).await.is(200);
    evict(&server, "b", Value::Null).await.is(201);
    evict(&server, "a", Value::Null).await.is(429);
    let healthy = json!({"spec": {"unhealthyPodEvictionPolicy": "IfHealthyBudget", "minAvailable": 1}});
    server.merge(&format!("{BUDGETS}/b"), &healthy).await.is(200);
    evict(&server, "c", Value::Null).await.is(201);
    evict(&server, "a", Value::Null).await.is(429);
    // A pod that has two budgets has none that could be charged.
    let mut other = budget(json!({"minAvailable": 0}));
    other["metadata"]["name"] = json!("other");
    server.post(BUDGETS, &other).await.is(201);
    evict(&server, "a", Value::Null).await.is(500);
}

#[tokio::test]
async fn shares_are_of_what_controllers_want() {
    let server = server().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "sets", "singular": "set", "kind": "Set", "listKind": "SetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            }],
        },
    });
    server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.is(201);
    let set =
        json!({"apiVersion": "example.com/v1", "kind": "Set", "metadata": {"name": "s"}, "spec": {"replicas": 6}});
    let set = server.post("/apis/example.com/v1/namespaces/default/sets", &set).await.is(201);
    for name in ["a", "b", "c", "d"] {
        running(&server, name, true).await;
        let owner = json!({
            "apiVersion": "example.com/v1", "kind": "Set", "name": "s", "uid": set.body["metadata"]["uid"],
            "controller": true,
        });
        server.merge(&format!("{PODS}/{name}"), &json!({"metadata": {"ownerReferences": [owner]}})).await.is(200);
    }
    server.post(BUDGETS, &budget(json!({"maxUnavailable": "50%"}))).await.is(201);
    stands(&server, [4, 3, 6, 1]).await;
    server.post(BUDGETS, &budget(json!({"minAvailable": 1, "maxUnavailable": 1}))).await.is(422);
}
