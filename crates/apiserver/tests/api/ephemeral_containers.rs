//! Ephemeral containers: added to a pod by a path of their own, and never changed.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, PODS, Server, pod, server};

async fn patch(server: &Server, kind: &str, name: &str, patch: &Value) -> Answer {
    let path = format!("{PODS}/{name}/ephemeralcontainers");
    server.raw(Method::PATCH, &path, &[("content-type", kind)], patch.to_string()).await
}

/// As `kubectl debug` adds one.
async fn add(server: &Server, name: &str, container: Value) -> Answer {
    let wanted = json!({"spec": {"ephemeralContainers": [container]}});
    patch(server, "application/strategic-merge-patch+json", name, &wanted).await
}

#[tokio::test]
async fn containers_are_added_and_stay_as_they_are() {
    let server = server().await;
    server.post(PODS, &pod("p")).await.is(201);
    let path = format!("{PODS}/p/ephemeralcontainers");
    let looker = json!({"name": "looker", "image": "busybox", "targetContainerName": "main", "stdin": true});
    let added = add(&server, "p", looker.clone()).await.is(200).body;
    let found = &added["spec"]["ephemeralContainers"];
    assert_eq!(found.as_array().expect("a list").len(), 1);
    for (field, value) in [
        ("targetContainerName", json!("main")),
        ("imagePullPolicy", json!("Always")),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("resources", json!({})),
    ] {
        assert_eq!(found[0][field], value, "{field}");
    }
    assert_eq!(added["metadata"]["generation"], 2);

    add(&server, "p", json!({"name": "other", "image": "busybox:1"})).await.is(200);
    let mut whole = server.get(&path).await.is(200).body;
    assert_eq!(whole["spec"]["ephemeralContainers"].as_array().expect("a list").len(), 2, "{whole}");
    // Of what is sent to this path nothing else counts.
    whole["spec"]["containers"][0]["image"] = json!("busybox:2");
    whole["metadata"]["labels"] = json!({"a": "b"});
    whole["status"] = json!({"phase": "Failed"});
    let third = json!({"name": "third", "image": "i:1"});
    whole["spec"]["ephemeralContainers"].as_array_mut().expect("a list").push(third);
    let put = server.put(&path, &whole).await.is(200).body;
    assert_eq!(put["spec"]["containers"][0]["image"], "busybox:1");
    assert_eq!((&put["metadata"]["labels"], &put["status"]["phase"]), (&Value::Null, &json!("Pending")));
    assert_eq!(put["spec"]["ephemeralContainers"].as_array().expect("a list").len(), 3);

    let mut less = server.get(&path).await.is(200).body;
    less["spec"]["ephemeralContainers"] = json!([]);
    let refused = server.put(&path, &less).await.is(422);
    assert!(
        refused.message().contains("existing ephemeral containers \"looker\" may not be removed"),
        "{}",
        refused.text
    );
    let changed = json!({"name": "looker", "image": "other"});
    let refused = add(&server, "p", changed).await.is(422);
    assert!(
        refused.message().contains("existing ephemeral containers \"looker\" may not be changed"),
        "{}",
        refused.text
    );
    // Nor by the pod's own path.
    server.merge(&format!("{PODS}/p"), &json!({"spec": {"ephemeralContainers": []}})).await.is(422);
    assert_eq!(server.get(&path).await.is(200).body["spec"], put["spec"]);
}

#[tokio::test]
async fn what_an_ephemeral_container_may_not_have_is_refused_by_its_field() {
    let server = server().await;
    server.post(PODS, &pod("p")).await.is(201);
    let mut with_own = pod("made");
    with_own["spec"]["ephemeralContainers"] = json!([{"name": "e", "image": "i"}]);
    let refused = server.post(PODS, &with_own).await.is(422);
    assert_eq!(
        refused.message(),
        "Pod \"made\" is invalid: spec.ephemeralContainers: Forbidden: cannot be set on create"
    );
    for (field, value, wanted) in [
        ("name", json!("main"), "spec.ephemeralContainers[0].name: Duplicate value: \"main\""),
        ("name", json!("A"), "spec.ephemeralContainers[0].name: Invalid value: \"A\""),
        ("image", json!(""), "spec.ephemeralContainers[0].image: Required value"),
        ("targetContainerName", json!("x"), "spec.ephemeralContainers[0].targetContainerName: Not found: \"x\""),
        ("ports", json!([{"containerPort": 80}]), "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for"),
        (
            "lifecycle",
            json!({"preStop": {"sleep": {"seconds": 1}}}),
            "spec.ephemeralContainers[0].lifecycle: Forbidden",
        ),
        ("resources", json!({"limits": {"cpu": "1"}}), "spec.ephemeralContainers[0].resources: Forbidden"),
        (
            "volumeMounts",
            json!([{"name": "v", "mountPath": "/v"}]),
            "spec.ephemeralContainers[0].volumeMounts[0].name: Not found",
        ),
    ] {
        let mut container = json!({"name": "e", "image": "i"});
        container[field] = value;
        let path = format!("{PODS}/p/ephemeralcontainers");
        let list = json!([{"op": "add", "path": "/spec/ephemeralContainers", "value": [container]}]);
        let kind = [("content-type", "application/json-patch+json")];
        let refused = server.raw(Method::PATCH, &path, &kind, list.to_string()).await.is(422);
        assert!(refused.message().contains(wanted), "{field}: {}", refused.text);
    }
    server.get(&format!("{PODS}/none/ephemeralcontainers")).await.is(404);
    server.post(&format!("{PODS}/p/ephemeralcontainers"), &pod("p")).await.is(405);
    server.as_user("nobody").get(&format!("{PODS}/p/ephemeralcontainers")).await.is(403);
}

#[tokio::test]
async fn pod_security_judges_what_is_added() {
    let server = server().await;
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    server.post("/api/v1/namespaces", &json!({"metadata": {"name": "base", "labels": labels}})).await.is(201);
    server.post("/api/v1/namespaces/base/pods", &pod("p")).await.is(201);
    let path = "/api/v1/namespaces/base/pods/p/ephemeralcontainers";
    let privileged = json!({"name": "e", "image": "i", "securityContext": {"privileged": true}});
    let refused = server.merge(path, &json!({"spec": {"ephemeralContainers": [privileged]}})).await.is(403);
    let wanted = "violates PodSecurity \"baseline:latest\": privileged (container \"e\" must not set";
    assert!(refused.message().contains(wanted), "{}", refused.text);
    server.merge(path, &json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}})).await.is(200);
}
