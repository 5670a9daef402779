//! What nodes and pods use, as `metrics.k8s.io`.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use pumice_apiserver::{ApiServer, Body, NodeProxy, NodeProxyError};
use pumice_auth::{Policy, built_in};
use pumice_store::{Options, Store};
use serde_json::{Value, json};

use crate::harness::{PODS, Server, administrator, pod};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

/// `near` knows pods a and b, and one that has been replaced; `silent` and `garbled` say nothing of use.
struct Nodes {
    uids: std::sync::Mutex<Vec<String>>,
}

impl NodeProxy for Nodes {
    fn call(&self, node: &str, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, NodeProxyError>> {
        assert_eq!(request.uri().path(), "/stats/summary");
        let stats = |name: &str| {
            json!({"name": name, "startTime": "2026-01-01T00:00:00Z",
                "cpu": {"time": "2026-01-01T00:00:30.25Z", "usageNanoCores": 1_500_000, "windowSeconds": 20},
                "memory": {"workingSetBytes": 2049}})
        };
        let pods: Vec<Value> = self
            .uids
            .lock()
            .expect("as made above")
            .iter()
            .zip(["a", "b", "old"])
            .map(|(uid, name)| json!({"podRef": {"name": name, "namespace": "default", "uid": uid}, "containers": [stats("main")]}))
            .collect();
        let node = node.to_owned();
        Box::pin(async move {
            match node.as_str() {
                "near" => Ok(Response::new(Body::from(json!({"node": stats(""), "pods": pods}).to_string()))),
                "garbled" => Ok(Response::new(Body::from("{\"pods\": [{}]}"))),
                _ => Err(NodeProxyError::NotConnected { node }),
            }
        })
    }
}

async fn server() -> Server {
    let nodes = Arc::new(Nodes { uids: std::sync::Mutex::default() });
    let store = Store::in_memory(Options::default()).expect("as made above");
    let api = ApiServer::builder(store, Policy::new(built_in()))
        .node_proxy(nodes.clone())
        .metrics()
        .build()
        .await
        .expect("as made above");
    let server = Server::of(api, administrator());
    for name in ["near", "silent", "garbled"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": name}}});
        server.post("/api/v1/nodes", &node).await.is(201);
    }
    for name in ["a", "b", "old"] {
        let mut pod = pod(name);
        pod["metadata"]["labels"] = json!({"app": name});
        pod["spec"]["nodeName"] = json!("near");
        let made = server.post(PODS, &pod).await.is(201);
        let uid = if name == "old" { "another" } else { made.body["metadata"]["uid"].as_str().expect("as made above") };
        nodes.uids.lock().expect("as made above").push(uid.to_owned());
    }
    server
}

#[tokio::test]
async fn what_nodes_tell_is_shown_and_nothing_else() {
    let server = server().await;
    let mut nodes = server.get(&format!("{METRICS}/nodes")).await.is(200).body;
    assert!(nodes["items"][0]["metadata"]["creationTimestamp"].take().is_string());
    let usage = json!({"cpu": "1500000n", "memory": "3Ki"});
    let metadata = |name: &str, labels: Value| json!({"name": name, "creationTimestamp": null, "labels": labels});
    let (version, timestamp, window) = ("metrics.k8s.io/v1beta1", "2026-01-01T00:00:30Z", "20s");
    let near = json!({"kind": "NodeMetrics", "apiVersion": version, "metadata": metadata("near", json!({"zone": "near"})),
        "timestamp": timestamp, "window": window, "usage": usage});
    let list = json!({"kind": "NodeMetricsList", "apiVersion": version, "metadata": {}, "items": [near]});
    assert_eq!(nodes, list);
    let mut a = server.get(&format!("{METRICS}/namespaces/default/pods/a")).await.is(200).body;
    a["metadata"]["creationTimestamp"].take();
    let mut of_a = metadata("a", json!({"app": "a"}));
    of_a["namespace"] = json!("default");
    let expected = json!({"kind": "PodMetrics", "apiVersion": version, "metadata": of_a, "timestamp": timestamp,
        "window": window, "containers": [{"name": "main", "usage": usage}]});
    assert_eq!(a, expected);
}

#[tokio::test]
async fn what_is_asked_for_is_chosen_and_checked() {
    let server = server().await;
    let names = async |path: &str| {
        let found = server.get(&format!("{METRICS}/{path}")).await.is(200).body;
        let items = found["items"].as_array().expect("as made above").clone();
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().expect("as made above").to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (path, expected) in [
        ("pods", "a b"),
        ("namespaces/default/pods", "a b"),
        ("namespaces/kube-system/pods", ""),
        ("pods?labelSelector=app%3Db", "b"),
        ("namespaces/default/pods?fieldSelector=metadata.name%3Da", "a"),
        ("nodes?labelSelector=zone%3Dfar", ""),
    ] {
        assert_eq!(names(path).await, expected, "{path}");
    }
    for (path, code) in [
        ("nodes/silent", 404),
        ("nodes/garbled", 404),
        ("namespaces/default/pods/old", 404),
        ("namespaces/default/pods/a/log", 404),
        ("namespaces/default/nodes", 404),
        ("pods/a", 404),
        ("things", 404),
        ("pods?watch=true", 405),
        ("pods?labelSelector=%3D%3D", 400),
    ] {
        server.get(&format!("{METRICS}/{path}")).await.is(code);
    }
    server.delete(&format!("{METRICS}/nodes/near"), &Value::Null).await.is(405);
    let stranger = server.as_user("stranger");
    stranger.get(&format!("{METRICS}/nodes")).await.is(403);
}
