//! What the agent of a node may do: its own, and what pods that are bound to it need.

use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{PODS, Server, server};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn named(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
}

/// A pod that needs one of each kind, all of the same name.
fn pod(name: &str, needs: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "serviceAccountName": needs,
        "imagePullSecrets": [{"name": format!("{needs}-pull")}],
        "containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": needs}}, {"configMapRef": {"name": needs}}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": needs}}],
    }})
}

async fn bind(server: &Server, pod: &str, node: &str) {
    let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target});
    server.post(&format!("{PODS}/{pod}/binding"), &binding).await.is(201);
}

/// Two nodes, and for each a pod that is not bound yet, with all that it needs.
async fn two_nodes() -> Server {
    let server = server().await;
    for node in ["a", "b"] {
        server.post(NODES, &named("Node", node)).await.is(201);
        server.post(ACCOUNTS, &named("ServiceAccount", node)).await.is(201);
        server.post(MAPS, &named("ConfigMap", node)).await.is(201);
        for secret in [node.to_owned(), format!("{node}-pull")] {
            server.post(SECRETS, &named("Secret", &secret)).await.is(201);
        }
        let mut volume = named("PersistentVolume", node);
        volume["spec"] = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"},
            "storageClassName": "", "claimRef": {"namespace": "default", "name": node}});
        server.post(VOLUMES, &volume).await.is(201);
        let mut claim = named("PersistentVolumeClaim", node);
        claim["spec"] = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "", "volumeName": node});
        server.post(CLAIMS, &claim).await.is(201);
        server.post(PODS, &pod(&format!("pod-{node}"), node)).await.is(201);
    }
    server
}

