//! EndpointSlices of headless services.

use serde_json::{Value, json};

use crate::harness::{PODS, Server, pod, server};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

fn service(name: &str, selector: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"app": selector}, "ports": [{"port": 80}]},
    })
}

async fn running(server: &Server, name: &str, address: &str, is_ready: bool) {
    let mut pod = pod(name);
    pod["metadata"]["labels"] = json!({"app": "x"});
    server.post(PODS, &pod).await.is(201);
    set(server, name, address, is_ready).await;
}

async fn set(server: &Server, name: &str, address: &str, is_ready: bool) {
    let word = if is_ready { "True" } else { "False" };
    let status = json!({"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": word}]});
    server.merge(&format!("{PODS}/{name}/status"), &json!({ "status": status })).await.is(200);
}

/// Waits until the slice has these addresses, with a star after those that are ready.
async fn shows(server: &Server, slice: &str, wanted: &str) {
    let shown = |slice: &Value| -> String {
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let each = endpoints.map(|one| {
            let mark = if one["conditions"]["ready"] == true { "*" } else { "" };
            format!("{}{mark}", one["addresses"][0].as_str().unwrap_or_default())
        });
        each.collect::<Vec<_>>().join(" ")
    };
    server.until_that(&format!("{SLICES}/{slice}"), |slice| shown(slice) == wanted).await;
}

#[tokio::test]
async fn slices_follow_pods_and_go_with_their_service() {
    let server = server().await;
    running(&server, "a", "10.0.0.1", true).await;
    server.post(SERVICES, &service("s", "x")).await.is(201);
    shows(&server, "s-0", "10.0.0.1*").await;
    running(&server, "b", "10.0.0.2", false).await;
    shows(&server, "s-0", "10.0.0.1* 10.0.0.2").await;
    set(&server, "b", "10.0.0.2", true).await;
    shows(&server, "s-0", "10.0.0.1* 10.0.0.2*").await;
    server.delete(&format!("{PODS}/a"), &Value::Null).await.is(200);
    shows(&server, "s-0", "10.0.0.2*").await;
    let slice = server.get(&format!("{SLICES}/s-0")).await.is(200).body;
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "s");
    assert_eq!(slice["ports"], json!([{"name": "", "port": 80, "protocol": "TCP"}]));
    assert_eq!(slice["endpoints"][0]["targetRef"]["name"], "b");
    server.merge(&format!("{SERVICES}/s"), &json!({"spec": {"selector": {"app": "y"}}})).await.is(200);
    server.until(&format!("{SLICES}/s-0"), 404).await;
    server.merge(&format!("{SERVICES}/s"), &json!({"spec": {"selector": {"app": "x"}}})).await.is(200);
    shows(&server, "s-0", "10.0.0.2*").await;
    server.delete(&format!("{SERVICES}/s"), &Value::Null).await.is(200);
    server.until(&format!("{SLICES}/s-0"), 404).await;
}
