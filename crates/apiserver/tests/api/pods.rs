//! Pods: defaults, status, binding, grace, logs, eviction.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use http::{Request, Response};
use pumice_apiserver::{AdmitAll, Body, NodeProxy, NodeProxyError};
use serde_json::{Value, json};

use crate::harness::{PODS, Server, build, pod, server};

pub async fn bind(server: &Server, name: &str, node: &str) -> crate::harness::Answer {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "annotations": {"example.com/a": "1"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    server.post(&format!("{PODS}/{name}/binding"), &binding).await
}

#[tokio::test]
async fn a_pod_is_filled_and_checked() {
    let server = server().await;
    let mut wanted = pod("a");
    wanted["status"] = json!({"phase": "Running"});
    wanted["spec"]["priorityClassName"] = json!("nobody-made-this");
    let made = server.post(PODS, &wanted).await.is(201);
    assert!(made.warnings[0].contains("nobody-made-this"), "{:?}", made.warnings);
    assert_eq!(made.body["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("priority", json!(0)),
        ("schedulerName", json!("default-scheduler")),
    ] {
        assert_eq!(made.body["spec"][field], value, "{field}");
    }
    assert_eq!(made.body["metadata"]["generation"], 1);
    let mut critical = pod("b");
    critical["spec"]["priorityClassName"] = json!("system-node-critical");
    assert_eq!(server.post(PODS, &critical).await.is(201).body["spec"]["priority"], 2_000_001_000);
    let mut bad = pod("c");
    bad["spec"]["containers"] = json!([]);
    let refused = server.post(PODS, &bad).await.is(422);
    assert_eq!(refused.message(), "Pod \"c\" is invalid: spec.containers: Required value");
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.containers");
    server.merge(&format!("{PODS}/a"), &json!({"spec": {"hostname": "x"}})).await.is(422);
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "busybox:2"}]);
    let kind = [("content-type", "application/json-patch+json")];
    let changed = server.raw(http::Method::PATCH, &format!("{PODS}/a"), &kind, image.to_string()).await.is(200).body;
    assert_eq!(changed["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_pod_without_a_class_is_of_the_one_that_is_the_default() {
    let server = server().await;
    for (name, is_default) in [("a", false), ("b", true)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7,
            "globalDefault": is_default, "preemptionPolicy": "Never", "description": "\"globalDefault\":true",
        });
        server.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.is(201);
    }
    let spec = &server.post(PODS, &pod("p")).await.is(201).body["spec"];
    let given = [&spec["priorityClassName"], &spec["priority"], &spec["preemptionPolicy"]];
    assert_eq!(given, [&json!("b"), &json!(7), &json!("Never")]);
}

#[tokio::test]
async fn status_and_specification_have_their_own_paths() {
    let server = server().await;
    server.post(PODS, &pod("a")).await.is(201);
    let main = server.merge(&format!("{PODS}/a"), &json!({"status": {"phase": "Failed"}})).await.is(200).body;
    assert_eq!(main["status"]["phase"], "Pending");
    let patch = json!({"status": {"phase": "Running"}, "spec": {"restartPolicy": "Never"}});
    let status = server.merge(&format!("{PODS}/a/status"), &patch).await.is(200).body;
    assert_eq!((&status["status"]["phase"], &status["spec"]["restartPolicy"]), (&json!("Running"), &json!("Always")));
    assert_eq!(status["metadata"]["generation"], 1);
    // A patch of the status alone is taken without a look at the rest, which stays.
    let patch = json!({"status": {"message": "m"}, "metadata": {"labels": {"x": "y"}}});
    let mut again = server.merge(&format!("{PODS}/a/status"), &patch).await.is(200).body;
    assert_ne!(again["metadata"]["resourceVersion"], status["metadata"]["resourceVersion"]);
    let mut wanted = status;
    wanted["metadata"]["resourceVersion"] = again["metadata"]["resourceVersion"].take();
    again["metadata"]["resourceVersion"] = wanted["metadata"]["resourceVersion"].clone();
    wanted["metadata"]["labels"]["x"] = json!("y");
    wanted["status"]["message"] = json!("m");
    assert_eq!(again, wanted);
    assert_eq!(server.get(&format!("{PODS}/a")).await.is(200).body, wanted);
    server.merge(&format!("{PODS}/a/status"), &json!({"status": {"conditions": 1}})).await.is(422);
    let running = server.get(&format!("{PODS}?fieldSelector=status.phase%3DRunning")).await.is(200).body;
    assert_eq!(running["items"].as_array().map(Vec::len), Some(1));
}