fn token_for(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    let reference = json!({"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]});
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": reference}})
}

/// Reads of what a pod needs, and a token for it: each with the code that it is answered with.
async fn codes(agent: &Server, needs: &str, pod: &Value) -> Vec<(String, u16)> {
    let mut found = Vec::new();
    for path in [
        format!("{SECRETS}/{needs}"),
        format!("{SECRETS}/{needs}-pull"),
        format!("{SECRETS}?fieldSelector=metadata.name%3D{needs}"),
        format!("{SECRETS}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3D{needs}"),
        format!("{MAPS}/{needs}"),
        format!("{CLAIMS}/{needs}"),
        format!("{VOLUMES}/{needs}"),
        format!("{PODS}/pod-{needs}"),
    ] {
        found.push((path.clone(), agent.get(&path).await.code.as_u16()));
    }
    let path = format!("{ACCOUNTS}/{needs}/token");
    found.push((path.clone(), agent.post(&path, &token_for(pod)).await.code.as_u16()));
    found
}

#[tokio::test]
async fn a_node_reads_what_its_pods_need_while_they_are_there() {
    let server = two_nodes().await;
    let (a, b) = (server.as_node("a"), server.as_node("b"));
    let of_a = server.get(&format!("{PODS}/pod-a")).await.is(200).body;
    for (path, code) in codes(&a, "a", &of_a).await {
        assert_eq!(code, 403, "before it is bound: {path}");
    }
    bind(&server, "pod-a", "a").await;
    bind(&server, "pod-b", "b").await;
    for (path, code) in codes(&a, "a", &of_a).await {
        assert!((200..300).contains(&code), "its own: {path} {code}");
    }
    for (path, code) in codes(&b, "a", &of_a).await {
        assert_eq!(code, 403, "another node's: {path}");
    }
    // What an optional reference does not find is said to be missing, to the node whose pod refers to it alone.
    server.delete(&format!("{SECRETS}/a"), &Value::Null).await.is(200);
    a.get(&format!("{SECRETS}/a")).await.is(404);
    b.get(&format!("{SECRETS}/a")).await.is(403);
    server.post(SECRETS, &named("Secret", "a")).await.is(201);
    // It has ended.
    a.merge(&format!("{PODS}/pod-a/status"), &json!({"status": {"phase": "Succeeded"}})).await.is(200);
    a.get(&format!("{SECRETS}/a")).await.is(403);
    b.get(&format!("{SECRETS}/b")).await.is(200);
    // It is gone.
    b.delete(&format!("{PODS}/pod-b"), &json!({"gracePeriodSeconds": 0})).await.is(200);
    for (path, code) in codes(&b, "b", &of_a).await {
        let gone = path.ends_with("pod-b");
        assert_eq!(code, if gone { 404 } else { 403 }, "after it is gone: {path}");
    }
}

#[tokio::test]
async fn a_node_does_to_others_nothing() {
    let server = two_nodes().await;
    bind(&server, "pod-a", "a").await;
    bind(&server, "pod-b", "b").await;
    let of_b = server.get(&format!("{PODS}/pod-b")).await.is(200).body;
    let a = server.as_node("a");
    let lease =
        |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    let status = json!({"status": {"phase": "Failed"}});
    let taint = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
    let other_account = format!("{ACCOUNTS}/default/token");
    let unbound = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let of_a = server.get(&format!("{PODS}/pod-a")).await.is(200).body;
    let mut without_uid = token_for(&of_a);
    without_uid["spec"]["boundObjectRef"]["uid"] = Value::Null;
    let mut for_others = token_for(&of_a);
    for_others["spec"]["audiences"] = json!(["vault"]);
    let (own_token, bs_token) = (format!("{ACCOUNTS}/a/token"), format!("{ACCOUNTS}/b/token"));
    let attempts: Vec<(&str, String, Value, u16)> = vec![
        ("get", SECRETS.into(), Value::Null, 403),
        ("get", "/api/v1/secrets".into(), Value::Null, 403),
        ("get", format!("{SECRETS}?fieldSelector=metadata.name!%3Db"), Value::Null, 403),
        ("get", format!("{SECRETS}?labelSelector=x"), Value::Null, 403),
        ("get", format!("{SECRETS}?watch=true"), Value::Null, 403),
        ("get", MAPS.into(), Value::Null, 403),
        ("get", VOLUMES.into(), Value::Null, 403),
        ("get", format!("{VOLUMES}?labelSelector=pumice.sh/node%3Db"), Value::Null, 403),
        ("get", format!("{VOLUMES}?labelSelector=pumice.sh/node%20in%20(a,)"), Value::Null, 200),
        ("get", PODS.into(), Value::Null, 403),
        ("get", "/api/v1/pods".into(), Value::Null, 403),
        ("get", "/api/v1/pods?fieldSelector=spec.nodeName%3Db".into(), Value::Null, 403),
        ("get", "/api/v1/pods?fieldSelector=spec.nodeName%3Da".into(), Value::Null, 200),
        ("get", format!("{PODS}/pod-b"), Value::Null, 403),
        ("get", NODES.into(), Value::Null, 403),
        ("get", format!("{NODES}/b"), Value::Null, 403),
        ("get", format!("{NODES}/a"), Value::Null, 200),
        ("post", SECRETS.into(), named("Secret", "new"), 403),
        ("merge", format!("{SECRETS}/a"), label("x"), 403),
        ("delete", format!("{SECRETS}/a"), Value::Null, 403),
        ("post", PODS.into(), pod("mine", "b"), 403),
        ("merge", format!("{PODS}/pod-a"), label("x"), 403),
        ("merge", format!("{PODS}/pod-a/status"), label("x"), 403),
        ("merge", format!("{PODS}/pod-b/status"), status.clone(), 403),
        ("merge", format!("{PODS}/pod-a/status"), json!({"status": {"message": "m"}}), 200),
        ("delete", format!("{PODS}/pod-b"), json!({"gracePeriodSeconds": 0}), 403),
        ("delete", PODS.into(), Value::Null, 403),
        ("delete", format!("{VOLUMES}/a"), Value::Null, 403),
        ("post", NODES.into(), named("Node", "c"), 403),
        ("delete", format!("{NODES}/a"), Value::Null, 403),
        ("merge", format!("{NODES}/b"), label("x"), 403),
        ("merge", format!("{NODES}/b/status"), json!({"status": {"phase": "Running"}}), 403),
        ("merge", format!("{NODES}/a"), label("node-restriction.kubernetes.io/x"), 403),
        ("merge", format!("{NODES}/a"), label("node-role.kubernetes.io/x"), 403),
        ("merge", format!("{NODES}/a"), label("example.com/rack"), 200),
        ("merge", format!("{NODES}/a"), taint("free"), 403),
        ("merge", format!("{NODES}/a"), taint("node.kubernetes.io/disk-pressure"), 200),
        ("post", LEASES.into(), lease("b"), 403),
        ("post", LEASES.into(), lease("a"), 201),
        ("merge", format!("{LEASES}/b"), label("x"), 403),
        ("post", "/apis/coordination.k8s.io/v1/namespaces/default/leases".into(), lease("a"), 403),
        ("post", bs_token.clone(), token_for(&of_b), 403),
        ("post", own_token.clone(), token_for(&of_b), 400),
        ("post", own_token.clone(), unbound.clone(), 403),
        ("post", own_token.clone(), without_uid, 403),
        ("post", own_token.clone(), for_others, 403),
        ("post", own_token, token_for(&of_a), 201),
        ("post", other_account, unbound, 403),
        ("get", "/apis/batch.volcano.sh/v1alpha1/jobs".into(), Value::Null, 403),
        ("get", "/apis/rbac.authorization.k8s.io/v1/clusterroles".into(), Value::Null, 403),
        ("get", "/metrics".into(), Value::Null, 403),
    ];
    for (verb, path, body, wanted) in &attempts {
        let answer = match *verb {
            "get" => a.get(path).await,
            "post" => a.post(path, body).await,
            "merge" => a.merge(path, body).await,
            _ => a.delete(path, body).await,
        };
        assert_eq!(answer.code.as_u16(), *wanted, "{verb} {path}: {}", answer.text);
    }
    // By their names alone they are nobody.
    server.as_user("system:node:a").get(&format!("{SECRETS}/a")).await.is(403);
}

/// A look at what pods refer to takes no longer with more of them.
#[tokio::test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, reason = "it measures")]
async fn what_a_read_costs() {
    let server = two_nodes().await;
    bind(&server, "pod-a", "a").await;
    let path = format!("{SECRETS}/a");
    for pods in [0, 1_000, 10_000] {
        let have = server.get(PODS).await.body["items"].as_array().map_or(0, Vec::len);
        for index in have..pods {
            let mut other = pod(&format!("p{index}"), "b");
            other["spec"]["nodeName"] = json!(format!("n{}", index % 100));
            server.post(PODS, &other).await.is(201);
        }
        let mut took = Vec::new();
        for agent in [server.clone(), server.as_node("a")] {
            agent.get(&path).await.is(200);
            let began = Instant::now();
            for _ in 0..2000 {
                agent.get(&path).await;
            }
            took.push(began.elapsed().as_nanos() / 2000);
        }
        eprintln!("{pods} pods: an administrator {} ns, the node {} ns", took[0], took[1]);
    }
}