// INV-16
#[tokio::test]
async fn a_pod_is_bound_once() {
    let server = server().await;
    server.post(PODS, &pod("a")).await.is(201);
    bind(&server, "a", "n1").await.is(201);
    let bound = server.get(&format!("{PODS}/a")).await.body;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["metadata"]["annotations"]["example.com/a"], "1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let again = bind(&server, "a", "n2").await.is(409);
    assert!(again.message().contains("already assigned to node \"n1\""), "{}", again.message());
    bind(&server, "none", "n1").await.is(404);
    server.post(&format!("{PODS}/a/binding"), &json!({"kind": "Binding"})).await.is(400);
    server.post(PODS, &pod("b")).await.is(201);
    let binding = json!({"kind": "Binding", "metadata": {"name": "b"}, "target": {"kind": "Node", "name": "n1"}});
    server.post("/api/v1/namespaces/default/bindings", &binding).await.is(201);
    let on_node = server.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await.is(200).body;
    assert_eq!(on_node["items"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_bound_pod_goes_gracefully() {
    let server = server().await;
    for name in ["free", "bound", "done"] {
        server.post(PODS, &pod(name)).await.is(201);
    }
    server.delete(&format!("{PODS}/free"), &Value::Null).await.is(200);
    server.get(&format!("{PODS}/free")).await.is(404);
    bind(&server, "bound", "n1").await.is(201);
    bind(&server, "done", "n1").await.is(201);
    server.merge(&format!("{PODS}/done/status"), &json!({"status": {"phase": "Succeeded"}})).await.is(200);
    server.delete(&format!("{PODS}/done"), &Value::Null).await.is(200);
    server.get(&format!("{PODS}/done")).await.is(404);

    let marked = server.delete(&format!("{PODS}/bound"), &Value::Null).await.is(200).body;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    bind(&server, "bound", "n1").await.is(409);
    let shorter = server.delete(&format!("{PODS}/bound"), &json!({"gracePeriodSeconds": 5})).await.is(200).body;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let longer = server.delete(&format!("{PODS}/bound"), &json!({"gracePeriodSeconds": 50})).await.is(200).body;
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 5);
    server.delete(&format!("{PODS}/bound"), &json!({"gracePeriodSeconds": 0})).await.is(200);
    server.get(&format!("{PODS}/bound")).await.is(404);
}

#[tokio::test]
async fn an_eviction_is_a_delete() {
    let server = server().await;
    server.post(PODS, &pod("a")).await.is(201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    server.post(&format!("{PODS}/a/eviction"), &eviction).await.is(201);
    server.get(&format!("{PODS}/a")).await.is(404);
}

/// Remembers what it was asked, and answers with a text.
#[derive(Default)]
struct Echo(Mutex<Vec<String>>);

impl NodeProxy for Echo {
    fn call(&self, node: &str, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, NodeProxyError>> {
        self.0.lock().expect("lock").push(format!("{node} {}", request.uri()));
        Box::pin(async { Ok(Response::new(Body::from("hello\n"))) })
    }
}

#[tokio::test]
async fn logs_come_from_the_node() {
    let nodes = Arc::new(Echo::default());
    let server = build(Arc::new(AdmitAll), nodes.clone()).await;
    server.post(PODS, &pod("a")).await.is(201);
    let early = server.get(&format!("{PODS}/a/log")).await.is(400);
    assert!(early.message().contains("is waiting to start"), "{}", early.message());
    bind(&server, "a", "n1").await.is(201);
    let waiting = json!({"status": {"containerStatuses": [
        {"name": "main", "ready": false, "restartCount": 0, "image": "x", "imageID": "",
         "state": {"waiting": {"reason": "ContainerCreating"}}}]}});
    server.merge(&format!("{PODS}/a/status"), &waiting).await.is(200);
    let early = server.get(&format!("{PODS}/a/log")).await.is(400);
    assert_eq!(early.message(), "container \"main\" in pod \"a\" is waiting to start: ContainerCreating");
    server.merge(&format!("{PODS}/a/status"), &json!({"status": {"containerStatuses": null}})).await.is(200);
    let log = server.get(&format!("{PODS}/a/log?container=main&follow=true&tailLines=5")).await.is(200);
    assert_eq!(log.text, "hello\n");
    assert_eq!(nodes.0.lock().expect("lock")[..], ["n1 /containerLogs/default/a/main?follow=true&tailLines=5"]);
    server.get(&format!("{PODS}/a/log?container=other")).await.is(400);
    server.get(&format!("{PODS}/a/log?tailLines=x")).await.is(400);
}
